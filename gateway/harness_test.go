package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/badged/badged/gateway/protocol"
	"github.com/badged/badged/internal/base/category"
	"github.com/badged/badged/pubsub"
)

// tables fakes the projector's tables: the state of users, changed by commit.
type tables struct {
	mu    sync.Mutex
	epoch string
	users map[string]*pubsub.Snapshot
	// fail is returned by every read while it is set.
	fail error
	// ahead is how far the database's clock is ahead of the local one.
	ahead time.Duration
	// beforeReturn, if set, runs after the state is read and before it is
	// returned, so that its commits are news to the reader.
	beforeReturn func()
	// afterVersions, if set, runs after versions are read and before they are
	// returned.
	afterVersions func()
	reads         int
	// queries has the number of users of each query. While hold is set,
	// queries wait until it is closed.
	queries []int
	hold    chan struct{}
	// heldCalls is how many calls of Conversation wait for hold.
	heldCalls atomic.Int32
	// head is the position of the log. behind is how many times Folded still
	// returns false; then catchUp is called for the user.
	head    int64
	behind  int
	catchUp func(*pubsub.Snapshot)
}

func newTables() *tables {
	return &tables{epoch: "e1", users: map[string]*pubsub.Snapshot{}}
}

// commit sets the unread count of a conversation and returns the update that
// the projector would publish.
func (db *tables) commit(user, conversation string, unread int64) pubsub.Update {
	db.mu.Lock()
	defer db.mu.Unlock()
	s := db.user(user)
	base := s.Version
	s.Version++
	c := pubsub.Conversation{
		ConversationID: conversation, Unread: unread, ReadSeq: 0, LastSeq: unread,
		Level: "default", Category: "chat", Version: s.Version,
	}
	if unread > 0 {
		c.FirstUnreadSeq = 1
	}
	s.Conversations = slices.DeleteFunc(s.Conversations, func(o pubsub.Conversation) bool { return o.ConversationID == conversation })
	s.Conversations = append([]pubsub.Conversation{c}, s.Conversations...)
	s.Numbers = pubsub.Numbers{UnreadConversations: int64(len(s.Conversations))}
	for _, c := range s.Conversations {
		s.Total += c.Unread
	}
	s.Unseen = s.Total
	s.Categories = map[string]pubsub.Numbers{"chat": s.Numbers}
	return pubsub.Update{Badge: s.Badge, BaseVersion: base, Conversations: []pubsub.Conversation{c}}
}

func (db *tables) user(id string) *pubsub.Snapshot {
	if db.users[id] == nil {
		db.users[id] = &pubsub.Snapshot{Badge: pubsub.Badge{UserID: id, Epoch: db.epoch, Categories: map[string]pubsub.Numbers{}}}
	}
	return db.users[id]
}

// setEpoch starts a new epoch, as a rebuild does.
func (db *tables) setEpoch(epoch string) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.epoch = epoch
	for _, s := range db.users {
		s.Epoch, s.Version = epoch, 1
		for i := range s.Conversations {
			s.Conversations[i].Version = 1
		}
	}
}

func (db *tables) setFail(err error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.fail = err
}

// maxChanges is the maximum number of conversations in one answer.
const maxChanges = 5

func (db *tables) read(held pubsub.Held) (pubsub.Snapshot, error) {
	db.mu.Lock()
	if db.fail != nil {
		defer db.mu.Unlock()
		return pubsub.Snapshot{}, db.fail
	}
	db.reads++
	s := *db.user(held.UserID)
	s.Whole = held.Epoch != s.Epoch || held.Version > s.Version
	s.Conversations = slices.DeleteFunc(slices.Clone(s.Conversations), func(c pubsub.Conversation) bool {
		return s.Whole && c.Unread == 0 || !s.Whole && c.Version <= held.Version
	})
	slices.SortFunc(s.Conversations, func(a, b pubsub.Conversation) int { return cmp.Compare(b.Version, a.Version) })
	hook := db.beforeReturn
	db.beforeReturn = nil
	db.mu.Unlock()
	if hook != nil {
		hook()
	}
	return s, nil
}

