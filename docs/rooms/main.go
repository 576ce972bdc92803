// Command rooms adds a member to a room and posts a message there, in one transaction:
//
//	DATABASE_URL=postgres://chat@localhost/chat go run ./docs/rooms
package main

import (
	"context"
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

	var receipt events.Receipt
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		// Here your backend stores the member and the message in its own tables.
		receipt, err = events.Publish(ctx, tx,
			events.Event{
				ID: "town-hall/joined/eve", Source: "chat", Type: events.RoomJoined,
				Data: events.Data{ConversationID: "town-hall", UserIDs: []string{"eve"}},
			},
			events.Event{
				ID: "town-hall/3", Source: "chat", Type: events.RoomPosted,
				Data: events.Data{ConversationID: "town-hall", Seq: 3, SenderID: "chloe"},
			})
		return err
	})
	if err != nil {
		return err
	}
	fmt.Printf("eve has joined, message 3 is posted, position %s\n", receipt.Position())
	return nil
}
