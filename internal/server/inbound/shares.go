package inbound

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"net/netip"
)

// share limits one kind of connections: connections for requests of users, connections for
// requests of keys, or unauthenticated connections. It limits their total number, their number
// per holder (a user or key), and their number per address. If a new connection would exceed a
// limit, the listener closes the connection that has been idle for longest among the
// connections that count against this limit. If none of these is idle, the listener refuses the
// new connection. The mutex of the listener guards a share.
type share struct {
	limits    ShareLimits
	all       group
	byHolder  map[string]*group
	byAddress map[netip.Prefix]*group
}

// group is the connections of a share that count against the same limit.
type group struct {
	n int
	// idle has the connections that are between two requests. The first of them has been idle
	// for longest.
	idle list.List
}

// ShareLimits are the limits of a share. Zero fields have no limit.
type ShareLimits struct {
	// All is the maximum number of connections of the share.
	All int
	// PerHolder is the maximum number of connections of one user or key. PerAddress is the maximum
	// from one address (IPv6: one /64).
	PerHolder, PerAddress int
}

func newShare(limits ShareLimits) *share {
	return &share{limits: limits, byHolder: map[string]*group{}, byAddress: map[netip.Prefix]*group{}}
}

// seat is the entry of a connection in a share.
type seat struct {
	conn   *conn
	share  *share
	holder string
	// groups are the three groups of connections in which the connection counts: all of the
	// share, all of its holder, and all from its address. The last group is nil if the address is
	// exempt from limits.
	groups [3]*group
	// idle[i] is the connection's element in the idle list of groups[i]; nil while a request is
	// in progress.
	idle [3]*list.Element
}

// room checks whether the limits of the share allow the connection c for a holder. If not, room
// returns an idle connection as the victim, which the caller must remove and close before it
// adds c. If no connection is idle, ok is false, and the caller must refuse c.
func (s *share) room(c *conn, holder string) (victim *conn, ok bool) {
	for _, bound := range []struct {
		g     *group
		limit int
	}{{s.byHolder[holder], s.limits.PerHolder}, {s.byAddress[c.address], s.limits.PerAddress}, {&s.all, s.limits.All}} {
		if bound.g != nil && exceeds(bound.g.n, bound.limit) {
			victim = oldest(&bound.g.idle)
			return victim, victim != nil
		}
	}
	return nil, true
}

// join adds a connection to the share.
func (s *share) join(c *conn, holder string) *seat {
	if s.byHolder[holder] == nil {
		s.byHolder[holder] = &group{}
	}
	if c.counts && s.byAddress[c.address] == nil {
		s.byAddress[c.address] = &group{}
	}
	joined := &seat{conn: c, share: s, holder: holder, groups: [3]*group{&s.all, s.byHolder[holder], s.byAddress[c.address]}}
	for _, g := range joined.groups {
		if g != nil {
			g.n++
		}
	}
	return joined
}

// leave removes the connection from the share. The caller holds the mutex.
func (s *seat) leave() {
	s.setIdle(false)
	for _, g := range s.groups {
		if g != nil {
			g.n--
		}
	}
	if s.groups[1].n == 0 {
		delete(s.share.byHolder, s.holder)
	}
	if from := s.groups[2]; from != nil && from.n == 0 {
		delete(s.share.byAddress, s.conn.address)
	}
}

// setIdle records whether the connection is between two requests. The caller holds the mutex.
func (s *seat) setIdle(idle bool) {
	if (s.idle[0] != nil) == idle {
		return
	}
	for i, g := range s.groups {
		switch {
		case g == nil:
		case idle:
			s.idle[i] = g.idle.PushBack(s.conn)
		default:
			g.idle.Remove(s.idle[i])
			s.idle[i] = nil
		}
	}
}

// leave removes the connection from its share, if it is in one. The caller holds the mutex.
func (c *conn) leave() {
	if c.seat != nil {
		c.seat.leave()
		c.seat = nil
	}
}

// joinShare is called when a request on the connection has been authenticated. It adds the
// connection to the share of users or of keys, for the request's holder. It returns false if a
// limit of the share is reached and no connection that counts against this limit is idle.
func (c *conn) joinShare(holder Holder) bool {
	l := c.listener
	l.mu.Lock()
	s := l.keys
	if holder.User {
		s = l.users
	}
	if !c.counts || c.stranger == nil && !c.known || c.seat != nil && c.seat.share == s && c.seat.holder == holder.Name {
		l.mu.Unlock()
		return true // c comes from a trusted proxy, is closed, or is already in this share
	}
	c.leave()
	victim, ok := s.room(c, holder.Name)
	if victim != nil {
		victim.leave()
		l.tell()
	}
	if ok {
		c.seat = s.join(c, holder.Name)
	}
	l.mu.Unlock()
	if victim != nil {
		l.metrics.ended.WithLabelValues("idle").Inc()
		_ = raw(victim.Conn).Close() // the victim has no request in progress; see raw
	}
	return ok
}

// ConnState is the hook of http.Server. It records which connections are idle. When a connection
// is hijacked, ConnState stops counting it against the limits of users and keys, since no more
// HTTP requests arrive on it.
func ConnState(c net.Conn, state http.ConnState) {
	counted, ok := c.(*conn)
	if !ok {
		return
	}
	if state == http.StateIdle {
		counted.header = header{}
	}
	counted.listener.mu.Lock()
	defer counted.listener.mu.Unlock()
	switch {
	case counted.seat == nil:
	case state == http.StateHijacked:
		counted.leave()
	case state == http.StateActive, state == http.StateIdle:
		counted.seat.setIdle(state == http.StateIdle)
	}
}

type streamKey struct{}

// Stream wraps a handler whose answers last until the client disconnects, such as event
// streams. The connections of such a handler do not count against the limits of users and
// keys, since the handler itself limits them.
func Stream(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), streamKey{}, true)))
	})
}
