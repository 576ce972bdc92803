package admin

import "slices"

// histogram counts observations by upper bound, in ascending order; those above
// the last bound are in Above. The zero value holds none.
type histogram struct {
	Bounds []float64 `json:"bounds"`
	Counts []uint64  `json:"counts"`
	Above  uint64    `json:"above"`
}

// observe adds n observations of up to a bound, which come in ascending order.
func (h *histogram) observe(bound float64, n uint64) {
	h.Bounds, h.Counts = append(h.Bounds, bound), append(h.Counts, n)
}

// add adds what was observed from before to now. Of two that have other bounds,
// as of another release, nothing is known.
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

// quantile returns the value that a part q of the observations does not exceed,
// as far as the bounds tell; nil where there are none. Of those above the last
// bound it only says that.
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
