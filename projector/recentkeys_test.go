package projector

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/internal/store"
)

// An owner that does not know that an event came before takes it to be new, and
// is put right by the tables: nothing of that batch is kept, and the next one
// asks. So it is with an event of the same generation and of each that is
// probed, and however little is remembered.
func TestRepeatsThatTheOwnerDoesNotKnow(t *testing.T) {
	for rotations := range 3 {
		for _, memory := range []int{0, 1 << 20} {
			t.Run(fmt.Sprintf("%d rotations later, %d bytes", rotations, memory), func(t *testing.T) {
				d := newDatabase(t)
				p, ann := d.projector.partitions[0], userIn(0, 0)
				mark := event("mark", events.ConversationMarkedUnread, "c", nil, ann)
				d.append(t, deliver("c", 1, ann), mark, event("read", events.ConversationRead, "c", upTo(1), ann))
				drain(t, p)
				for range rotations {
					d.rotate(t, p)
				}
				again := event("mark 2", events.ConversationMarkedUnread, "c", nil, ann)
				d.append(t, deliver("c", 2, ann), mark, again,
					event("read 2", events.ConversationRead, "c", upTo(2), ann), again, deliver("c", 3, ann))
				d.awaitVisible(t, 0)
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

// An owner that knows what came before asks for that, and fails no batch.
func TestRepeatsThatTheOwnerKnows(t *testing.T) {
	d := newDatabase(t)
	p, ann := d.projector.partitions[0], userIn(0, 0)
	for round := range 3 {
		d.append(t, deliver("c", 1, ann), deliver("c", 2, ann), deliver("c", 2, ann), deliver("c", int64(3+round), ann))
		d.awaitVisible(t, 0)
		step(t, p, 4)
	}
	if b := d.badge(t, ann); b.Total != 5 || b.Version != 5 {
		t.Errorf("the badge is %+v, want 5 unread at version 5", b)
	}
	if n := count(d.projector.metrics.duplicates); n != 7 {
		t.Errorf("%d events were duplicates, want 7", n)
	}
}

// However little is remembered, an event that comes twice in a batch has its
// effect where it comes first.
func TestRepeatsWithinABatch(t *testing.T) {
	d := newDatabase(t)
	p, ann := d.projector.partitions[0], userIn(0, 0)
	mark := event("mark", events.ConversationMarkedUnread, "c", nil, ann)
	p.keys = store.NewKeyCache(0)
	p.keys.Note(mark.Key()) // of a batch that failed, say
	d.append(t, mark, event("read", events.ConversationRead, "c", upTo(1), ann),
		event("read again", events.ConversationRead, "c", upTo(2), ann), mark)
	d.awaitVisible(t, 0)
	step(t, p, 4)
	if b := d.badge(t, ann); b.Total != 0 || b.Version != 3 {
		t.Errorf("the badge is %+v, want nothing unread at version 3", b)
	}
}

// The keys that came last are known, as many as half the memory takes at least,
// and all of it at most.
func TestRecentKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 10).Draw(t, "limit")
		r := store.NewKeyCache(2 * store.KeyCacheEntryBytes * limit)
		last := map[uuid.UUID]int{}
		for i, n := range rapid.SliceOfN(rapid.IntRange(0, 30), 1, 200).Draw(t, "keys") {
			e := events.Event{ID: fmt.Sprint(n), Source: "test"}
			key := e.Key()
			r.Turn()
			before, came := last[key]
			known := r.Note(key)
			switch {
			case known && !came:
				t.Fatalf("key %d is known before it came", n)
			case !known && came && i-before <= limit:
				t.Fatalf("key %d is forgotten after %d others", n, i-before-1)
			case len(r.Young) > limit || len(r.Old) > limit:
				t.Fatalf("%d and %d keys are remembered", len(r.Young), len(r.Old))
			}
			last[key] = i
		}
	})
}

// Caution lasts the longer the more often it was missing, and is forgotten with
// the batches that went well without.
func TestCaution(t *testing.T) {
	var c store.Backoff
	careful := func() (n int) {
		for c.Next() {
			n++
		}
		return n
	}
	for _, want := range []int{0, 4, 6, 10, 18, 34, 66, 130, 258, 514, 1024, 1024} {
		if got := careful(); got != want {
			t.Fatalf("%d batches are careful, want %d", got, want)
		}
		c.Failed()
	}
	careful()
	for range store.LongBackoff {
		if c.Next() {
			t.Fatal("a batch is careful that need not be")
		}
	}
	c.Failed()
	if got := careful(); got != store.ShortBackoff {
		t.Errorf("after a long time without a failure %d batches are careful, want %d", got, store.ShortBackoff)
	}
}

// An index takes neighbours for less, so keys go to the tables in its order, and
// their users with them.
func TestKeysGoInOrder(t *testing.T) {
	var b store.Batch
	for range 100 {
		first, second := uuid.New(), uuid.New()
		b.Items = append(b.Items, store.Item{Key: first, Users: store.UserSet(first.String())}, store.Item{Key: second, Users: store.UserSet(second.String()), Suspect: true})
	}
	likelyNew, doubtful := b.Keys()
	keys, users := likelyNew.Arrays()
	for kind, keys := range map[string][][16]byte{"likely new": keys, "doubtful": doubtful.Keys()} {
		if len(keys) != 100 || !slices.IsSortedFunc(keys, func(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) }) {
			t.Errorf("%s: %d keys are not in order, or not 100", kind, len(keys))
		}
	}
	for i, key := range keys {
		if users[i] != uuid.UUID(key).String() {
			t.Errorf("key %d came with the users of another", i)
		}
	}
}
