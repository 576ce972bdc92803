package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/badged/badged/pubsub"
)

// frame is any frame of the server.
type frame struct {
	T             string       `json:"t"`
	Epoch         string       `json:"epoch"`
	Version       int64        `json:"version"`
	Total         int64        `json:"total"`
	Muted         pubsub.Muted `json:"muted"`
	Conversations []struct {
		ConversationID string `json:"conversation_id"`
		Unread         int64  `json:"unread"`
		LastSeq        int64  `json:"last_seq"`
		Marked         bool   `json:"marked_unread"`
	} `json:"conversations"`
	ID   int `json:"id"`
	Code any `json:"code"`
}

// client is the app of one user. It applies frames as the protocol says, and checks that states
// never become older.
type client struct {
	t      *testing.T
	conn   *websocket.Conn
	cancel context.CancelFunc
	ended  chan struct{}
	jwt    string

	mu      sync.Mutex
	changed chan struct{} // closed and replaced with every frame
	epoch   string
	version int64
	// resuming is set from a hello with a state until its answer, which may repeat the
	// version of the state.
	resuming bool
	total    int64
	unread   map[string]int64 // what each conversation counts
	last     map[string]int64
	answers  map[int]string
	// rewinds is true where the database is restored to an earlier state or a forged state is
	// corrected: then a snapshot may have an earlier version.
	rewinds bool
	// forgets is true where the test does not inspect the frames and they would use too much
	// memory.
	forgets bool
	frames  []string
	told    []frame // the received frames with a state
	err     error   // how the connection ended
}

// token returns a token.
func token(t *testing.T, user string) string { return tokenFor(t, user, time.Hour) }

// expiredToken returns a token that has expired.
func expiredToken(t *testing.T, user string) string { return tokenFor(t, user, -time.Hour) }

func tokenFor(t *testing.T, user string, lifetime time.Duration) string {
	t.Helper()
	now := time.Now()
	return issuedWith(t, user, now.Add(-2*time.Hour), map[string]any{"exp": now.Add(lifetime).Unix()})
}

// connect connects to a gateway as a user without a state.
func connect(t *testing.T, url, user string) *client {
	t.Helper()
	return connectWith(t, url, token(t, user))
}

func connectWith(t *testing.T, url, jwt string) *client {
	t.Helper()
	c, err := dial(t, url, jwt, http.DefaultClient)
	if err == nil {
		err = c.hello()
	}
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	return c
}

// dial opens a connection that ends with the test, and does not send hello. Any goroutine may call
// it.
func dial(t *testing.T, url, jwt string, over *http.Client) (*client, error) {
	c, err := open(t, url, jwt, over)
	if err == nil {
		t.Cleanup(c.close)
	}
	return c, err
}

// open is like dial, but the caller closes the connection.
func open(t *testing.T, url, jwt string, over *http.Client) (*client, error) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, strings.Replace(url, "http", "ws", 1)+"/v1/ws", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + jwt}}, Subprotocols: []string{"badge.v1"}, HTTPClient: over,
	})
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(1 << 20)
	return &client{
		t: t, conn: conn, jwt: jwt, changed: make(chan struct{}),
		unread: map[string]int64{}, last: map[string]int64{}, answers: map[int]string{},
	}, nil
}

// hello sends the hello, with the client's state, and starts to listen.
func (c *client) hello() error {
	if err := c.write(fmt.Sprintf(`{"t":"hello","epoch":%q,"version":%d}`, c.epoch, c.version)); err != nil {
		return err
	}
	c.listen()
	return nil
}

// again opens a new connection and resumes with the state of c. Any goroutine may call it.
func (c *client) again(url string) (*client, error) {
	back, err := dial(c.t, url, c.jwt, http.DefaultClient)
	if err != nil {
		return nil, err
	}
	return back, back.takeUp(c)
}

// mayRewind makes the client accept snapshots of earlier versions from now on.
func (c *client) mayRewind() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rewinds = true
}

// takeUp says hello with the state of another client.
func (c *client) takeUp(before *client) error {
	before.mu.Lock()
	c.rewinds = before.rewinds
	c.epoch, c.version, c.total, c.resuming = before.epoch, before.version, before.total, true
	c.unread, c.last, c.forgets = maps.Clone(before.unread), maps.Clone(before.last), before.forgets
	before.mu.Unlock()
	return c.hello()
}

// resume is again, but fails the test on an error: only the test's goroutine may call it.
func (c *client) resume(url string) *client {
	c.t.Helper()
	back, err := c.again(url)
	if err != nil {
		c.t.Fatalf("connect again: %v", err)
	}
	return back
}

func (c *client) close() {
	_ = c.conn.CloseNow() // it may have ended already
	if c.ended != nil {
		c.cancel()
		<-c.ended
	}
}

func (c *client) say(text string) {
	c.t.Helper()
	if err := c.write(text); err != nil {
		c.t.Fatalf("say %s: %v", text, err)
	}
}

func (c *client) write(text string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return c.conn.Write(ctx, websocket.MessageText, []byte(text))
}

// listen applies frames until the connection ends.
func (c *client) listen() {
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel, c.ended = cancel, make(chan struct{})
	go c.take(ctx)
}

func (c *client) take(ctx context.Context) {
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
	if !c.forgets {
		c.frames = append(c.frames, string(b))
	}
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
	takenBack := c.rewinds && f.T == "snapshot"
	if !takenBack && f.Epoch == c.epoch && (f.Version < c.version || f.Version == c.version && !c.resuming) {
		c.t.Errorf("version %d came after version %d: %s", f.Version, c.version, b)
	}
	c.resuming = false
	if !c.forgets {
		c.told = append(c.told, f)
	}
	c.epoch, c.version, c.total = f.Epoch, f.Version, f.Total
	var sum int64
	for _, conversation := range f.Conversations {
		n := conversation.Unread
		if n < 0 || n > conversation.LastSeq { // seqs start at 1
			c.t.Errorf("%d messages of %s are unread: %s", n, conversation.ConversationID, b)
		}
		if conversation.Marked { // a marked conversation counts at least 1
			n = max(n, 1)
		}
		c.unread[conversation.ConversationID] = n
		c.last[conversation.ConversationID] = conversation.LastSeq
	}
	for _, n := range c.unread {
		sum += n
	}
	if sum != f.Total+f.Muted.Total { // whatever the levels
		c.t.Errorf("the total is %d, and %d are muted, but the parts add up to %d: %s", f.Total, f.Muted.Total, sum, b)
	}
}

// await waits until a condition on the client's state holds.
func (c *client) await(what string, condition func() bool) {
	c.t.Helper()
	deadline := time.After(patience)
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
			c.t.Fatalf("awaiting %s: total %d at version %d; received\n%s", what, c.total, c.version, strings.Join(c.frames, "\n"))
		}
	}
}

func (c *client) awaitTotal(n int64) {
	c.t.Helper()
	c.await("a total", func() bool { return c.version > 0 && c.total == n || n == 0 && c.epoch != "" && c.total == 0 })
}

// awaitEnd returns the close code of the server.
func (c *client) awaitEnd() int {
	c.t.Helper()
	select {
	case <-c.ended:
	case <-time.After(patience):
		c.t.Fatal("the server does not close the connection")
	}
	return int(websocket.CloseStatus(c.err))
}
