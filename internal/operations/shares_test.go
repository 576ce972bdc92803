package operations

import (
	"testing"

	"pgregory.net/rapid"
)

func TestShares(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n, among := rapid.IntRange(0, 50).Draw(rt, "n"), rapid.IntRange(1, 16).Draw(rt, "among")
		sum, least, limit := 0, n, 0
		got := shares(n, among)
		for i, share := range got {
			if i < 0 || i >= among || share < 1 {
				rt.Errorf("%d gets %d", i, share)
			}
			sum, least, limit = sum+share, min(least, share), max(limit, share)
		}
		if sum != n || len(got) != min(n, among) || n > 0 && limit-least > 1 {
			rt.Errorf("of %d among %d: %v", n, among, got)
		}
	})
}
