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

// The maximum sizes, in bytes, that the protocol allows for frames of a client. maxTokenFrameBytes
// is for the frames hello and auth, which contain a token; maxFrameBytes is for all other frames.
const (
	maxFrameBytes      = 4096
	maxTokenFrameBytes = maxFrameBytes + 16<<10
)

// writeTimeout bounds a write to a client that does not read from its connection.
const writeTimeout = 10 * time.Second

// server accepts connections of the client under test. It turns everything that the client sends
// into events, and answers pings of WebSockets. The script of the scenario does everything else.
type server struct {
	url       string
	transport Transport
	tell      func(event)
	http      *http.Server
	// quit is closed to end the handlers of streams and commands.
	quit chan struct{}

	mu    sync.Mutex
	conns []*websocket.Conn
	ended bool
	wait  sync.WaitGroup
}

// link is the part of a connection that depends on the transport.
type link interface {
	send(f frame) error
	// ping shows the client that the server is alive, without a frame of badge.v1: it sends a ping
	// of WebSockets, or a comment on a stream.
	ping() error
	// end begins an orderly close. On a WebSocket, it sends a close frame with a code and a reason;
	// the connection ends when the client answers the close frame, or when cut is called. On a
	// stream, it ends the response.
	end(code int, reason string) error
	// cut ends the connection at once, with a TCP reset.
	cut()
}

// conn is a connection of the client.
type conn struct {
	link
	// protocols has the subprotocols that the client offered. header is the value of the client's
	// Authorization header.
	protocols []string
	header    string
	// lastEventID is the value of the client's Last-Event-ID header. On a stream, this header
	// replaces the frame hello: it has the epoch and version of the client's state.
	lastEventID string
	// mute is true while the server does not answer pings of WebSockets.
	mute atomic.Bool
}

// listen starts a server on a free port of the loopback interface.
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

// close ends all connections and handlers, and waits until the handlers have returned.
func (s *server) close() {
	_ = s.http.Close() // an error of closing the listener does not matter
	s.mu.Lock()
	s.ended = true
	close(s.quit)
	for _, c := range s.conns {
		_ = c.Close() // it fails only if the connection is closed already
	}
	s.mu.Unlock()
	s.wait.Wait()
}

// enter registers a handler, so that close waits for the end of the handler. It returns false if
// close has been called.
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

// serveSocket accepts a WebSocket and reports its frames as events until it ends.
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
		return // the server was closed before this connection was added to conns
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
	_ = s.ws.Close() // it fails only if the connection is closed already
}

// reset closes a TCP connection so that the client receives a reset.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // if this fails, the connection ends without a reset, which also ends the step
	}
	_ = c.Close() // it fails only if the connection is closed already
}

// credentials returns the tokens in the client's handshake. The keys of the result are the ways in
// which the client sent the tokens, such as waySubprotocol.
func (c *conn) credentials() map[string]string {
	found := bearer(c.header)
	for _, p := range c.protocols {
		if token, ok := strings.CutPrefix(p, "bearer."); ok {
			found[waySubprotocol] = token
		}
	}
	return found
}

// bearer returns the token of an Authorization header as a map with the key wayHeader. The map is
// empty if the header has no token.
func bearer(header string) map[string]string {
	found := map[string]string{}
	if scheme, token, _ := strings.Cut(header, " "); strings.EqualFold(scheme, "Bearer") {
		found[wayHeader] = strings.TrimSpace(token)
	}
	return found
}
