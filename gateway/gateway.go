// Package gateway sends clients their badges over WebSockets and server-sent
// events: when they connect, and after every change.
//
// [New] makes a Gateway, which is a handler for WebSockets; [Gateway.ServeSSE] and
// [Gateway.ServeCommands] serve clients that cannot use them. Its [Config] says where it
// reads badges, stores commands and checks tokens. Package protocol has the frames.
//
// A bus may lose updates, so the gateway also compares the state of its clients with
// what [Badges] says. Inside, a connection is a session (session.go) over a link
// (websocket.go, sse.go), and the hub (hub.go) merges updates from the bus into the
// mailbox of each session (internal/view).
//
// It does not know events, tables or Postgres. ADR 10 explains refusals, ADR 23 why idle
// clients cost little, ADR 42 why the tables override clients.
package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/time/rate"

	"github.com/badged/badged/gateway/internal/crew"
	"github.com/badged/badged/gateway/internal/encode"
	"github.com/badged/badged/gateway/protocol"
	"github.com/badged/badged/internal/dbclock"
	"github.com/badged/badged/internal/defaults"
	"github.com/badged/badged/internal/limit"
	"github.com/badged/badged/pubsub"
)

// Badges reads the state of users. It must be safe for concurrent use. A read must
// see every commit before it began: a standby that lags will not do.
type Badges interface {
	// States returns the state of users of one partition, in the order given:
	// the changes since the held state, or the whole state if the held epoch is
	// empty or another, or the version is unknown. More is set if there are too
	// many changes; the gateway then reads the whole state.
	States(ctx context.Context, partition int, held []pubsub.Held) ([]pubsub.Snapshot, error)
	// View returns the whole state of a user, with only the conversations that some
	// categories cover, and all categories that these cover.
	View(ctx context.Context, userID string, categories []string) (pubsub.Snapshot, error)
	// Versions returns the badge of each user, in the order given. Categories may be
	// missing. Badges without an epoch are of users whose database cannot be read.
	Versions(ctx context.Context, userIDs []string) ([]pubsub.Badge, error)
	// Now returns the time on the clock of the database.
	Now(ctx context.Context) (time.Time, error)
	// Conversation returns a conversation of a user, or the zero value.
	Conversation(ctx context.Context, userID, conversationID string) (pubsub.Conversation, error)
	// IsMember reports whether a conversation is a room and the user a member.
	IsMember(ctx context.Context, userID, conversationID string) (bool, error)
	// Head returns a position at or after everything committed so far for a user. Folded
	// reports whether the user's badge includes everything up to a position.
	Head(ctx context.Context, userID string) (position int64, err error)
	Folded(ctx context.Context, userIDs []string, position int64) (bool, error)
}

// Commands stores what users do. It must be safe for concurrent use. When a method
// returns nil, the command is durable. A command with the key of an earlier one of
// the same user must have no further effect; commands with an empty key are all
// different. Return an [InvalidError] to blame the client; after any other error
// the client tries again.
type Commands interface {
	// Read marks a conversation read up to upToSeq, but no further than messages
	// are delivered: apps are not trusted.
	Read(ctx context.Context, by Identity, key, conversationID string, upToSeq int64) error
	// Seen is the same for what the user has seen.
	Seen(ctx context.Context, by Identity, key, conversationID string, upToSeq int64) error
	// ReadAll marks every conversation that a category covers read, or all if category is
	// empty. SeenAll marks them seen.
	ReadAll(ctx context.Context, by Identity, key, category string) error
	SeenAll(ctx context.Context, by Identity, key, category string) error
	// SetLevel sets the level of a category.
	SetLevel(ctx context.Context, by Identity, key, category, level string) error
	// MarkUnread marks a conversation unread, or only messages of it if it names any.
	MarkUnread(ctx context.Context, by Identity, key, conversationID string, messages Messages) error
}

// Messages names messages of a conversation that count again. The zero value names none.
type Messages struct {
	// Seqs are the messages, unless the conversation is a room.
	Seqs []int64
	// FromSeq, in a room, is the first of them.
	FromSeq int64
}

// InvalidError is an error of [Commands] that the client has caused and should
// not retry.
type InvalidError interface {
	error
	// Invalid returns the message for the client.
	Invalid() string
}

