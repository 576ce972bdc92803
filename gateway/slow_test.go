package gateway

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/badged/badged/gateway/protocol"
)

// mute opens a WebSocket and then neither reads nor answers; the kernel
// acknowledges until its buffers are full.
func (w *world) mute(user string) *net.TCPConn {
	w.t.Helper()
	host := strings.TrimPrefix(w.url, "http://")
	conn, err := new(net.Dialer).DialContext(w.t.Context(), "tcp", host)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	tcp := conn.(*net.TCPConn)
	if err := tcp.SetReadBuffer(4096); err != nil { // so that it fills soon
		w.t.Fatal(err)
	}
	request := fmt.Sprintf("GET / HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"+
		"Sec-WebSocket-Protocol: %s\r\nAuthorization: Bearer %s\r\n\r\n", host, protocol.Subprotocol, user)
	hello := `{"t":"hello"}`
	masked := string([]byte{0x81, 0x80 | byte(len(hello)), 0, 0, 0, 0}) + hello
	if _, err := conn.Write([]byte(request)); err != nil {
		w.t.Fatal(err)
	}
	answer := bufio.NewReader(conn)
	res, err := http.ReadResponse(answer, nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		w.t.Fatalf("the upgrade is answered with %v, %v", res, err)
	}
	_ = res.Body.Close() // it is empty
	if _, err := conn.Write([]byte(masked)); err != nil {
		w.t.Fatal(err)
	}
	if first, err := answer.Peek(1); err != nil || first[0] != 0x81 { // the snapshot
		w.t.Fatalf("the hello is answered with %x, %v", first, err)
	}
	return tcp
}

// narrow is a listener whose connections buffer little of what is sent.
type narrow struct{ net.Listener }

func (n narrow) Accept() (net.Conn, error) {
	conn, err := n.Listener.Accept()
	if err == nil {
		err = conn.(*net.TCPConn).SetWriteBuffer(4096)
	}
	return conn, err
}

// awaitNoClients returns once nothing is left of any client.
func (w *world) awaitNoClients() {
	eventually(func() bool {
		return len(w.openSessions()) == 0 && w.gateway.hub.countUsers() == 0 &&
			goroutinesOf("gateway.(*socket)")+goroutinesOf("gateway.(*session)") == 0
	})
}

// A client that stops reading, over a real socket, costs one goroutine and memory for what
// changed. It is disconnected when a write times out, leaves nothing behind, and does not delay
// others.
func TestSlowClientsAreBounded(t *testing.T) {
	const n, conversations = 8, 50
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorldOn(t, narrow{l}, &http.Transport{}, func(c *Config) { c.WriteTimeout = 2 * time.Second })
	fast, _ := w.connect("fast")
	for i := range n {
		w.mute(fmt.Sprintf("slow%d", i))
	}
	slow := w.openSessions()
	long := strings.Repeat("x", 100)
	cut := func() int { return int(w.counter(w.metrics.closes.WithLabelValues("4103"))) }
	for round := 1; cut() < n; round++ { // until no kernel takes more, for as long as a write may take
		for i := range n {
			for c := range conversations {
				w.send(fmt.Sprintf("slow%d", i), fmt.Sprintf("%s%d", long, c), int64(round))
			}
		}
		w.send("fast", "c1", int64(round))
		if f := fast.hear(); f.unread("c1") != int64(round) {
			t.Fatalf("the client that reads got %s in round %d", f.raw, round)
		}
		if workers := goroutinesOf("gateway.(*session).work"); workers > n+1 {
			t.Fatalf("%d goroutines write for %d clients", workers, n)
		}
		for _, s := range slow {
			if n := s.mailbox.Waiting(); n > conversations {
				t.Errorf("%d conversations wait for a client, of %d", n, conversations)
			}
		}
	}
	eventually(func() bool { return len(w.openSessions()) == 1 })
	w.send("fast", "c2", 1)
	if f := fast.hear(); f.unread("c2") != 1 {
		t.Errorf("afterwards the client that reads got %s", f.raw)
	}
	_ = fast.conn.CloseNow()
	w.awaitNoClients()
}

// A peer that vanished is found by unanswered pings, even if its kernel still
// acknowledges.
func TestHalfOpenPeersAreFound(t *testing.T) {
	const n = 20
	w := newWorld(t, func(c *Config) { c.PingInterval = 100 * time.Millisecond })
	for i := range n {
		w.mute(fmt.Sprintf("u%d", i))
	}
	eventually(func() bool { return w.counter(w.metrics.closes.WithLabelValues("4201")) == n })
	w.awaitNoClients()
	if n := w.counter(w.metrics.connections); n != 0 {
		t.Errorf("%v connections are counted", n)
	}
}

// A reset connection does not count as slow.
func TestResetPeersAreNotSlow(t *testing.T) {
	w := newWorld(t, nil)
	conn := w.mute("ann")
	if err := conn.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	w.awaitNoClients()
	if n := w.counter(w.metrics.closes.WithLabelValues("4103")); n != 0 {
		t.Errorf("%v clients were too slow", n)
	}
}

// A timeout of the kernel's keepalive after the hello is not reported as a
// missing hello.
func TestKernelTimeoutIsNotAMissingHello(t *testing.T) {
	w := newWorld(t, nil)
	gone := os.NewSyscallError("read", syscall.ETIMEDOUT)
	for userID, want := range map[string]int{"": protocol.CloseProtocol, "ann": protocol.CloseNoPong} {
		s := newSession(w.gateway)
		s.userID = userID
		newSocket(s, nil).endAfterReadError(gone)
		if s.closing == nil || s.closing.code != want {
			t.Errorf("of user %q it ends with %+v, want %d", userID, s.closing, want)
		}
	}
}
