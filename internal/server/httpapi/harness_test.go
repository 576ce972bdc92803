package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/describe"
	"github.com/badged/badged/internal/base/describe/describetest"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/server/auth"
	"github.com/badged/badged/internal/server/httpapi"
	"github.com/badged/badged/internal/server/keyring"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

// Credentials for the tests.
const (
	publisherKey = "publisher-secret"
	adminKey     = "admin-secret"
	adaToken     = "ada.good.token"
	chatToken    = "ada.chat.token" // of two categories
	benToken     = "ben.good.token"
	oldToken     = "ada.expired.token"
)

// appender is an httpapi.Appender that records its events.
type appender struct {
	mu    sync.Mutex
	calls [][]events.Event
	err   error
}

func (a *appender) Append(_ context.Context, evs ...events.Event) (events.Receipt, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return events.Receipt{}, a.err
	}
	a.calls = append(a.calls, evs)
	return events.Receipt{TransactionID: 4711, Partitions: []int{0}}, nil
}

// fakeBadges is an httpapi.Badges whose totals are the lengths of user ids.
type fakeBadges struct {
	err error
	// pages answers Conversations, by cursor.
	pages map[string]page
	// asked is the last call of Conversations.
	asked string
	// unfolded is how many times Folded still returns false.
	unfolded int
	// looks are the positions that Folded was called with.
	looks []int64
}

type page struct {
	conversations []pubsub.Conversation
	next          string
	err           error
}

func badgeOf(userID string) pubsub.Badge {
	return pubsub.Badge{
		UserID: userID, Epoch: "e1", Version: 7, Numbers: pubsub.Numbers{Total: int64(len(userID)), Mentions: 1, UnreadConversations: 1},
		Categories: map[string]pubsub.Numbers{"chat": {Total: int64(len(userID)), Mentions: 1, UnreadConversations: 1}},
	}
}

func (b *fakeBadges) Badge(_ context.Context, userID string) (pubsub.Badge, error) {
	return badgeOf(userID), b.err
}

func (b *fakeBadges) ShownBadges(_ context.Context, userIDs []string) ([]pubsub.Badge, error) {
	all := make([]pubsub.Badge, len(userIDs))
	for i, id := range userIDs {
		all[i] = badgeOf(id)
	}
	return all, b.err
}

func (b *fakeBadges) View(_ context.Context, userID string, categories []string) (pubsub.Snapshot, error) {
	b.asked = fmt.Sprintf("user=%s categories=%v", userID, categories)
	s := pubsub.Snapshot{Badge: badgeOf(userID)}
	s.Total += 100
	s.Categories["likes"] = pubsub.Numbers{Total: 100, UnreadConversations: 10}
	return s, b.err
}

func (b *fakeBadges) Conversations(_ context.Context, userID string, f badges.Filter, limit int, cursor string) ([]pubsub.Conversation, string, error) {
	b.asked = fmt.Sprintf("user=%s unread=%t limit=%d cursor=%s", userID, f.Unread, limit, cursor)
	if f.Within != nil {
		b.asked += fmt.Sprintf(" categories=%v", f.Within)
	}
	if f.Category != "" {
		b.asked += " category=" + f.Category
	}
	if f.Muted != nil {
		b.asked += fmt.Sprintf(" muted=%t", *f.Muted)
	}
	p := b.pages[cursor]
	return p.conversations, p.next, errors.Join(p.err, b.err)
}

func (b *fakeBadges) Categories(_ context.Context, userID string, within []string, of string, limit int, cursor string) ([]badges.Category, string, error) {
	b.asked = fmt.Sprintf("user=%s within=%v category=%s limit=%d cursor=%s", userID, within, of, limit, cursor)
	if cursor == "x" {
		return nil, "", badges.ErrBadCursor
	}
	return []badges.Category{{Category: "acme", Numbers: pubsub.Numbers{Total: 1}, Level: "none"}}, "YWNtZQ", b.err
}

func (b *fakeBadges) FoldedAt(ctx context.Context, _ []string, position string) (bool, error) {
	transactionID, err := strconv.ParseInt(position, 10, 64)
	if err != nil || transactionID < 0 {
		return false, cluster.ErrBadPosition
	}
	b.looks = append(b.looks, transactionID)
	if err := errors.Join(ctx.Err(), b.err); err != nil {
		return false, err
	}
	b.unfolded--
	return b.unfolded < 0, nil
}

// tokens is an httpapi.Tokens that accepts the tokens above.
type tokens struct{}

func (tokens) Authenticate(_ context.Context, token string) (auth.Identity, error) {
	switch token {
	case adaToken:
		return auth.Identity{UserID: "ada"}, nil
	case chatToken:
		return auth.Identity{UserID: "ada", Categories: []string{"chat", "news"}}, nil
	case benToken:
		return auth.Identity{UserID: "ben"}, nil
	case oldToken:
		return auth.Identity{}, errors.New("bad token: it has expired")
	}
	return auth.Identity{}, errors.New("bad token: it is not a JWT")
}

