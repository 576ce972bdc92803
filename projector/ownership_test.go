package projector

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/pgtest"
)

// diary is a logger that tells what is logged, so that a test can wait for it.
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
	givenUp = "ownership session ended, partitions are given up"
)

// startOwner runs a projector on a pool of its own, once it owns partitions,
// or has found that others do.
func (d *database) startOwner(t *testing.T, change func(*Config)) (*Projector, *diary, func()) {
	t.Helper()
	log := newDiary()
	p := d.newProjector(t, func(cfg *Config) {
		cfg.Logger = slog.New(log)
		// An owner whose session is silent for five of these gives up; it must
		// not do so only because the machine is busy.
		cfg.OwnershipInterval = 200 * time.Millisecond
		if change != nil {
			change(cfg)
		}
	})
	return p, log, run(t, p)
}

// locksSQL are the locks of partitions that are held, and by which session.
const locksSQL = `SELECT objid::text AS partition, pid FROM pg_locks
WHERE locktype = 'advisory' AND granted AND classid = $1 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

// locked returns the partitions that are owned.
func (d *database) locked(t *testing.T) []string {
	t.Helper()
	return d.lines(t, `SELECT partition FROM (`+locksSQL+`) AS locks ORDER BY partition`, lockClass)
}

// awaitUnowned waits until nobody owns a partition, by taking them all. The
// session of a projector that has stopped ends an instant later.
func (d *database) awaitUnowned(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, d.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for p := range partitions {
		if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock($1, $2)`, lockClass, p); err != nil {
			t.Fatalf("partition %d is not given up: %v", p, err)
		}
	}
}

func (d *database) lags(t *testing.T) []Lag {
	t.Helper()
	all := make([]int, partitions)
	for i := range all {
		all[i] = i
	}
	lags, err := Lags(t.Context(), d.pool, all, 1000)
	if err != nil {
		t.Fatal(err)
	}
	return lags
}

// A projector owns every partition that nobody else owns, shows it, and gives
// them up when it stops.
func TestOwnership(t *testing.T) {
	d := newDatabase(t)
	for _, l := range d.lags(t) {
		if l.Owner != "" {
			t.Errorf("partition %d is owned by %q before anybody runs", l.Partition, l.Owner)
		}
	}
	leaks := goleak.IgnoreCurrent()
	p, log, stop := d.startOwner(t, nil)
	log.await(t, owning)
	if diff := cmp.Diff([]string{"0", "1", "2", "3"}, d.locked(t)); diff != "" {
		t.Errorf("locks (-want +got):\n%s", diff)
	}
	for _, l := range d.lags(t) {
		if l.Owner != ApplicationName() {
			t.Errorf("partition %d is owned by %q, want %q", l.Partition, l.Owner, ApplicationName())
		}
	}
	if n := count(p.metrics.owned); n != partitions {
		t.Errorf("the projector says that it owns %d partitions, want %d", n, partitions)
	}
	stop()
	d.awaitUnowned(t)
	if n := count(p.metrics.owned); n != 0 || len(p.ownedPartitions()) != 0 {
		t.Errorf("the projector says that it owns %d partitions after its end", n)
	}
	goleak.VerifyNone(t, leaks)
}

// Another takes over what an owner gives up, and goes on where it was.
func TestTakeOverFromOneThatStops(t *testing.T) {
	d := newDatabase(t)
	ann := userIn(1, 0)
	first, firstLog, stop := d.startOwner(t, nil)
	firstLog.await(t, owning)
	second, secondLog, stopSecond := d.startOwner(t, nil)

	d.append(t, deliver("c", 1, ann))
	first.Wake(1)
	second.Wake(1)
	d.bus.awaitTotal(t, ann, 1)
	stop()
	secondLog.await(t, owning)
	d.append(t, deliver("c", 2, ann))
	second.Wake(1)
	d.bus.awaitTotal(t, ann, 2)
	stopSecond()
	if n, m := count(first.metrics.folded), count(second.metrics.folded); n != 1 || m != 1 {
		t.Errorf("the first folded %d events and the second %d, want 1 each", n, m)
	}
}

// gate lets connections through until it is shut.
type gate struct{ shut atomic.Bool }

func (g *gate) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if g.shut.Load() {
		return nil, errors.New("no way through")
	}
	return new(net.Dialer).DialContext(ctx, network, address)
}

// An owner whose session is killed has lost its partitions, and knows: another
// takes them over, and the first folds nothing more until it gets some again.
func TestTakeOverFromOneThatIsKilled(t *testing.T) {
	d := newDatabase(t)
	ann := userIn(2, 0)
	var g gate
	first, firstLog, _ := d.startOwner(t, func(cfg *Config) {
		cfg.Pool = newPool(t, d.url, func(cfg *pgxpool.Config) { cfg.ConnConfig.DialFunc = g.dial })
	})
	firstLog.await(t, owning)
	second, secondLog, stopSecond := d.startOwner(t, nil)
	d.append(t, deliver("c", 1, ann))
	first.Wake(2)
	d.bus.awaitTotal(t, ann, 1)

	g.shut.Store(true) // or it would be back at once
	killed := d.lines(t, `SELECT pg_terminate_backend(pid)::text FROM (SELECT DISTINCT pid FROM (`+locksSQL+`) AS locks) AS owner`, lockClass)
	if diff := cmp.Diff([]string{"true"}, killed); diff != "" {
		t.Fatalf("sessions killed (-want +got):\n%s", diff)
	}
	firstLog.await(t, givenUp)
	if owned := first.ownedPartitions(); len(owned) > 0 {
		t.Errorf("the first still folds %v", owned)
	}
	secondLog.await(t, owning)
	if diff := cmp.Diff([]string{"0", "1", "2", "3"}, d.locked(t)); diff != "" {
		t.Errorf("locks (-want +got):\n%s", diff)
	}
	d.append(t, deliver("c", 2, ann))
	first.Wake(2)
	second.Wake(2)
	d.bus.awaitTotal(t, ann, 2)

	// And back again, once the first can connect and the second is gone.
	g.shut.Store(false)
	stopSecond()
	if n := count(second.metrics.folded); n != 1 {
		t.Errorf("the second folded %d events, want 1", n)
	}
	firstLog.await(t, owning)
	d.append(t, deliver("c", 3, ann))
	first.Wake(2)
	d.bus.awaitTotal(t, ann, 3)
	if b := d.badge(t, ann); b.Version != 3 {
		t.Errorf("version %d, want 3", b.Version)
	}
}

// A server that dies in the middle of everything and comes back finds the
// projector waiting. What the publisher was not sure of it appends again.
func TestServerDies(t *testing.T) {
	server := pgtest.NewServer(t)
	d := openDatabase(t, server.NewDB(t, migrated))
	ann := userIn(3, 0)
	p, log, _ := d.startOwner(t, nil)
	log.await(t, owning)
	var evs []events.Event
	for seq := int64(1); seq <= 20; seq++ {
		evs = append(evs, deliver("c", seq, ann))
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
	again := openDatabase(t, d.url) // its connections are new
	again.append(t, evs[8:]...)
	p.Wake(3)
	d.bus.awaitTotal(t, ann, 20)
	if b := again.badge(t, ann); b.Version != 20 {
		t.Errorf("version %d, want 20", b.Version)
	}
}

// What a projector needs it is told when it is made, not when it runs.
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

// Without a bus a projector cannot be woken: it says so and ends.
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
