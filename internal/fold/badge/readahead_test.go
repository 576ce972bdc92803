package badge

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// No claim of a conversation implies another, and together they cover exactly
// the reads: no message more, and no longer.
func TestClaimsSayWhatWasRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var kept ReadsAhead
		var all []ReadAhead
		for range rapid.IntRange(1, MaxReadsAhead).Draw(t, "reads") {
			c := ReadAhead{
				Conversation: rapid.SampledFrom([]string{"c", "d"}).Draw(t, "conversation"),
				UpTo:         rapid.Int64Range(1, 9).Draw(t, "up to"),
				Until:        rapid.Int64Range(1, 9).Draw(t, "until"),
			}
			kept.Add(c)
			all = append(all, c)
		}
		for now := range int64(11) {
			live := slices.Clone(kept)
			live.Lapse(now)
			for seq := range int64(11) {
				want := int64(0)
				for _, c := range all {
					if c.Conversation == "c" && c.Until >= now {
						want = max(want, min(c.UpTo, seq))
					}
				}
				if got := live.Reach("c", seq); got != want {
					t.Fatalf("message %d at %d is read up to %d, want %d: of %v is kept %v", seq, now, got, want, all, kept)
				}
			}
		}
		again, err := ParseReadsAhead(kept.String())
		if diff := cmp.Diff(kept, again, cmp.AllowUnexported(ReadAhead{})); diff != "" || err != nil {
			t.Fatalf("as text (-before +after), %v:\n%s", err, diff)
		}
	})
}
