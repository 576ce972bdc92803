package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/badged/badged/gateway"
	"github.com/badged/badged/gateway/protocol"
	"github.com/badged/badged/internal/devtest/pgtest"
)

// frame is any frame of the server.
type frame struct {
	T             string `json:"t"`
	ID            int    `json:"id"`
	Version       int64  `json:"version"`
	Total         int64  `json:"total"`
	Message       string `json:"message"`
	Conversations []struct {
		ConversationID string `json:"conversation_id"`
		Unread         int64  `json:"unread"`
	} `json:"conversations"`
}

// client is a WebSocket client of a server.
type client struct {
	conn *websocket.Conn
	// unread is a frame that was received but not returned yet.
	unread *frame
}

// dial connects as a user and says hello. It retries until the gateway accepts
// connections.
func dial(t *testing.T, s *server, userID string) *client {
	t.Helper()
	var c *client
	eventually(t, "a session of "+userID, func() bool {
		conn, status, err := upgrade(t, s, http.Header{"Authorization": {"Bearer " + s.token(t, userID)}})
		if err != nil {
			t.Fatalf("dial: %d, %v", status, err)
		}
		c = &client{conn: conn}
		c.write(t, `{"t":"hello"}`)
		var f frame
		if err := conn.ReadJSON(&f); err != nil || f.T == "bye" {
			c.close()
			return false
		}
		c.unread = &f
		return true
	})
	t.Cleanup(c.close)
	return c
}

// upgrade requests a WebSocket.
func upgrade(t *testing.T, s *server, header http.Header) (*websocket.Conn, int, error) {
	t.Helper()
	dialer := websocket.Dialer{Subprotocols: []string{protocol.Subprotocol}}
	conn, res, err := dialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(s.url, "http")+"/v1/ws", header)
	status := 0
	if res != nil {
		status = res.StatusCode
		_ = res.Body.Close() // the dialer has read it
	}
	return conn, status, err
}

func (c *client) close() { _ = c.conn.Close() } // the server may have

func (c *client) write(t *testing.T, text string) {
	t.Helper()
	if err := c.conn.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// next returns the next frame that is not a ping; it must be of a type.
func (c *client) next(t *testing.T, want string) frame {
	t.Helper()
	for {
		var f frame
		if c.unread != nil {
			f, c.unread = *c.unread, nil
		} else if err := c.conn.ReadJSON(&f); err != nil {
			t.Fatalf("waiting for %s: %v", want, err)
		}
		switch f.T {
		case want:
			return f
		case "ping":
		default:
			t.Fatalf("frame is %+v, want %s", f, want)
		}
	}
}

// Postgres cannot store a zero byte. A client with such an epoch fails no
// query, its own or one that it shares with others.
func TestHelloWithAnInvalidEpoch(t *testing.T) {
	s := run(t, open(t, settings(pgtest.NewDB(t, migrated()))))
	s.badge(t, "ada", s.publish(t, message("lunch", 1, "ada")))
	dial(t, s, "ada").next(t, "snapshot")
	conn, status, err := upgrade(t, s, http.Header{"Authorization": {"Bearer " + s.token(t, "ada")}})
	if err != nil {
		t.Fatalf("dial: %d, %v", status, err)
	}
	c := &client{conn: conn}
	defer c.close()
	c.write(t, `{"t":"hello","epoch":"\u0000","version":1}`)
	if f := c.next(t, "snapshot"); f.Total != 1 {
		t.Errorf("the snapshot is %+v", f)
	}
}

// A client sends a command again if its connection broke before the answer. If
// the user has meanwhile read the conversation elsewhere, the repetition must
// not undo that.
func TestRepeatedCommandTakesEffectOnce(t *testing.T) {
	s := run(t, open(t, settings(pgtest.NewDB(t, migrated()))))
	rooms := map[string]string{"ada": "lunch", "ben": "tea"}
	for user, room := range rooms {
		s.badge(t, user, s.publish(t, message(room, 1, user)))
	}
	const key = "c4b8e2d7-0a6f-4d39-9e15-7b3f2c1d8e64"
	c, ada := commands{s.publisher}, gateway.Identity{UserID: "ada"}
	total := func(user string) int64 {
		t.Helper()
		// A known event changes nothing, and its position is after the
		// commands.
		return s.badge(t, user, s.publish(t, message(rooms[user], 1, user))).Total
	}
	for _, step := range []struct {
		name string
		do   func() error
		want int64
	}{
		{"reads", func() error { return c.Read(t.Context(), ada, "", "lunch", 1) }, 0},
		{"marks", func() error { return c.MarkUnread(t.Context(), ada, key, "lunch", gateway.Messages{}) }, 1},
		{"reads elsewhere", func() error { return c.Read(t.Context(), ada, "", "lunch", 1) }, 0},
		{"marks again", func() error { return c.MarkUnread(t.Context(), ada, key, "lunch", gateway.Messages{}) }, 0},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("ada %s: %v", step.name, err)
		}
		if got := total("ada"); got != step.want {
			t.Errorf("after ada %s the total is %d, want %d", step.name, got, step.want)
		}
	}
	// Another user's command with the same key is a different command.
	if err := c.Read(t.Context(), gateway.Identity{UserID: "ben"}, key, "tea", 1); err != nil {
		t.Fatal(err)
	}
	if got := total("ben"); got != 0 {
		t.Errorf("after ben reads the total is %d, want 0", got)
	}
}

