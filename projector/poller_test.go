package projector

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
)

// A poll reads no table unless something was committed since the last.
func TestPollOfAQuietDatabase(t *testing.T) {
	d := newDatabase(t)
	quiet, err := d.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead}) // its snapshot stays the same
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = quiet.Rollback(context.Background()) })
	p := &poller{projector: d.newOwner(t, d.pool, 0, 1), database: quiet}
	poll := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if behind, err := p.partitionsBehind(ctx); err != nil || len(behind) > 0 {
			t.Errorf("the poll found %v, error %v", behind, err)
		}
	}
	run := func(tx pgx.Tx, sql string) {
		t.Helper()
		pgtest.Exec(t, tx, sql)
	}
	run(quiet, `SAVEPOINT first`)
	poll()
	run(quiet, `ROLLBACK TO SAVEPOINT first`) // releases the tables
	run(begin(t, d.pool), `LOCK TABLE badged.events_p00_offsets, badged.events_p00 IN ACCESS EXCLUSIVE MODE`)
	poll() // would wait for the lock
}

func TestPollFindsEventsOfOthers(t *testing.T) {
	d := newDatabase(t)
	owner := d.newOwner(t, d.pool, 0, 1)
	p := &poller{projector: owner, database: d.pool}
	poll := func(when string, want ...int) {
		t.Helper()
		if behind, err := p.partitionsBehind(t.Context()); err != nil || !slices.Equal(behind, want) {
			t.Errorf("%s, the poll found %v, want %v; error %v", when, behind, want, err)
		}
	}
	d.append(t, foldtest.Deliver("c", 1, foldtest.User(0, 0)))
	poll("after an event in partition 0", 0)
	poll("while it is not folded, and nothing is committed", 0)
	drain(t, owner.partitions[0])
	poll("after it was folded")

	// A partition that an append has looked at is left out once, even if an event
	// came since.
	appendTo(t, owner, nil, foldtest.Deliver("c", 2, foldtest.User(0, 0)))
	d.append(t, foldtest.Deliver("c", 3, foldtest.User(0, 0)))
	poll("after an append in partition 0")
	poll("after that", 0)

	drain(t, owner.partitions[0])
	appendTo(t, owner, nil, foldtest.Deliver("c", 4, foldtest.User(0, 0)), foldtest.Deliver("c", 1, foldtest.User(1, 0)))
	d.append(t, foldtest.Deliver("c", 5, foldtest.User(0, 0)))
	poll("after an append in all partitions")
	poll("when that is over", 0)
}
