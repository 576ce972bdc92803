package gateway

import "slices"

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

func (g *Gateway) revoked(id Identity) bool {
	return g.cfg.Revocations != nil && g.cfg.Revocations.Revoked(id)
}

// tokenRevoked closes a session whose token was revoked.
func tokenRevoked() *closing {
	return &closing{code: CloseBadToken, reason: "bad token: it was revoked"}
}
