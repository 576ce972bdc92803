package projector

import (
	"errors"
	"fmt"
	"testing"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/projector/internal/store"
)

// An owner that does not know of an event's first occurrence takes it for new,
// and the tables correct it: the batch is rolled back, and the next one
// checks. This holds for an event of the same generation and of each probed
// one, and for a small key cache.
func TestRepeatsThatTheOwnerDoesNotKnow(t *testing.T) {
	for rotations := range 3 {
		for _, memory := range []int{0, 1 << 20} {
			t.Run(fmt.Sprintf("%d rotations later, %d bytes", rotations, memory), func(t *testing.T) {
				d := newDatabase(t)
				p, ann := d.projector.partitions[0], foldtest.User(0, 0)
				mark := foldtest.Event("mark", events.ConversationMarkedUnread, "c", nil, ann)
				d.append(t, foldtest.Deliver("c", 1, ann), mark, foldtest.Event("read", events.ConversationRead, "c", foldtest.UpTo(1), ann))
				drain(t, p)
				for range rotations {
					d.rotate(t, p)
				}
				again := foldtest.Event("mark 2", events.ConversationMarkedUnread, "c", nil, ann)
				d.append(t, foldtest.Deliver("c", 2, ann), mark, again,
					foldtest.Event("read 2", events.ConversationRead, "c", foldtest.UpTo(2), ann), again, foldtest.Deliver("c", 3, ann))
				d.awaitSettled(t, 0)
				before, position := d.dump(t), d.position(t, 0)

				p.keys = store.NewKeyCache(memory)
				if _, _, err := p.step(t.Context()); !errors.Is(err, store.ErrRepeated) {
					t.Fatalf("the batch ended with %v, want %v", err, store.ErrRepeated)
				}
				if d.dump(t) != before || d.position(t, 0) != position {
					t.Error("some of the batch was kept")
				}
				if _, _, err := p.step(t.Context()); err != nil {
					t.Fatal(err)
				}
				if b := d.badge(t, ann); b.Total != 1 || b.Version != 7 {
					t.Errorf("the badge is %+v, want one unread message at version 7", b)
				}
				d.checkReplay(t, ann)
			})
		}
	}
}

// An owner that knows the first occurrence checks it, and no batch fails.
func TestRepeatsThatTheOwnerKnows(t *testing.T) {
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

// With any size of the key cache, an event that is twice in a batch takes
// effect at its first place.
func TestRepeatsWithinABatch(t *testing.T) {
	d := newDatabase(t)
	p, ann := d.projector.partitions[0], foldtest.User(0, 0)
	mark := foldtest.Event("mark", events.ConversationMarkedUnread, "c", nil, ann)
	p.keys = store.NewKeyCache(0)
	p.keys.Note(mark.Key()) // as after a failed batch
	d.append(t, mark, foldtest.Event("read", events.ConversationRead, "c", foldtest.UpTo(1), ann),
		foldtest.Event("read again", events.ConversationRead, "c", foldtest.UpTo(2), ann), mark)
	d.awaitSettled(t, 0)
	step(t, p, 4)
	if b := d.badge(t, ann); b.Total != 0 || b.Version != 3 {
		t.Errorf("the badge is %+v, want nothing unread at version 3", b)
	}
}
