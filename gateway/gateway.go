// Package gateway sends clients their badges over WebSockets and server-sent events: when they
// connect, and after every change.
//
// [New] makes a Gateway, which is an HTTP handler for WebSockets. [Gateway.ServeSSE] and
// [Gateway.ServeCommands] serve clients that cannot use WebSockets. [Config] has interfaces
// through which the gateway reads badges, stores commands and checks tokens. Package protocol
// defines the frames.
//
// A bus may lose updates, so the gateway also compares the states of its clients with the
// tables of the database, which it reads through [Badges]. In the code, each connection is a
// session (session.go) that writes to a link (websocket.go, sse.go). The hub (hub.go) receives
// updates from the bus and merges them into the mailbox of each session (internal/view).
//
// The package does not know events, tables or Postgres. ADR 10 explains how connections are
// refused, ADR 23 why idle clients use few resources, and ADR 42 why a client is corrected if
// its state differs from the tables.
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

	"github.com/badged/badged/gateway/internal/encode"
	"github.com/badged/badged/gateway/internal/workers"
	"github.com/badged/badged/gateway/protocol"
	"github.com/badged/badged/internal/base/defaults"
	"github.com/badged/badged/internal/base/limit"
	"github.com/badged/badged/internal/pg/dbclock"
	"github.com/badged/badged/pubsub"
)

// Badges reads the state of users. It must be safe for concurrent use. A read must see every
// commit that precedes it: do not read from a standby that lags.
type Badges interface {
	// States returns the states of users of one partition, in the order of held. Each element
	// of held names a user, and the state that the user's client has. Usually the returned
	// state contains only the changes since the client's state. If the client's epoch is empty
	// or is not the current epoch, or if the client's version is unknown, States returns the
	// whole state and sets Whole. If there are too many changes to return, States sets More
	// without Whole, and the gateway then reads the whole state.
	States(ctx context.Context, partition int, held []pubsub.Held) ([]pubsub.Snapshot, error)
	// View returns the whole state of a user, limited to the conversations and categories that
	// the given categories cover.
	View(ctx context.Context, userID string, categories []string) (pubsub.Snapshot, error)
	// Versions returns the badge of each user, in the order of userIDs. Categories of the
	// badges may be nil. A badge without an epoch means that the user's database cannot be
	// read.
	Versions(ctx context.Context, userIDs []string) ([]pubsub.Badge, error)
	// Now returns the time by the clock of the database.
	Now(ctx context.Context) (time.Time, error)
	// Conversation returns a conversation of a user, or the zero value if there is none.
	Conversation(ctx context.Context, userID, conversationID string) (pubsub.Conversation, error)
	// IsMember reports whether the conversation is a room of which the user is a member.
	IsMember(ctx context.Context, userID, conversationID string) (bool, error)
	// Head returns a position in the log, to be passed to Folded. Every event that was
	// committed for the user before the call of Head is at or before this position.
	Head(ctx context.Context, userID string) (position int64, err error)
	// Folded reports whether the badges of all given users include every event up to a position.
	Folded(ctx context.Context, userIDs []string, position int64) (bool, error)
}

// Commands stores the commands of users, such as reads and marks. It must be safe for
// concurrent use. A command is durable when its method returns nil. If a command has the same
// key as an earlier command of the same user, it must have no further effect. Commands with an
// empty key are never treated as repeated.
//
// Return an [InvalidError] for a command that the client must not repeat, and an error that
// wraps [ErrTokenEnded] if the token is no longer valid. After any other error the client tries
// again.
type Commands interface {
	// Read marks a conversation read up to upToSeq, but not beyond the last delivered message,
	// since apps are not trusted.
	Read(ctx context.Context, identity Identity, key, conversationID string, upToSeq int64) error
	// Seen marks a conversation seen up to upToSeq, but not beyond the last delivered message.
	Seen(ctx context.Context, identity Identity, key, conversationID string, upToSeq int64) error
	// ReadAll marks conversations read: all conversations that the category covers or, if
	// category is empty, all conversations of the user. SeenAll marks the same conversations
	// seen.
	ReadAll(ctx context.Context, identity Identity, key, category string) error
	SeenAll(ctx context.Context, identity Identity, key, category string) error
	// SetLevel sets the level of a category.
	SetLevel(ctx context.Context, identity Identity, key, category, level string) error
	// MarkUnread marks a conversation unread or, if messages is not the zero value, the messages
	// that it selects.
	MarkUnread(ctx context.Context, identity Identity, key, conversationID string, messages Messages) error
}

// Messages selects the messages of a conversation that are marked unread. The zero value
// selects no messages: then the conversation itself is marked.
type Messages struct {
	// Seqs are the seqs of the messages to mark. It is nil for a room.
	Seqs []int64
	// FromSeq is the seq of the first message to mark in a room: this message and all later
	// messages are marked. It is 0 for other conversations.
	FromSeq int64
}

// InvalidError is an error of [Commands] that the client caused: the client should not retry
// the command.
type InvalidError interface {
	error
	// Invalid returns the message for the client.
	Invalid() string
}

