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

// The largest sizes in bytes that the protocol allows: of a client's frame, and of hello or auth.
const (
	maxFrameBytes      = 4096
	maxTokenFrameBytes = maxFrameBytes + 16<<10
)

// writeTimeout bounds a write to a client that does not read.
const writeTimeout = 10 * time.Second

// server accepts the connections of the client under test and turns what it receives into
// events. By itself it only answers pings of WebSockets.
type server struct {
	url       string
	transport Transport
	tell      func(event)
	http      *http.Server
	// quit ends the handlers of streams and commands.
	quit chan struct{}

	mu    sync.Mutex
	conns []*websocket.Conn
	ended bool
	wait  sync.WaitGroup
}

// link is what differs between the transports of a connection.
type link interface {
	// send writes a frame.
	send(f frame) error
	// ping sends a sign of life below the frames.
	ping() error
	// end begins an orderly close. On a WebSocket, it sends a close frame with a code and a
	// reason, and the connection ends with the client's answer or with cut.
	end(code int, reason string) error
	// cut ends the connection at once, with a TCP reset.
	cut()
}

// conn is a connection of the client.
type conn struct {
	link
	// protocols are the subprotocols that the client offered. header is the value of its
	// header Authorization.
	protocols []string
	header    string
	// lastEventID is the value of the header Last-Event-ID: the epoch and version of the state
	// that the client of a stream has. A stream has this header instead of the frame hello.
	lastEventID string
	// mute stops the answers to pings of WebSockets.
	mute atomic.Bool
}

// listen starts a server on a free port.
func listen(ctx context.Context, transport Transport, tell func(event)) (*server, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the client: %w", err)
	}
	s := &server{url: "http://" + listener.Addr().String(), transport: transport, tell: tell, quit: make(chan struct{})}
	s.http = &http.Server{Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: writeTimeout, ConnContext: withTCP}
	s.wait.Go(func() {
		_ = s.http.Serve(listener) // ends when close closes the listener
	})
	return s, nil
}

// close ends all connections and handlers, and waits for them.
func (s *server) close() {
	_ = s.http.Close() // an error of the listener changes nothing
	s.mu.Lock()
	s.ended = true
	close(s.quit)
	for _, c := range s.conns {
		_ = c.Close() // fails only if it is closed
	}
	s.mu.Unlock()
	s.wait.Wait()
}

// enter counts a handler for which close waits. It returns false if close has been called.
func (s *server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.wait.Add(1)
	}
	return !s.ended
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		return
	}
	defer s.wait.Done()
	switch {
	case s.transport == WebSockets && r.URL.Path == "/v1/ws":
		s.serveSocket(w, r)
	case s.transport == ServerSentEvents && r.Method == http.MethodOptions:
		allowOrigin(w)
	case s.transport == ServerSentEvents && r.Method == http.MethodGet && r.URL.Path == "/v1/sse":
		allowOrigin(w)
		s.serveStream(w, r)
	case s.transport == ServerSentEvents && r.Method == http.MethodPost && r.URL.Path == "/v1/commands":
		allowOrigin(w)
		s.serveCommand(w, r)
	default:
		s.tell(event{kind: strayed, text: []byte(r.Method + " " + r.URL.Path)})
		http.NotFound(w, r)
	}
}

// serveSocket accepts a WebSocket and turns its frames into events until it ends.
func (s *server) serveSocket(w http.ResponseWriter, r *http.Request) {
	upgrader := websocket.Upgrader{
		Subprotocols: []string{"badge.v1"},
		CheckOrigin:  func(*http.Request) bool { return true }, // a client may be a browser
	}
	ws, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		s.tell(event{kind: strayed, text: []byte("a request that is no WebSocket upgrade: " + err.Error())})
		return
	}
	defer ws.Close()
	s.mu.Lock()
	s.conns = append(s.conns, ws)
	ended := s.ended
	s.mu.Unlock()
	if ended {
		return // close has not closed this connection
	}
	c := &conn{link: socket{ws}, protocols: websocket.Subprotocols(r), header: r.Header.Get("Authorization")}
	ws.SetReadLimit(maxTokenFrameBytes)
	ws.SetPongHandler(func(string) error {
		s.tell(event{kind: ponged, conn: c})
		return nil
	})
	answer := ws.PingHandler()
	ws.SetPingHandler(func(data string) error {
		if c.mute.Load() {
			return nil
		}
		return answer(data)
	})
	s.tell(event{kind: opened, conn: c})
	for {
		kind, text, err := ws.ReadMessage()
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

// socket is a WebSocket.
type socket struct{ ws *websocket.Conn }

func (s socket) send(f frame) error {
	if err := s.ws.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	return s.ws.WriteMessage(websocket.TextMessage, f.encode())
}

func (s socket) end(code int, reason string) error {
	return s.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, reason), time.Now().Add(writeTimeout))
}

func (s socket) ping() error {
	return s.ws.WriteControl(websocket.PingMessage, nil, time.Now().Add(writeTimeout))
}

func (s socket) cut() {
	reset(s.ws.NetConn())
	_ = s.ws.Close() // fails only if it is closed
}

// reset closes a TCP connection with a reset.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // if this fails, the connection ends without a reset, which also works
	}
	_ = c.Close() // fails only if it is closed
}

// credentials returns the tokens of the handshake by the way in which they came.
func (c *conn) credentials() map[string]string {
	found := bearer(c.header)
	for _, p := range c.protocols {
		if token, ok := strings.CutPrefix(p, "bearer."); ok {
			found[waySubprotocol] = token
		}
	}
	return found
}

// bearer returns the token of an Authorization header, if it has one.
func bearer(header string) map[string]string {
	found := map[string]string{}
	if scheme, token, _ := strings.Cut(header, " "); strings.EqualFold(scheme, "Bearer") {
		found[wayHeader] = strings.TrimSpace(token)
	}
	return found
}
