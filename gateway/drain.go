package gateway

import (
	"math/rand/v2"
	"time"
)

// drainStep is how often connections are closed while draining.
const drainStep = 10 * time.Millisecond

// drain refuses new connections, closes all others over DrainDuration, and
// returns when they have ended. It cuts those that are left after DrainTimeout.
func (g *Gateway) drain() {
	g.mu.Lock()
	g.draining = true
	open := make([]*session, 0, len(g.sessions))
	for s := range g.sessions { // in random order, so that no kind of client is always last
		open = append(open, s)
	}
	g.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		g.running.Wait()
		close(ended)
	}()
	if g.sayGoodbye(open, ended) {
		return
	}

	timeout := time.NewTimer(g.cfg.DrainTimeout)
	defer timeout.Stop()
	select {
	case <-ended:
		return
	case <-timeout.C:
	}
	g.mu.Lock()
	for s := range g.sessions {
		s.cut()
	}
	g.mu.Unlock()
	<-ended
}

// sayGoodbye ends sessions evenly over DrainDuration. It returns true early if all
// have ended.
func (g *Gateway) sayGoodbye(open []*session, ended <-chan struct{}) bool {
	step := time.NewTicker(drainStep)
	defer step.Stop()
	began := time.Now()
	for told := 0; ; {
		due := len(open)
		if passed := time.Since(began); passed < g.cfg.DrainDuration {
			due = min(due, 1+int(float64(due)*float64(passed)/float64(g.cfg.DrainDuration)))
		}
		for ; told < due; told++ {
			open[told].end(*g.goingAway())
		}
		if told == len(open) {
			return false
		}
		select {
		case <-ended:
			return true
		case <-step.C:
		}
	}
}

// goingAway closes a session of a draining gateway. Clients come back at different
// times, to another gateway or the successor of this one.
func (g *Gateway) goingAway() *closing {
	return &closing{
		code: CloseDraining, reason: "the server is going away",
		reconnect: time.Millisecond + rand.N(g.cfg.ReconnectSpread), //nolint:gosec // spreads load, guards nothing
	}
}
