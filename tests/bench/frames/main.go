// Frames sends frames to many WebSocket clients, round by round, in one of three
// ways: with badged's gateway, from updates of users or of one room, or with a plain
// loop over the connections of gorilla/websocket. It has no database: users and
// rooms are made up, so that the cost of delivery is seen alone.
//
// It listens on a free loopback port and prints one line, as badged does, once it is
// ready. POST /round begins the next round: each client gets one frame, unless it
// gets that of a later round instead.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/gorilla/websocket"

	"github.com/badged/badged/gateway"
	"github.com/badged/badged/gateway/protocol"
	"github.com/badged/badged/pubsub"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "frames:", err)
		os.Exit(1)
	}
}

// sender sends rounds to the clients of its handler.
type sender interface {
	http.Handler
	round(ctx context.Context) error
}

func run(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("give one way: loop, users or room")
	}
	ways := map[string]func(context.Context) (sender, func() error, error){
		"loop":  newLoop,
		"users": func(ctx context.Context) (sender, func() error, error) { return newBadged(ctx, false) },
		"room":  func(ctx context.Context) (sender, func() error, error) { return newBadged(ctx, true) },
	}
	open, ok := ways[args[0]]
	if !ok {
		return fmt.Errorf("unknown way %q: give loop, users or room", args[0])
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	s, wait, err := open(serving)
	if err != nil {
		return err
	}
	if err := serve(ctx, s); err != nil {
		return err
	}
	stop()
	return wait()
}

// serve serves until ctx is done.
func serve(ctx context.Context, s sender) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/v1/ws", s)
	mux.HandleFunc("POST /round", func(w http.ResponseWriter, r *http.Request) {
		if err := s.round(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	fmt.Fprintf(os.Stderr, "badged: ready on http://%s\n", l.Addr())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
		_ = server.Close() // connections need no goodbye
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve: %w", err)
		}
		return nil
	}
}

// loop is a plain broadcast.
type loop struct {
	upgrader websocket.Upgrader

	mu    sync.Mutex
	conns []*websocket.Conn
	n     int64
}

func newLoop(context.Context) (sender, func() error, error) {
	return new(loop), func() error { return nil }, nil
}

// ServeHTTP implements http.Handler. It answers the hello as a gateway does.
func (l *loop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	conn, err := l.upgrader.Upgrade(w, r, http.Header{"Sec-Websocket-Protocol": {protocol.Subprotocol}})
	if err != nil { // the upgrader has answered
		return
	}
	defer conn.Close()
	_, _, err = conn.ReadMessage()
	if err == nil {
		err = conn.WriteMessage(websocket.TextMessage, frameOf("snapshot", 0))
	}
	if err != nil {
		return
	}
	l.mu.Lock()
	l.conns = append(l.conns, conn)
	l.mu.Unlock()
	_, _, _ = conn.ReadMessage() // until the client is gone
}

// round writes one frame to each client.
func (l *loop) round(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	frame := frameOf("changes", l.n)
	for _, conn := range l.conns {
		if err := conn.WriteMessage(websocket.TextMessage, frame); err != nil {
			return err
		}
	}
	return nil
}

// frameOf returns a frame as a gateway sends it in round n.
func frameOf(t string, n int64) []byte {
	type frame struct {
		T string `json:"t"`
		pubsub.Badge
		Conversations []pubsub.Conversation `json:"conversations"`
	}
	f := frame{t, badgeOf("user-1234", n), []pubsub.Conversation{conversationOf(n)}}
	b, err := json.Marshal(f)
	if err != nil {
		panic(err)
	}
	return b
}

// badgeOf is the badge of every user after n rounds.
func badgeOf(user string, n int64) pubsub.Badge {
	return pubsub.Badge{UserID: user, Epoch: "0198f0a2b3c4", Version: n, Total: n, Categories: map[string]int64{"chat": n}}
}

// conversationOf is the conversation of every user after n rounds.
func conversationOf(n int64) pubsub.Conversation {
	return pubsub.Conversation{
		ConversationID: "conversation-1234", Unread: n, FirstUnreadSeq: min(1, n), LastSeq: n, Level: "all", Category: "chat", Version: n,
	}
}

// roomOf is the room of every user after n rounds.
func roomOf(n int64) pubsub.Room {
	r := pubsub.Room{ConversationID: "conversation-1234", Changes: n, LastSeq: n, Category: "chat"}
	if n > 0 {
		r.Live = pubsub.Seqs{{First: 1, Last: n}}
	}
	return r
}

