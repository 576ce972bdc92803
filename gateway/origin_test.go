package gateway

import (
	"encoding/json"
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
		t.Fatalf("a page from elsewhere was let in: %v", err)
	}
	var refusal Refusal
	if err := json.NewDecoder(res.Body).Decode(&refusal); err != nil || refusal.Type != protocol.ProblemType || !strings.Contains(refusal.Detail, "--allowed-origins") {
		t.Errorf("the answer is %+v, %v", refusal, err)
	}
	if n := w.counter(w.metrics.refused); n != 1 {
		t.Errorf("%v refusals were counted", n)
	}
	if line := <-warnings; !strings.Contains(line, "allow its origin with --allowed-origins\" origin=https://evil.example") {
		t.Errorf("the log does not name the setting and the origin: %s", line)
	}
}

// lines are lines of a log.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}
