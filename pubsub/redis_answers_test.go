package pubsub_test

import (
	"net"
	"strings"
	"testing"

	"github.com/badged/badged/pubsub"
)

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
