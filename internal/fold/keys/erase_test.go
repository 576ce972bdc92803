package keys

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Erased entries count as new, wherever they were stored, and all others do not. Runs can still be
// merged, also those that a merge had read.
func TestErase(t *testing.T) {
	d := newDatabase(t)
	o := d.newOwner(1 << 20)
	o.load(t, 1)
	events := append(o.addRuns(t, 1, 40, 40), random(5, 3)...) // the last are in a block
	o.mustFold(t, 1, true, events[80:]...)
	var gone, others []event
	var entries []Entry
	for i, e := range events {
		if i%3 > 0 {
			others = append(others, e)
			continue
		}
		gone = append(gone, e)
		entries = append(entries, EntryOf(e.key, e.users[0]))
	}
	before := d.runs(t)
	if err := pgx.BeginFunc(t.Context(), d.pool, func(tx pgx.Tx) error { return Erase(t.Context(), tx, 0, entries) }); err != nil {
		t.Fatal(err)
	}
	if after := d.runs(t); after != before {
		t.Errorf("the runs are %s, were %s", after, before)
	}
	o.load(t, 1)
	o.mustFold(t, 1, false, others...)
	o.mustFold(t, 1, true, gone...)
	o.merge(t)
	o.mustFold(t, 1, false, events...)
}

// An erasure gives up a merge that has read erased entries: its output would contain them.
func TestEraseDuringAMerge(t *testing.T) {
	d := newDatabase(t)
	o := d.newOwner(1 << 20)
	o.load(t, 1)
	events := o.addRuns(t, 1, 40, 40)
	for o.merger.current == nil {
		if _, err := o.merger.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := o.merger.Step(t.Context()); err != nil { // its first segment
		t.Fatal(err)
	}
	var entries []Entry
	for _, e := range events {
		entries = append(entries, EntryOf(e.key, e.users[0]))
	}
	if err := pgx.BeginFunc(t.Context(), d.pool, func(tx pgx.Tx) error { return Erase(t.Context(), tx, 0, entries) }); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		if more, err := o.merger.Step(t.Context()); err != nil || !more {
			break
		}
	}
	o.load(t, 1)
	o.mustFold(t, 1, true, events...)
}

// An erasure that has the blocks waits for no merger that waits for them.
func TestEraseWhileRunsExpire(t *testing.T) {
	d := newDatabase(t)
	o := d.newOwner(1 << 20)
	o.load(t, 1)
	e := random(1, 3)[0]
	stepped := make(chan error, 1)
	if err := pgx.BeginFunc(t.Context(), d.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `LOCK TABLE badged.dedup_blocks_p00 IN EXCLUSIVE MODE`); err != nil {
			return err
		}
		go func() {
			_, err := o.merger.Step(context.WithoutCancel(t.Context()))
			stepped <- err
		}()
		for d.line(t, `SELECT count(*)::text FROM pg_locks WHERE NOT granted AND relation = 'badged.dedup_blocks_p00'::regclass`) == "0" {
			if len(stepped) > 0 {
				t.Fatal("the merger does not wait")
			}
		}
		return Erase(t.Context(), tx, 0, []Entry{EntryOf(e.key, e.users[0])})
	}); err != nil {
		t.Error(err)
	}
	if err := <-stepped; err != nil {
		t.Error(err)
	}
}
