package load

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/badged/badged/tests/bench/measure"
)

// frame has the fields of a frame that a client reads.
type frame struct {
	T             string `json:"t"`
	Version       int64  `json:"version"`
	Total         int64  `json:"total"`
	Conversations []struct {
		ConversationID string `json:"conversation_id"`
		Unread         int64  `json:"unread"`
		LastSeq        int64  `json:"last_seq"`
	} `json:"conversations"`
}

// arrival is a message that has reached a client.
type arrival struct {
	due time.Duration // scheduled time, from the start
	at  time.Time
}

// client is the app of one user who never reads, so every message counts. While
// listen runs, nothing else may use the client.
type client struct {
	Conn *websocket.Conn
	// sent has the scheduled times of messages by conversation, told how many
	// of them have reached the client.
	sent map[string][]time.Duration
	told map[string]int64

	version  int64
	total    int64
	arrivals []arrival

	// apply applies a frame and returns how many new messages it covers.
	apply func(ctx context.Context, b []byte, now time.Time) (told int, err error)
}

// newClient returns a client of badged; another server's has another apply.
func newClient(conn *websocket.Conn) *client {
	c := &client{Conn: conn, sent: map[string][]time.Duration{}, told: map[string]int64{}}
	c.apply = c.applyState
	return c
}

// DialWebSocket connects to the address below which a server answers.
func DialWebSocket(ctx context.Context, url string, o *websocket.DialOptions) (*websocket.Conn, error) {
	conn, res, err := websocket.Dial(ctx, strings.Replace(url, "http", "ws", 1)+"/v1/ws", o)
	if res != nil && res.Body != nil {
		defer res.Body.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return conn, nil
}

// Connect connects to a gateway, says hello, and returns once the answer, an
// empty snapshot, is there: from then on the client misses nothing.
func Connect(ctx context.Context, url, token string, over *http.Client) (*client, error) {
	conn, err := DialWebSocket(ctx, url, &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}, Subprotocols: []string{"badge.v1"}, HTTPClient: over,
	})
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(1 << 20)
	c := newClient(conn)
	f, err := c.hello(ctx)
	if err == nil && (f.T != "snapshot" || f.Version != 0 || f.Total != 0) {
		err = fmt.Errorf("a new user is greeted with %+v: %w", f, measure.ErrWrong)
	}
	if err != nil {
		_ = conn.CloseNow() // an error means that it is already closed
		return nil, err
	}
	return c, nil
}

func (c *client) hello(ctx context.Context) (frame, error) {
	if err := c.Conn.Write(ctx, websocket.MessageText, []byte(`{"t":"hello"}`)); err != nil {
		return frame{}, fmt.Errorf("say hello: %w", err)
	}
	_, b, err := c.Conn.Read(ctx)
	if err != nil {
		return frame{}, fmt.Errorf("await the snapshot: %w", err)
	}
	var f frame
	if err := json.Unmarshal(b, &f); err != nil {
		return frame{}, fmt.Errorf("frame %s: %w", b, err)
	}
	return f, nil
}

// listen reads frames until every sent message has arrived.
func (c *client) listen(ctx context.Context) error {
	for missing := c.expected(); missing > 0; {
		_, b, err := c.Conn.Read(ctx)
		now := time.Now() // before decoding
		if err != nil {
			return fmt.Errorf("%d messages to come: %w", missing, err)
		}
		n, err := c.apply(ctx, b, now)
		if err != nil {
			return err
		}
		missing -= n
	}
	return nil
}

func (c *client) expected() int {
	n := 0
	for _, due := range c.sent {
		n += len(due)
	}
	return n
}

// applyState applies a frame of badged. Frames
// carry states, so one frame may cover several. A state covers a message if it
// counts every message up to it: if a later message overtook it in the log,
// both arrive with the state that counts both.
func (c *client) applyState(_ context.Context, b []byte, now time.Time) (told int, err error) {
	var f frame
	if err := json.Unmarshal(b, &f); err != nil {
		return 0, fmt.Errorf("frame %s: %w", b, err)
	}
	if f.T != "changes" && f.T != "snapshot" {
		return 0, nil
	}
	if f.Version <= c.version {
		return 0, fmt.Errorf("version %d came after version %d: %w", f.Version, c.version, measure.ErrWrong)
	}
	c.version, c.total = f.Version, f.Total
	for _, conversation := range f.Conversations {
		if conversation.Unread < conversation.LastSeq {
			continue
		}
		id := conversation.ConversationID
		due := c.sent[id]
		if conversation.LastSeq > int64(len(due)) || conversation.Unread > conversation.LastSeq {
			return told, fmt.Errorf("%s has %d unread up to message %d, and only %d are sent: %w",
				id, conversation.Unread, conversation.LastSeq, len(due), measure.ErrWrong)
		}
		for ; c.told[id] < conversation.LastSeq; c.told[id]++ {
			c.arrivals = append(c.arrivals, arrival{due[c.told[id]], now})
			told++
		}
	}
	return told, nil
}