// badged sends rounds through a gateway.
type badged struct {
	*gateway.Gateway
	bus    *pubsub.Memory
	inRoom bool

	mu    sync.Mutex
	users []string
	known map[string]bool
	n     int64
}

func newBadged(ctx context.Context, inRoom bool) (sender, func() error, error) {
	b := &badged{bus: pubsub.NewMemory(), inRoom: inRoom, known: map[string]bool{}}
	g, err := gateway.New(gateway.Config{
		Badges: b, Commands: b, Authenticator: b, Bus: b.bus, PartitionOf: func(string) int { return 0 },
	})
	if err != nil {
		return nil, nil, err
	}
	b.Gateway = g
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	<-g.Open()
	return b, func() error { return errors.Join(<-ended, b.bus.Close()) }, nil
}

// round publishes what a projector would.
func (b *badged) round(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n++
	if b.inRoom {
		return b.bus.PublishRooms(ctx, []pubsub.RoomUpdate{{Room: roomOf(b.n), Epoch: badgeOf("", 0).Epoch, BaseChanges: b.n - 1}})
	}
	updates := make([]pubsub.Update, len(b.users))
	for i, user := range b.users {
		updates[i] = pubsub.Update{Badge: badgeOf(user, b.n), BaseVersion: b.n - 1, Conversations: []pubsub.Conversation{conversationOf(b.n)}}
	}
	return b.bus.Publish(ctx, updates)
}

// Authenticate implements gateway.Authenticator: the token is the user.
func (b *badged) Authenticate(_ context.Context, token string) (gateway.Identity, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.known[token] {
		b.known[token] = true
		b.users = append(b.users, token)
	}
	return gateway.Identity{UserID: token, ExpiresAt: time.Now().Add(time.Hour)}, nil
}

// States implements gateway.Badges.
// View implements gateway.Badges. No token is restricted.
func (b *badged) View(context.Context, string, []string) (pubsub.Snapshot, error) {
	return pubsub.Snapshot{}, errors.ErrUnsupported
}

func (b *badged) States(_ context.Context, _ int, held []pubsub.Held) ([]pubsub.Snapshot, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	states := make([]pubsub.Snapshot, len(held))
	for i, h := range held {
		s := pubsub.Snapshot{Badge: badgeOf(h.UserID, b.n), Conversations: []pubsub.Conversation{conversationOf(b.n)}, Whole: h.Epoch == ""}
		if b.inRoom {
			room := roomOf(b.n)
			s.Rest = badgeOf(h.UserID, 0)
			s.Rest.Categories = map[string]int64{}
			s.Memberships = []pubsub.Membership{{Level: "all", Room: &room}}
		}
		states[i] = s
	}
	return states, nil
}

// Versions implements gateway.Badges.
func (b *badged) Versions(_ context.Context, userIDs []string) ([]pubsub.Badge, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	badges := make([]pubsub.Badge, len(userIDs))
	for i, id := range userIDs {
		badges[i] = badgeOf(id, b.n)
	}
	return badges, nil
}

// Now implements gateway.Badges.
func (b *badged) Now(context.Context) (time.Time, error) { return time.Now(), nil }

var errNoCommands = errors.New("this program takes no commands")

// Conversation implements gateway.Badges.
func (b *badged) Conversation(context.Context, string, string) (pubsub.Conversation, error) {
	return pubsub.Conversation{}, errNoCommands
}

// IsMember implements gateway.Badges.
func (b *badged) IsMember(context.Context, string, string) (bool, error) { return false, errNoCommands }

// Head implements gateway.Badges.
func (b *badged) Head(context.Context, string) (int64, error) { return 0, errNoCommands }

// Folded implements gateway.Badges.
func (b *badged) Folded(context.Context, []string, int64) (bool, error) { return false, errNoCommands }

// Read implements gateway.Commands.
func (b *badged) Read(context.Context, gateway.Identity, string, string, int64) error {
	return errNoCommands
}

// ReadAll implements gateway.Commands.
func (b *badged) ReadAll(context.Context, gateway.Identity, string, string) error {
	return errNoCommands
}

// MarkUnread implements gateway.Commands.
func (b *badged) MarkUnread(context.Context, gateway.Identity, string, string, gateway.Messages) error {
	return errNoCommands
}
