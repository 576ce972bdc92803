package load

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/sync/errgroup"

	"github.com/badged/badged/internal/server/auth"
	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/rig"
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

// Client is the app of one user who never reads, so every message counts. While listen runs, no other
// goroutine may use the client.
type Client struct {
	Conn *websocket.Conn
	// sent has the scheduled times of messages by conversation, and told the number of
	// messages that have reached the client.
	sent map[string][]time.Duration
	told map[string]int64

	version  int64
	total    int64
	arrivals []arrival

	// apply applies a frame and returns how many new messages it covers.
	apply func(ctx context.Context, b []byte, now time.Time) (told int, err error)
}

// newClient returns a client of badged; a client of another server has another apply.
func newClient(conn *websocket.Conn) *Client {
	c := &Client{Conn: conn, sent: map[string][]time.Duration{}, told: map[string]int64{}}
	c.apply = c.applyState
	return c
}

// dial connects to an address and exchanges a first frame.
func dial(ctx context.Context, url string, o *websocket.DialOptions, hello string) (_ *Client, answer []byte, err error) {
	conn, res, err := websocket.Dial(ctx, strings.Replace(url, "http", "ws", 1), o)
	if res != nil && res.Body != nil {
		defer res.Body.Close()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("connect: %w", err)
	}
	conn.SetReadLimit(1 << 20)
	if err = conn.Write(ctx, websocket.MessageText, []byte(hello)); err == nil {
		_, answer, err = conn.Read(ctx)
	}
	if err != nil {
		_ = conn.CloseNow() // it fails only if it is closed
		return nil, nil, fmt.Errorf("say hello: %w", err)
	}
	return newClient(conn), answer, nil
}

// Connect connects to a gateway, says hello, and returns the answer, a snapshot: from then
// on the client misses nothing. over is nil for the default.
func Connect(ctx context.Context, url, token string, over *http.Client) (_ *Client, snapshot []byte, err error) {
	return dial(ctx, url+"/v1/ws", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}, Subprotocols: []string{"badge.v1"}, HTTPClient: over,
	}, `{"t":"hello"}`)
}

// ConnectNew connects the client of a new user.
func ConnectNew(ctx context.Context, url, token string, over *http.Client) (*Client, error) {
	c, answer, err := Connect(ctx, url, token, over)
	if err != nil {
		return nil, err
	}
	var f frame
	if err := json.Unmarshal(answer, &f); err != nil || f.T != "snapshot" || f.Version != 0 || f.Total != 0 {
		_ = c.Conn.CloseNow() // as above
		return nil, fmt.Errorf("a new user is greeted with %s: %w", answer, contest.ErrWrong)
	}
	return c, nil
}

// ConnectAll connects a client for each user of a load, 16 at the same time, with a token. They
// are closed at the end of the run.
func ConnectAll(run *contest.Run, n int, connect func(ctx context.Context, i int, token string) (*Client, error)) []*Client {
	tokens := contest.Must(auth.NewTokens(auth.TokenConfig{Keys: []string{rig.JWTKeys}}))
	clients := make([]*Client, n)
	run.Cleanup(func(context.Context) error {
		for _, c := range clients {
			if c != nil {
				_ = c.Conn.CloseNow() // it fails only if it is closed
			}
		}
		return nil
	})
	group, ctx := errgroup.WithContext(run.Context())
	group.SetLimit(16)
	for i := range clients {
		group.Go(func() error {
			token, err := tokens.Sign(UserOf(i), time.Hour, time.Now())
			if err != nil {
				return err
			}
			clients[i], err = connect(ctx, i, token)
			return err
		})
	}
	contest.Check(group.Wait())
	return clients
}

// listen reads frames until every sent message has arrived.
func (c *Client) listen(ctx context.Context) error {
	missing := 0
	for _, due := range c.sent {
		missing += len(due)
	}
	for missing > 0 {
		_, b, err := c.Conn.Read(ctx)
		now := time.Now() // the arrival, before decoding
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

// applyState applies a frame of badged. A frame is a state, so it may cover several messages. A state
// covers a message if it counts every message up to it: if a later message comes first in the log, both
// messages arrive with the state that counts both.
func (c *Client) applyState(_ context.Context, b []byte, now time.Time) (told int, err error) {
	var f frame
	if err := json.Unmarshal(b, &f); err != nil {
		return 0, fmt.Errorf("frame %s: %w", b, err)
	}
	if f.T != "changes" && f.T != "snapshot" {
		return 0, nil
	}
	if f.Version <= c.version {
		return 0, fmt.Errorf("version %d came after version %d: %w", f.Version, c.version, contest.ErrWrong)
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
				id, conversation.Unread, conversation.LastSeq, len(due), contest.ErrWrong)
		}
		for ; c.told[id] < conversation.LastSeq; c.told[id]++ {
			c.arrivals = append(c.arrivals, arrival{due[c.told[id]], now})
			told++
		}
	}
	return told, nil
}

