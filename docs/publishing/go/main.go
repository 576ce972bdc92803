// Command go stores a chat message and publishes its event in one transaction:
//
//	DATABASE_URL=postgres://chat@localhost/chat go run ./docs/publishing/go
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
)

func main() {
	if err := run(context.Background(), os.Getenv("DATABASE_URL")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, databaseURL string) error {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)

	_, err = conn.Exec(ctx, `
CREATE TABLE IF NOT EXISTS messages (
    seq    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    room   text NOT NULL,
    sender text NOT NULL,
    body   text NOT NULL
)`)
	if err != nil {
		return err
	}

	var seq int64
	var position string
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		seq, position, err = send(ctx, tx, "design-crew", "ben", []string{"ada", "chloe"}, "Shipping it")
		return err
	})
	if err != nil {
		return err
	}
	fmt.Printf("message %d is stored and published, position %s\n", seq, position)

	changedMind := errors.New("changed my mind")
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if seq, _, err = send(ctx, tx, "design-crew", "ben", []string{"ada", "chloe"}, "Or not"); err != nil {
			return err
		}
		return changedMind // any error rolls back
	})
	if !errors.Is(err, changedMind) {
		return err
	}
	fmt.Printf("message %d was rolled back: it is neither stored nor published\n", seq)
	return nil
}

// send stores a message and publishes it within tx. It returns the seq and the
// position, which is valid for at_least once tx has committed.
func send(ctx context.Context, tx pgx.Tx, room, sender string, recipients []string, body string) (seq int64, position string, err error) {
	err = tx.QueryRow(ctx, `INSERT INTO messages (room, sender, body) VALUES ($1, $2, $3) RETURNING seq`,
		room, sender, body).Scan(&seq)
	if err != nil {
		return 0, "", err
	}
	receipt, err := events.Publish(ctx, tx, events.Event{
		ID:     fmt.Sprintf("%s/%d", room, seq),
		Source: "chat",
		Type:   events.MessageDelivered,
		Data:   events.Data{ConversationID: room, Seq: seq, SenderID: sender, UserIDs: recipients},
	})
	return seq, receipt.Position(), err
}
