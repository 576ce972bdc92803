package gateway

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/badged/badged/gateway/protocol"
)

// drainStep is the time between two rounds of closing connections while draining.
const drainStep = 10 * time.Millisecond

// drain refuses new connections, closes the open connections at an even rate over
// DrainDuration, and returns when all connections have ended. If connections remain after a
// further DrainTimeout, drain closes them at once.
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

// sayGoodbye makes the sessions in `open` end, at an even rate over DrainDuration, and then
// returns false. Some sessions may still be ending. If all sessions of the gateway end earlier,
// it returns true at once.
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

// goingAway returns the closing for a session of a draining gateway. Its client reconnects
// after a random delay, to another gateway or to the gateway that replaces this one.
func (g *Gateway) goingAway() *closing {
	return &closing{
		code: protocol.CloseDraining, reason: "the server is going away",
		reconnect: time.Millisecond + rand.N(g.cfg.ReconnectSpread), //nolint:gosec // spreads load, guards nothing
	}
}

// Revocations reports which tokens are revoked. Its methods are safe for concurrent use and do
// not block.
type Revocations interface {
	// Revoked reports whether the token of an identity is revoked.
	Revoked(id Identity) bool
	// Look makes the implementation read the revoked tokens at once, instead of at the next
	// interval. The gateway calls Look when a message on the bus says that connections of a
	// user must end. The gateway does not rely on this message: the bus may lose it, and anyone
	// with access to the bus may forge it.
	Look()
}

// Disconnect ends the connections of users. The close code is [protocol.CloseBadToken] if the
// token of the connection is revoked, else [protocol.CloseResync]. After a revocation of tokens,
// call Disconnect only when the method Revoked of [Config].Revocations reports the revocation:
// Disconnect may miss a connection that is being opened at the same time, but the gateway calls
// Revoked before it admits that connection.
func (g *Gateway) Disconnect(userIDs []string) {
	var ending []*session
	g.mu.Lock()
	here := slices.DeleteFunc(slices.Clone(userIDs), func(id string) bool { return g.users[id] == 0 })
	if len(here) > 0 { // most users are connected to other gateways
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

// Users returns the users who are connected to this gateway, in any order.
func (g *Gateway) Users() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.users))
}

func (g *Gateway) revoked(id Identity) bool {
	return g.cfg.Revocations != nil && g.cfg.Revocations.Revoked(id)
}

// tokenRevoked returns the closing for a session whose token was revoked.
func tokenRevoked() *closing {
	return &closing{code: protocol.CloseBadToken, reason: "bad token: it was revoked"}
}
