package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// A command that is interrupted says so, and what to do then. It does not print the result for
// some shards as if it were that for all.
func TestInterruptedCommands(t *testing.T) {
	flags, urls := newShards(t)
	b, c := poolOf(t, urls[1]), poolOf(t, urls[2])
	for _, pool := range []*pgxpool.Pool{b, c} {
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := tx.Rollback(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		}()
		if _, err := tx.Exec(t.Context(), `LOCK TABLE badged.users`); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		on            *pgxpool.Pool
		command, hint string
	}{
		{b, "verify -q", "Not everything was compared."},
		{b, "rebuild -q", "The partitions that are done stay so; run it again for the others."},
		{b, "partition move 1 --to=a -q", "Nothing is lost: finish the move with `badged partition move 1 --to a`, or give it up with `badged partition move 1 --undo`, which is refused after the switch."},
		{b, "partition move 1 --undo -q", "Run it again: `badged partition move 1 --undo`."},
		{c, "partition split 2 -q", "Nothing is lost: run it again. `badged partition list` shows what is being split, and --undo gives up one that has not switched yet."},
	} {
		t.Run(tc.command, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan result, 1)
			go func() { done <- badgedWith(ctx, "", append(strings.Fields(tc.command), flags...)...) }()
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for waits := false; !waits; {
				select {
				case r := <-done:
					t.Fatalf("it does not wait, and exits with %d:\n%s%s", r.code, r.out, r.err)
				case <-tick.C:
				}
				if err := tc.on.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_locks JOIN pg_database AS d ON d.oid = database WHERE d.datname = current_database() AND NOT granted)`).Scan(&waits); err != nil {
					t.Fatal(err)
				}
			}
			cancel()
			if r := <-done; r.code != exitFailed || r.out != "" || r.err != "badged: interrupted\n"+tc.hint+"\n" {
				t.Errorf("it exits with %d and prints %q, %q", r.code, r.out, r.err)
			}
		})
	}
}
