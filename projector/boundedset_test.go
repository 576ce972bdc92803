package projector

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/badged/badged/events"
)

// Up to maxRanges a bounded set is the set.
func TestBoundedSetIsExactBelowItsBound(t *testing.T) {
	var set boundedSet
	for i := range int64(maxRanges) {
		if !set.add(2*i + 1) {
			t.Fatalf("%d was there already", 2*i+1)
		}
	}
	if set.block.count != 0 || set.len() != maxRanges || set.min() != 1 {
		t.Fatalf("%d seqs from %d, of which %d are only counted", set.len(), set.min(), set.block.count)
	}
	set.add(2*maxRanges + 1)
	if want := (block{1, 1, 1}); set.block != want || set.len() != maxRanges+1 || set.min() != 1 {
		t.Errorf("past the bound: %d seqs from %d, block %+v", set.len(), set.min(), set.block)
	}
	set.removeUpTo(1)
	if set.block.count != 0 || set.len() != maxRanges || set.min() != 3 {
		t.Errorf("read past the block: %d seqs from %d, block %+v", set.len(), set.min(), set.block)
	}
}

func TestBlockOfABoundedSet(t *testing.T) {
	filled := func() *boundedSet { // 1, 3, … 3999: the first 1,000 are only counted
		var set boundedSet
		for i := range int64(2 * maxRanges) {
			set.add(2*i + 1)
		}
		return &set
	}
	if set := filled(); set.block != (block{1, 1999, 1000}) || set.len() != 2000 {
		t.Fatalf("block %+v of %d", set.block, set.len())
	}
	for name, tc := range map[string]struct {
		do    func(*boundedSet)
		count int64
		min   int64
	}{
		"a late message in the block is taken to be counted": {func(s *boundedSet) { s.add(1000) }, 2000, 1},
		"a recall in the block takes one away":               {func(s *boundedSet) { s.remove(777) }, 1999, 1},
		"a read of half of it takes half":                    {func(s *boundedSet) { s.removeUpTo(999) }, 1501, 1000},
		"a read of all of it is exact":                       {func(s *boundedSet) { s.removeUpTo(1999) }, 1000, 2001},
		"a read beyond it is exact":                          {func(s *boundedSet) { s.removeUpTo(2001) }, 999, 2003},
	} {
		t.Run(name, func(t *testing.T) {
			set := filled()
			tc.do(set)
			if set.len() != tc.count || set.min() != tc.min {
				t.Errorf("%d from %d, want %d from %d", set.len(), set.min(), tc.count, tc.min)
			}
		})
	}
}

// However sparse a room is and whatever happens in it, no count is negative or
// above what was delivered, mentions never exceed what is unread, the row stays
// small, and reading everything ends at zero.
func TestSparseRoomStaysSane(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := newUser("ann")
		delivered := map[int64]bool{}
		event := func(typ events.Type, d events.Data, mentioned bool) {
			d.ConversationID, d.UserIDs = "room", []string{"ann"}
			u.apply(&events.Event{Type: typ, Data: d}, mentioned)
		}
		last := int64(0)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"burst", "burst", "late", "recall", "read"}).Draw(t, "step") {
			case "burst":
				gap, every := rapid.Int64Range(1, 4).Draw(t, "gap"), rapid.IntRange(1, 4).Draw(t, "mentions every")
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
			c := u.conversation("room")
			if n, m := c.unread.len(), c.mentions.len(); m < 0 || m > n || n > int64(len(delivered)) || u.total != n || u.mentions != m {
				t.Fatalf("%d unread, %d mentions, total %d, of %d delivered", n, m, u.total, len(delivered))
			}
			for name, set := range map[string]*boundedSet{"unread": &c.unread, "mentions": &c.mentions} {
				// What the constraints of the table forbid.
				if b := set.block; set.len() > 0 && set.min() <= c.readSeq || b.count < 0 ||
					b.count > 0 && (b.lo > b.hi || len(set.ranges) > 0 && set.ranges[0].lo <= b.hi) {
					t.Fatalf("%s: block %+v before %v, read up to %d", name, b, set.ranges[:min(3, len(set.ranges))], c.readSeq)
				}
			}
			if c.unread.block.count == 0 {
				for _, r := range c.mentions.ranges {
					if !c.unread.contains(r.lo) || !c.unread.contains(r.hi) {
						t.Fatalf("a mention in %v is not unread", r)
					}
				}
			}
			if len(c.unread.ranges) > maxRanges || len(c.mentions.ranges) > maxRanges || len(c.recalled.ranges) > maxRanges {
				t.Fatal("the row grows without limit")
			}
		}
		event(events.ConversationRead, events.Data{UpToSeq: last + 1}, false)
		if u.total != 0 || u.mentions != 0 {
			t.Fatalf("everything is read, but the total is %d, mentions %d", u.total, u.mentions)
		}
	})
}