// Identity is the user that a token authenticates.
type Identity struct {
	UserID string
	// ExpiresAt is when the token expires, which ends the connection.
	ExpiresAt time.Time
	// IssuedAt is zero if the token does not say when it was issued.
	IssuedAt time.Time
	// Categories are those that the client may see, sorted; nil for all.
	Categories []string
}

// ErrTokenEnded is wrapped by the error of [Commands] if the token was revoked or has expired
// since the client was authenticated, and nothing was stored. The connection ends.
var ErrTokenEnded = errors.New("the token was revoked or has expired")

// ErrTokenExpired is wrapped by the error of an [Authenticator] if a token was
// valid until it expired. The client comes back with a fresh one.
var ErrTokenExpired = errors.New("the token has expired")

// ErrAuthenticatorAway is wrapped by the error of an [Authenticator] that cannot
// verify a token at the moment. The client comes back with the same token.
var ErrAuthenticatorAway = errors.New("the token cannot be verified right now; try again")

// Authenticator verifies tokens. It must be safe for concurrent use, and is called
// with tokens of any form and length. Clients see the text of its errors, other
// than those that wrap [ErrTokenExpired] or [ErrAuthenticatorAway], and do not
// come back after them.
type Authenticator interface {
	Authenticate(ctx context.Context, token string) (Identity, error)
}

// Config configures a gateway. Badges, Commands, Authenticator, Bus and
// PartitionOf are required. Durations of zero mean the defaults.
type Config struct {
	Badges        Badges
	Commands      Commands
	Authenticator Authenticator
	Bus           pubsub.Bus
	// PartitionOf returns the partition of the updates of a user: [pubsub.Update].
	PartitionOf func(userID string) int
	// RoomsOf returns the partition of the rooms of which a user is a member:
	// [pubsub.RoomUpdate]. It may become another, and RoomsMoved returns what is closed
	// then. Default: PartitionOf, which never changes.
	RoomsOf    func(userID string) int
	RoomsMoved func() <-chan struct{}
	// AllowOrigin accepts or rejects the Origin header of a browser. Default:
	// only the host of the request.
	AllowOrigin func(r *http.Request) bool
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Metrics defaults to metrics that are not registered.
	Metrics *Metrics

	// Trace, if set, is called when a frame with a traced update is written, with
	// the times when the update came from the bus and when the frame was written.
	// It must not block, and is called concurrently.
	Trace func(traceParent string, came, written time.Time)

	// Devices learns which devices have their app open. Default: nothing does.
	Devices Devices

	// BadToken, if set, is called with the address of each client whose token is not
	// valid, other than one that has expired; the address is not valid if it is
	// unknown. It must not block.
	BadToken func(from netip.Prefix)

	// Revocations tells which tokens are revoked. Default: none are.
	Revocations Revocations

	// Limits default to none.
	Limits Limits

	// ReconcileInterval is how often each client is compared with the tables: a
	// lost update stays unnoticed at most about this long. Default 30s.
	ReconcileInterval time.Duration
	// PingInterval is how often a client is pinged; one that stays silent for two
	// intervals is disconnected. Default 25s, below the 60s after which proxies
	// close idle connections.
	PingInterval time.Duration
	// HelloTimeout bounds the wait for a client's hello. Default 5s.
	HelloTimeout time.Duration
	// WriteTimeout bounds the write of a frame. Default 10s.
	WriteTimeout time.Duration
	// JoinTimeout is how long a client waits for the bus before it is served from
	// the tables alone. Default 2s.
	JoinTimeout time.Duration
	// ReadTimeout bounds a read of the tables, and a command, including the wait
	// for a free query. Default 5s.
	ReadTimeout time.Duration
	// DrainDuration is the time over which a stopping gateway closes its
	// connections, one after the other. Default 0: all at once.
	DrainDuration time.Duration
	// DrainTimeout is how long closed connections may then take to end. Default
	// 5s.
	DrainTimeout time.Duration
	// ReconnectSpread is the time over which closed clients are told to come
	// back. Default 5s.
	ReconnectSpread time.Duration
}

