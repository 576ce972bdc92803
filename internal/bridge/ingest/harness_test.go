package ingest_test

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/badged/badged/internal/bridge/ingest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m).Run()) }

// running is an ingester that runs.
type running struct {
	*ingest.Ingester
	registry *prometheus.Registry
	logs     *logs
	stop     func()
}

// run starts an ingester on a database; it stops when the test ends.
func run(t *testing.T, db *projectortest.Database, sources []ingest.Source, change ...func(*ingest.Config)) *running {
	t.Helper()
	r := &running{registry: prometheus.NewRegistry(), logs: &logs{}}
	cfg := ingest.Config{
		Pool: db.Pool, Log: db.Log, Sources: sources, Metrics: ingest.NewMetrics(r.registry),
		Logger: slog.New(slog.NewTextHandler(r.logs, nil)), OwnershipInterval: 250 * time.Millisecond, DiscoveryInterval: 50 * time.Millisecond,
	}
	for _, f := range change {
		f(&cfg)
	}
	var err error
	if r.Ingester, err = ingest.New(cfg); err != nil {
		t.Fatal(err)
	}
	stop := projectortest.Run(t, r.Run)
	r.stop = sync.OnceFunc(func() {
		stop()
		r.Close()
	})
	t.Cleanup(func() {
		r.stop()
		if t.Failed() {
			t.Log(r.logs)
		}
	})
	return r
}

type logs struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// appended returns how many events the log has.
func appended(t *testing.T, db *projectortest.Database) (n int) {
	t.Helper()
	for p := range db.Log.Partitions() {
		var in int
		if err := db.Pool.QueryRow(t.Context(), fmt.Sprintf("SELECT coalesce(sum(events), 0) FROM badged.events_p%02d", p)).Scan(&in); err != nil {
			t.Fatal(err)
		}
		n += in
	}
	return n
}

// read returns how many messages were read.
func read(t *testing.T, db *projectortest.Database) (n int) {
	t.Helper()
	if err := db.Pool.QueryRow(t.Context(), `SELECT coalesce(sum(messages), 0) FROM badged.ingest_positions`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// letters returns the dead letters, "ORIGIN: REASON".
func letters(t *testing.T, db *projectortest.Database) []string {
	t.Helper()
	return db.Lines(t, `SELECT origin || ': ' || reason FROM badged.dead_letters ORDER BY id`)
}

// metric compares metrics with their text.
func (r *running) metric(t *testing.T, name, want string) {
	t.Helper()
	var err error
	projectortest.Until(t, name, func() bool {
		err = testutil.GatherAndCompare(r.registry, strings.NewReader(want), name)
		return err == nil || strings.Contains(r.logs.String(), "no such")
	})
	if err != nil {
		t.Error(err)
	}
}

// event is an event in structured mode.
func event(id int) string {
	return fmt.Sprintf(`{"specversion":"1.0","id":"%d","source":"chat","type":"message.delivered","data":{"conversation_id":"c","user_ids":["ada"],"seq":%d}}`, id, id)
}
