package load

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/rig"
)

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
	return Centrifugo{NewAPI(run, server.URL, connections)}
}

// pushed is the data of a message that an app would need.
type pushed struct {
	ConversationID string `json:"conversation_id"`
	Seq            int64  `json:"seq"`
}

// Deliver publishes a message to the channel of its recipient.
func (c Centrifugo) Deliver(ctx context.Context, m Message) error {
	body, err := json.Marshal(map[string]any{"channel": "#" + UserOf(m.Client), "data": pushed{m.conversation, m.seq}})
	if err != nil {
		return err
	}
	_, answer, err := c.api.do(ctx, http.MethodPost, "/api/publish", body, http.StatusOK, "X-API-Key", centrifugoKey, "Content-Type", "application/json")
	if err == nil && bytes.Contains(answer, []byte(`"error"`)) {
		err = fmt.Errorf("publish: %s", answer) //nolint:err113 // ends the run
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
