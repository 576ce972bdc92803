package pgsession

import (
	"testing"

	"pgregory.net/rapid"
)

// The shares of all members add up to the number of partitions, and differ by at most one.
func TestFairShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		partitions := rapid.IntRange(1, 256).Draw(t, "partitions")
		members := rapid.IntRange(1, 300).Draw(t, "members")
		sum, least, limit := 0, partitions, 0
		for before := range members {
			share := fairShare(partitions, members, before)
			sum, least, limit = sum+share, min(least, share), max(limit, share)
		}
		if sum != partitions || limit-least > 1 {
			t.Errorf("shares from %d to %d that add up to %d", least, limit, sum)
		}
	})
}