func (db *tables) States(_ context.Context, _ int, held []pubsub.Held) ([]pubsub.Snapshot, error) {
	db.mu.Lock()
	db.queries = append(db.queries, len(held))
	hold := db.hold
	db.mu.Unlock()
	if hold != nil {
		<-hold
	}
	states := make([]pubsub.Snapshot, len(held))
	for i, h := range held {
		s, err := db.read(h)
		if err != nil {
			return nil, err
		}
		if !s.Whole && len(s.Conversations) > maxChanges {
			s.Conversations, s.More = s.Conversations[:maxChanges], true
		}
		states[i] = s
	}
	return states, nil
}

// View is States for a client that may see some categories.
func (db *tables) View(_ context.Context, user string, categories []string) (pubsub.Snapshot, error) {
	s, err := db.read(pubsub.Held{UserID: user})
	s.Conversations = slices.DeleteFunc(s.Conversations, func(c pubsub.Conversation) bool { return !category.AnyCovers(categories, c.Category) })
	return s, err
}

func (db *tables) Versions(_ context.Context, users []string) ([]pubsub.Badge, error) {
	db.mu.Lock()
	if db.fail != nil {
		defer db.mu.Unlock()
		return nil, db.fail
	}
	badges := make([]pubsub.Badge, len(users))
	for i, id := range users {
		badges[i] = db.user(id).Badge
	}
	hook := db.afterVersions
	db.afterVersions = nil
	db.mu.Unlock()
	if hook != nil {
		hook()
	}
	return badges, nil
}

// Now returns the time on the fake database's clock.
func (db *tables) Now(context.Context) (time.Time, error) { return time.Now().Add(db.ahead), nil }

func (db *tables) IsMember(_ context.Context, _, conversation string) (bool, error) {
	return conversation == "empty room", nil
}

func (db *tables) Conversation(_ context.Context, user, conversation string) (pubsub.Conversation, error) {
	if db.hold != nil {
		db.heldCalls.Add(1)
		<-db.hold
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.fail != nil {
		return pubsub.Conversation{}, db.fail
	}
	for _, c := range db.user(user).Conversations {
		if c.ConversationID == conversation {
			return c, nil
		}
	}
	return pubsub.Conversation{}, nil
}

// Head returns how often it was called.
func (db *tables) Head(context.Context, string) (int64, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.head++
	return db.head, db.fail
}

func (db *tables) Folded(_ context.Context, users []string, position int64) (bool, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if position != db.head {
		return false, fmt.Errorf("folded up to %d of %d?", position, db.head)
	}
	if db.behind > 0 {
		db.behind--
		return false, db.fail
	}
	if db.catchUp != nil {
		db.catchUp(db.user(users[0]))
	}
	return true, db.fail
}

// log fakes the event log: it records what users do.
type log struct {
	mu   sync.Mutex
	done []string
	fail error
}

func (l *log) record(format string, args ...any) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail != nil {
		return l.fail
	}
	l.done = append(l.done, fmt.Sprintf(format, args...))
	return nil
}

// recorded returns what users did.
func (l *log) recorded() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.done)
}

func (l *log) Read(_ context.Context, identity Identity, key, conversation string, upTo int64) error {
	return l.record("%s reads %s up to %d%s", identity.UserID, conversation, upTo, under(key))
}

func (l *log) ReadAll(_ context.Context, identity Identity, key, category string) error {
	if category == "bad" {
		return invalid("category must be good")
	}
	return l.record("%s reads all of %q%s", identity.UserID, category, under(key))
}

func (l *log) Seen(_ context.Context, identity Identity, key, conversation string, upTo int64) error {
	return l.record("%s sees %s up to %d%s", identity.UserID, conversation, upTo, under(key))
}

func (l *log) SeenAll(_ context.Context, identity Identity, key, category string) error {
	return l.record("%s sees all of %q%s", identity.UserID, category, under(key))
}

func (l *log) SetLevel(_ context.Context, identity Identity, key, category, level string) error {
	return l.record("%s sets %q to %s%s", identity.UserID, category, level, under(key))
}

