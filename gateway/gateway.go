// Package gateway tells clients their badges over WebSockets and server-sent
// events: at once when they connect, and with every change.
//
// A connection is a session (session.go) over a link (websocket.go, sse.go),
// with a mailbox (mailbox.go), into which the hub (hub.go) merges what the bus
// brings. Since a bus may lose anything, the gateway also compares what its
// clients hold with the tables from time to time (reconcile.go).
package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/badged/badged/pubsub"
)

// Badges is how the gateway reads the state of users.
type Badges interface {
	// States returns what brings those who hold a state of some users of one
	// partition up to date, in the order given: what changed since, or the whole
	// state where the epoch is another, or none, or the version unknown. More is
	// set where changes are too many to bring anybody up to date.
	States(ctx context.Context, partition int, held []pubsub.Held) ([]pubsub.Snapshot, error)
	// Versions returns epoch and version of each user, in the order given.
	Versions(ctx context.Context, userIDs []string) ([]pubsub.Badge, error)
	// LastSeq returns the last message delivered to a user, 0 if none was.
	LastSeq(ctx context.Context, userID, conversationID string) (int64, error)
}

// Commands makes what a user does durable. When a method returns nil it is. A
// command that comes again under the same key, over whatever connection, is
// the same one and has no further effect; an empty key names nothing.
type Commands interface {
	Read(ctx context.Context, userID, key, conversationID string, upToSeq int64) error
	// ReadAll reads every conversation of a category, or all where it is empty.
	ReadAll(ctx context.Context, userID, key, category string) error
	MarkUnread(ctx context.Context, userID, key, conversationID string) error
}

// InvalidError is an error of Commands that the client is to blame for; its
// message is safe to show.
type InvalidError interface {
	error
	Invalid() string
}

// Identity is who a token speaks for.
type Identity struct {
	UserID string
	// ExpiresAt is when the token ends, and with it the connection.
	ExpiresAt time.Time
}

// ErrTokenExpired is what an Authenticator's error wraps where age is all that
// is wrong with a token: its client may come back with a fresh one.
var ErrTokenExpired = errors.New("the token has expired")

// ErrAuthenticatorAway is what an Authenticator's error wraps where it cannot
// tell at present whether a token is good: its client may come back with it.
var ErrAuthenticatorAway = errors.New("whose the token is cannot be told right now")

// Authenticator tells whose a token is. Its errors are safe to show.
type Authenticator interface {
	Authenticate(ctx context.Context, token string) (Identity, error)
}

// Config is what a gateway serves and how. Badges, Commands, Authenticator, Bus
// and PartitionOf are required.
type Config struct {
	Badges        Badges
	Commands      Commands
	Authenticator Authenticator
	Bus           pubsub.Bus
	// PartitionOf returns the partition of a user.
	PartitionOf func(userID string) int
	// AllowOrigin decides about the Origin header of a browser. Default: the
	// request's own host only.
	AllowOrigin func(r *http.Request) bool
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Metrics defaults to metrics that nobody sees.
	Metrics *Metrics

	// Trace is told of an update with a trace context when a frame with it was
	// written: when it came from the bus, and when it was written. It must not
	// block. Nobody is told by default.
	Trace func(traceParent string, came, written time.Time)

	// Limits are none by default.
	Limits Limits

	// ReconcileInterval is how long a lost update can stay unnoticed. Default
	// 30s.
	ReconcileInterval time.Duration
	// PingInterval is how often a client is asked whether it is there; after
	// two without a word from it the connection ends. Default 25s, below the
	// 60s after which proxies cut what is idle.
	PingInterval time.Duration
	// HelloTimeout is how long a client may take to say hello. Default 5s.
	HelloTimeout time.Duration
	// WriteTimeout is how long a frame may take to be written. Default 10s.
	WriteTimeout time.Duration
	// JoinTimeout is how long to wait for the bus before serving a client from
	// the tables alone. Default 2s.
	JoinTimeout time.Duration
	// ReadTimeout is how long one read of the tables, or one command, may
	// take, the wait for its turn included. Default 5s.
	ReadTimeout time.Duration
	// DrainDuration is the time over which connections are closed when the
	// gateway stops; until it is its turn each is served as ever. Default 0:
	// all at once.
	DrainDuration time.Duration
	// DrainTimeout is how long connections then have to end. Default 5s.
	DrainTimeout time.Duration
	// ReconnectSpread is the time over which those that are closed at once are
	// told to come back. Default 5s.
	ReconnectSpread time.Duration
}

// Gateway serves clients. It is the http.Handler of WebSockets; those of
// server-sent events are ServeSSE and ServeCommands. It is safe for concurrent
// use.
type Gateway struct {
	cfg      Config
	log      *slog.Logger
	metrics  *Metrics
	hub      *hub
	lobby    lobby
	reads    *reads
	upgrader websocket.Upgrader

	// open is closed once Run accepts connections.
	open chan struct{}

	// connects are by where clients come from; commands are those by HTTP, by
	// user.
	connects *limiters[netip.Prefix]
	commands *limiters[string]
	// lookups has a token for each command that asks the tables.
	lookups chan struct{}

	mu       sync.Mutex
	draining bool
	// sessions are the open ones, each with its user once that is known.
	sessions map[*session]string
	// users is how many sessions each user has.
	users map[string]int
	// running counts sessions until they have ended, and the readers of
	// WebSockets until nothing more is read.
	running sync.WaitGroup
}

