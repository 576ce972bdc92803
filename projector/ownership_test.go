package projector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/fold/lag"
	"github.com/badged/badged/internal/pg/pgsession"
)

// diary is a logger that signals each message, so that a test can wait for it.
type diary struct{ messages chan string }

func newDiary() *diary { return &diary{messages: make(chan string, 1000)} }

func (*diary) Enabled(context.Context, slog.Level) bool { return true }
func (d *diary) WithAttrs([]slog.Attr) slog.Handler     { return d }
func (d *diary) WithGroup(string) slog.Handler          { return d }

func (d *diary) Handle(_ context.Context, r slog.Record) error {
	d.messages <- r.Message
	return nil
}

// await waits until a message is logged.
func (d *diary) await(t *testing.T, message string) {
	t.Helper()
	for await(t, d.messages, message) != message {
	}
}

const (
	owning  = "owning partitions"
	givenUp = "the ownership session ended; its partitions are released"
)

// startOwner runs a projector that owns partitions, with timeouts too long for
// a busy machine to exceed; change may be nil.
func (d *database) startOwner(t *testing.T, change func(*Config)) (*Projector, *diary, func()) {
	t.Helper()
	return d.startOwnerOf(t, patience, change)
}

// startOwnerOf is startOwner with a limit on the silence of its session.
func (d *database) startOwnerOf(t *testing.T, silence time.Duration, change func(*Config)) (*Projector, *diary, func()) {
	t.Helper()
	log := newDiary()
	p := d.newProjector(t, func(cfg *Config) {
		cfg.Logger = slog.New(log)
		cfg.OwnershipInterval = 200 * time.Millisecond
		if change != nil {
			change(cfg)
		}
	})
	p.silence = silence
	return p, log, run(t, p)
}

// locksSQL reads the held locks of partitions, and their sessions.
const locksSQL = `SELECT objid::text AS partition, pid FROM pg_locks
WHERE locktype = 'advisory' AND granted AND classid = $1 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

// locked returns the partitions with an owner.
func (d *database) locked(t *testing.T) []string {
	t.Helper()
	return d.lines(t, `SELECT partition FROM (`+locksSQL+`) AS locks ORDER BY partition`, pgsession.LockClass)
}

// awaitUnowned waits until no partition has an owner, by taking them all. The
// session of a stopped projector ends a moment later.
func (d *database) awaitUnowned(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, d.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for p := range foldtest.Partitions {
		if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock($1, $2)`, pgsession.LockClass, p); err != nil {
			t.Fatalf("partition %d is not given up: %v", p, err)
		}
	}
	if _, err := conn.Exec(ctx, `SELECT pg_advisory_unlock_all()`); err != nil {
		t.Fatal(err)
	}
}

func (d *database) lags(t *testing.T) []lag.Lag {
	t.Helper()
	all := make([]int, foldtest.Partitions)
	for i := range all {
		all[i] = i
	}
	lags, err := lag.Measure(t.Context(), d.pool, all, 1000)
	if err != nil {
		t.Fatal(err)
	}
	return lags
}

// A projector owns every free partition, reports it in its metrics, and gives
// them up when it stops.
func TestOwnership(t *testing.T) {
	d := newDatabase(t)
	for _, l := range d.lags(t) {
		if l.Owner != "" {
			t.Errorf("partition %d is owned by %q before any projector runs", l.Partition, l.Owner)
		}
	}
	leaks := goleak.IgnoreCurrent()
	p, log, stop := d.startOwner(t, nil)
	log.await(t, owning)
	if diff := cmp.Diff([]string{"0", "1", "2", "3"}, d.locked(t)); diff != "" {
		t.Errorf("locks (-want +got):\n%s", diff)
	}
	for _, l := range d.lags(t) {
		if l.Owner != pgsession.ApplicationName(ownerKind) {
			t.Errorf("partition %d is owned by %q, want %q", l.Partition, l.Owner, pgsession.ApplicationName(ownerKind))
		}
	}
	if n := count(p.metrics.owned); n != foldtest.Partitions {
		t.Errorf("the projector says that it owns %d partitions, want %d", n, foldtest.Partitions)
	}
	stop()
	d.awaitUnowned(t)
	if n := count(p.metrics.owned); n != 0 || len(p.OwnedPartitions()) != 0 {
		t.Errorf("the projector says that it owns %d partitions after its end", n)
	}
	goleak.VerifyNone(t, leaks)
}

