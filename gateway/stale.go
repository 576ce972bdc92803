package gateway

import "github.com/badged/badged/gateway/internal/view"

// observeStale records how old the news was that a client has just been sent. since
// is when its oldest change was appended or, if reconciliation found it, when the
// client was last up to date.
func (g *Gateway) observeStale(since view.Moment) {
	if since == 0 {
		return
	}
	g.metrics.stale.Observe(max(0, float64(g.clock.Now()-since)/1e6))
}
