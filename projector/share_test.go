package projector

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
)

// A batch that takes long loses its slot, once.
func TestShareOfLongBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewShare(1)
		enter := func(ctx context.Context) (entered chan func()) {
			entered = make(chan func(), 1)
			go func() {
				leave, ok := s.take(ctx)
				if ok != (ctx.Err() == nil) {
					t.Errorf("taking a slot: %v, with the context %v", ok, ctx.Err())
				}
				entered <- leave
			}()
			synctest.Wait()
			return entered
		}
		first := <-enter(t.Context())
		second := enter(t.Context())
		canceled, cancel := context.WithCancel(t.Context())
		third := enter(canceled)
		if len(second) > 0 {
			t.Error("the slot was taken twice")
		}
		cancel()
		<-third
		leave := <-second // once the first has lost its slot
		first()
		fourth := enter(t.Context())
		if len(fourth) > 0 {
			t.Error("a batch that had lost its slot gave back that of another")
		}
		leave()
		(<-fourth)()
	})
}

// A database whose batches hang does not stop the folding of others that share a slot.
func TestShareWithADatabaseThatHangs(t *testing.T) {
	server := pgtest.Borrow(t)
	hung, sound := openDatabase(t, server.NewDB(t, migrated)), openDatabase(t, server.NewDB(t, migrated))
	share := NewShare(1)
	for _, d := range []*database{hung, sound} {
		run(t, d.newProjector(t, func(cfg *Config) { cfg.Share = share }))
	}
	ann := foldtest.User(0, 0)
	blocked := begin(t, hung.pool)
	pgtest.Exec(t, blocked, `LOCK TABLE badged.events_p00_offsets IN EXCLUSIVE MODE`)
	for _, d := range []*database{hung, sound} {
		if err := d.bus.Wake(t.Context(), d.append(t, foldtest.Deliver("c", 1, ann)).Partitions); err != nil {
			t.Fatal(err)
		}
	}
	sound.bus.awaitTotal(t, ann, 1)
	if err := blocked.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	hung.bus.awaitTotal(t, ann, 1)
}
