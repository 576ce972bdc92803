package badge_test

import (
	"math"
	"slices"
	"testing"

	"github.com/badged/badged/internal/fold/badge"
)

// The greatest seq is the last one: counting goes no further.
func TestSeqs(t *testing.T) {
	for _, tt := range []struct {
		lo, hi int64
		want   []int64
	}{
		{1, 3, []int64{1, 2, 3}},
		{3, 3, []int64{3}},
		{4, 3, nil},
		{math.MaxInt64 - 1, math.MaxInt64, []int64{math.MaxInt64 - 1, math.MaxInt64}},
		{math.MaxInt64, math.MaxInt64, []int64{math.MaxInt64}},
	} {
		var got []int64
		for seq := range badge.Seqs(tt.lo, tt.hi) {
			if got = append(got, seq); len(got) > 3 {
				t.Fatalf("from %d to %d there are more than %d", tt.lo, tt.hi, got)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("from %d to %d there are %d, want %d", tt.lo, tt.hi, got, tt.want)
		}
	}
}
