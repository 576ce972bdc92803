package projector

import (
	"fmt"
	"testing"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
)

// A new owner knows events of the same generation and of each probed one,
// whether their keys are in blocks or in runs, and with any memory for filters.
func TestRepeatsAfterATakeover(t *testing.T) {
	for rotations := range 3 {
		for _, merged := range []bool{false, true} {
			for _, memory := range []int{0, 1 << 20} {
				t.Run(fmt.Sprintf("%d rotations later, merged %v, %d bytes", rotations, merged, memory), func(t *testing.T) {
					d := newDatabase(t)
					p, ann := d.projector.partitions[0], foldtest.User(0, 0)
					mark := foldtest.Event("mark", events.ConversationMarkedUnread, "c", nil, ann)
					d.append(t, foldtest.Deliver("c", 1, ann), mark, foldtest.Event("read", events.ConversationRead, "c", foldtest.UpTo(1), ann))
					drain(t, p)
					for range rotations {
						d.rotate(t, p)
					}
					if merged {
						d.merge(t, p)
					}
					again := foldtest.Event("mark 2", events.ConversationMarkedUnread, "c", nil, ann)
					d.append(t, foldtest.Deliver("c", 2, ann), again,
						foldtest.Event("read 2", events.ConversationRead, "c", foldtest.UpTo(2), ann), mark, again, foldtest.Deliver("c", 3, ann))

					next := d.newProjector(t, func(cfg *Config) { cfg.CacheBytes = max(1, memory) * foldtest.Partitions }).partitions[0]
					drain(t, next)
					if b := d.badge(t, ann); b.Total != 1 || b.Version != 7 {
						t.Errorf("the badge is %+v, want one unread message at version 7", b)
					}
					if stats := next.keys.Stats(); (stats.Unloaded > 0) != (stats.Runs > 0 && memory == 0) {
						t.Errorf("with %d bytes it has %+v", memory, stats)
					}
					d.checkReplay(t, ann)
				})
			}
		}
	}
}

// An owner finds repeats in several batches and within one.
func TestRepeats(t *testing.T) {
	d := newDatabase(t)
	p, ann := d.projector.partitions[0], foldtest.User(0, 0)
	for round := range 3 {
		d.append(t, foldtest.Deliver("c", 1, ann), foldtest.Deliver("c", 2, ann), foldtest.Deliver("c", 2, ann), foldtest.Deliver("c", int64(3+round), ann))
		d.awaitSettled(t, 0)
		step(t, p, 4)
	}
	if b := d.badge(t, ann); b.Total != 5 || b.Version != 5 {
		t.Errorf("the badge is %+v, want 5 unread at version 5", b)
	}
	if n := count(d.projector.metrics.duplicates); n != 7 {
		t.Errorf("%d events were duplicates, want 7", n)
	}
}

// An event that is twice in a batch takes effect at its first place.
func TestRepeatsWithinABatch(t *testing.T) {
	d := newDatabase(t)
	p, ann := d.projector.partitions[0], foldtest.User(0, 0)
	mark := foldtest.Event("mark", events.ConversationMarkedUnread, "c", nil, ann)
	d.append(t, mark, foldtest.Event("read", events.ConversationRead, "c", foldtest.UpTo(1), ann),
		foldtest.Event("read again", events.ConversationRead, "c", foldtest.UpTo(2), ann), mark)
	d.awaitSettled(t, 0)
	step(t, p, 4)
	if b := d.badge(t, ann); b.Total != 0 || b.Version != 3 {
		t.Errorf("the badge is %+v, want nothing unread at version 3", b)
	}
}
