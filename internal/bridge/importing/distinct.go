package importing

import (
	"container/heap"
	"hash/maphash"
	"math"
)

// MaxExact is the maximum number of distinct names that is counted exactly. A greater number is
// estimated, with an error of about 1/√MaxExact, that is 0.4 %.
const MaxExact = 1 << 16

// sketch counts distinct names in bounded memory. It stores the MaxExact least hashes of names. Up
// to MaxExact names the count is exact. A greater number is estimated from the greatest hash that
// is stored, as in "On synopses for distinct-value estimation under multiset operations" (Beyer et
// al., 2007).
type sketch struct {
	seed   maphash.Seed
	hashes maxHeap
	kept   map[uint64]struct{}
	over   bool
}

func newSketch() *sketch {
	return &sketch{seed: maphash.MakeSeed(), kept: map[uint64]struct{}{}}
}

func (s *sketch) add(name string) {
	h := maphash.String(s.seed, name)
	if _, ok := s.kept[h]; ok {
		return
	}
	if len(s.hashes) == MaxExact {
		s.over = true
		if h > s.hashes[0] {
			return
		}
		delete(s.kept, s.hashes[0])
		s.hashes[0] = h
		heap.Fix(&s.hashes, 0)
	} else {
		heap.Push(&s.hashes, h)
	}
	s.kept[h] = struct{}{}
}

// count returns the number of names. A number above MaxExact is an estimate.
func (s *sketch) count() int64 {
	if !s.over {
		return int64(len(s.hashes))
	}
	return max(MaxExact+1, int64((MaxExact-1)/(float64(s.hashes[0])/math.MaxUint64)))
}

// maxHeap is a heap whose root is the greatest hash.
type maxHeap []uint64

func (h maxHeap) Len() int           { return len(h) }
func (h maxHeap) Less(i, j int) bool { return h[i] > h[j] }
func (h maxHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *maxHeap) Push(x any) { *h = append(*h, x.(uint64)) }

// Pop implements heap.Interface. No sketch calls it.
func (h *maxHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