// CheckClients compares the final counts of clients and tables with the sent
// messages.
func (a *API) CheckClients(ctx context.Context, clients []*Client, messages []Message) error {
	sent := map[string]int64{}
	for _, m := range messages {
		sent[UserOf(m.Client)]++
	}
	users := slices.Collect(maps.Keys(sent))
	totals, err := a.Totals(ctx, users)
	if err != nil {
		return err
	}
	want := map[string]int64{}
	for _, user := range users {
		want[user], want["the client of "+user] = sent[user], sent[user]
	}
	for i, c := range clients {
		totals["the client of "+UserOf(i)] = c.total
	}
	return contest.CheckTotals(totals, want)
}

// Centrifugo is a running centrifugo, a fan-out server that stores nothing: it sends what a publisher
// sends to a user's channel to the connected clients. It shows the latency to a client without a log
// and tables.
type Centrifugo struct{ api *API }

// centrifugoKey authorizes publishers.
const centrifugoKey = "api-key"

// StartCentrifugo starts the binary with a channel for each user, and everything
// else as by default.
func StartCentrifugo(run *contest.Run, binary string, connections int) Centrifugo {
	file := contest.Must(os.CreateTemp("", "centrifugo-*.json"))
	run.Cleanup(func(context.Context) error { return os.Remove(file.Name()) })
	server := rig.Start(run, "/health", func(port int) *exec.Cmd {
		_, secret, _ := strings.Cut(rig.JWTKeys, "HS256:")
		_, err := fmt.Fprintf(file, `{"http_server":{"address":"127.0.0.1","port":%d},"http_api":{"key":%q},
			"client":{"token":{"hmac_secret_key":%q},"subscribe_to_user_personal_channel":{"enabled":true}},
			"health":{"enabled":true},"log":{"level":"error"}}`, port, centrifugoKey, secret)
		contest.Check(err)
		contest.Check(file.Close())
		return exec.CommandContext(run.Context(), binary, "--config", file.Name()) //nolint:gosec // the binary that the user names
	})
	c := Centrifugo{NewAPI(run, server.URL, connections)}
	c.api.authorization = "apikey " + centrifugoKey
	return c
}

// pushed is the data of a message that an app would need.
type pushed struct {
	ConversationID string `json:"conversation_id"`
	Seq            int64  `json:"seq"`
}

// Deliver publishes a message to the channel of its recipient.
func (c Centrifugo) Deliver(ctx context.Context, m Message) error {
	answer, err := c.api.Do(ctx, http.MethodPost, "/api/publish", map[string]any{"channel": "#" + UserOf(m.Client), "data": pushed{m.conversation, m.seq}}, http.StatusOK)
	if err == nil && bytes.Contains(answer, []byte(`"error"`)) {
		err = fmt.Errorf("publish: %s", answer)
	}
	return err
}

// Connect connects a client with a token.
func (c Centrifugo) Connect(ctx context.Context, _ int, token string) (*Client, error) {
	client, answer, err := dial(ctx, c.api.url+"/connection/websocket", nil, fmt.Sprintf(`{"id":1,"connect":{"token":%q}}`, token))
	if err != nil {
		return nil, err
	}
	client.apply = client.applyPushes
	if !bytes.Contains(answer, []byte(`"client"`)) {
		err = fmt.Errorf("greeted with %s: %w", answer, contest.ErrWrong)
	}
	return client, err
}

// applyPushes applies a frame of centrifugo: lines of JSON, of which each is a message or an empty
// object, a ping.
func (c *Client) applyPushes(ctx context.Context, b []byte, now time.Time) (told int, err error) {
	for line := range bytes.Lines(b) {
		var f struct {
			Push *struct {
				Pub struct {
					Data pushed `json:"data"`
				} `json:"pub"`
			} `json:"push"`
		}
		if err := json.Unmarshal(line, &f); err != nil {
			return told, fmt.Errorf("frame %s: %w", line, err)
		}
		if f.Push == nil {
			if err := c.Conn.Write(ctx, websocket.MessageText, []byte("{}")); err != nil {
				return told, fmt.Errorf("answer a ping: %w", err)
			}
			continue
		}
		data := f.Push.Pub.Data
		due := c.sent[data.ConversationID]
		if data.Seq < 1 || data.Seq > int64(len(due)) {
			return told, fmt.Errorf("message %+v was not sent: %w", data, contest.ErrWrong)
		}
		c.arrivals = append(c.arrivals, arrival{due[data.Seq-1], now})
		told++
	}
	return told, nil
}
