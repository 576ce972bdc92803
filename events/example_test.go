package events_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
)

// A message and its event in one transaction, with pgx: either both exist or
// neither does.
func ExamplePublish() {
	send := func(ctx context.Context, pool *pgxpool.Pool, text string) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			var seq int64
			err := tx.QueryRow(ctx, `INSERT INTO messages (room, body) VALUES ('design-crew', $1) RETURNING seq`, text).Scan(&seq)
			if err != nil {
				return err
			}
			_, err = events.Publish(ctx, tx, events.Event{
				ID: fmt.Sprintf("design-crew/%d", seq), Source: "chat", Type: events.MessageDelivered,
				Data: events.Data{
					ConversationID: "design-crew", Seq: seq,
					SenderID: "ben", UserIDs: []string{"ada", "chloe"},
				},
			})
			return err
		})
	}
	_ = send
}

// The same with database/sql, whatever its Postgres driver.
func ExamplePublish_databaseSQL() {
	send := func(ctx context.Context, db *sql.DB, text string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() //nolint:errcheck // does nothing after Commit

		var seq int64
		err = tx.QueryRowContext(ctx, `INSERT INTO messages (room, body) VALUES ('design-crew', $1) RETURNING seq`, text).Scan(&seq)
		if err != nil {
			return err
		}
		_, err = events.Publish(ctx, tx, events.Event{
			ID: fmt.Sprintf("design-crew/%d", seq), Source: "chat", Type: events.MessageDelivered,
			Data: events.Data{
				ConversationID: "design-crew", Seq: seq,
				SenderID: "ben", UserIDs: []string{"ada", "chloe"},
			},
		})
		if err != nil {
			return err
		}
		return tx.Commit()
	}
	_ = send
}

// Decode reports every field at fault.
func ExampleDecode() {
	_, err := events.Decode([]byte(`{
		"specversion": "1.0", "id": "design-crew/42", "source": "chat", "type": "message.delivered",
		"data": {"conversation_id": "design-crew", "seq": 0, "user_id": "ada"}
	}`))
	if invalid, ok := errors.AsType[*events.InvalidError](err); ok {
		for _, f := range invalid.Fields {
			fmt.Println(f.Field, f.Message)
		}
	}
	// Output:
	// data.user_id is not a known field
	// data.user_ids is required
	// data.seq must be at least 1, is 0
}
