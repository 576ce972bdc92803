package inbound

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// fakeListener accepts connections from given addresses.
type fakeListener struct {
	net.Listener
	from []string
	err  error
}

func (f *fakeListener) Accept() (net.Conn, error) {
	if len(f.from) == 0 {
		return nil, f.err
	}
	c := &fakeConn{address: f.from[0]}
	f.from = f.from[1:]
	return c, nil
}

type fakeConn struct {
	net.Conn
	address string
	closed  bool
}

func (c *fakeConn) Close() error { c.closed = true; return nil }

func (c *fakeConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.address))
}

// accept accepts one connection from each address.
func accept(t *testing.T, l *Listener, from ...string) []*conn {
	t.Helper()
	source, _ := l.Listener.(*fakeListener)
	source.from = from
	accepted := make([]*conn, len(from))
	for i := range from {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		accepted[i], _ = c.(*conn)
	}
	return accepted
}

func isClosed(c *conn) bool {
	f, _ := c.Conn.(*fakeConn)
	return f.closed
}

func newFake(limits Limits) *Listener {
	return NewListener(&fakeListener{err: io.EOF}, limits, slog.New(slog.DiscardHandler), nil)
}

func TestOldestUnauthenticatedIsClosed(t *testing.T) {
	l := newFake(Limits{Connections: 10, Unauthenticated: 3, PerAddress: 2})
	c := accept(t, l, "203.0.113.1:1", "203.0.113.2:1", "203.0.113.2:2")
	c[0].Vouch()
	c[0].Vouch()
	more := accept(t, l, "203.0.113.2:3") // a third of the same address
	if isClosed(c[0]) || !isClosed(c[1]) || isClosed(c[2]) {
		t.Error("the oldest of the address is still open")
	}
	more = append(more, accept(t, l, "203.0.113.3:1", "203.0.113.4:1")...) // a fourth in all
	if isClosed(c[0]) || !isClosed(c[2]) || isClosed(more[0]) {
		t.Error("the oldest is still open")
	}
	c[1].Vouch() // which has ended
	if n := testutil.ToFloat64(l.metrics.authenticated); n != 1 {
		t.Errorf("%v are authenticated", n)
	}
	for _, one := range append(c, more...) {
		_ = one.Close()
		_ = one.Close()
	}
	if l.strangers.all.n != 0 || len(l.strangers.byAddress) != 0 || l.known != 0 || testutil.ToFloat64(l.metrics.unauthenticated) != 0 {
		t.Errorf("%d strangers of %d addresses and %d others are left", l.strangers.all.n, len(l.strangers.byAddress), l.known)
	}
	if n := testutil.ToFloat64(l.metrics.ended.WithLabelValues("unauthenticated")); n != 2 {
		t.Errorf("%v were ended", n)
	}
}

func TestTrustedProxiesHaveNoAddressLimit(t *testing.T) {
	l := newFake(Limits{Connections: 10, Unauthenticated: 9, PerAddress: 1, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	for _, c := range accept(t, l, "10.0.0.1:1", "10.0.0.1:2", "[2001:db8::1]:1", "203.0.113.1:1") {
		if isClosed(c) {
			t.Errorf("%s has ended", c.RemoteAddr())
		}
	}
	same := accept(t, l, "[2001:db8::2]:1", "203.0.113.1:2") // of the same networks
	if l.strangers.all.n != 4 || isClosed(same[0]) || isClosed(same[1]) {
		t.Errorf("%d strangers are left", l.strangers.all.n)
	}
}

// If authenticated connections take all room, no new one is accepted.
func TestNoRoomForUnauthenticated(t *testing.T) {
	l := newFake(Limits{Connections: 2, Unauthenticated: 1})
	for _, from := range []string{"203.0.113.1:1", "203.0.113.1:2"} {
		accept(t, l, from)[0].Vouch()
	}
	source, _ := l.Listener.(*fakeListener)
	source.from = []string{"203.0.113.1:3"}
	if c, err := l.Accept(); !errors.Is(err, io.EOF) {
		t.Errorf("one more is accepted: %v, %v", c, err)
	}
}

// Without free open files the oldest unauthenticated connection makes room,
// and the server retries.
func TestNoOpenFiles(t *testing.T) {
	l := newFake(Limits{})
	c := accept(t, l, "203.0.113.1:1", "203.0.113.1:2")
	source, _ := l.Listener.(*fakeListener)
	source.err = &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	_, err := l.Accept()
	var temporary interface{ Temporary() bool }
	if !errors.As(err, &temporary) || !temporary.Temporary() {
		t.Errorf("Accept failed: %v", err)
	}
	if !isClosed(c[0]) || isClosed(c[1]) {
		t.Error("the oldest is still open")
	}
}

func TestLimitsFor(t *testing.T) {
	for _, test := range []struct {
		files, reserved, unauthenticated int
		want                             Limits
	}{
		{300, 90, 0, Limits{Connections: 210, Unauthenticated: 70, PerAddress: 52}},
		{1 << 20, 90, 0, Limits{Connections: 1<<20 - 90, Unauthenticated: 8192, PerAddress: 6144}},
		{10, 90, 0, Limits{Connections: 32, Unauthenticated: 10, PerAddress: 7}},
		{300, 90, 4, Limits{Connections: 210, Unauthenticated: 4, PerAddress: 3}},
		{300, 90, 1000, Limits{Connections: 210, Unauthenticated: 194, PerAddress: 145}},
	} {
		got := LimitsFor(test.files, test.reserved, test.unauthenticated, nil)
		if left := got.Streams(); left < MinConnections/4 || got.Users.All < 2 || got.Keys.All < 2 {
			t.Errorf("of %d files, %d streams are left, and %+v, %+v", test.files, left, got.Users, got.Keys)
		}
		if got.Connections != test.want.Connections || got.Unauthenticated != test.want.Unauthenticated || got.PerAddress != test.want.PerAddress {
			t.Errorf("of %d files, %d reserved, %d asked for: %+v, want %+v", test.files, test.reserved, test.unauthenticated, got, test.want)
		}
	}
	if Files() < MinConnections {
		t.Errorf("this process may have %d open files", Files())
	}
}

func TestVouchWithoutAConnection(t *testing.T) {
	Vouch(context.Background(), Holder{}) // as in tests that record answers
}
