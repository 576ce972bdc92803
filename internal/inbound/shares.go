package inbound

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"net/netip"
)

// share bounds the connections for requests of users, or of keys: in all, of one holder and
// of one address. One more closes the one that is idle for longest; if none is idle, it is
// refused. The mutex of the listener guards it.
type share struct {
	limits ShareLimits
	all    group
	of     map[string]*group
	from   map[netip.Prefix]*group
}

// group is some connections of a share.
type group struct {
	n int
	// idle are those between two requests, the one that is idle for longest first.
	idle list.List
}

// ShareLimits bounds a share. Zero fields have no limit.
type ShareLimits struct {
	// All is how many connections the share has.
	All int
	// PerHolder is how many of them one user or key may have, and PerAddress how many may
	// come from one address (IPv6: one /64).
	PerHolder, PerAddress int
}

func newShare(limits ShareLimits) *share {
	return &share{limits: limits, of: map[string]*group{}, from: map[netip.Prefix]*group{}}
}

// seat is the place of a connection in a share.
type seat struct {
	share  *share
	holder string
	groups [3]*group
	// idle are the places in the lists of the groups, nil while a request is under way.
	idle [3]*list.Element
}

// join adds a connection. It returns the connection to close for it, or reports false if
// there is no room.
func (s *share) join(c *conn, holder string) (victim *conn, ok bool) {
	of, from := s.of[holder], s.from[c.address]
	for _, bound := range []struct {
		g    *group
		most int
	}{{of, s.limits.PerHolder}, {from, s.limits.PerAddress}, {&s.all, s.limits.All}} {
		if bound.g != nil && over(bound.g.n, bound.most) {
			if victim = oldest(&bound.g.idle); victim == nil {
				return nil, false
			}
			victim.leave()
			break
		}
	}
	if s.of[holder] == nil {
		s.of[holder] = &group{}
	}
	if s.from[c.address] == nil {
		s.from[c.address] = &group{}
	}
	c.seat = &seat{share: s, holder: holder, groups: [3]*group{&s.all, s.of[holder], s.from[c.address]}}
	for _, g := range c.seat.groups {
		g.n++
	}
	return victim, true
}

// leave takes the connection out of its share, if it has one. The caller holds the mutex.
func (c *conn) leave() {
	if c.seat == nil {
		return
	}
	c.setIdle(false)
	s := c.seat.share
	for _, g := range c.seat.groups {
		g.n--
	}
	if s.of[c.seat.holder].n == 0 {
		delete(s.of, c.seat.holder)
	}
	if s.from[c.address].n == 0 {
		delete(s.from, c.address)
	}
	c.seat = nil
}

// setIdle notes whether the connection is between two requests. The caller holds the mutex.
func (c *conn) setIdle(idle bool) {
	if c.seat == nil || (c.seat.idle[0] != nil) == idle {
		return
	}
	for i, g := range c.seat.groups {
		if idle {
			c.seat.idle[i] = g.idle.PushBack(c)
		} else {
			g.idle.Remove(c.seat.idle[i])
			c.seat.idle[i] = nil
		}
	}
}

// sit gives the connection a seat in the share of a holder, for a request that it carries.
// It reports false if there is no room.
func (c *conn) sit(by Holder) bool {
	l := c.listener
	l.mu.Lock()
	s := l.keys
	if by.User {
		s = l.users
	}
	if !c.counts || c.at == nil && !c.known || c.seat != nil && c.seat.share == s && c.seat.holder == by.Name {
		l.mu.Unlock()
		return true // it is that of a proxy, which speaks for many, or has ended, or has one
	}
	c.leave()
	victim, ok := s.join(c, by.Name)
	if victim != nil {
		l.tell()
	}
	l.mu.Unlock()
	if victim != nil {
		l.metrics.ended.WithLabelValues("idle").Inc()
		_ = raw(victim.Conn).Close() // no request is under way; see admit
	}
	return ok
}

// ConnState is for http.Server. It tells which connections are idle, and that one that was
// hijacked carries no more requests.
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
	switch state {
	case http.StateActive:
		counted.setIdle(false)
	case http.StateIdle:
		counted.setIdle(true)
	case http.StateHijacked:
		counted.leave()
	case http.StateNew, http.StateClosed: // Close leaves
	}
}

type streamKey struct{}

// Stream wraps a handler whose answers last as long as their clients want, and which bounds
// their number itself: their connections are in no share.
func Stream(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), streamKey{}, true)))
	})
}