// Identity is the user of a token, and what the token allows.
type Identity struct {
	UserID string
	// ExpiresAt is when the token expires. The connection then ends.
	ExpiresAt time.Time
	// IssuedAt is zero if the token does not say when it was issued.
	IssuedAt time.Time
	// Categories are the categories that the client may see, sorted; nil for all.
	Categories []string
}

// ErrTokenEnded is wrapped by an error of [Commands] if the token was revoked or expired after
// the client was authenticated. Nothing was stored, and the connection ends.
var ErrTokenEnded = errors.New("the token was revoked or has expired")

// ErrTokenExpired is wrapped by an error of an [Authenticator] if the token was valid until it
// expired. The client then reconnects with a new token.
var ErrTokenExpired = errors.New("the token has expired")

// ErrAuthenticatorAway is wrapped by an error of an [Authenticator] that cannot verify a token
// at the moment. The client then tries again with the same token.
var ErrAuthenticatorAway = errors.New("the token cannot be verified right now; try again")

// Authenticator verifies tokens. It must be safe for concurrent use, and must accept input of
// any form and length. An error that wraps neither [ErrTokenExpired] nor [ErrAuthenticatorAway]
// is final: the client gets its text and does not reconnect.
type Authenticator interface {
	Authenticate(ctx context.Context, token string) (Identity, error)
}

// Config configures a gateway. Badges, Commands, Authenticator, Bus and PartitionOf are
// required. A duration of zero means the default.
type Config struct {
	Badges        Badges
	Commands      Commands
	Authenticator Authenticator
	Bus           pubsub.Bus
	// PartitionOf returns the partition under which updates of a user are published: see
	// [pubsub.Update].
	PartitionOf func(userID string) int
	// RoomsOf returns the partition under which updates of a user's rooms are published: see
	// [pubsub.RoomUpdate]. This partition changes when partitions are split. RoomsMoved returns
	// a channel that is closed at the next change. By default RoomsOf is PartitionOf, and
	// RoomsMoved returns nil, since the partition then never changes.
	RoomsOf    func(userID string) int
	RoomsMoved func() <-chan struct{}
	// AllowOrigin accepts or rejects the Origin header of a browser. Default: accepts only the
	// host of the request.
	AllowOrigin func(r *http.Request) bool
	// Logger defaults to a logger that discards everything.
	Logger *slog.Logger
	// Metrics defaults to metrics that are not registered.
	Metrics *Metrics

	// Trace, if set, is called after the gateway has written a frame that contains a traced
	// update. traceParent is the trace context of the update, `came` is the time when the
	// update arrived from the bus, and `written` is the time when the write ended. Trace is
	// called concurrently and must not block.
	Trace func(traceParent string, came, written time.Time)

	// Devices records which devices have their app open. Default: nothing is recorded.
	Devices Devices

	// BadToken, if set, is called for each client whose token is invalid. It is not called for
	// an expired token. `from` is the network of the client (see [ClientOf]), or the zero Prefix
	// if the network is unknown. BadToken must not block.
	BadToken func(from netip.Prefix)

	// Revocations reports which tokens are revoked. Default: none.
	Revocations Revocations

	// Limits limit clients. Default: no limits.
	Limits Limits

	// ReconcileInterval is the longest time between two comparisons of a client with the
	// tables. So a lost update is detected after about this time at the latest. Default 30s.
	ReconcileInterval time.Duration
	// PingInterval is how often a client is pinged. If no frame of a client arrives for two
	// intervals, the gateway disconnects the client. Default 25s, since many proxies close
	// connections that are idle for 60s.
	PingInterval time.Duration
	// HelloTimeout limits the wait for a client's hello frame. Default 5s.
	HelloTimeout time.Duration
	// WriteTimeout limits the write of one frame. Default 10s.
	WriteTimeout time.Duration
	// JoinTimeout limits how long a client waits until the bus acknowledges a subscription.
	// After the timeout the client gets its state from the tables alone, through
	// reconciliation, until the bus works again. Default 2s.
	JoinTimeout time.Duration
	// ReadTimeout limits a read of the tables, and a command. This time includes the time in
	// the queue, since the gateway limits concurrent queries. Default 5s.
	ReadTimeout time.Duration
	// DrainDuration is the time over which a stopping gateway closes its connections, at an
	// even rate. Default 0: all at once.
	DrainDuration time.Duration
	// DrainTimeout is how long the gateway waits after DrainDuration for connections to end,
	// before it closes the remaining connections at once. Default 5s.
	DrainTimeout time.Duration
	// ReconnectSpread is the longest delay after which clients of a stopping gateway reconnect.
	// Each client gets a random delay. Default 5s.
	ReconnectSpread time.Duration
}

