package badge

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// The set is compared with a map after every step, and with itself after a
// round trip through its stored form.
func TestRangeSetIsASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seqs := rapid.OneOf(
			rapid.Int64Range(1, 20),
			rapid.Int64Range(math.MaxInt64-10, math.MaxInt64),
		)
		var set RangeSet
		model := map[int64]bool{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			seq := seqs.Draw(t, "seq")
			switch rapid.SampledFrom([]string{"add", "add", "remove", "remove up to"}).Draw(t, "step") {
			case "add":
				if added := set.Add(seq); added == model[seq] {
					t.Fatalf("add(%d) = %v", seq, added)
				}
				model[seq] = true
			case "remove":
				if removed := set.Remove(seq); removed != model[seq] {
					t.Fatalf("remove(%d) = %v", seq, removed)
				}
				delete(model, seq)
			case "remove up to":
				had := false
				for s := range model {
					if s <= seq {
						had = true
						delete(model, s)
					}
				}
				if removed := set.RemoveUpTo(seq); removed != had {
					t.Fatalf("removeUpTo(%d) = %v", seq, removed)
				}
			}
			again := stored(t, &BoundedSet{RangeSet: set})
			for _, s := range []*RangeSet{&set, &again.RangeSet} {
				compareSet(t, s, model, seq)
			}
		}
	})
}

func compareSet(t *rapid.T, set *RangeSet, model map[int64]bool, around int64) {
	if set.Len() != int64(len(model)) {
		t.Fatalf("%v has %d seqs, want %d", set, set.Len(), len(model))
	}
	least := int64(0)
	for s := range model {
		if !set.Contains(s) {
			t.Fatalf("%v does not hold %d", set, s)
		}
		if least == 0 || s < least {
			least = s
		}
	}
	if set.Min() != least {
		t.Fatalf("least of %v is %d, want %d", set, set.Min(), least)
	}
	for s := max(1, around-2); s < around; s++ {
		if set.Contains(s) != model[s] {
			t.Fatalf("%v: contains(%d) = %v", set, s, !model[s])
		}
	}
	for i, r := range set.Ranges {
		if r.Lo > r.Hi || i > 0 && r.Lo-1 <= set.Ranges[i-1].Hi {
			t.Fatalf("%v is not in its shortest form", set)
		}
	}
}