// New returns a gateway. It accepts connections only while Run runs.
func New(cfg Config) (*Gateway, error) {
	if cfg.Badges == nil || cfg.Commands == nil || cfg.Authenticator == nil || cfg.Bus == nil || cfg.PartitionOf == nil {
		return nil, errors.New("gateway: Badges, Commands, Authenticator, Bus and PartitionOf are required")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics(nil)
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&cfg.ReconcileInterval, 30 * time.Second},
		{&cfg.PingInterval, 25 * time.Second},
		{&cfg.HelloTimeout, 5 * time.Second},
		{&cfg.WriteTimeout, 10 * time.Second},
		{&cfg.JoinTimeout, 2 * time.Second},
		{&cfg.ReadTimeout, 5 * time.Second},
		{&cfg.DrainTimeout, 5 * time.Second},
		{&cfg.ReconnectSpread, 5 * time.Second},
	} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	g := &Gateway{
		cfg:      cfg,
		log:      cfg.Logger,
		metrics:  cfg.Metrics,
		hub:      newHub(),
		reads:    newReads(cfg.Badges, cfg.ReadTimeout),
		lookups:  make(chan struct{}, readsAtOnce),
		open:     make(chan struct{}),
		draining: true, // until Run
		sessions: map[*session]string{},
		users:    map[string]int{},
		connects: newLimiters[netip.Prefix](cfg.Limits.Connects),
		commands: newLimiters[string](cfg.Limits.Commands),
	}
	g.upgrader = websocket.Upgrader{
		// An idle connection keeps its read buffer, and shares write buffers.
		// Most frames of clients have less.
		ReadBufferSize:  256,
		WriteBufferPool: &sync.Pool{},
		CheckOrigin:     cfg.AllowOrigin,
	}
	return g, nil
}

// Open is closed once Run accepts connections.
func (g *Gateway) Open() <-chan struct{} { return g.open }

// Run serves until ctx is done, then drains, and returns nil once all connections
// have ended. It must be called once.
func (g *Gateway) Run(ctx context.Context) error {
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
	var reconciling sync.WaitGroup
	reconciling.Go(func() { g.reconcile(serving) })
	<-ctx.Done()
	g.drain() // and reconcile those that are still to be closed
	stop()
	reconciling.Wait()
	g.reads.stop()
	if err := subscription.Close(); err != nil {
		return fmt.Errorf("gateway: close the subscription: %w", err)
	}
	return nil
}

// meet counts a client that comes, and returns why it may not now; nil if it
// may.
func (g *Gateway) meet(r *http.Request) *closing {
	from, ok := addressOf(r, g.cfg.Limits.TrustedProxies)
	if !ok {
		return nil
	}
	if wait := g.connects.take(networkOf(from), time.Now()); wait > 0 {
		return noRoom(CloseRateLimited, "too many connections come from your address", wait)
	}
	return nil
}

// admit registers a session, which is running until it has ended and as often as
// its link says, or returns why it may not be.
func (g *Gateway) admit(s *session, running int) *closing {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.draining {
		return g.goingAway()
	}
	if most := g.cfg.Limits.Connections; most > 0 && len(g.sessions) >= most {
		return noRoom(CloseCapacity, "the server has as many connections as it may", 0)
	}
	g.sessions[s] = ""
	g.running.Add(running)
	g.metrics.connections.Inc()
	return nil
}

// claim makes a session that of a user, or returns why it may not be.
func (g *Gateway) claim(s *session, userID string) *closing {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.sessions[s]; !ok {
		return nil // it has ended meanwhile
	}
	if most := g.cfg.Limits.UserConnections; most > 0 && g.users[userID] >= most {
		return noRoom(CloseUserConnections, "you have as many connections as a user may", 0)
	}
	g.sessions[s] = userID
	g.users[userID]++
	return nil
}

// dismiss forgets a session that has ended.
func (g *Gateway) dismiss(s *session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if userID := g.sessions[s]; userID != "" {
		if g.users[userID]--; g.users[userID] == 0 {
			delete(g.users, userID)
		}
	}
	delete(g.sessions, s)
	g.metrics.connections.Dec()
}

// identify returns whose a token is, or why its client may not stay.
func (g *Gateway) identify(ctx context.Context, token string) (Identity, *closing) {
	id, err := g.cfg.Authenticator.Authenticate(ctx, token)
	switch {
	case errors.Is(err, ErrTokenExpired):
		return Identity{}, &closing{code: CloseTokenExpired, reason: ErrTokenExpired.Error()}
	case errors.Is(err, ErrAuthenticatorAway):
		return Identity{}, comeBack(ErrAuthenticatorAway.Error())
	case err != nil:
		return Identity{}, &closing{code: CloseBadToken, reason: err.Error()}
	}
	return id, nil
}

// comeBack returns the end of a session that cannot be served right now.
func comeBack(reason string) *closing {
	return &closing{
		code: CloseResync, reason: reason,
		reconnect: time.Second + rand.N(4*time.Second), //nolint:gosec // spreads load, guards nothing
	}
}