func TestInvalidCommandsBlameTheClient(t *testing.T) {
	a := open(t, settings(pgtest.NewDB(t, migrated())))
	c, ada := commands{a.publisher}, gateway.Identity{UserID: "ada"}
	for name, err := range map[string]error{
		"conversation_id must not be empty":                    c.MarkUnread(t.Context(), ada, "", "", gateway.Messages{}),
		"seqs[1] must be at least 1, is 0":                     c.MarkUnread(t.Context(), ada, "", "lunch", gateway.Messages{Seqs: []int64{1, 0}}),
		"up_to_seq must be at least 1, is -1":                  c.Read(t.Context(), ada, "", "lunch", -1),
		"category must not hold control characters":            c.ReadAll(t.Context(), ada, "", "\x01"),
		"conversation_id must have at most 128 bytes, has 129": c.Read(t.Context(), ada, "", strings.Repeat("x", 129), 1),
	} {
		var invalid gateway.InvalidError
		if !errors.As(err, &invalid) {
			t.Errorf("%s: error is %v", name, err)
		} else if invalid.Invalid() != name {
			t.Errorf("message is %q, want %q", invalid.Invalid(), name)
		}
	}
	a.pools[0].Close()
	var invalid gateway.InvalidError
	if err := c.MarkUnread(t.Context(), ada, "", "lunch", gateway.Messages{}); err == nil || errors.As(err, &invalid) {
		t.Errorf("a database that is away is the client's fault: %v", err)
	}
}

