package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/badged/badged/tests/bench/measure"
	"github.com/badged/badged/tests/bench/rig"
)

// Centrifugo is a running centrifugo, a fan-out server that stores nothing: it sends what a publisher
// sends to a user's channel to the connected clients. It shows the latency to a client without a log
// and tables.
type Centrifugo struct {
	server *rig.Server
	url    string
	http   *http.Client
}

// centrifugoKey authorizes publishers.
const centrifugoKey = "api-key"

// StartCentrifugo starts the binary with a channel for each user, and everything
// else as by default.
func StartCentrifugo(ctx context.Context, binary string, connections int) (_ *Centrifugo, err error) {
	dir, err := os.MkdirTemp("", "centrifugo-")
	if err != nil {
		return nil, fmt.Errorf("configure centrifugo: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }() // the server has read its configuration by then
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	_, secret, _ := strings.Cut(rig.JWTKeys, "HS256:")
	settings := fmt.Sprintf(`{"http_server":{"address":"127.0.0.1","port":%d},"http_api":{"key":%q},
		"client":{"token":{"hmac_secret_key":%q},"subscribe_to_user_personal_channel":{"enabled":true}},
		"health":{"enabled":true},"log":{"level":"error"}}`, port, centrifugoKey, secret)
	file := filepath.Join(dir, "centrifugo.json")
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		return nil, fmt.Errorf("configure centrifugo: %w", err)
	}
	c := &Centrifugo{url: fmt.Sprintf("http://127.0.0.1:%d", port), http: newHTTPClient(connections)}
	if c.server, err = rig.Start(exec.CommandContext(ctx, binary, "--config", file)); err != nil { //nolint:gosec // the binary that the user names
		return nil, err
	}
	if err := c.awaitHealth(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start centrifugo: %w", err), c.Stop())
	}
	return c, nil
}

// freePort returns a TCP port that was free a moment ago.
func freePort(ctx context.Context) (int, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close() //nolint:forcetypeassert // listens on TCP
}

// awaitHealth returns once the server answers.
func (c *Centrifugo) awaitHealth(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"/health", http.NoBody)
		if err != nil {
			return err
		}
		res, err := c.http.Do(req)
		if err == nil {
			return res.Body.Close()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

// Stop ends the server.
func (c *Centrifugo) Stop() error {
	c.http.CloseIdleConnections()
	return c.server.Stop()
}

// pushed is the data of a message that an app would need.
type pushed struct {
	ConversationID string `json:"conversation_id"`
	Seq            int64  `json:"seq"`
}

// Deliver publishes a message to the channel of its recipient.
func (c *Centrifugo) Deliver(ctx context.Context, m Message) error {
	body, err := json.Marshal(map[string]any{"channel": "#" + UserOf(m.Client), "data": pushed{m.conversation, m.seq}})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/api/publish", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("X-API-Key", centrifugoKey)
	req.Header.Set("Content-Type", "application/json")
	res, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	var answer struct {
		Error *struct{ Message string } `json:"error"`
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return fmt.Errorf("publish: %s: %w", res.Status, err)
	}
	if answer.Error != nil || res.StatusCode != http.StatusOK {
		return fmt.Errorf("publish: %s: %+v", res.Status, answer.Error) //nolint:err113 // ends the run
	}
	return nil
}

// ConnectAll connects the clients of a load, as the function ConnectAll does to a gateway.
func (c *Centrifugo) ConnectAll(ctx context.Context, n int) ([]*Client, error) {
	return ConnectEach(ctx, n, func(ctx context.Context, _ int, token string) (*Client, error) {
		client, answer, err := dial(ctx, c.url+"/connection/websocket", nil, fmt.Sprintf(`{"id":1,"connect":{"token":%q}}`, token))
		if err != nil {
			return nil, err
		}
		client.apply = client.applyPushes
		if !bytes.Contains(answer, []byte(`"client"`)) {
			err = fmt.Errorf("greeted with %s: %w", answer, measure.ErrWrong)
		}
		return client, err
	})
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
			return told, fmt.Errorf("message %+v was not sent: %w", data, measure.ErrWrong)
		}
		c.arrivals = append(c.arrivals, arrival{due[data.Seq-1], now})
		told++
	}
	return told, nil
}
