package pubsub_test

import (
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/badged/badged/pubsub"
)

// Malformed messages end their connection, but not the process. The next connection gets
// messages.
func TestMessagesThatAreNone(t *testing.T) {
	var broken atomic.Pointer[string]
	addr := proxy(t, startRedis(t), nil, func(redis, client net.Conn) io.Writer { return garbler{redis, client, &broken} }, nil)
	for _, answer := range []string{"*0\r\n", "*1\r\n:5\r\n", "*1\r\n$7\r\nmessage\r\n", "*3\r\n$7\r\nmessage\r\n:1\r\n$1\r\nx\r\n", "*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n$1\r\nx\r\n", "*1\r\n$4\r\npong\r\n", "HTTP/1.1 400\r\n", "*-7\r\n"} {
		broken.Store(&answer)
		if _, err := pubsub.ProbeRedis(t.Context(), "redis://"+addr); err == nil {
			t.Errorf("a probe takes %q for a message", answer)
		}
		broken.Store(nil)
		if _, err := pubsub.ProbeRedis(t.Context(), "redis://"+addr); err != nil {
			t.Errorf("after %q: %v", answer, err)
		}
	}
}

// garbler passes on what one client sends to Redis. If answer is set, it sends this answer to
// commands that subscribe.
type garbler struct {
	redis, client net.Conn
	answer        *atomic.Pointer[string]
}

func (g garbler) Write(b []byte) (int, error) {
	if bad := g.answer.Load(); bad != nil && strings.Contains(strings.ToLower(string(b)), "subscribe") {
		_, _ = io.WriteString(g.client, *bad)
		return len(b), nil
	}
	return g.redis.Write(b)
}

// An answer that announces more data than Redis sends is refused. It does not end the process.
func TestAnswersThatAnnounceTooMuch(t *testing.T) {
	for _, answer := range []string{"*2147483646\r\n", "$9223372036854775807\r\n"} {
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
