package tests

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// foreign is a client that uses a WebSocket library by other authors. It reports events in order.
type foreign interface {
	connect(url string, protocols []string, header http.Header)
	send(text string)
	// close closes with code 1000.
	close()
	events() <-chan foreignEvent
}

// foreignEvent is an event of a foreign client.
type foreignEvent struct {
	Event    string // open, text, close; anything else is an error
	Protocol string // in an event open
	Text     string // in an event text
	Code     int    // in an event close

	// Total is set in events of programs for the conformance kit.
	Total *int64
	Done  int
}

// script is a client in another process. It reads commands and writes events, as lines of JSON.
type script struct {
	t   *testing.T
	in  *json.Encoder
	out chan foreignEvent
}

// newScript starts a script of tests/clients.
func newScript(t *testing.T, program ...string) *script {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program[0], program[1:]...)
	cmd.Dir = "clients"
	stderr := &output{}
	cmd.Stderr = stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &script{t: t, in: json.NewEncoder(stdin), out: make(chan foreignEvent, 1000)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer close(s.out)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			var e foreignEvent
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				e = foreignEvent{Event: "said " + lines.Text()}
			}
			s.out <- e
		}
		_, _ = io.Copy(io.Discard, stdout)
	}()
	t.Cleanup(func() {
		_ = stdin.Close() // this ends it
		<-ended
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v\n%s", program, err, stderr)
		} else if t.Failed() && stderr.String() != "" {
			t.Logf("what %v said:\n%s", program, stderr)
		}
	})
	return s
}

func (s *script) do(command map[string]any) {
	s.t.Helper()
	if err := s.in.Encode(command); err != nil {
		s.t.Fatal(err)
	}
}

func (s *script) connect(url string, protocols []string, header http.Header) {
	s.t.Helper()
	if header != nil {
		s.t.Fatal("scripts do not set headers")
	}
	s.do(map[string]any{"do": "connect", "url": url, "protocols": protocols})
}

func (s *script) send(text string)            { s.t.Helper(); s.do(map[string]any{"do": "send", "text": text}) }
func (s *script) close()                      { s.t.Helper(); s.do(map[string]any{"do": "close"}) }
func (s *script) events() <-chan foreignEvent { return s.out }

// coder is a client with the library coder/websocket.
type coder struct {
	t    *testing.T
	conn *websocket.Conn
	out  chan foreignEvent
}

func newCoder(t *testing.T) *coder { return &coder{t: t, out: make(chan foreignEvent, 1000)} }

func (c *coder) connect(url string, protocols []string, header http.Header) {
	c.t.Helper()
	conn, _, err := websocket.Dial(c.t.Context(), url, &websocket.DialOptions{Subprotocols: protocols, HTTPHeader: header})
	if err != nil {
		c.t.Fatal(err)
	}
	c.conn = conn
	c.out <- foreignEvent{Event: "open", Protocol: conn.Subprotocol()}
	go func() {
		for {
			_, b, err := conn.Read(context.Background())
			if err != nil {
				c.out <- foreignEvent{Event: "close", Code: int(websocket.CloseStatus(err))}
				return
			}
			c.out <- foreignEvent{Event: "text", Text: string(b)}
		}
	}()
	c.t.Cleanup(func() { _ = conn.CloseNow() })
}

