package badge

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/badged/badged/events"
)

// Any ranges survive the conversion to words and back, and countWords returns
// the number of words.
func TestWordsAreTheRanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var ranges []SeqRange
		next := rapid.Int64Range(1, 200).Draw(t, "first")
		for range rapid.IntRange(0, 60).Draw(t, "ranges") {
			length := rapid.SampledFrom([]int64{1, 1, 2, 63, 64, 65, 300}).Draw(t, "length")
			ranges = append(ranges, SeqRange{Lo: next, Hi: next + length - 1})
			next += length + rapid.SampledFrom([]int64{1, 1, 2, 62, 63, 64, 65, 10_000}).Draw(t, "gap")
		}
		if rapid.Bool().Draw(t, "to the end") {
			ranges = append(ranges, SeqRange{Lo: max(next, math.MaxInt64-rapid.Int64Range(0, 200).Draw(t, "short of it")), Hi: math.MaxInt64})
		}
		words := wordsOf(ranges)
		if n := countWords(ranges); n != len(words) {
			t.Errorf("%d words are counted, there are %d", n, len(words))
		}
		read := numbers{b: appendWords(nil, words)}
		if got := rangesOf(read.words()); read.bad || fmt.Sprint(got) != fmt.Sprint(ranges) {
			t.Errorf("the ranges are %v, want %v", got, ranges)
		}
	})
}

// However many holes its sets have, a conversation is exact while its seqs
// have few gaps, with recalls, late messages and partial reads, and after a
// round trip through the tables.
func TestDenseConversationsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := NewUser("ann")
		c := u.Conversation("c")
		unread, mentioned, recalled := map[int64]bool{}, map[int64]bool{}, map[int64]bool{}
		last, read := int64(0), int64(0)
		apply := func(e events.Event, mentions bool) {
			e.Data.ConversationID = "c"
			u.Apply(&e, mentions, nil)
		}
		deliver := func(seq int64, mentions bool) {
			apply(events.Event{Type: events.MessageDelivered, Data: events.Data{Seq: seq}}, mentions)
			if seq > read && !recalled[seq] {
				unread[seq] = true
				mentioned[seq] = mentioned[seq] || mentions
			}
		}
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"messages", "messages", "recalls", "late", "read", "stored"}).Draw(t, "step") {
			case "messages":
				every, hole := rapid.Int64Range(1, 5).Draw(t, "mentions every"), rapid.Int64Range(2, 9).Draw(t, "not for the user, every")
				for range rapid.IntRange(100, 4000).Draw(t, "messages") {
					if last++; last%hole != 0 {
						deliver(last, last%every == 0)
					}
				}
			case "recalls":
				for seq := read + 1; seq < last && len(recalled) < 900; seq += rapid.Int64Range(1, 40).Draw(t, "gap") {
					apply(events.Event{Type: events.MessageRecalled, Data: events.Data{Seq: seq}}, false)
					recalled[seq] = true
					delete(unread, seq)
				}
			case "late":
				for range rapid.IntRange(1, 50).Draw(t, "messages") {
					deliver(rapid.Int64Range(1, last+1).Draw(t, "seq"), true)
					last = c.LastSeq
				}
			case "read":
				read = max(read, rapid.Int64Range(1, last+1).Draw(t, "up to"))
				apply(events.Event{Type: events.ConversationRead, Data: events.Data{UpToSeq: read}}, false)
				for seq := range unread {
					if seq <= read {
						delete(unread, seq)
					}
				}
			case "stored":
				for _, set := range []*BoundedSet{&c.Unread, &c.Mentions} {
					*set = stored(t, set)
				}
				c.Recalled = stored(t, &BoundedSet{RangeSet: c.Recalled}).RangeSet
			}
			n, first := int64(0), int64(0)
			for seq := range unread {
				if mentioned[seq] {
					n++
				}
				if first == 0 || seq < first {
					first = seq
				}
			}
			if v := c.View(); v.Unread != int64(len(unread)) || v.Mentions != n || v.FirstUnread != first {
				t.Fatalf("%d unread from %d, %d mentions; want %d from %d, %d", v.Unread, v.FirstUnread, v.Mentions, len(unread), first, n)
			}
			if size := len(c.Unread.Encode()) + len(c.Mentions.Encode()); size > 2*20*maxWords {
				t.Fatalf("the sets take %d bytes", size)
			}
		}
	})
}

// The first unread message was delivered and is unread, even if most of a
// bulk is unknown. No count is below the number of known seqs.
func TestFirstUnreadExists(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var set BoundedSet
		in := map[int64]bool{}
		last, read := int64(0), int64(0)
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"messages", "messages", "late", "recall the first", "recall", "read", "stored"}).Draw(t, "step") {
			case "messages":
				for range rapid.IntRange(1, 1500).Draw(t, "messages") {
					last += 64 + rapid.Int64Range(0, 100).Draw(t, "gap")
					in[last] = set.Add(last)
				}
			case "late":
				if seq := rapid.Int64Range(read+1, last+1).Draw(t, "seq"); !in[seq] {
					set.Add(seq)
					in[seq], last = true, max(last, seq)
				}
			case "recall the first":
				for range rapid.IntRange(1, 70).Draw(t, "times") {
					if seq := set.Min(); set.Remove(seq) {
						delete(in, seq)
					}
				}
			case "recall":
				seq := rapid.Int64Range(read+1, last+1).Draw(t, "seq")
				for ; seq <= last && !in[seq]; seq++ {
				}
				if set.Remove(seq) {
					delete(in, seq)
				}
			case "read":
				read = rapid.Int64Range(read, last).Draw(t, "up to")
				set.RemoveUpTo(read)
				for seq := range in {
					if seq <= read {
						delete(in, seq)
					}
				}
			case "stored":
				set = stored(t, &set)
			}
			if first := set.Min(); set.Len() > 0 && !in[first] && (len(set.known) > 0 || len(set.Ranges) > 0) {
				t.Fatalf("the first unread is %d, which is not", first)
			}
			if set.bulk.Count < 0 || len(set.known) > maxKnown || set.bulk.Count == 0 && len(set.known) > 0 {
				t.Fatalf("bulk %+v, of which %d are known", set.bulk, len(set.known))
			}
		}
	})
}
