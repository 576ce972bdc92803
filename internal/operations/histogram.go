package operations

import "slices"

// histogram counts observations in buckets. Counts[i] is the number of observations that are at
// most Bounds[i] and above Bounds[i-1]. Above is the number of observations above the last bound.
// The bounds ascend. The zero value is empty.
type histogram struct {
	Bounds []float64 `json:"bounds"`
	Counts []uint64  `json:"counts"`
	Above  uint64    `json:"above"`
}

// observe appends a bucket of n observations whose upper bound is `bound`. Call it with ascending
// bounds.
func (h *histogram) observe(bound float64, n uint64) {
	h.Bounds, h.Counts = append(h.Bounds, bound), append(h.Counts, n)
}

// add adds the observations between two states of another histogram: `now` is its present state,
// and `before` an earlier state. It ignores a histogram that has other bounds than h, since it
// comes from another release.
func (h *histogram) add(now, before *histogram) {
	if now == nil || before == nil || !slices.Equal(now.Bounds, before.Bounds) {
		return
	}
	if h.Bounds == nil {
		h.Bounds, h.Counts = now.Bounds, make([]uint64, len(now.Counts))
	}
	if !slices.Equal(h.Bounds, now.Bounds) {
		return
	}
	for i := range h.Counts {
		h.Counts[i] += now.Counts[i] - before.Counts[i]
	}
	h.Above += now.Above - before.Above
}

// quantile returns the quantile q, which is from 0 to 1, or nil if there are no observations. It
// interpolates within a bucket. If the quantile is above the last bound, it returns the last bound.
func (h *histogram) quantile(q float64) *float64 {
	total := h.Above
	for _, n := range h.Counts {
		total += n
	}
	if total == 0 {
		return nil
	}
	rank, below, lower := q*float64(total), 0.0, 0.0
	for i, n := range h.Counts {
		if n > 0 && below+float64(n) >= rank {
			v := lower + (h.Bounds[i]-lower)*(rank-below)/float64(n)
			return &v
		}
		below += float64(n)
		lower = h.Bounds[i]
	}
	return &lower
}
