package store

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/badged/badged/events"
)

// The keys that came last are known, as many as half the memory takes at least,
// and all of it at most.
func TestRecentKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 10).Draw(t, "limit")
		r := NewKeyCache(2 * keyCacheEntryBytes * limit)
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
			case len(r.young) > limit || len(r.old) > limit:
				t.Fatalf("%d and %d keys are remembered", len(r.young), len(r.old))
			}
			last[key] = i
		}
	})
}

// Caution lasts the longer the more often it was missing, and is forgotten with
// the batches that went well without.
func TestCaution(t *testing.T) {
	var c Backoff
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
	for range longBackoff {
		if c.Next() {
			t.Fatal("a batch is careful that need not be")
		}
	}
	c.Failed()
	if got := careful(); got != shortBackoff {
		t.Errorf("after a long time without a failure %d batches are careful, want %d", got, shortBackoff)
	}
}

// An index takes neighbours for less, so keys go to the tables in its order, and
// their users with them.
func TestKeysGoInOrder(t *testing.T) {
	var b Batch
	for range 100 {
		first, second := uuid.New(), uuid.New()
		b.Items = append(b.Items, Item{Key: first, Users: UserSet(first.String())}, Item{Key: second, Users: UserSet(second.String()), Suspect: true})
	}
	var suspects repeats
	for i := range b.Items {
		if b.Items[i].Suspect {
			suspects.add(b.Items[i].Key)
		}
	}
	keys, users := b.likelyNew().Arrays()
	for kind, keys := range map[string][][16]byte{"likely new": keys, "suspects": suspects.Keys()} {
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
