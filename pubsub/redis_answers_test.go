package pubsub_test

import (
	"context"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/badged/badged/pubsub"
)

// Messages that are none end their connection, and not the process. The next connection gets
// messages.
func TestMessagesThatAreNone(t *testing.T) {
	server := startRedis(t)
	var broken atomic.Pointer[string]
	proxy := garbled(t, server.Addr(), &broken)
	for _, answer := range []string{"*0\r\n", "*1\r\n:5\r\n", "*1\r\n$7\r\nmessage\r\n", "*3\r\n$7\r\nmessage\r\n:1\r\n$1\r\nx\r\n", "*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n$1\r\nx\r\n", "*1\r\n$4\r\npong\r\n", "HTTP/1.1 400\r\n", "*-7\r\n"} {
		broken.Store(&answer)
		if _, err := pubsub.ProbeRedis(t.Context(), "redis://"+proxy); err == nil {
			t.Errorf("a probe takes %q for a message", answer)
		}
		broken.Store(nil)
		if _, err := pubsub.ProbeRedis(t.Context(), "redis://"+proxy); err != nil {
			t.Errorf("after %q: %v", answer, err)
		}
	}
}

// garbled passes connections on to a server. While there is an answer, what subscribes gets that.
func garbled(t *testing.T, to string, answer *atomic.Pointer[string]) (addr string) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			here, err := listener.Accept()
			if err != nil {
				return
			}
			there, err := new(net.Dialer).DialContext(context.Background(), "tcp", to)
			if err != nil {
				_ = here.Close()
				return
			}
			go func() {
				defer there.Close()
				buffer := make([]byte, 64<<10)
				for {
					n, err := here.Read(buffer)
					if err != nil {
						return
					}
					if bad := answer.Load(); bad != nil && strings.Contains(strings.ToLower(string(buffer[:n])), "subscribe") {
						_, _ = io.WriteString(here, *bad)
						continue
					}
					if _, err := there.Write(buffer[:n]); err != nil {
						return
					}
				}
			}()
			go func() {
				defer here.Close()
				_, _ = io.Copy(here, there) // until one of them ends
			}()
		}
	}()
	return listener.Addr().String()
}

// A server that announces more than Redis sends is refused. It does not end the process.
func TestAnswersThatAnnounceTooMuch(t *testing.T) {
	for _, answer := range []string{"*2147483646\r\n", "%2147483646\r\n"} {
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Read(make([]byte, 4096))
				_, _ = conn.Write([]byte(answer))
				_, _ = conn.Read(make([]byte, 4096)) // until the client ends
				_ = conn.Close()
			}
		}()
		for _, suffix := range []string{"", "?addr=" + listener.Addr().String()} {
			_, err := pubsub.ProbeRedis(t.Context(), "redis://"+listener.Addr().String()+suffix)
			if err == nil || !strings.Contains(err.Error(), "is it Redis?") {
				t.Errorf("%q%s: %v", answer, suffix, err)
			}
		}
		_ = listener.Close()
	}
}