func (l *log) MarkUnread(_ context.Context, identity Identity, key, conversation string, messages Messages) error {
	if messages.FromSeq > 0 {
		return l.record("%s marks %s from %d%s", identity.UserID, conversation, messages.FromSeq, under(key))
	}
	if len(messages.Seqs) > 0 {
		return l.record("%s marks %v of %s%s", identity.UserID, messages.Seqs, conversation, under(key))
	}
	return l.record("%s marks %s%s", identity.UserID, conversation, under(key))
}

// under returns " as KEY" if key is not empty.
func under(key string) string {
	if key == "" {
		return ""
	}
	return " as " + key
}

type invalid string

func (e invalid) Error() string   { return string(e) }
func (e invalid) Invalid() string { return string(e) }

// tokens are "USER", "USER/DURATION" or "USER//CATEGORY,…".
type tokens struct{}

func (tokens) Authenticate(_ context.Context, token string) (Identity, error) {
	user, ttl, _ := strings.Cut(token, "/")
	ttl, names, restricted := strings.Cut(ttl, "/")
	var categories []string
	if restricted {
		categories = strings.Split(names, ",")
	}
	if user == "old" {
		return Identity{}, fmt.Errorf("bad token: %w", ErrTokenExpired)
	}
	if user == "away" {
		return Identity{}, fmt.Errorf("no keys: %w", ErrAuthenticatorAway)
	}
	if user == "bad" {
		return Identity{}, errors.New("bad token: its signature is wrong")
	}
	d := time.Hour
	if ttl != "" {
		var err error
		if d, err = time.ParseDuration(ttl); err != nil {
			return Identity{}, err
		}
	}
	return Identity{UserID: user, ExpiresAt: time.Now().Add(d), Categories: categories}, nil
}

// lossy is a bus that loses updates on request.
type lossy struct {
	pubsub.Bus
	mu   sync.Mutex
	lose bool
}

func (b *lossy) setLose(lose bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lose = lose
}

func (b *lossy) Publish(ctx context.Context, users []pubsub.Update, rooms []pubsub.RoomUpdate) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lose {
		return nil
	}
	return b.Bus.Publish(ctx, users, rooms)
}

// patience is how long a test waits for an event that must come, on a busy
// machine too.
const patience = 3 * time.Minute

// world is a running gateway with its dependencies.
type world struct {
	t        *testing.T
	tables   *tables
	log      *log
	bus      *lossy
	gateway  *Gateway
	metrics  *Metrics
	registry *prometheus.Registry
	url      string
	// http is how clients reach the gateway.
	http *http.Client
	// stop drains the gateway and waits for it.
	stop func()
}

// newWorld returns a world whose clients connect over loopback.
func newWorld(t *testing.T, change func(*Config)) *world {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return newWorldOn(t, l, &http.Transport{}, change)
}

// newPipedWorld returns a world whose clients connect through pipes in memory.
// In a synctest bubble, time advances when all goroutines wait.
func newPipedWorld(t *testing.T, change func(*Config)) *world {
	t.Helper()
	p := pipes{make(chan net.Conn), make(chan struct{})}
	return newWorldOn(t, p, &http.Transport{DialContext: p.dial}, change)
}

// pipes is a listener that clients reach by dial.
type pipes struct {
	dialled chan net.Conn
	closed  chan struct{}
}

func (p pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.dialled <- there:
		return here, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.dialled:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error   { close(p.closed); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "badged.test"} }

func newWorldOn(t *testing.T, l net.Listener, transport *http.Transport, change func(*Config)) *world {
	t.Helper()
	w := &world{
		t: t, tables: newTables(), log: &log{}, bus: &lossy{Bus: pubsub.NewMemory()},
		registry: prometheus.NewRegistry(),
	}
	w.metrics = NewMetrics(w.registry)
	cfg := Config{
		Badges: w.tables, Commands: w.log, Authenticator: tokens{}, Bus: w.bus,
		PartitionOf: func(string) int { return 3 },
		Logger:      slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
		Metrics:     w.metrics,
		// Long, so that they matter only in tests that shorten them.
		ReconcileInterval: time.Hour, PingInterval: time.Hour,
		HelloTimeout: patience, DrainTimeout: patience,
		ReconnectSpread: time.Second,
	}
	if change != nil {
		change(&cfg)
	}
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.gateway = g
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- g.Run(ctx) }()
	mux := http.NewServeMux()
	mux.Handle("/", g)
	mux.HandleFunc("/v1/sse", g.ServeSSE)
	mux.HandleFunc("/v1/commands", g.ServeCommands)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }() // until it is closed
	w.url, w.http = "http://"+l.Addr().String(), &http.Client{Transport: transport}
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ran; err != nil {
			t.Errorf("Run: %v", err)
		}
		transport.CloseIdleConnections()
		if err := server.Shutdown(context.Background()); err != nil {
			t.Errorf("shut down the server: %v", err)
		}
		if err := w.bus.Close(); err != nil {
			t.Errorf("close the bus: %v", err)
		}
	})
	t.Cleanup(w.stop)
	<-g.Open()
	return w
}