// A command of a token that the database knows to be revoked is not stored, alone or in a
// transaction with others.
func TestCommandsOfRevokedTokens(t *testing.T) {
	s := run(t, open(t, settings(pgtest.NewDB(t, migrated()))))
	s.badge(t, "ada", s.publish(t, message("lunch", 1, "ada")))
	c := commands{s.publisher}
	now := time.Now()
	pgtest.Exec(t, s.Pool(), `INSERT INTO badged.revocations (user_id, seq, revoked_before, ended_at) VALUES ('ada', 1, $1, now())`, now)
	for name, tt := range map[string]struct {
		identity gateway.Identity
		want     error
	}{
		"issued before":       {gateway.Identity{UserID: "ada", IssuedAt: now.Add(-time.Second)}, gateway.ErrTokenEnded},
		"issued at no time":   {gateway.Identity{UserID: "ada"}, gateway.ErrTokenEnded},
		"issued after":        {gateway.Identity{UserID: "ada", IssuedAt: now.Add(time.Second)}, nil},
		"of another user":     {gateway.Identity{UserID: "ben"}, nil},
		"expired":             {gateway.Identity{UserID: "ben", ExpiresAt: now}, gateway.ErrTokenEnded},
		"expired in a moment": {gateway.Identity{UserID: "ben", ExpiresAt: now.Add(time.Hour)}, nil},
	} {
		if err := c.ReadAll(t.Context(), tt.identity, "", ""); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
}

func TestOrigins(t *testing.T) {
	for _, test := range []struct {
		name    string
		allowed []string
		origins map[string]bool
	}{
		{"some", []string{"https://chat.example", "http://localhost:3000"}, map[string]bool{
			"https://chat.example": true, "HTTPS://Chat.Example": true, "http://localhost:3000": true,
			"":                    true, // not a browser
			"http://chat.example": false, "https://chat.example:8443": false, "https://evil.example": false,
			"https://chat.example.evil.example": false, "http://localhost": false, "null": false,
		}},
		{"not as browsers send them", []string{"https://Chat.example:443", "HTTP://localhost:0080", "https://[::1]:08443", "http://chat.example:443"}, map[string]bool{
			"https://chat.example": true, "http://localhost": true, "https://[::1]:8443": true, "http://chat.example:443": true,
			"http://chat.example": false, "https://localhost": false, "https://[::1]": false,
		}},
		{"of hybrid apps", []string{"capacitor://localhost", "file://", "null", "app://org.example.chat"}, map[string]bool{
			"capacitor://localhost": true, "file://": true, "null": true, "app://org.example.chat": true,
			"ionic://localhost": false, "http://localhost": false, "https://localhost": false, "capacitor://evil": false, "*": false,
		}},
		{"files only", []string{"file://"}, map[string]bool{"file://": true, "null": false}},
		{"any", []string{"*"}, map[string]bool{"https://evil.example": true, "null": true, "": true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			allow, err := originCheck(test.allowed)
			if err != nil {
				t.Fatal(err)
			}
			for origin, want := range test.origins {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/ws", nil)
				if origin != "" {
					r.Header.Set("Origin", origin)
				}
				if got := allow(r); got != want {
					t.Errorf("origin %q: %t, want %t", origin, got, want)
				}
			}
		})
	}
	const noOrigin, more, asterisk = "is not an origin", "has more than a scheme", "has an asterisk"
	for bad, want := range map[string]string{
		"": noOrigin, "chat.example": noOrigin, "https://": noOrigin, "localhost:3000": noOrigin, "https:chat.example": noOrigin, "file:///": noOrigin, "https://:443": noOrigin,
		"https://chat.example/": more, "https://chat.example/page": more, "https://chat.example?x": more, "https://chat.example?": more, "https://chat.example#": more, "https://me@chat.example": more,
		"https://*.chat.example": asterisk, "*.chat.example": noOrigin, "https://*": asterisk, "https://chat.*": asterisk,
		"wss://chat.example": "is the address of a server", "https://bücher.example": "xn--", "https://chat.example:99999": "port above 65535",
	} {
		if _, err := originCheck([]string{"https://good.example", bad}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q ", bad)) || !strings.Contains(err.Error(), want) {
			t.Errorf("origin %q: %v, want %q", bad, err, want)
		}
	}
	if allow, err := originCheck(nil); allow != nil || err != nil {
		t.Error("without origins the gateway does not decide by itself")
	}
}

func TestAuthenticator(t *testing.T) {
	a := open(t, settings(pgtest.NewDB(t, migrated())))
	s := &server{App: a}
	id, err := authenticator{a.tokens}.Authenticate(context.Background(), s.token(t, "ada"))
	if err != nil || id.UserID != "ada" || id.ExpiresAt.IsZero() {
		t.Errorf("identity is %+v, %v", id, err)
	}
	if _, err := (authenticator{a.tokens}).Authenticate(context.Background(), "a.b.c"); err == nil || errors.Is(err, gateway.ErrTokenExpired) {
		t.Errorf("of no token: %v", err)
	}
}
