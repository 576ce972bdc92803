package relay_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/bridge/relay"
	"github.com/badged/badged/internal/bridge/traffic"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/devtest/schematest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

// target remembers what it was given. It refuses what refuse refuses.
type target struct {
	mu     sync.Mutex
	ids    []string
	refuse func(evs []events.Event) error
	// grown gets a value after each call.
	grown chan struct{}
}

func newTarget(refuse func(evs []events.Event) error) *target {
	return &target{refuse: refuse, grown: make(chan struct{}, 1)}
}

// Append implements relay.Target.
func (x *target) Append(_ context.Context, evs []events.Event) (int64, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	defer func() {
		select {
		case x.grown <- struct{}{}:
		default:
		}
	}()
	if x.refuse != nil {
		if err := x.refuse(evs); err != nil {
			return 0, err
		}
	}
	for i := range evs {
		x.ids = append(x.ids, evs[i].ID)
	}
	return 1, nil
}

// await waits until it has that many events and returns their ids.
func (x *target) await(t testing.TB, n int) []string {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		x.mu.Lock()
		ids := slices.Clone(x.ids)
		x.mu.Unlock()
		if len(ids) >= n {
			return ids
		}
		select {
		case <-x.grown:
		case <-timeout:
			t.Fatalf("waited in vain for %d events: %v", n, ids)
		}
	}
}