// Gateway serves clients. It is an [http.Handler] for WebSockets; ServeSSE serves
// server-sent events, ServeCommands their commands. It is safe for concurrent use.
type Gateway struct {
	cfg       Config
	ran       atomic.Bool
	log       *slog.Logger
	metrics   *Metrics
	hub       *hub
	admission admission
	reads     *reads
	clock     dbclock.Clock
	buffers   encode.Buffers
	crew      *crew.Crew
	upgrader  websocket.Upgrader
	// foreign limits how often a refused origin is logged: any client can send one.
	foreign rate.Sometimes

	// open is closed once Run accepts connections.
	open chan struct{}

	presence *presence

	// connects limits connections by address, commands by user, over all
	// transports.
	connects *limit.Limiters[netip.Prefix]
	commands *limit.Limiters[string]
	// lookups holds a token for each lookUp in progress, of which lookupsOf lets each
	// user have one.
	lookups   chan struct{}
	lookupsOf *limit.AtOnce[string]

	mu       sync.Mutex
	draining bool
	// sessions maps the open sessions to their users, "" before the hello.
	sessions map[*session]string
	// users counts the sessions of each user, claimed all sessions that have a
	// user.
	users   map[string]int
	claimed int
	// running counts the sessions and the readers of WebSockets that have not
	// ended.
	running sync.WaitGroup
}

// New returns a gateway, or an error if a required field is missing. It accepts
// connections only while Run runs.
func New(cfg Config) (*Gateway, error) {
	if cfg.Badges == nil || cfg.Commands == nil || cfg.Authenticator == nil || cfg.Bus == nil || cfg.PartitionOf == nil {
		return nil, errors.New("gateway: Badges, Commands, Authenticator, Bus and PartitionOf are required")
	}
	if cfg.RoomsOf == nil {
		cfg.RoomsOf = cfg.PartitionOf
	}
	if cfg.RoomsMoved == nil {
		cfg.RoomsMoved = func() <-chan struct{} { return nil }
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics(nil)
	}
	if err := cmp.Or(
		defaults.Set("ReconcileInterval", &cfg.ReconcileInterval, 30*time.Second),
		defaults.Set("PingInterval", &cfg.PingInterval, 25*time.Second),
		defaults.Set("HelloTimeout", &cfg.HelloTimeout, 5*time.Second),
		defaults.Set("WriteTimeout", &cfg.WriteTimeout, 10*time.Second),
		defaults.Set("JoinTimeout", &cfg.JoinTimeout, 2*time.Second),
		defaults.Set("ReadTimeout", &cfg.ReadTimeout, 5*time.Second),
		defaults.Set("DrainTimeout", &cfg.DrainTimeout, 5*time.Second),
		defaults.Set("ReconnectSpread", &cfg.ReconnectSpread, 5*time.Second),
		defaults.Set("DrainDuration", &cfg.DrainDuration, 0),
	); err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	g := &Gateway{
		cfg:      cfg,
		log:      cfg.Logger,
		metrics:  cfg.Metrics,
		crew:     new(crew.Crew),
		reads:    newReads(cfg.Badges, cfg.ReadTimeout),
		lookups:  make(chan struct{}, lookupsAtOnce),
		open:     make(chan struct{}),
		draining: true, // until Run
		sessions: map[*session]string{},
		users:    map[string]int{},
		connects: limit.NewLimiters[netip.Prefix](cfg.Limits.Connects),
		commands: limit.NewLimiters[string](cfg.Limits.Commands),
	}
	g.lookupsOf = limit.NewAtOnce[string](1, cfg.ReadTimeout)
	g.hub = newHub(&cfg, g.crew)
	if cfg.Revocations != nil {
		g.hub.look = cfg.Revocations.Look
	}
	g.presence = newPresence(cfg.Devices)
	g.foreign.Interval = refusedOriginLogInterval
	g.upgrader = websocket.Upgrader{
		// An idle connection keeps its read buffer, and shares write buffers. Most
		// frames of clients are smaller.
		ReadBufferSize:  256,
		WriteBufferPool: &sync.Pool{},
		CheckOrigin:     cfg.AllowOrigin,
		Error:           g.refuseUpgrade,
	}
	return g, nil
}

// Open is closed once Run accepts connections.
func (g *Gateway) Open() <-chan struct{} { return g.open }