// eventually waits for a condition that nothing signals. The test times out if the condition is
// never true.
func eventually(condition func() bool) {
	for !condition() {
		time.Sleep(time.Millisecond)
	}
}

// send commits a change and publishes it.
func (w *world) send(user, conversation string, unread int64) {
	w.t.Helper()
	u := w.tables.commit(user, conversation, unread)
	u.Partition = 3
	if err := w.bus.Publish(context.Background(), []pubsub.Update{u}, nil); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) counter(c prometheus.Collector) float64 { return testutil.ToFloat64(c) }

// client is a WebSocket client from another library.
type client struct {
	t    *testing.T
	conn *websocket.Conn
	// categories are those that it has: see hears.
	categories map[string]pubsub.Numbers
}

// dial connects and sends nothing.
func (w *world) dial(header http.Header, protocols ...string) *client {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, w.url, &websocket.DialOptions{HTTPClient: w.http, HTTPHeader: header, Subprotocols: protocols})
	if err != nil {
		w.t.Fatalf("dial: %v", err)
	}
	w.t.Cleanup(func() { _ = conn.CloseNow() })
	return &client{t: w.t, conn: conn}
}

// connect says hello without a state and takes the snapshot.
func (w *world) connect(user string) (*client, frame) {
	w.t.Helper()
	c := w.greet(user)
	f := c.hear()
	if f.T != "snapshot" {
		w.t.Fatalf("the answer to hello is %s", f.raw)
	}
	return c, f
}

func (c *client) say(text string) {
	c.t.Helper()
	if err := c.conn.Write(c.t.Context(), websocket.MessageText, []byte(text)); err != nil {
		c.t.Fatalf("say %s: %v", text, err)
	}
}

// frame is any frame of the server.
type frame struct {
	protocol.StateFrame
	ID          json.RawMessage `json:"id"`
	Code        any             `json:"code"`
	Message     string          `json:"message"`
	RetryMS     int64           `json:"retry_ms"`
	ReconnectMS int64           `json:"reconnect_ms"`
	PingMS      int64           `json:"ping_ms"`
	More        bool            `json:"more"`
	ExpiresInMS int64           `json:"expires_in_ms"`

	raw string
}

// hear returns the next frame.
func (c *client) hear() frame {
	c.t.Helper()
	f, err := c.listen()
	if err != nil {
		c.t.Fatalf("hear: %v", err)
	}
	return f
}

func (c *client) listen() (frame, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	_, b, err := c.conn.Read(ctx)
	if err != nil {
		return frame{}, err
	}
	f := frame{raw: string(b)}
	return f, json.Unmarshal(b, &f)
}

// farewell returns the close code, its reason and the bye frame before it.
func (c *client) farewell() (code int, reason string, bye frame) {
	c.t.Helper()
	for {
		f, err := c.listen()
		var closed websocket.CloseError
		switch {
		case errors.As(err, &closed):
			return int(closed.Code), closed.Reason, bye
		case err != nil:
			c.t.Fatalf("the connection ended without a close frame: %v", err)
		case f.T == "bye":
			bye = f
		}
	}
}

// unread returns a conversation's unread count in a frame; -1 if it is absent.
func (f frame) unread(conversation string) int64 {
	for _, c := range f.Conversations {
		if c.ConversationID == conversation {
			return c.Unread
		}
	}
	return -1
}
