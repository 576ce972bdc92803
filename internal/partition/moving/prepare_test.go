package moving_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/partition/copier"
	"github.com/badged/badged/internal/pg/pgsession"
)

// onStatement does something once, before the first statement with a text.
type onStatement struct {
	with string
	do   func()
}

func (s *onStatement) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if s.do != nil && strings.Contains(data.SQL, s.with) {
		do := s.do
		s.do = nil
		do()
	}
	return ctx
}

func (s *onStatement) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A transaction that has locked the target's log delays the begin of a move. A transaction that
// locks the log right after the begin does not disturb it.
func TestReadersOfTheTargetWhenAMoveBegins(t *testing.T) {
	t.Parallel()
	a, b := newShards(t)
	user := foldtest.User(0, 0)
	a.Append(t, foldtest.Deliver("c", 1, user))
	a.Fold(t)
	first, second := b.Connect(t), b.Connect(t)
	const read = `SELECT count(*) FROM badged.events_p00`
	reads := func(conn *pgx.Conn) pgx.Tx {
		tx, err := conn.Begin(t.Context())
		if err == nil {
			_, err = tx.Exec(t.Context(), read)
		}
		if err != nil {
			t.Error(err)
		}
		return tx
	}
	early := reads(first)
	late := make(chan pgx.Tx, 1)
	pool := projectortest.NewPool(t, b.URL, func(cfg *pgxpool.Config) {
		cfg.ConnConfig.Tracer = &onStatement{with: "badged.moves (partition_id, move_id, role", do: func() {
			go func() { late <- reads(second) }()
			projectortest.Until(t, "the second reader to wait for the log", func() bool {
				return len(b.Lines(t, `SELECT 'waits' FROM pg_locks WHERE pid = $1 AND NOT granted`, second.PgConn().PID())) == 1
			})
		}}
	})
	cfg := config(a, b, 0, "b")
	cfg.Databases[1].Pool = pool
	delayed := false
	cfg.Blocked = func(shard string, holder pgsession.Holder) {
		if shard == "b" && holder.PID == int(first.PgConn().PID()) && !delayed {
			delayed = true
			_ = early.Rollback(t.Context()) // the move fails the test if it does not go on
		}
	}
	cfg.Progress = func(step copier.Step, _ int64) {
		if step != copier.CopyingLog || late == nil {
			return
		}
		if err := projectortest.Await(t, late, "the second reader to read").Rollback(t.Context()); err != nil {
			t.Error(err)
		}
		late = nil
	}
	move(t, cfg)
	if !delayed {
		t.Error("the first reader did not delay the move")
	}
	if got := b.Lines(t, `SELECT count(*)::text FROM badged.log_ranges WHERE partition_id = 0`); got[0] != "1" {
		t.Errorf("the log of the target has %s ranges", got[0])
	}
	if got := b.Badge(t, user).Total; got != 1 {
		t.Errorf("the total is %d, want 1", got)
	}
}
