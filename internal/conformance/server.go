package conformance

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
)

// maxFrameBytes is the most bytes of a frame of a client, as the protocol says.
const maxFrameBytes = 4096

// writeTimeout bounds a write to a client that does not read.
const writeTimeout = 10 * time.Second

// server accepts the connections of the client under test and turns what comes
// into events. It answers nothing by itself but pings of WebSockets.
type server struct {
	url  string
	tell func(event)
	http *http.Server

	mu    sync.Mutex
	conns []*conn
	ended bool
	wait  sync.WaitGroup
}

// conn is a connection of the client.
type conn struct {
	*websocket.Conn
	number int
	// protocols are what the client offered, header is its Authorization.
	protocols []string
	header    string
	// mute stops the answers to pings of WebSockets.
	mute atomic.Bool
}

// listen starts a server on a free port.
func listen(ctx context.Context, tell func(event)) (*server, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the client: %w", err)
	}
	s := &server{url: "http://" + listener.Addr().String(), tell: tell}
	s.http = &http.Server{Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: writeTimeout}
	s.wait.Go(func() {
		_ = s.http.Serve(listener) // ends when close closes the listener
	})
	return s, nil
}

// close ends everything and waits for it.
func (s *server) close() {
	_ = s.http.Close() // an error of the listener changes nothing
	s.mu.Lock()
	s.ended = true
	for _, c := range s.conns {
		_ = c.Close() // fails only if it is closed
	}
	s.mu.Unlock()
	s.wait.Wait()
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/v1/ws" {
		s.tell(event{kind: strayed, text: []byte(r.Method + " " + r.URL.Path)})
		http.NotFound(w, r)
		return
	}
	upgrader := websocket.Upgrader{
		Subprotocols: []string{"badge.v1"},
		CheckOrigin:  func(*http.Request) bool { return true }, // a client may be a browser
	}
	ws, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		s.tell(event{kind: strayed, text: []byte("a request that is no WebSocket upgrade: " + err.Error())})
		return
	}
	s.mu.Lock()
	c := &conn{Conn: ws, number: len(s.conns) + 1, protocols: websocket.Subprotocols(r), header: r.Header.Get("Authorization")}
	s.conns = append(s.conns, c)
	if s.ended {
		_ = c.Close() // close has been called
	} else {
		s.wait.Add(1)
		defer s.wait.Done()
	}
	s.mu.Unlock()
	s.read(c)
}

// read turns the frames of a connection into events until it ends.
func (s *server) read(c *conn) {
	defer c.Close()
	c.SetReadLimit(maxFrameBytes)
	c.SetPongHandler(func(string) error {
		s.tell(event{kind: ponged, conn: c})
		return nil
	})
	answer := c.PingHandler()
	c.SetPingHandler(func(data string) error {
		if c.mute.Load() {
			return nil
		}
		return answer(data)
	})
	s.tell(event{kind: opened, conn: c})
	for {
		kind, text, err := c.ReadMessage()
		switch {
		case err != nil:
			s.tell(event{kind: closed, conn: c, err: err})
			return
		case kind != websocket.TextMessage:
			s.tell(event{kind: received, conn: c, text: []byte("a binary frame")})
		default:
			s.tell(event{kind: received, conn: c, text: text})
		}
	}
}

// send writes a frame.
func (c *conn) send(text []byte) error {
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	return c.WriteMessage(websocket.TextMessage, text)
}

// end sends a close frame. The client's answer ends the connection, or cut does.
func (c *conn) end(code int, reason string) error {
	return c.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, reason), time.Now().Add(writeTimeout))
}

// ping sends a ping of WebSockets.
func (c *conn) ping() error {
	return c.WriteControl(websocket.PingMessage, nil, time.Now().Add(writeTimeout))
}

// cut ends the connection without a close frame, with a reset.
func (c *conn) cut() {
	if tcp, ok := c.NetConn().(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // then it ends without a reset, which is as good
	}
	_ = c.Close() // fails only if it is closed
}

// credentials returns the tokens of the handshake by the way in which they came.
func (c *conn) credentials() map[string]string {
	found := map[string]string{}
	if scheme, token, _ := strings.Cut(c.header, " "); strings.EqualFold(scheme, "Bearer") {
		found[wayHeader] = strings.TrimSpace(token)
	}
	for _, p := range c.protocols {
		if token, ok := strings.CutPrefix(p, "bearer."); ok {
			found[waySubprotocol] = token
		}
	}
	return found
}
