package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"go.uber.org/goleak"

	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/notify/outbound"
	"github.com/badged/badged/pubsub"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// queued is a row of a fake queue.
type queued struct {
	outbound.Call
	due   time.Time
	taken bool
	// again is true if the subject changed while it was taken.
	again bool
}

// queue is a Queue and Store in memory. Its clock is time.Now.
type queue struct {
	mu       sync.Mutex
	webhooks map[string]outbound.Webhook
	rows     map[string]map[string]*queued // by webhook and subject
	changed  chan struct{}                 // closed and replaced on each change
	failing  error                         // of Record
}

func newQueue(webhooks ...outbound.Webhook) *queue {
	q := &queue{webhooks: map[string]outbound.Webhook{}, rows: map[string]map[string]*queued{}, changed: make(chan struct{})}
	for _, w := range webhooks {
		if w.State == "" {
			w.State = outbound.Active
		}
		w.Batch = max(w.Batch, 1)
		if w.Secrets == nil {
			w.Secrets = [][]byte{[]byte("a secret of twenty-four b")}
		}
		q.webhooks[w.Name] = w
		q.rows[w.Name] = map[string]*queued{}
	}
	return q
}

func (q *queue) signal() {
	close(q.changed)
	q.changed = make(chan struct{})
}

// badge makes a badge due.
func (q *queue) badge(webhook, user string, version, total int64) {
	q.put(webhook, outbound.Call{Type: outbound.BadgeChanged, Subject: user, Badge: badge(user, version, total)})
}

func badge(user string, version, total int64) *pubsub.Badge {
	return &pubsub.Badge{
		UserID: user, Epoch: "e", Version: version, Numbers: pubsub.Numbers{Total: total, UnreadConversations: 1, Unseen: total},
		Categories: map[string]pubsub.Numbers{"chat": {Total: total, UnreadConversations: 1, Unseen: total}},
	}
}

func (q *queue) put(webhook string, c outbound.Call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.rows[webhook][c.Subject]
	if r == nil {
		c.QueuedAt = time.Now()
		r = &queued{Call: c, due: time.Now()}
		q.rows[webhook][c.Subject] = r
	}
	r.Badge, r.Room, r.again = c.Badge, c.Room, r.taken
	if r.due.IsZero() || r.due.After(time.Now()) {
		r.due = time.Now()
	}
	q.signal()
}

func (q *queue) NextCalls(ctx context.Context, webhook string, limit int) ([]outbound.Call, error) {
	for {
		q.mu.Lock()
		var due []*queued
		wait := time.Hour
		for _, r := range q.rows[webhook] {
			switch {
			case r.taken || r.due.IsZero():
			case r.due.After(time.Now()):
				wait = min(wait, time.Until(r.due))
			default:
				due = append(due, r)
			}
		}
		slices.SortFunc(due, func(a, b *queued) int {
			if c := a.due.Compare(b.due); c != 0 {
				return c
			}
			return bytes.Compare([]byte(a.Subject), []byte(b.Subject))
		})
		var taken []outbound.Call
		for _, r := range due[:min(limit, len(due))] {
			r.taken = true
			taken = append(taken, r.Call)
		}
		changed := q.changed
		q.mu.Unlock()
		if len(taken) > 0 {
			return taken, nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		case <-changed:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// put back a row.
func (q *queue) back(c outbound.Call, change func(r *queued)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, rows := range q.rows {
		if r := rows[c.Subject]; r != nil && r.taken {
			r.taken = false
			change(r)
			if r.again {
				r.again = false
				r.due = time.Now()
			}
			q.signal()
			return
		}
	}
}

func (q *queue) CallTold(c outbound.Call) {
	q.back(c, func(r *queued) {
		r.SentState, r.due, r.Attempts = c.NewState, time.Time{}, 0
		if c.RepeatAfter > 0 {
			r.due = time.Now().Add(c.RepeatAfter)
		}
	})
}

func (q *queue) CallsAccepted(string) {}

func (q *queue) CallsRenewed(string) {}

func (q *queue) CallRetry(c outbound.Call, after time.Duration, _ bool) {
	q.back(c, func(r *queued) { r.due = time.Now().Add(after); r.Attempts++ })
}

func (q *queue) CallHold(c outbound.Call, after time.Duration) {
	q.back(c, func(r *queued) { r.due = time.Now().Add(after) })
}

func (q *queue) Webhooks(context.Context) ([]outbound.Webhook, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var all []outbound.Webhook
	for _, w := range q.webhooks {
		all = append(all, w)
	}
	return all, nil
}

func (q *queue) RecordCall(_ context.Context, w outbound.Webhook) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.failing != nil {
		return q.failing
	}
	switch now := q.webhooks[w.Name]; {
	case now.Generation == w.Generation:
		q.webhooks[w.Name] = w
	case now.URL == w.URL && w.LastError == "":
		now.LastSuccessAt = w.LastSuccessAt
		q.webhooks[w.Name] = now
	}
	q.signal()
	return nil
}

// fail lets recordings fail, or succeed if err is nil.
func (q *queue) fail(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.failing = err
}

func (q *queue) webhook(name string) outbound.Webhook {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.webhooks[name]
}

// set changes a webhook as an operator does.
func (q *queue) set(name string, change func(w *outbound.Webhook)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := q.webhooks[name]
	w.Generation++
	w.Ladder = outbound.Ladder{}
	change(&w)
	q.webhooks[name] = w
	for _, r := range q.rows[name] {
		if !r.due.IsZero() {
			r.due, r.Attempts = time.Now(), 0
		}
	}
	q.signal()
}

// await waits until a condition of the queue holds.
func (q *queue) await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	timeout := time.NewTimer(20 * time.Second)
	defer timeout.Stop()
	for {
		q.mu.Lock()
		changed := q.changed
		done := ok()
		q.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-timeout.C:
			t.Fatal("gave up waiting until " + what)
		}
	}
}