// awaitShares waits until each projector owns its share of the partitions;
// every change is logged.
func awaitShares(t *testing.T, owners ...*owner) {
	t.Helper()
	for _, o := range owners {
		for count(o.metrics.owned) != o.share {
			await(t, o.log.messages, fmt.Sprintf("a share of %d partitions", o.share))
		}
	}
}

// owner is a projector that owns a share of the partitions.
type owner struct {
	*Projector
	log   *diary
	share int
}

// Partitions are shared evenly among the projectors, and again when one starts
// or stops. Nothing is folded twice.
func TestPartitionsAreShared(t *testing.T) {
	d := newDatabase(t)
	var owners []*owner
	var stops []func()
	seq := int64(0)
	check := func(shares ...int) {
		t.Helper()
		for i, share := range shares {
			owners[i].share = share
		}
		awaitShares(t, owners...)
		if diff := cmp.Diff([]string{"0", "1", "2", "3"}, d.locked(t)); diff != "" {
			t.Errorf("locks (-want +got):\n%s", diff)
		}
		seq++
		for p := range foldtest.Partitions {
			d.append(t, foldtest.Deliver("c", seq, foldtest.User(p, 0)))
			for _, o := range owners {
				o.Wake(p)
			}
			d.bus.awaitTotal(t, foldtest.User(p, 0), seq)
			if v := d.badge(t, foldtest.User(p, 0)).Version; v != seq {
				t.Errorf("version %d, want %d", v, seq)
			}
		}
	}
	start := func() {
		p, log, stop := d.startOwner(t, nil)
		owners, stops = append(owners, &owner{p, log, 0}), append(stops, stop)
	}
	start()
	check(4)
	start()
	check(2, 2)
	start()
	start()
	check(1, 1, 1, 1)
	stops[3]()
	stops[2]()
	owners = owners[:2]
	check(2, 2)
	stops[0]()
	owners = owners[1:]
	check(4)
	if fenced := count(owners[0].metrics.fenced); fenced != 0 {
		t.Errorf("%d batches were fenced off, though owners took turns", fenced)
	}
}

// link is a projector's connection to its server: it can refuse new
// connections, and drop all data on the others.
type link struct{ shut, lossy atomic.Bool }

func (l *link) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if l.shut.Load() {
		return nil, errors.New("no way through")
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	return &linked{conn, l}, err
}

// pool returns a pool whose connections go over l.
func (l *link) pool(t *testing.T, d *database) *pgxpool.Pool {
	t.Helper()
	return newPool(t, d.url, func(cfg *pgxpool.Config) { cfg.ConnConfig.DialFunc = l.dial })
}

type linked struct {
	net.Conn
	link *link
}

func (c *linked) Write(b []byte) (int, error) {
	if c.link.lossy.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// An owner whose session is killed loses its partitions and notices: another
// takes them over, and the first folds nothing until it gets some again.
func TestTakeOverFromAKilledOwner(t *testing.T) {
	d := newDatabase(t)
	ann := foldtest.User(2, 0)
	var l link
	p, log, _ := d.startOwner(t, func(cfg *Config) { cfg.Pool = l.pool(t, d) })
	first := &owner{p, log, foldtest.Partitions}
	awaitShares(t, first)
	p, log, stopSecond := d.startOwner(t, nil)
	second := &owner{p, log, 2}
	first.share = 2
	awaitShares(t, first, second)

	l.shut.Store(true) // or it would reconnect at once
	killed := d.lines(t, `SELECT pg_terminate_backend(pid)::text FROM (`+locksSQL+`) AS locks
WHERE partition = ANY ($2) GROUP BY pid`, pgsession.LockClass, labels(first.OwnedPartitions()))
	if diff := cmp.Diff([]string{"true"}, killed); diff != "" {
		t.Fatalf("sessions killed (-want +got):\n%s", diff)
	}
	first.log.await(t, givenUp)
	if owned := first.OwnedPartitions(); len(owned) > 0 {
		t.Errorf("the first still folds %v", owned)
	}
	second.share = foldtest.Partitions
	awaitShares(t, second)
	if diff := cmp.Diff([]string{"0", "1", "2", "3"}, d.locked(t)); diff != "" {
		t.Errorf("locks (-want +got):\n%s", diff)
	}
	d.append(t, foldtest.Deliver("c", 1, ann))
	first.Wake(2)
	second.Wake(2)
	d.bus.awaitTotal(t, ann, 1)
	if n := count(second.metrics.folded); n != 1 {
		t.Errorf("the second folded %d events, want 1", n)
	}

	// And back again, once the first can connect and the second has stopped.
	l.shut.Store(false)
	stopSecond()
	first.share = foldtest.Partitions
	awaitShares(t, first)
	d.append(t, foldtest.Deliver("c", 2, ann))
	first.Wake(2)
	d.bus.awaitTotal(t, ann, 2)
	if b := d.badge(t, ann); b.Version != 2 {
		t.Errorf("version %d, want 2", b.Version)
	}
}

// labels returns ids as text.
func labels(ids []int) []string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = strconv.Itoa(id)
	}
	return texts
}