// Check implements httpapi.Tokens.
func (tokens) Check(auth.Identity) error { return nil }

// fixture is an API over fakes.
type fixture struct {
	*httpapi.API
	appender *appender
	badges   *fakeBadges
	// log is the API's log.
	log *bytes.Buffer
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{appender: &appender{}, badges: &fakeBadges{}, log: &bytes.Buffer{}}
	f.API = newAPI(t, f.appender, f.badges, slog.New(slog.NewTextHandler(f.log, nil)))
	return f
}

func newAPI(t *testing.T, a httpapi.Appender, b httpapi.Badges, log *slog.Logger) *httpapi.API {
	t.Helper()
	return build(t, httpapi.Config{Appender: a, Badges: b, Partitions: func() int { return 64 }, Logger: log})
}

// build returns an API with fakes of the parts that every API needs, where cfg has none.
func build(t *testing.T, cfg httpapi.Config) *httpapi.API {
	t.Helper()
	cfg.Tokens = tokens{}
	if cfg.Appender == nil {
		cfg.Appender = &appender{}
	}
	if cfg.Badges == nil {
		cfg.Badges = &fakeBadges{}
	}
	if cfg.Keys == nil {
		cfg.Keys = mustKeys(t)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	api, err := httpapi.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return api
}

// mustKeys returns the publisher's key and those of two admins.
func mustKeys(t *testing.T) *keyring.Ring {
	t.Helper()
	keys, errs := keyring.New(keyring.Config{Publishers: []string{"chat=" + publisherKey}, Admins: []string{"root=another", "ops=" + adminKey}})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return keys
}

// document returns the description of the API, which all tests share.
func document(t testing.TB) *describetest.Document {
	t.Helper()
	doc, err := described()
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

var described = sync.OnceValues(func() (*describetest.Document, error) {
	b, err := describe.OpenAPI(describe.API{Routes: httpapi.Routes()})
	if err != nil {
		return nil, err
	}
	return describetest.Parse(b)
})

// answer is the answer to a request.
type answer struct {
	status int
	header http.Header
	body   string
}

// send sends a request, with a publisher's key unless it has an Authorization
// header.
func send(t *testing.T, api http.Handler, r *http.Request) answer {
	t.Helper()
	if _, given := r.Header["Authorization"]; !given {
		r.Header.Set("Authorization", "Bearer "+publisherKey)
	}
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r)
	if _, path, _ := strings.Cut(r.Pattern, " "); path != "" && r.Context().Err() == nil {
		document(t).CheckAnswer(t, r.Method, path, w.Code, w.Header(), w.Body.Bytes())
	}
	return answer{w.Code, w.Header(), w.Body.String()}
}

func get(t *testing.T, api http.Handler, target string) answer {
	t.Helper()
	return send(t, api, newRequest(t, http.MethodGet, target, nil))
}

func post(t *testing.T, api http.Handler, target, contentType, body string) answer {
	t.Helper()
	return ask(t, api, publisherKey, http.MethodPost, target, contentType, body)
}

// ask sends a request with a key or token.
func ask(t *testing.T, api http.Handler, key, method, target, contentType, body string) answer {
	t.Helper()
	r := newRequest(t, method, target, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+key)
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	return send(t, api, r)
}

func mustDecode[T any](t *testing.T, a answer) T {
	t.Helper()
	var v T
	if a.status != http.StatusOK {
		t.Fatalf("answer is %d %s", a.status, a.body)
	}
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	return v
}

func newRequest(t *testing.T, method, target string, body io.Reader) *http.Request {
	t.Helper()
	return httptest.NewRequestWithContext(t.Context(), method, target, body)
}

// story describes an RFC 9457 answer in a few lines: status and detail, then
// each bad event as "event INDEX FIELD: MESSAGE".
func (a answer) story(t *testing.T) string {
	t.Helper()
	var p struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
		Errors []struct {
			Index   int    `json:"index"`
			Field   string `json:"field"`
			Message string `json:"message"`
		} `json:"errors"`
	}
	if got := a.header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type = %q, want application/problem+json", got)
	}
	if err := json.Unmarshal([]byte(a.body), &p); err != nil {
		t.Fatalf("the answer is not JSON: %v\n%s", err, a.body)
	}
	if p.Type != "urn:badged:problem" || p.Title != http.StatusText(a.status) || p.Status != a.status {
		t.Errorf("type %q, title %q, status %d do not go with status %d", p.Type, p.Title, p.Status, a.status)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s", p.Status, p.Detail)
	for _, e := range p.Errors {
		fmt.Fprintf(&b, "\nevent %d %s: %s", e.Index, e.Field, e.Message)
	}
	return b.String()
}