func (c *coder) send(text string) {
	c.t.Helper()
	if err := c.conn.Write(c.t.Context(), websocket.MessageText, []byte(text)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *coder) close()                      { _ = c.conn.Close(websocket.StatusNormalClosure, "") } // the events report it
func (c *coder) events() <-chan foreignEvent { return c.out }

// next returns the next event that is not a ping.
func next(t *testing.T, c foreign) foreignEvent {
	t.Helper()
	for {
		select {
		case e, ok := <-c.events():
			if !ok {
				t.Fatal("the client has ended")
			}
			if e.Event == "text" && e.Text == `{"t":"ping"}` {
				c.send(`{"t":"pong"}`)
				continue
			}
			return e
		case <-time.After(patience):
			t.Fatal("the client reports no event")
		}
	}
}

// awaitFrame returns the next frame, which must be of a type.
func awaitFrame(t *testing.T, c foreign, typ string) frame {
	t.Helper()
	e := next(t, c)
	var f frame
	if err := json.Unmarshal([]byte(e.Text), &f); e.Event != "text" || err != nil || f.T != typ {
		t.Fatalf("awaiting a frame %s: %+v", typ, e)
	}
	return f
}

// foreignKind is a kind of client by other authors.
type foreignKind struct {
	name  string
	start func(t *testing.T) foreign
	// token says how the client sends its token: in a header, as a subprotocol, or in its
	// hello.
	token string
}

func foreignKinds() []foreignKind {
	return []foreignKind{
		{"coder/websocket", func(t *testing.T) foreign { return newCoder(t) }, "header"},
		{"Python websockets", func(t *testing.T) foreign { return newScript(t, pythonWith(t, "websockets"), "client.py") }, "hello"},
		{"Node ws", func(t *testing.T) foreign { return newScript(t, "node", "node.mjs") }, "subprotocol"},
		{"Chromium", func(t *testing.T) foreign { return newScript(t, "node", "chromium.mjs") }, "subprotocol"},
	}
}

// A client that does not offer badge.v1 gets the close code for it. The server selects one of the
// client's protocols, since browsers and other clients fail a handshake that selects none.
func TestCloseCodeOfAnotherProtocolReachesTheClient(t *testing.T) {
	t.Parallel()
	p := gatewayAlone(t)
	address := strings.Replace(p.url, "http", "ws", 1) + "/v1/ws"
	for _, kind := range foreignKinds() {
		t.Run(kind.name, func(t *testing.T) {
			c := kind.start(t)
			for _, protocols := range [][]string{{"badge.v2", "chat"}, {"bearer.x.y.z"}, {}} {
				c.connect(address, protocols, nil)
				want := ""
				if len(protocols) > 0 {
					want = protocols[0]
				}
				if e := next(t, c); e.Event != "open" || e.Protocol != want {
					t.Fatalf("connecting with %v: %+v", protocols, e)
				}
				if f := awaitFrame(t, c, "bye"); f.Code != 4004.0 {
					t.Errorf("with %v the server says %+v", protocols, f)
				}
				if e := next(t, c); e.Event != "close" || e.Code != 4004 {
					t.Errorf("with %v it ends with %+v", protocols, e)
				}
			}
		})
	}
}

// Clients with many libraries connect, get changes, read, reconnect and are closed by the server,
// with the same results.
func TestForeignClients(t *testing.T) {
	t.Parallel()
	p := serve(t, newDatabase(t), "--drain-timeout=1m")
	address := strings.Replace(p.url, "http", "ws", 1) + "/v1/ws"
	kinds := foreignKinds()
	clients := make([]foreign, len(kinds))
	for i, kind := range kinds {
		user := fmt.Sprintf("user-%d", i)
		jwt := token(t, user)
		c := kind.start(t)
		clients[i] = c
		// hello connects and says hello with an epoch and a version; 0 means no state.
		hello := func(t *testing.T, epoch string, version int64) {
			t.Helper()
			protocols, first := []string{"badge.v1"}, map[string]any{"t": "hello"}
			var header http.Header
			switch kind.token {
			case "header":
				header = http.Header{"Authorization": {"Bearer " + jwt}}
			case "subprotocol":
				protocols = append(protocols, "bearer."+jwt)
			case "hello":
				first["token"] = jwt
			}
			if version > 0 {
				first["epoch"], first["version"] = epoch, version
			}
			c.connect(address, protocols, header)
			if e := next(t, c); e.Event != "open" || e.Protocol != "badge.v1" {
				t.Fatalf("connecting: %+v", e)
			}
			b, err := json.Marshal(first)
			if err != nil {
				t.Fatal(err)
			}
			c.send(string(b))
		}
		deliver := func(t *testing.T, seq int) {
			t.Helper()
			publish(t, p, event(fmt.Sprintf("%s/%d", user, seq), "message.delivered",
				fmt.Sprintf(`{"conversation_id":"Café ✉ %d","seq":%d,"user_ids":[%q]}`, i, seq, user)))
		}
		conversation := fmt.Sprintf("Café ✉ %d", i)

		t.Run(kind.name, func(t *testing.T) {
			hello(t, "", 0)
			if f := awaitFrame(t, c, "snapshot"); f.Total != 0 || len(f.Conversations) != 0 {
				t.Errorf("the first snapshot is %+v", f)
			}
			deliver(t, 1)
			f := awaitFrame(t, c, "changes")
			if f.Total != 1 || len(f.Conversations) != 1 || f.Conversations[0].ConversationID != conversation {
				t.Errorf("after a message: %+v", f)
			}
			c.send(`{"t":"ping"}`)
			awaitFrame(t, c, "pong")

			c.send(fmt.Sprintf(`{"t":"read","id":7,"conversation_id":%q,"up_to_seq":1}`, conversation))
			for answered, changed := false, false; !answered || !changed; { // in either order
				var said frame
				e := next(t, c)
				if err := json.Unmarshal([]byte(e.Text), &said); err != nil {
					t.Fatalf("after reading: %+v", e)
				}
				switch {
				case said.T == "ok" && said.ID == 7:
					answered = true
				case said.T == "changes" && said.Total == 0:
					changed, f = true, said
				default:
					t.Fatalf("after reading: %+v", e)
				}
			}

			c.close()
			if e := next(t, c); e.Event != "close" || e.Code != 1000 {
				t.Errorf("closing: %+v", e)
			}
			deliver(t, 2)
			hello(t, f.Epoch, f.Version)
			back := awaitFrame(t, c, "changes")
			if back.Version == f.Version { // the client reconnected before the message was folded
				back = awaitFrame(t, c, "changes")
			}
			if back.Total != 1 || back.Version != f.Version+1 {
				t.Errorf("coming back with version %d: %+v", f.Version, back)
			}
		})
	}
	if t.Failed() {
		return
	}
	stopped := make(chan error, 1)
	go func() { stopped <- p.stop() }()
	for i, c := range clients {
		if f := awaitFrame(t, c, "bye"); f.Code != 4200.0 {
			t.Errorf("%s: bye with %v", kinds[i].name, f.Code)
		}
		if e := next(t, c); e.Event != "close" || e.Code != 4200 {
			t.Errorf("%s: at the end of the server: %+v", kinds[i].name, e)
		}
	}
	if err := <-stopped; err != nil {
		t.Errorf("the server did not end cleanly: %v", err)
	}
}
