package projector

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/schematest"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

var migrated = schematest.Migrated(foldtest.Partitions)

// database is a migrated database and what works on it.
type database struct {
	url    string
	pool   *pgxpool.Pool
	log    *events.Log
	reader *badges.Reader
	bus    *recordingBus
	// fold makes the projector fold; it never runs by itself. rival, if set, takes
	// turns with it.
	projector, rival *Projector
}

func newDatabase(t testing.TB) *database {
	t.Helper()
	return openDatabase(t, pgtest.NewDB(t, migrated))
}

func openDatabase(t testing.TB, url string) *database {
	t.Helper()
	pool := newPool(t, url, nil)
	log, err := events.Open(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	d := &database{url: url, pool: pool, log: log, reader: badges.NewReader(pool, log), bus: newRecordingBus(t)}
	d.projector = d.newProjector(t, nil)
	return d
}

// newPool returns a pool as the projector has it; change may be nil.
func newPool(t testing.TB, url string, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 10
	ConfigurePool(cfg)
	pgtest.UsePublic(cfg.ConnConfig)
	if change != nil {
		change(cfg)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// newProjector returns a projector that looks for events only when woken;
// change may be nil.
func (d *database) newProjector(t testing.TB, change func(*Config)) *Projector {
	t.Helper()
	cfg := Config{Pool: d.pool, Log: d.log, Bus: d.bus, PollInterval: time.Hour}
	if change != nil {
		change(&cfg)
	}
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.release) // of tests that fold without Run
	return p
}

// run runs p until the test ends or stop is called. stop returns when p has ended.
func run(t testing.TB, p *Projector) (stop func()) {
	t.Helper()
	return runUntilStopped(t, p.Run)
}

// runUntilStopped is run for any function.
func runUntilStopped(t testing.TB, run func(ctx context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("it ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func (d *database) append(t testing.TB, evs ...events.Event) events.Receipt {
	t.Helper()
	receipt, err := d.log.AppendOwn(t.Context(), evs...)
	if err != nil {
		t.Fatal(err)
	}
	return receipt
}

// fold folds everything that has been appended. Other tests share the server, and
// batches wait a moment for their open transactions.
func (d *database) fold(t testing.TB) {
	t.Helper()
	for _, p := range d.projector.partitions {
		drain(t, p)
	}
}

func drain(t testing.TB, p *partition) {
	t.Helper()
	for {
		waits, err := p.drain(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !waits {
			return
		}
	}
}

// awaitSettled waits until no transaction is open that began before the last
// event of a partition was appended, so that a batch waits for none.
func (d *database) awaitSettled(t testing.TB, partition int) {
	t.Helper()
	for settled := false; !settled; {
		err := d.pool.QueryRow(t.Context(), `SELECT NOT EXISTS (SELECT FROM badged.`+events.Topic(partition)+`
WHERE transaction_id >= pg_snapshot_xmin(pg_current_snapshot()))`).Scan(&settled)
		if err != nil {
			t.Fatal(err)
		}
	}
}

// step folds one batch of a partition, of that many events at most.
func step(t testing.TB, p *partition, limit int) {
	t.Helper()
	p.size.Events = limit
	if _, _, err := p.step(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (d *database) exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	pgtest.Exec(t, d.pool, sql, args...)
}

// lines returns the rows of a query, each of one column of text.
func (d *database) lines(t testing.TB, sql string, args ...any) []string {
	t.Helper()
	rows, err := d.pool.Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// dump returns every row that projectors write, but not where they lie, nor the
// hour, which may strike between two histories that are compared.
func (d *database) dump(t testing.TB) string {
	t.Helper()
	return strings.Join(slices.Concat(
		d.lines(t, `SELECT (to_jsonb(u) - 'partition_id')::text FROM badged.users AS u ORDER BY user_id`),
		d.lines(t, `SELECT (to_jsonb(c) - '{partition_id,delivered_hour}'::text[])::text FROM badged.conversations AS c ORDER BY user_id, conversation_id`),
		d.lines(t, `SELECT (to_jsonb(r) - '{partition_id,delivered_hour}'::text[])::text FROM badged.rooms AS r ORDER BY conversation_id`),
		d.lines(t, `SELECT (to_jsonb(c) - 'partition_id')::text FROM badged.room_chunks AS c ORDER BY conversation_id, bound`),
		d.lines(t, `SELECT (to_jsonb(m) - 'partition_id')::text FROM badged.room_marks AS m ORDER BY conversation_id, seq, user_id`),
		d.lines(t, `SELECT convert_from(payload, 'UTF8') || ' because ' || reason FROM badged.dead_letters ORDER BY 1`),
	), "\n")
}

func (d *database) badge(t testing.TB, user string) pubsub.Badge {
	t.Helper()
	b, err := d.reader.Badge(t.Context(), user)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (d *database) position(t testing.TB, partition int) events.Position {
	t.Helper()
	p, err := events.PositionOf(t.Context(), d.pool, partition, events.ProjectorGroup)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// positions returns the position of every partition.
func (d *database) positions(t testing.TB) []events.Position {
	t.Helper()
	all := make([]events.Position, foldtest.Partitions)
	for p := range all {
		all[p] = d.position(t, p)
	}
	return all
}

// recordingBus is the in-process bus. It also keeps what is published on it, and
// signals each Publish.
type recordingBus struct {
	*pubsub.Memory
	published chan struct{} // holds a token after a Publish

	mu      sync.Mutex
	updates []pubsub.Update
	err     error // what Publish returns
}

func newRecordingBus(t testing.TB) *recordingBus {
	b := &recordingBus{Memory: pubsub.NewMemory(), published: make(chan struct{}, 1)}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func (b *recordingBus) Publish(_ context.Context, updates []pubsub.Update, _ []pubsub.RoomUpdate) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.updates = append(b.updates, updates...)
	select {
	case b.published <- struct{}{}:
	default:
	}
	return b.err
}

// HasSubscribers is always true: the test reads every update.
func (b *recordingBus) HasSubscribers(pubsub.Address) bool { return true }

func (b *recordingBus) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

// of returns the updates of a user, in the order in which they were published.
func (b *recordingBus) of(user string) []pubsub.Update {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(b.updates), func(u pubsub.Update) bool { return u.UserID != user })
}

// awaitTotal waits until an update of a user with a total has been published,
// and thus committed. A test may have one wait at a time.
func (b *recordingBus) awaitTotal(t testing.TB, user string, total int64) {
	t.Helper()
	for {
		updates := b.of(user)
		if n := len(updates); n > 0 && updates[n-1].Total == total {
			return
		}
		await(t, b.published, fmt.Sprintf("a total of %d for %s after %v", total, user, updates))
	}
}

// patience bounds every wait.
const patience = 3 * time.Minute

// await receives from c, and fails the test if nothing comes.
func await[T any](t testing.TB, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("waited in vain for %s", what)
		panic("unreachable")
	}
}

// count returns the value of a counter.
func count(c prometheus.Collector) int { return int(testutil.ToFloat64(c)) }

// begin begins a transaction that has an id.
func begin(t testing.TB, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // does nothing after Commit
	for _, statement := range []string{patientSQL, `SELECT pg_current_xact_id()`} {
		pgtest.Exec(t, tx, statement)
	}
	return tx
}

// publish publishes events in a transaction.
func publish(t testing.TB, tx pgx.Tx, evs ...events.Event) {
	t.Helper()
	if _, err := events.Publish(t.Context(), tx, evs...); err != nil {
		t.Fatal(err)
	}
}
