package inbound

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"testing"
)

// request makes a connection carry a request, and reports whether it may.
func (c *conn) request(holder Holder) bool {
	ConnState(c, http.StateActive)
	return Vouch(ConnContext(context.Background(), c), holder)
}

func (c *conn) answered() { ConnState(c, http.StateIdle) }

// Above a share, the connection that is idle for longest makes room, first of the same
// holder, then of the same address, then of all. One that carries a request never does.
func TestSharesOfConnections(t *testing.T) {
	l := newFake(Limits{
		Connections: 100, Unauthenticated: 50, Users: ShareLimits{All: 4, PerHolder: 2, PerAddress: 3}, Keys: ShareLimits{All: 1},
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
	})
	ada, ben, cat := Holder{User: true, Name: "ada"}, Holder{User: true, Name: "ben"}, Holder{User: true, Name: "cat"}
	open := func(from string, holder Holder) *conn {
		t.Helper()
		c := accept(t, l, from+":1")[0]
		if !c.request(holder) {
			t.Fatalf("%s of %s is refused", from, holder.Name)
		}
		return c
	}
	closes := func(what string, victim *conn, others ...*conn) {
		t.Helper()
		if victim != nil && !isClosed(victim) {
			t.Errorf("%s: it is open", what)
		} else if victim != nil {
			_ = victim.Close() // as the server does
		}
		if slices.ContainsFunc(others, isClosed) {
			t.Errorf("%s: another was closed", what)
		}
	}
	first := open("203.0.113.1", ada)
	second := open("203.0.113.2", ada)
	if c := accept(t, l, "203.0.113.3:1")[0]; c.request(ada) {
		t.Error("a third of the user is accepted while two carry requests")
	}
	second.answered()
	first.answered()
	first.answered()
	third := open("203.0.113.3", ada)
	closes("a third of the user", second, first, third)

	fourth, fifth := open("203.0.113.3", ben), open("203.0.113.3", ben)
	fourth.answered()
	closes("four in all", nil, first, third, fourth, fifth)
	sixth := open("203.0.113.3", cat)
	closes("a fourth of the address", fourth, first, third, fifth, sixth)
	seventh := open("203.0.113.9", cat)
	closes("a fifth in all", first, third, fifth, sixth, seventh)
	if c := accept(t, l, "203.0.113.8:1")[0]; c.request(ada) {
		t.Error("a fifth is accepted while four carry requests")
	}

	key := open("203.0.113.3", Holder{Name: "chat"})
	key.answered()
	proxies := []*conn{open("10.0.0.1", ada), open("10.0.0.1", ada), open("10.0.0.1", ada)}
	closes("keys and proxies", nil, append(proxies, key, third, fifth, sixth, seventh)...)
	ConnState(third, http.StateHijacked) // a socket is in no share
	eighth := open("203.0.113.7", ada)
	if !key.request(ben) { // by the same connection
		// The share of users is full again.
		key.answered()
	} else {
		t.Error("a connection gets a seat in a full share")
	}
	for _, c := range append(proxies, third, fifth, sixth, seventh, eighth, key) {
		_ = c.Close()
		_ = c.Close()
	}
	for _, s := range []*share{l.users, l.keys} {
		if s.all.n != 0 || s.all.idle.Len() != 0 || len(s.byHolder) != 0 || len(s.byAddress) != 0 {
			t.Errorf("at the end the share is %s", fmt.Sprint(s.all.n, s.byHolder, s.byAddress))
		}
	}
}