// awaitSo waits until something is so, which it looks at after each call.
func (x *target) awaitSo(t testing.TB, what string, so func() bool) {
	t.Helper()
	timeout := time.After(time.Minute)
	for !so() {
		select {
		case <-x.grown:
		case <-time.After(10 * time.Millisecond):
		case <-timeout:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// unhealthy is whether a relay says that it cannot carry, with a text.
func unhealthy(r *relay.Relay, text string) func() bool {
	return func() bool { err := r.Health(); return err != nil && strings.Contains(err.Error(), text) }
}

func newPool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return newPoolOn(t, pgtest.NewDB(t, schematest.Outbox()))
}

func newPoolOn(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 10
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// run runs a relay until the test ends or stop is called.
func run(t testing.TB, pool *pgxpool.Pool, to relay.Target, change func(*relay.Config)) (r *relay.Relay, stop func()) {
	t.Helper()
	outbox, err := relay.OpenOutbox(t.Context(), pool.Config())
	if err != nil {
		t.Fatal(err)
	}
	cfg := relay.Config{Outbox: outbox, Target: to, PollInterval: time.Millisecond, OwnershipInterval: 200 * time.Millisecond, MeasureInterval: 20 * time.Millisecond}
	if change != nil {
		change(&cfg)
	}
	if r, err = relay.New(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(outbox.Close)
	return r, projectortest.Run(t, r.Run)
}

type executor interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// publish publishes a message with each id.
func publish(t anyT, q executor, ids ...string) {
	t.Helper()
	for _, id := range ids {
		event := fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"chat","type":"message.delivered","data":{"conversation_id":"c","seq":1,"user_ids":["ann"]}}`, id)
		if err := q.QueryRow(t.Context(), `SELECT badged.publish($1)`, event).Scan(new(int64)); err != nil {
			t.Fatal(err)
		}
	}
}

type anyT interface {
	Helper()
	Context() context.Context
	Fatal(args ...any)
}

func number(t testing.TB, pool *pgxpool.Pool, sql string) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), sql).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Events arrive in their order, and are gone from the outbox once the relay has stopped.
func TestRelay(t *testing.T) {
	t.Parallel()
	pool, to := newPool(t), newTarget(nil)
	var want []string
	for i := range 2500 { // more than a page
		want = append(want, fmt.Sprint(i))
	}
	publish(t, pool, want[:50]...)
	_, stop := run(t, pool, to, nil)
	to.await(t, 50)
	batch := make([]string, 0, len(want))
	for _, id := range want[50:] {
		batch = append(batch, fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"chat","type":"message.delivered","data":{"conversation_id":"c","seq":1,"user_ids":["ann"]}}`, id))
	}
	pgtest.Exec(t, pool, `SELECT badged.publish_batch($1)`, "["+strings.Join(batch, ",")+"]")
	if got := to.await(t, len(want)); !slices.Equal(got, want) {
		t.Errorf("%d events, not in order or repeated", len(got))
	}
	stop()
	if n := number(t, pool, `SELECT count(*) FROM badged.outbox`); n > 0 {
		t.Errorf("the outbox has %d events", n)
	}
}

// A transaction that stays open delays its own events alone, and they are not lost, also if
// it has published before and after others, and also if nothing more is published.
func TestOpenTransactions(t *testing.T) {
	t.Parallel()
	pool, to := newPool(t), newTarget(nil)
	run(t, pool, to, nil)
	late, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer late.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // it is committed
	undone, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	publish(t, late, "late-1")
	publish(t, undone, "undone")
	publish(t, pool, "a")
	to.await(t, 1)
	publish(t, late, "late-2")
	publish(t, pool, "b")
	to.await(t, 2)
	if err := undone.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	publish(t, pool, "c")
	to.await(t, 3)
	publish(t, late, "late-3")
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := to.await(t, 6), []string{"a", "b", "c", "late-1", "late-2", "late-3"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A transaction that began after the last that was completed is in no list of open ones. Its
// events are not lost.
func TestYoungTransaction(t *testing.T) {
	t.Parallel()
	// No other transaction may be completed meanwhile.
	server := pgtest.NewServer(t)
	pool, to := newPoolOn(t, server.NewDB(t, schematest.Outbox())), newTarget(nil)
	run(t, pool, to, nil)
	var old, young pgx.Tx
	var err error
	for _, tx := range []*pgx.Tx{&old, &young} {
		if *tx, err = pool.Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	publish(t, old, "old-1")
	publish(t, young, "young")
	publish(t, old, "old-2")
	if err := old.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	to.await(t, 2)
	if err := young.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := to.await(t, 3); got[2] != "young" {
		t.Errorf("%v", got)
	}
}

// Random transactions publish at once, while pages are small and relays come and go.
// Every event whose transaction committed arrives, in the order of its transaction, and
// after those that were committed before it was published.
func TestConcurrentTransactions(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	rapid.Check(t, func(rt *rapid.T) {
		to := newTarget(nil)
		_, stop := run(t, pool, to, nil)
		defer stop()
		var open [4]pgx.Tx
		var unpublished [4][]string
		var committed []string
		before := map[string]int{} // how many were committed when it was published
		for n := range rapid.IntRange(1, 40).Draw(rt, "steps") {
			i := rapid.IntRange(0, len(open)-1).Draw(rt, "transaction")
			if open[i] == nil {
				var err error
				if open[i], err = pool.Begin(t.Context()); err != nil {
					rt.Fatal(err)
				}
			}
			switch rapid.IntRange(0, 4).Draw(rt, "what") {
			case 0:
				if err := open[i].Commit(t.Context()); err != nil {
					rt.Fatal(err)
				}
				committed = append(committed, unpublished[i]...)
				open[i], unpublished[i] = nil, nil
			case 1:
				if err := open[i].Rollback(t.Context()); err != nil {
					rt.Fatal(err)
				}
				open[i], unpublished[i] = nil, nil
			default:
				id := fmt.Sprint(n)
				publish(rt, open[i], id)
				unpublished[i] = append(unpublished[i], id)
				before[id] = len(committed)
			}
		}
		for i := range open {
			if open[i] != nil {
				if err := open[i].Commit(t.Context()); err != nil {
					rt.Fatal(err)
				}
				committed = append(committed, unpublished[i]...)
			}
		}
		got := to.await(t, len(committed))
		stop() // which settles the last page
		place := map[string]int{}
		for i, id := range got {
			place[id] = i
		}
		if len(place) != len(committed) || len(got) != len(committed) {
			rt.Fatalf("carried %v, committed %v", got, committed)
		}
		for _, id := range committed {
			for _, earlier := range committed[:before[id]] {
				if place[earlier] > place[id] {
					rt.Fatalf("%s came before %s: %v", id, earlier, got)
				}
			}
		}
	})
}

// What badged refuses is set aside with its reason, also if it does not say which event
// it is, and the others go on. An operator repairs and retries it.
func TestRefusals(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	healed := false
	to := newTarget(func(evs []events.Event) error {
		for i := range evs {
			switch {
			case evs[i].ID == "named" && !healed:
				return &traffic.ServerError{Status: http.StatusBadRequest, ByBadged: true, Events: []traffic.EventError{{Index: i, Field: "data.seq", Message: "is odd"}}}
			case evs[i].ID == "unnamed" && !healed:
				return &traffic.ServerError{Status: http.StatusRequestEntityTooLarge, ByBadged: true, Detail: "too large"}
			}
		}
		return nil
	})
	publish(t, pool, "a", "named", "b", "unnamed", "c")
	pgtest.Exec(t, pool, `INSERT INTO badged.outbox (transaction_id, payload) VALUES (pg_current_xact_id(), '{"specversion":"0.9"}')`)
	publish(t, pool, "d")
	metrics := relay.NewMetrics(prometheus.NewRegistry())
	_, stop := run(t, pool, to, func(cfg *relay.Config) { cfg.Metrics = metrics })
	if got, want := to.await(t, 4), []string{"a", "b", "c", "d"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	stop()
	outbox, err := relay.OpenOutbox(t.Context(), pool.Config())
	if err != nil {
		t.Fatal(err)
	}
	defer outbox.Close()
	refusals, err := outbox.Refusals(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	var reasons []string
	for _, r := range refusals {
		reasons = append(reasons, r.Reason)
	}
	slices.Sort(reasons)
	if len(reasons) != 3 || reasons[0] != "data.seq: is odd" || !strings.Contains(reasons[1], "specversion") || !strings.Contains(reasons[2], "413") {
		t.Fatalf("reasons %q", reasons)
	}
	healed = true
	pgtest.Exec(t, pool, `DELETE FROM badged.outbox_refused WHERE payload LIKE '%"0.9"%'`)
	if n, err := outbox.Retry(t.Context()); err != nil || n != 2 {
		t.Fatal(n, err)
	}
	run(t, pool, to, nil)
	if got := to.await(t, 6)[4:]; !slices.Equal(got, []string{"named", "unnamed"}) {
		t.Errorf("retried %v", got)
	}
}

// The answer of a proxy says nothing about events: they stay in the outbox, whatever it is,
// and are carried later. If it finds a call too large, smaller ones are tried.
func TestAnswersOfProxies(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	var answer atomic.Int64
	to := newTarget(func(evs []events.Event) error {
		if status := answer.Load(); status > 0 && (status != http.StatusRequestEntityTooLarge || len(evs) > 1 || evs[0].ID == "large") {
			return &traffic.ServerError{Status: int(status), Events: []traffic.EventError{{Message: "no"}}}
		}
		return nil
	})
	registry := prometheus.NewRegistry()
	metrics := relay.NewMetrics(registry)
	answer.Store(http.StatusBadRequest)
	r, stop := run(t, pool, to, func(cfg *relay.Config) { cfg.Metrics = metrics })
	publish(t, pool, "a", "b")
	for _, status := range []int{http.StatusBadRequest, http.StatusForbidden, http.StatusConflict} {
		answer.Store(int64(status))
		to.awaitSo(t, "the answer", unhealthy(r, fmt.Sprint("answered ", status)))
	}
	answer.Store(http.StatusRequestEntityTooLarge)
	if got := to.await(t, 2); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("one at a time it carries %v", got)
	}
	publish(t, pool, "large")
	to.awaitSo(t, "the answer to one event", unhealthy(r, "answered 413"))
	answer.Store(0)
	to.await(t, 3)
	stop()
	if n := number(t, pool, `SELECT count(*) FROM badged.outbox_refused`); n > 0 {
		t.Errorf("%d events are set aside", n)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "badged_relay_errors_total" && f.GetMetric()[0].GetCounter().GetValue() < 4 {
			t.Errorf("the metric of errors is %s", f)
		}
	}
}

// While the target is unavailable or refuses the key, events wait, and health and metrics tell.
func TestAway(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	var mu sync.Mutex
	var away error = &traffic.TransientError{Err: errors.New("connection refused")}
	say := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		away = err
	}
	to := newTarget(func([]events.Event) error {
		mu.Lock()
		defer mu.Unlock()
		return away
	})
	registry := prometheus.NewRegistry()
	r, _ := run(t, pool, to, func(cfg *relay.Config) { cfg.Metrics = relay.NewMetrics(registry) })
	publish(t, pool, "a", "b")
	to.awaitSo(t, "the failure", unhealthy(r, "connection refused"))
	say(&traffic.ServerError{Status: http.StatusUnauthorized})
	to.awaitSo(t, "the refusal", unhealthy(r, "check the publisher key"))
	to.awaitSo(t, "the backlog", func() bool {
		return nil == testutil.GatherAndCompare(registry, strings.NewReader(`# HELP badged_relay_backlog Events in the outbox that are not copied to badged yet, counted up to a million.
# TYPE badged_relay_backlog gauge
badged_relay_backlog 2
`), "badged_relay_backlog")
	})
	say(nil)
	if got := to.await(t, 2); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("%v", got)
	}
	to.awaitSo(t, "health", func() bool { return r.Health() == nil })
}

// One process carries, and another takes over when it stops.
func TestTakingOver(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	first, second := newTarget(nil), newTarget(nil)
	_, stop := run(t, pool, first, nil)
	publish(t, pool, "a")
	first.await(t, 1)
	run(t, pool, second, nil)
	stop()
	publish(t, pool, "b")
	second.await(t, 1)
	if all := slices.Concat(first.await(t, 1), second.await(t, 1)); !slices.Equal(all, []string{"a", "b"}) {
		t.Errorf("%v", all)
	}
}
