package gateway

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/badged/badged/gateway/protocol"
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
		code: protocol.CloseDraining, reason: "the server is going away",
		reconnect: time.Millisecond + rand.N(g.cfg.ReconnectSpread), //nolint:gosec // spreads load, guards nothing
	}
}

// Revocations knows which tokens are revoked. Its methods are safe for concurrent use
// and do not block.
type Revocations interface {
	// Revoked reports whether the token of an identity is revoked.
	Revoked(id Identity) bool
	// Look is called when the bus says that connections of a user are to end. The bus
	// may lose such a message and anything may forge one, so it is only a reason to
	// look at once, rather than a moment later.
	Look()
}

// Disconnect ends the connections of users: those with a revoked token with
// [CloseBadToken], others with [CloseResync]. Call it when Revoked of
// [Config].Revocations knows what was revoked: a connection that this call does not
// find asks there before it is admitted.
func (g *Gateway) Disconnect(userIDs []string) {
	var ending []*session
	g.mu.Lock()
	here := slices.DeleteFunc(slices.Clone(userIDs), func(id string) bool { return g.users[id] == 0 })
	if len(here) > 0 { // most users are elsewhere
		slices.Sort(here)
		for s, userID := range g.sessions {
			if _, ok := slices.BinarySearch(here, userID); ok {
				ending = append(ending, s)
			}
		}
	}
	g.mu.Unlock()
	for _, s := range ending {
		s.mu.Lock()
		id := s.identity
		s.mu.Unlock()
		if g.revoked(id) {
			s.end(*tokenRevoked())
		} else {
			s.end(*comeBack("the backend has disconnected you"))
		}
	}
}

// Users returns the users who are connected here, in any order.
func (g *Gateway) Users() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.users))
}

func (g *Gateway) revoked(id Identity) bool {
	return g.cfg.Revocations != nil && g.cfg.Revocations.Revoked(id)
}

// tokenRevoked closes a session whose token was revoked.
func tokenRevoked() *closing {
	return &closing{code: protocol.CloseBadToken, reason: "bad token: it was revoked"}
}
