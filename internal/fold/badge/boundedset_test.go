package badge

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/badged/badged/events"
)

// A bounded set is exact up to MaxRanges ranges, and beyond if its seqs are
// close together.
func TestBoundedSetIsExactBelowItsBound(t *testing.T) {
	var dense BoundedSet
	for i := range int64(maxWords*wordBits/2 - 1) { // adding them takes seconds
		dense.Ranges = append(dense.Ranges, SeqRange{Lo: 2 * i, Hi: 2 * i})
	}
	dense.Add(maxWords*wordBits - 2)
	if dense.bulk.Count != 0 || len(dense.Ranges) != maxWords*wordBits/2 {
		t.Errorf("of %d dense ranges %d are only counted", len(dense.Ranges), dense.bulk.Count)
	}
	if dense.Add(maxWords * wordBits); dense.bulk.Count != wordBits/2 || dense.Min() != 0 { // the oldest word
		t.Errorf("past the bound of dense ranges %d are only counted", dense.bulk.Count)
	}

	var set BoundedSet
	for i := range int64(MaxRanges) {
		if !set.Add(sparse*i + 1) {
			t.Fatalf("%d was there already", sparse*i+1)
		}
	}
	if set.bulk.Count != 0 || set.Len() != MaxRanges || set.Min() != 1 {
		t.Fatalf("%d seqs from %d, of which %d are only counted", set.Len(), set.Min(), set.bulk.Count)
	}
	set.Add(sparse*MaxRanges + 1)
	if want := (bulk{1, 1, 1}); set.bulk != want || set.Len() != MaxRanges+1 || set.Min() != 1 {
		t.Errorf("past the bound: %d seqs from %d, bulk %+v", set.Len(), set.Min(), set.bulk)
	}
	set.RemoveUpTo(1)
	if set.bulk.Count != 0 || set.Len() != MaxRanges || set.Min() != sparse+1 {
		t.Errorf("read past the bulk: %d seqs from %d, bulk %+v", set.Len(), set.Min(), set.bulk)
	}
}

// sparse is a distance at which no two seqs share a word.
const sparse = 100

func TestBlockOfABoundedSet(t *testing.T) {
	filled := func() *BoundedSet { // 1, 101, … 199,901: the first 1,000 are only counted
		var set BoundedSet
		for i := range int64(2 * MaxRanges) {
			set.Add(sparse*i + 1)
		}
		return &set
	}
	full := filled()
	if full.bulk != (bulk{1, 99_901, 1000}) || full.Len() != 2000 {
		t.Fatalf("bulk %+v of %d", full.bulk, full.Len())
	}
	if k := full.known; len(k) != maxKnown || k[0] != 1 || k[maxKnown-1] != 99_901 {
		t.Fatalf("%d seqs are known: %v", len(k), k)
	}
	behind := func(seq int64) int64 { // the least known seq
		i, _ := slices.BinarySearch(full.known, seq)
		return full.known[i]
	}
	for i := range maxKnown - 1 {
		if gap := full.known[i+1] - full.known[i]; gap > 4*99_900/maxKnown {
			t.Errorf("between %d and %d nothing is known", full.known[i], full.known[i+1])
		}
	}
	for name, tc := range map[string]struct {
		do    func(*BoundedSet)
		count int64
		min   int64
	}{
		"a late message in the bulk is taken to be counted": {func(s *BoundedSet) { s.Add(50_000) }, 2000, 1},
		"a recall in the bulk takes one away":               {func(s *BoundedSet) { s.Remove(777) }, 1999, 1},
		"after a recall of the first the next is known":     {func(s *BoundedSet) { s.Remove(1) }, 1999, behind(2)},
		"a read of half of it takes half":                   {func(s *BoundedSet) { s.RemoveUpTo(49_951) }, 1500, behind(49_952)},
		"a read of all of it is exact":                      {func(s *BoundedSet) { s.RemoveUpTo(99_901) }, 1000, 100_001},
		"a read beyond it is exact":                         {func(s *BoundedSet) { s.RemoveUpTo(100_001) }, 999, 100_101},
	} {
		t.Run(name, func(t *testing.T) {
			set := filled()
			tc.do(set)
			if set.Len() != tc.count || set.Min() != tc.min {
				t.Errorf("%d from %d, want %d from %d", set.Len(), set.Min(), tc.count, tc.min)
			}
		})
	}
}

// In a sparse room no count is negative or above the number of deliveries,
// mentions never exceed unread messages, the row stays small, and reading
// everything gives zero.
func TestSparseRoomStaysSane(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := NewUser("ann")
		delivered := map[int64]bool{}
		event := func(typ events.Type, d events.Data, mentioned bool) {
			d.ConversationID, d.UserIDs = "room", []string{"ann"}
			u.Apply(&events.Event{Type: typ, Data: d}, mentioned, nil)
		}
		last := int64(0)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"burst", "burst", "late", "recall", "read"}).Draw(t, "step") {
			case "burst":
				gap, every := rapid.SampledFrom([]int64{1, 2, 4, 64, 100}).Draw(t, "gap"), rapid.IntRange(1, 4).Draw(t, "mentions every")
				for i := range 600 {
					last += gap
					delivered[last] = true
					event(events.MessageDelivered, events.Data{Seq: last}, i%every == 0)
				}
			case "late":
				seq := rapid.Int64Range(1, last+1).Draw(t, "seq")
				delivered[seq] = true
				event(events.MessageDelivered, events.Data{Seq: seq}, true)
			case "recall":
				event(events.MessageRecalled, events.Data{Seq: rapid.Int64Range(1, last+1).Draw(t, "seq")}, false)
			case "read":
				event(events.ConversationRead, events.Data{UpToSeq: rapid.Int64Range(1, last+1).Draw(t, "up to")}, false)
			}
			c := u.Conversation("room")
			if n, m := c.Unread.Len(), c.Mentions.Len(); m < 0 || m > n || n > int64(len(delivered)) || u.Total != n || u.Mentions != m {
				t.Fatalf("%d unread, %d mentions, total %d, of %d delivered", n, m, u.Total, len(delivered))
			}
			for name, set := range map[string]*BoundedSet{"unread": &c.Unread, "mentions": &c.Mentions} {
				// The constraints of the table forbid this.
				if b := set.bulk; set.Len() > 0 && set.Min() <= c.ReadSeq || b.Count < 0 ||
					b.Count > 0 && (b.Lo > b.Hi || len(set.Ranges) > 0 && set.Ranges[0].Lo <= b.Hi) {
					t.Fatalf("%s: bulk %+v before %v, read up to %d", name, b, set.Ranges[:min(3, len(set.Ranges))], c.ReadSeq)
				}
			}
			if c.Unread.bulk.Count == 0 {
				for _, r := range c.Mentions.Ranges {
					if !c.Unread.Contains(r.Lo) || !c.Unread.Contains(r.Hi) {
						t.Fatalf("a mention in %v is not unread", r)
					}
				}
			}
			row := len(c.Unread.Encode()) + len(c.Mentions.Encode()) + len(c.Recalled.Encode())
			if row > 100_000 || len(c.Recalled.Ranges) > MaxRanges {
				t.Fatalf("the row grows without limit, to %d bytes", row)
			}
		}
		event(events.ConversationRead, events.Data{UpToSeq: last + 1}, false)
		if u.Total != 0 || u.Mentions != 0 {
			t.Fatalf("everything is read, but the total is %d, mentions %d", u.Total, u.Mentions)
		}
	})
}