// Gateway serves clients. It is an [http.Handler] for WebSockets. ServeSSE serves server-sent
// events, and ServeCommands the commands of such clients. It is safe for concurrent use.
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
	pool      *workers.Pool
	upgrader  websocket.Upgrader
	// foreign limits how often refused origins are logged, since any client can cause such a
	// log line.
	foreign rate.Sometimes

	// open is closed when Run begins to accept connections.
	open chan struct{}

	presence *presence

	// connects limits the rate of new connections of each network. commands limits the rate of
	// commands of each user. Both limits count WebSockets and HTTP together.
	connects *limit.Limiters[netip.Prefix]
	commands *limit.Limiters[string]
	// lookups is a semaphore that limits the concurrent calls of lookUp: it contains a value
	// for each call in progress. lookupsOf allows one call at a time for each user.
	lookups   chan struct{}
	lookupsOf *limit.AtOnce[string]

	mu       sync.Mutex
	draining bool
	// sessions maps each open session to its user id, which is "" before the hello.
	sessions map[*session]string
	// users counts the sessions of each user. claimed counts the sessions that have a user.
	users   map[string]int
	claimed int
	// running counts the goroutines that must end before a drain is complete: for each session
	// its worker and, for a WebSocket, also its reader.
	running sync.WaitGroup
}

// New returns a gateway, or an error if a required field is missing or a duration is negative.
// The gateway accepts connections only while Run runs.
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
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.Metrics = cmp.Or(cfg.Metrics, NewMetrics(nil))
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
		pool:     new(workers.Pool),
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
	g.hub = newHub(&cfg, g.pool)
	if cfg.Revocations != nil {
		g.hub.look = cfg.Revocations.Look
	}
	g.presence = newPresence(cfg.Devices)
	g.foreign.Interval = refusedOriginLogInterval
	g.upgrader = websocket.Upgrader{
		// The read buffer is small: an idle connection keeps it, and most frames of clients fit
		// into it. Connections share write buffers.
		ReadBufferSize:  256,
		WriteBufferPool: &sync.Pool{},
		CheckOrigin:     cfg.AllowOrigin,
		Error:           g.refuseUpgrade,
	}
	return g, nil
}

// Open returns a channel that is closed when Run begins to accept connections.
func (g *Gateway) Open() <-chan struct{} { return g.open }

// Run serves until ctx is done, then drains the connections, and returns when all have ended.
// It returns an error if it was called before, or if the bus fails to open or close a
// subscription.
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
			g.log.WarnContext(serving, "cannot record which devices are connected; they get pushes", "error", err)
		})
	})
	<-ctx.Done()
	g.drain() // reconcile still serves the connections that are not closed yet
	stop()
	running.Wait()
	g.reads.stop()
	if err := subscription.Close(); err != nil {
		return fmt.Errorf("gateway: close the subscription: %w", err)
	}
	return nil
}

// limitNetwork counts a new connection against the rate limit of its network. If the connection is
// refused, limitNetwork returns a closing with the reason. It also stores the network of the client
// for Config.BadToken.
func (s *session) limitNetwork(r *http.Request) *closing {
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

// admit registers a session. If the session is refused, it returns a closing with the reason.
// The parameter running is the number of goroutines of the session that will call
// g.running.Done: 1 for the worker, plus 1 for the reader of a WebSocket.
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

// full returns a closing with the reason if the gateway has reached its limit of connections.
// Sessions without a user do not count, since the server has a separate limit for
// unauthenticated connections. The caller holds the mutex.
func (g *Gateway) full() *closing {
	if limit := g.cfg.Limits.Connections; limit > 0 && g.claimed >= limit {
		return noRoom(protocol.CloseCapacity, "the server has reached its limit of connections", 0)
	}
	return nil
}

// claim is called when a hello is accepted. It records the user of the session. If the gateway or
// the user has reached its limit of connections, claim returns a closing with the reason.
func (g *Gateway) claim(s *session, userID string) *closing {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.sessions[s]; !ok {
		return nil // the session has ended
	}
	if refusal := g.full(); refusal != nil {
		return refusal
	}
	if limit := g.cfg.Limits.UserConnections; limit > 0 && g.users[userID] >= limit {
		return noRoom(protocol.CloseUserConnections, "you have reached the limit of connections of a user", 0)
	}
	g.sessions[s] = userID
	g.users[userID]++
	g.claimed++
	return nil
}

// dismiss removes a session that has ended.
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

// identify verifies the token of a client. If the token is refused, it returns a closing with
// the reason. `from` is the network of the client, for Config.BadToken.
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
	// A time that is computed from Now has a reading of the monotonic clock. So if the system
	// clock is set while a connection is open, the token expires neither sooner nor later.
	now := time.Now()
	id.ExpiresAt = now.Add(id.ExpiresAt.Sub(now))
	return id, nil
}

// tokenEnded returns the closing for a session with an expired token.
func tokenEnded() *closing {
	return &closing{code: protocol.CloseTokenExpired, reason: ErrTokenExpired.Error()}
}

// comeBack returns the closing for a session that cannot be served at the moment: its client
// should reconnect in one to five seconds.
func comeBack(reason string) *closing {
	return &closing{
		code: protocol.CloseResync, reason: reason,
		reconnect: time.Second + rand.N(4*time.Second), //nolint:gosec // spreads load, guards nothing
	}
}
