package tests

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// frame is any frame of the server.
type frame struct {
	T             string `json:"t"`
	Epoch         string `json:"epoch"`
	Version       int64  `json:"version"`
	Total         int64  `json:"total"`
	Conversations []struct {
		ConversationID string `json:"conversation_id"`
		Unread         int64  `json:"unread"`
		LastSeq        int64  `json:"last_seq"`
	} `json:"conversations"`
	ID   int `json:"id"`
	Code any `json:"code"`
}

// client is an app of one user: it applies frames as the protocol says and
// checks on the way that no state is older than the one before.
type client struct {
	t      *testing.T
	conn   *websocket.Conn
	cancel context.CancelFunc
	ended  chan struct{}

	mu      sync.Mutex
	changed chan struct{} // closed and replaced with every frame
	epoch   string
	version int64
	total   int64
	unread  map[string]int64
	last    map[string]int64
	answers map[int]string
	frames  []string
	err     error // how the connection ended
}

// token returns a client token, made by the binary.
func token(t *testing.T, user string) string {
	t.Helper()
	return strings.TrimSpace(must(t, "token", user))
}

// connect connects to a gateway as a user who holds nothing yet.
func connect(t *testing.T, url, user string) *client {
	t.Helper()
	return connectWith(t, url, token(t, user))
}

func connectWith(t *testing.T, url, jwt string) *client {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	dialCtx, cancelDial := context.WithTimeout(ctx, 20*time.Second)
	defer cancelDial()
	conn, _, err := websocket.Dial(dialCtx, strings.Replace(url, "http", "ws", 1)+"/v1/ws", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + jwt}}, Subprotocols: []string{"badge.v1"},
	})
	if err != nil {
		cancel()
		t.Fatalf("connect: %v", err)
	}
	conn.SetReadLimit(1 << 20)
	c := &client{
		t: t, conn: conn, cancel: cancel, ended: make(chan struct{}), changed: make(chan struct{}),
		unread: map[string]int64{}, last: map[string]int64{}, answers: map[int]string{},
	}
	t.Cleanup(c.close)
	c.say(`{"t":"hello"}`)
	go c.listen(ctx)
	return c
}

func (c *client) close() {
	c.cancel()
	_ = c.conn.CloseNow() // it may have ended already
	<-c.ended
}

func (c *client) say(text string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := c.conn.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
		c.t.Fatalf("say %s: %v", text, err)
	}
}

func (c *client) listen(ctx context.Context) {
	defer close(c.ended)
	for {
		_, b, err := c.conn.Read(ctx)
		c.mu.Lock()
		if err != nil {
			c.err = err
		} else {
			c.apply(b)
		}
		close(c.changed)
		c.changed = make(chan struct{})
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (c *client) apply(b []byte) {
	c.frames = append(c.frames, string(b))
	var f frame
	if err := json.Unmarshal(b, &f); err != nil {
		c.t.Errorf("frame %s: %v", b, err)
		return
	}
	switch f.T {
	case "ok":
		c.answers[f.ID] = "ok"
	case "error":
		c.answers[f.ID], _ = f.Code.(string)
	case "snapshot":
		clear(c.unread)
		clear(c.last)
	case "changes":
	default:
		return
	}
	if f.T != "snapshot" && f.T != "changes" {
		return
	}
	if f.Epoch == c.epoch && f.Version <= c.version {
		c.t.Errorf("version %d came after version %d: %s", f.Version, c.version, b)
	}
	c.epoch, c.version, c.total = f.Epoch, f.Version, f.Total
	var sum int64
	for _, conversation := range f.Conversations {
		c.unread[conversation.ConversationID] = conversation.Unread
		c.last[conversation.ConversationID] = conversation.LastSeq
	}
	for _, n := range c.unread {
		sum += n
	}
	if sum != f.Total { // every level is "all" here
		c.t.Errorf("the total is %d, its parts add up to %d: %s", f.Total, sum, b)
	}
}

// await returns once a condition on the client's state holds.
func (c *client) await(what string, condition func() bool) {
	c.t.Helper()
	deadline := time.After(60 * time.Second)
	for {
		c.mu.Lock()
		holds, changed, err := condition(), c.changed, c.err
		c.mu.Unlock()
		if holds {
			return
		}
		if err != nil {
			c.t.Fatalf("awaiting %s: the connection ended: %v", what, err)
		}
		select {
		case <-changed:
		case <-deadline:
			c.mu.Lock()
			defer c.mu.Unlock()
			c.t.Fatalf("awaiting %s: total %d at version %d; heard\n%s", what, c.total, c.version, strings.Join(c.frames, "\n"))
		}
	}
}

func (c *client) awaitTotal(n int64) {
	c.t.Helper()
	c.await("a total", func() bool { return c.version > 0 && c.total == n || n == 0 && c.epoch != "" && c.total == 0 })
}