// Run serves until ctx is done, then drains, and returns when all connections have
// ended. It fails if the bus does, or if it was called before.
func (g *Gateway) Run(ctx context.Context) error {
	if g.ran.Swap(true) {
		return errors.New("gateway: Run was called before; make another with New")
	}
	subscription, err := g.cfg.Bus.Subscribe(g.hub)
	if err != nil {
		return fmt.Errorf("gateway: subscribe to the bus: %w", err)
	}
	g.hub.subscription = subscription
	g.mu.Lock()
	g.draining = false
	g.mu.Unlock()
	close(g.open)

	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { g.reconcile(serving) })
	running.Go(func() { g.hub.pass(serving) })
	running.Go(func() { g.followRooms(serving) })
	running.Go(func() {
		g.presence.run(serving, func(err error) {
			g.log.WarnContext(serving, "cannot note which devices are connected; they get pushes", "error", err)
		})
	})
	<-ctx.Done()
	g.drain() // while reconcile serves the connections not closed yet
	stop()
	running.Wait()
	g.reads.stop()
	if err := subscription.Close(); err != nil {
		return fmt.Errorf("gateway: close the subscription: %w", err)
	}
	return nil
}

// meet counts a new connection, and returns why it is refused, or nil.
func (s *session) meet(r *http.Request) *closing {
	g := s.gateway
	from, ok := ClientOf(r, g.cfg.Limits.TrustedProxies)
	if !ok {
		return nil
	}
	if g.cfg.BadToken != nil {
		s.from = &from
	}
	if wait := g.connects.Take(from, time.Now()); wait > 0 {
		return noRoom(protocol.CloseRateLimited, "too many connections come from your address", wait)
	}
	return nil
}

// admit registers a session, or returns why it is refused. running is how many
// goroutines of its link must end before the session has.
func (g *Gateway) admit(s *session, running int) *closing {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.draining {
		return g.goingAway()
	}
	if refusal := g.full(); refusal != nil {
		return refusal
	}
	g.sessions[s] = ""
	g.running.Add(running)
	g.metrics.connections.Inc()
	return nil
}

// full returns why there is no room for another session, or nil. Sessions without
// a user do not count: the server bounds unauthenticated connections. The caller
// holds the mutex.
func (g *Gateway) full() *closing {
	if most := g.cfg.Limits.Connections; most > 0 && g.claimed >= most {
		return noRoom(protocol.CloseCapacity, "the server has as many connections as it may", 0)
	}
	return nil
}

// claim assigns a session to a user, or returns why it is refused.
func (g *Gateway) claim(s *session, userID string) *closing {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.sessions[s]; !ok {
		return nil // it has ended
	}
	if refusal := g.full(); refusal != nil {
		return refusal
	}
	if most := g.cfg.Limits.UserConnections; most > 0 && g.users[userID] >= most {
		return noRoom(protocol.CloseUserConnections, "you have as many connections as a user may", 0)
	}
	g.sessions[s] = userID
	g.users[userID]++
	g.claimed++
	return nil
}

// dismiss forgets a session that has ended.
func (g *Gateway) dismiss(s *session) {
	g.presence.leave(s)
	g.mu.Lock()
	defer g.mu.Unlock()
	if userID := g.sessions[s]; userID != "" {
		g.claimed--
		if g.users[userID]--; g.users[userID] == 0 {
			delete(g.users, userID)
		}
	}
	delete(g.sessions, s)
	g.metrics.connections.Dec()
}

// identify returns the user of a token from an address, or why the session must end.
func (g *Gateway) identify(ctx context.Context, token string, from netip.Prefix) (Identity, *closing) {
	id, err := g.cfg.Authenticator.Authenticate(ctx, token)
	switch {
	case errors.Is(err, ErrTokenExpired):
		return Identity{}, tokenEnded()
	case errors.Is(err, ErrAuthenticatorAway):
		return Identity{}, comeBack(ErrAuthenticatorAway.Error())
	case err != nil:
		if g.cfg.BadToken != nil {
			g.cfg.BadToken(from)
		}
		return Identity{}, &closing{code: protocol.CloseBadToken, reason: err.Error()}
	}
	// From here on the monotonic clock decides: a clock that is set while a connection is
	// open neither ends it nor prolongs its token.
	now := time.Now()
	id.ExpiresAt = now.Add(id.ExpiresAt.Sub(now))
	return id, nil
}

// tokenEnded closes a session with an expired token.
func tokenEnded() *closing {
	return &closing{code: protocol.CloseTokenExpired, reason: ErrTokenExpired.Error()}
}

// comeBack closes a session that cannot be served at the moment.
func comeBack(reason string) *closing {
	return &closing{
		code: protocol.CloseResync, reason: reason,
		reconnect: time.Second + rand.N(4*time.Second), //nolint:gosec // spreads load, guards nothing
	}
}
