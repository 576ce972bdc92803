package projector

import (
	"testing"

	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
)

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
	if _, err := blocked.Exec(t.Context(), `LOCK TABLE badged.events_p00_offsets IN EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
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