// A silent owner whose connections stay up, as when its process was stopped or
// its host vanished, loses its partitions too.
func TestTakeOverFromASilentOwner(t *testing.T) {
	d := newDatabase(t)
	ann := foldtest.User(2, 0)
	var l link
	p, log, _ := d.startOwnerOf(t, 600*time.Millisecond, func(cfg *Config) { cfg.Pool = l.pool(t, d) })
	first := &owner{p, log, foldtest.Partitions}
	awaitShares(t, first)
	l.lossy.Store(true)
	l.shut.Store(true)
	p, log, _ = d.startOwner(t, nil)
	second := &owner{p, log, foldtest.Partitions}
	awaitShares(t, second)
	d.append(t, foldtest.Deliver("c", 1, ann))
	second.Wake(2)
	d.bus.awaitTotal(t, ann, 1)
	first.log.await(t, givenUp)
}

// The projector survives a crash and restart of the server. The publisher
// appends again what was not confirmed.
func TestServerDies(t *testing.T) {
	server := pgtest.NewServer(t)
	d := openDatabase(t, server.NewDB(t, migrated))
	ann := foldtest.User(3, 0)
	p, log, _ := d.startOwner(t, nil)
	log.await(t, owning)
	var evs []events.Event
	for seq := int64(1); seq <= 20; seq++ {
		evs = append(evs, foldtest.Deliver("c", seq, ann))
	}
	d.append(t, evs[:5]...)
	p.Wake(3)
	d.bus.awaitTotal(t, ann, 5)
	d.append(t, evs[5:10]...)
	p.Wake(3)
	server.Kill()
	if _, err := d.log.Append(t.Context(), evs[10:15]...); err == nil {
		t.Error("a dead server accepted events")
	}
	log.await(t, givenUp)
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	log.await(t, owning)
	again := openDatabase(t, d.url) // new connections
	again.append(t, evs[8:]...)
	p.Wake(3)
	d.bus.awaitTotal(t, ann, 20)
	if b := again.badge(t, ann); b.Version != 20 {
		t.Errorf("version %d, want 20", b.Version)
	}
}

// New reports a missing part of the configuration.
func TestNewRefusesHalfAConfig(t *testing.T) {
	d := newDatabase(t)
	for name, cfg := range map[string]Config{
		"no pool": {Log: d.log, Bus: d.bus},
		"no log":  {Pool: d.pool, Bus: d.bus},
		"no bus":  {Pool: d.pool, Log: d.log},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: made all the same", name)
		}
	}
}

// If the bus is closed, a projector cannot be woken: Run returns an error.
func TestRunEndsWithItsBus(t *testing.T) {
	d := newDatabase(t)
	p := d.newProjector(t, nil)
	if err := d.bus.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.Run(t.Context()); err == nil {
		t.Error("it ran without a bus")
	}
	d.awaitUnowned(t)
}

// retrying is closed once the statement it waits for has begun twice: what followed the
// first is over.
type retrying struct {
	statement string
	begun     atomic.Int64
	twice     chan struct{}
}

func (r *retrying) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, r.statement) && r.begun.Add(1) == 2 {
		close(r.twice)
	}
	return ctx
}

func (r *retrying) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// When a partition moves to another shard, its owner hears of it a moment later. What it
// tries meanwhile fails, and that is no failure of folding.
func TestPartitionThatHasJustMovedIsNoFailure(t *testing.T) {
	d := newDatabase(t)
	held := &retrying{statement: "SELECT partition_id FROM badged.partitions", twice: make(chan struct{})}
	pool := newPool(t, d.url, func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = held })
	p, log, stop := d.startOwner(t, func(cfg *Config) { cfg.Pool = pool })
	log.await(t, owning)
	d.insert(t, 0, foldtest.Deliver("c", 1, foldtest.User(0, 0)))
	d.exec(t, `DELETE FROM badged.partitions WHERE partition_id = 0`)
	p.Wake(0)
	await(t, held.twice, "the owner to ask again whether it has the partition")
	stop()
	if failed := count(p.metrics.failed); failed != 0 {
		t.Errorf("%d batches failed", failed)
	}
}
