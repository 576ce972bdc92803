package gateway

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/badged/badged/gateway/protocol"
)

func TestForeignOriginIsRefused(t *testing.T) {
	warnings := make(lines, 1)
	w := newWorld(t, func(c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(warnings, &slog.HandlerOptions{Level: slog.LevelWarn}))
	})
	_, res, err := websocket.Dial(t.Context(), w.url, &websocket.DialOptions{
		HTTPClient: w.http,
		HTTPHeader: http.Header{"Origin": {"https://evil.example"}}, Subprotocols: []string{protocol.Subprotocol, "bearer.ann"},
	})
	if err == nil || res == nil || res.StatusCode != http.StatusForbidden {
		t.Errorf("a page from elsewhere was let in: %v", err)
	}
	if n := w.counter(w.metrics.refused); n != 1 {
		t.Errorf("%v refusals were counted", n)
	}
	if line := <-warnings; !strings.Contains(line, "origin=https://evil.example") {
		t.Errorf("the log does not name the origin: %s", line)
	}
}

// lines are lines of a log.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}
