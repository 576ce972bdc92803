package demo

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/devtest/schematest"
	"github.com/badged/badged/internal/log/eventbatch"
	"github.com/badged/badged/internal/partition/replay"
	"github.com/badged/badged/internal/server/auth"
	"github.com/badged/badged/projector"
	"github.com/badged/badged/pubsub"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

// partitions of the test databases: enough to spread a group over several.
const partitions = 8

func migrated() pgtest.Template {
	return schematest.Migrated(partitions)
}

// wakes records the partitions that a demo wakes.
type wakes struct {
	mu         sync.Mutex
	partitions []int
	// projector is woken too, unless it is nil.
	projector *projector.Projector
}

func (w *wakes) wake(partitions []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.partitions = append(w.partitions, partitions...)
	if w.projector == nil {
		return
	}
	for _, p := range partitions {
		w.projector.Wake(p)
	}
}

// take returns the partitions woken since the last call.
func (w *wakes) take() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.partitions
	w.partitions = nil
	return taken
}

// fixture is a demo on a new database.
type fixture struct {
	*Demo
	pool   *pgxpool.Pool
	log    *events.Log
	tokens *auth.Tokens
	wakes  *wakes
	bus    *Bus
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return fixtureOn(t, pgtest.NewDB(t, migrated()))
}

func fixtureOn(t *testing.T, url string) *fixture {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	log, err := events.Open(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := auth.NewTokens(auth.TokenConfig{Keys: []string{"demo=HS256:0123456789abcdef0123456789abcdef"}})
	if err != nil {
		t.Fatal(err)
	}
	memory := pubsub.NewMemory()
	t.Cleanup(func() { _ = memory.Close() })
	f := &fixture{pool: pool, log: log, tokens: tokens, wakes: &wakes{}, bus: NewBus(memory)}
	f.Demo, err = New(t.Context(), Config{
		Pool: pool, Log: log, Tokens: tokens, Wake: f.wakes.wake, Bus: f.bus,
		Page: fstest.MapFS{
			"index.html": {Data: []byte("<html>the page")},
			"app.js":     {Data: []byte("the script")},
		},
		Explainer:    replay.NewExplainer(pool, log),
		PushEndpoint: "http://127.0.0.1:1/demo/push/", PhoneSecret: "a secret of the test",
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// fold runs a projector until the test ends.
func (f *fixture) fold(t *testing.T) {
	t.Helper()
	d := projectortest.Open(t, f.pool.Config().ConnString())
	p := d.Start(t, nil).Projector
	eventually(t, "all partitions have an owner", func() bool { return len(p.OwnedPartitions()) == partitions })
	f.wakes.mu.Lock()
	defer f.wakes.mu.Unlock()
	f.wakes.projector = p
}

// exec runs a statement.
func (f *fixture) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := f.pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// count returns the single number of a query's result.
func (f *fixture) count(t *testing.T, sql string, args ...any) int {
	t.Helper()
	var n int
	if err := f.pool.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// published returns the events in the log by id, each with all its users.
func (f *fixture) published(t *testing.T) map[string]events.Event {
	t.Helper()
	all := map[string]events.Event{}
	for p := range partitions {
		rows, err := f.pool.Query(t.Context(), `SELECT payload FROM badged.`+events.Topic(p))
		if err != nil {
			t.Fatal(err)
		}
		batches, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
		if err != nil {
			t.Fatal(err)
		}
		var payloads [][]byte
		for _, batch := range batches {
			more, err := eventbatch.Unpack(batch)
			if err != nil {
				t.Fatal(err)
			}
			payloads = append(payloads, more...)
		}
		for _, payload := range payloads {
			e, err := events.Decode(payload)
			if err != nil {
				t.Fatal(err)
			}
			before := all[e.ID].Data
			e.Data.UserIDs = slices.Sorted(slices.Values(append(e.Data.UserIDs, before.UserIDs...)))
			e.Data.MentionedUserIDs = slices.Sorted(slices.Values(append(e.Data.MentionedUserIDs, before.MentionedUserIDs...)))
			all[e.ID] = e
		}
	}
	return all
}

// mustConversation returns a conversation by its id.
func mustConversation(t *testing.T, id string) conversation {
	t.Helper()
	c, err := findConversation(id)
	if err != nil {
		t.Fatalf("%s: %v", id, err)
	}
	return c
}

// mustSend sends a message and returns it.
func (f *fixture) mustSend(t *testing.T, conversationID, senderID, text string) message {
	t.Helper()
	m, err := f.store.send(t.Context(), mustConversation(t, conversationID), senderID, text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// eventually polls a condition that nothing signals until it holds.
func eventually(t *testing.T, what string, isSo func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !isSo() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("it never happened: %s", what)
		}
	}
}

// read returns the next entries of a log's tail, which are n at least.
func read(t *testing.T, end *tail, n int) []entry {
	t.Helper()
	entries, err := end.next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) < n {
		t.Fatalf("the log has %d new entries, want %d: %q", len(entries), n, summaries(entries))
	}
	return entries
}
