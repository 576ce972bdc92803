package cli

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/schematest"
)

// A command that is interrupted says so, and what to do then. It does not print the result for
// some shards as if it were that for all.
func TestInterruptedCommands(t *testing.T) {
	flags, urls := newShards(t)
	b, c := poolOf(t, urls[1]), poolOf(t, urls[2])
	lockUsers(t, b)
	lockUsers(t, c)
	for _, tc := range []struct {
		on            *pgxpool.Pool
		command, hint string
	}{
		{b, "verify -q", "Not everything was compared."},
		{b, "rebuild -q", "The finished partitions stay rebuilt; run the command again for the others."},
		{b, "partition move 1 --to=a -q", "Nothing is lost: finish the move with `badged partition move 1 --to a`, or undo it with `badged partition move 1 --undo`, which is refused after the switch."},
		{b, "partition move 1 --undo -q", "Run it again: `badged partition move 1 --undo`."},
		{c, "partition split 2 -q", "Nothing is lost: run it again. `badged partition list` shows what is being split, and --undo undoes a split that has not switched yet."},
	} {
		t.Run(tc.command, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan result, 1)
			go func() { done <- badgedWith(ctx, "", append(strings.Fields(tc.command), flags...)...) }()
			awaitLockWait(t, tc.on, done)
			cancel()
			r := <-done
			_, r.err, _ = strings.Cut(r.err, "badged: ") // after what a busy machine made it wait for
			if r.code != exitFailed || r.out != "" || r.err != "interrupted\n"+tc.hint+"\n" {
				t.Errorf("it exits with %d and prints %q, %q", r.code, r.out, r.err)
			}
		})
	}
}

// A command that is interrupted while its database hangs says what it waits for.
func TestInterruptedWhileADatabaseHangs(t *testing.T) {
	server := pgtest.NewServer(t)
	for _, tc := range []struct{ command, waitsFor, says string }{
		{"partition split 2 -q", "badged.users", "badged: interrupted\nNothing is lost: "},
		{"log", "badged.events_p00", ""},
	} {
		t.Run(tc.command, func(t *testing.T) {
			defer server.Resume() // before its databases are dropped
			url := server.NewDB(t, schematest.Migrated(3))
			tx := lock(t, poolOf(t, url), tc.waitsFor)
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			said, done, code := newOutput(), make(chan struct{}), 0
			go func() {
				defer close(done)
				code = run(ctx, append(strings.Fields(tc.command), "--database-url="+url), Streams{In: strings.NewReader(""), Out: io.Discard, Err: said})
			}()
			awaitLockWait(t, tx, done)
			server.Pause()
			interrupt()
			said.after(interruptedText, done)
			server.Resume()
			<-done
			_, then, _ := strings.Cut(said.String(), interruptedText+"\n") // before it, a busy machine made it wait for others
			if code != exitFailed || !strings.HasPrefix(then, tc.says) {
				t.Errorf("it exits with %d and prints %q", code, said)
			}
		})
	}
}

// lockUsers locks the badges of a database until the test ends.
func lockUsers(t *testing.T, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	return lock(t, pool, "badged.users")
}

// lock locks a table of a database until the test ends.
func lock(t *testing.T, pool *pgxpool.Pool, table string) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tx.Rollback(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	pgtest.Exec(t, tx, `LOCK TABLE `+table)
	return tx
}

// awaitLockWait returns once a session of a database waits for a lock. done tells if the
// command that should has ended.
func awaitLockWait[T any](t *testing.T, q interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, done <-chan T,
) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for waits := false; !waits; {
		select {
		case r := <-done:
			t.Fatalf("it does not wait: %+v", r)
		case <-tick.C:
		}
		if err := q.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks JOIN pg_database AS d ON d.oid = database WHERE d.datname = current_database() AND NOT granted)`).Scan(&waits); err != nil {
			t.Fatal(err)
		}
	}
}