// received is a call as an endpoint got it.
type received struct {
	at time.Time
	// ctx is that of the call.
	ctx context.Context
	// host is the name of the endpoint.
	host   string
	id     string
	header http.Header
	body   []byte
	events []event
}

// endpoints is an http.RoundTripper that plays all endpoints.
type endpoints struct {
	t  *testing.T
	mu sync.Mutex
	// answer returns the answer to a call; nil is 204.
	answer func(r received) (*http.Response, error)
	calls  []received
	// came is signalled on each call.
	came chan struct{}
	// stop stops the sender that makes the calls.
	stop func()
}

func newEndpoints(t *testing.T) *endpoints {
	return &endpoints{t: t, came: make(chan struct{}, 10_000)}
}

func status(code int, header ...string) (*http.Response, error) {
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: code, Header: h, Body: http.NoBody}, nil
}

func (e *endpoints) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	got := received{at: time.Now(), ctx: r.Context(), host: r.URL.Host, id: r.Header.Get("webhook-id"), header: r.Header, body: body}
	got.events = decode(e.t, r.Header, body)
	verify(e.t, []byte("a secret of twenty-four b"), body, r.Header)
	e.mu.Lock()
	e.calls = append(e.calls, got)
	answer := e.answer
	e.mu.Unlock()
	defer func() { e.came <- struct{}{} }()
	if answer == nil {
		return status(http.StatusNoContent)
	}
	res, err := answer(got)
	if res == nil && err == nil {
		return status(http.StatusNoContent)
	}
	return res, err
}

// decode returns the events of a body.
func decode(t *testing.T, h http.Header, body []byte) []event {
	t.Helper()
	var events []event
	switch kind := h.Get("Content-Type"); kind {
	case oneEvent:
		events = make([]event, 1)
		if err := json.Unmarshal(body, &events[0]); err != nil {
			t.Error(err)
		}
	case manyEvents:
		if err := json.Unmarshal(body, &events); err != nil {
			t.Error(err)
		}
	default:
		t.Errorf("a body of the type %q", kind)
	}
	return events
}

// verify checks a signature as receivers do. In a bubble of synctest the time
// is that of the bubble.
func verify(t *testing.T, secret, body []byte, h http.Header) {
	t.Helper()
	webhook, err := standardwebhooks.NewWebhookRaw(secret)
	if err != nil {
		t.Fatal(err)
	}
	if err := webhook.Verify(body, h); err != nil {
		t.Errorf("the receiver cannot verify the call: %v", err)
	}
}

func (e *endpoints) all() []received {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.calls)
}

// serve plays the endpoint of one webhook, by default crm, and runs a sender until the test ends.
func serve(t *testing.T, w outbound.Webhook, answer func(received) (*http.Response, error), change ...func(*Config)) (*queue, *endpoints) {
	t.Helper()
	if w.Name == "" {
		w.Name, w.URL = "crm", "https://crm.example/hook"
	}
	q, e := newQueue(w), newEndpoints(t)
	e.answer = answer
	e.stop = start(t, q, e, change...)
	return q, e
}

// start runs a sender until the test ends or stop is called.
func start(t *testing.T, q *queue, transport http.RoundTripper, change ...func(*Config)) (stop func()) {
	t.Helper()
	cfg := Config{Queue: q, Store: q, Caller: &Caller{Client: &http.Client{Transport: transport}, Origin: "badged.example"}}
	for _, c := range change {
		c(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

var errDown = errors.New("connection refused")

// sleep waits, as a slow endpoint does, and returns false if the caller gave up.
func (r received) sleep(d time.Duration) bool { return wait.For(r.ctx, d) == nil }
