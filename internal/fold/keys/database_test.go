package keys

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/schematest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

var migrated = schematest.Migrated(2)

// small lets a few entries be merged in many steps.
var small = Sizes{Blocks: 4, Segment: 6, Read: 2, Fanout: 2, Older: 1}

// database is a migrated database whose statements can be made to fail.
type database struct {
	pool *pgxpool.Pool
	// left is how many statements are answered until one fails; negative means no
	// limit.
	left atomic.Int64
}

func newDatabase(t testing.TB) *database {
	t.Helper()
	d := &database{}
	d.left.Store(-1)
	cfg, err := pgxpool.ParseConfig(pgtest.NewDB(t, migrated))
	if err != nil {
		t.Fatal(err)
	}
	for _, setting := range []string{"enable_seqscan", "enable_hashjoin", "enable_mergejoin"} { // as projectors have it
		cfg.ConnConfig.RuntimeParams[setting] = "off"
	}
	cfg.ConnConfig.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
	cfg.ConnConfig.Tracer = d
	if d.pool, err = pgxpool.NewWithConfig(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.pool.Close)
	return d
}

// spend returns a canceled context where a statement is to fail.
func (d *database) spend(ctx context.Context) context.Context {
	if d.left.Add(-1) != -1 {
		return ctx
	}
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

func (d *database) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return d.spend(ctx)
}
func (d *database) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (d *database) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return d.spend(ctx)
}
func (d *database) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (d *database) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

func (d *database) exec(t fatal, sql string, args ...any) int64 {
	t.Helper()
	tag, err := d.pool.Exec(context.Background(), sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	return tag.RowsAffected()
}

func (d *database) line(t fatal, sql string, args ...any) string {
	t.Helper()
	rows, _ := d.pool.Query(context.Background(), sql, args...)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, " ")
}

// fatal is what helpers need of a test: *testing.T and *rapid.T have it.
type fatal interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// owner is an owner of partition 0.
type owner struct {
	*database
	window *Window
	merger *Merger
	// crash is after how many calls Locked fails; negative means never.
	crash int
}

var errCrash = errors.New("crashed")

// newOwner returns an owner that has loaded nothing.
func (d *database) newOwner(limit int) *owner {
	o := &owner{database: d, window: NewWindow(0, limit), crash: -1}
	o.merger = &Merger{Pool: d.pool, Window: o.window, Sizes: small, Locked: func(_ context.Context, f func() error) error {
		if o.crash--; o.crash == -1 || !o.window.Loaded() {
			return errCrash
		}
		return f()
	}}
	return o
}

// load loads the window.
func (o *owner) load(t fatal, generation int) {
	t.Helper()
	if err := o.tryLoad(generation); err != nil {
		t.Fatal(err)
	}
}

func (o *owner) tryLoad(generation int) error {
	return o.pool.AcquireFunc(context.Background(), func(conn *pgxpool.Conn) error {
		return o.window.Load(context.Background(), conn.Conn(), generation)
	})
}

// event is an event that names users.
type event struct {
	key   uuid.UUID
	users []uint64
}

// keyOf returns a key with a prefix.
func keyOf(prefix, rest uint64) (key uuid.UUID) {
	binary.BigEndian.PutUint64(key[:8], prefix)
	binary.BigEndian.PutUint64(key[8:], rest)
	return key
}

// fold folds events as one batch in a generation, and returns for each of them
// which users have not had it. It commits if commit is true.
func (o *owner) fold(generation int, commit bool, events ...event) (counted [][]uint64, err error) {
	ctx := context.Background()
	check := o.window.Check(generation)
	for _, e := range events {
		check.Ask(e.key)
	}
	var loads, writes pgx.Batch
	check.QueueLoads(&loads)
	if err := o.pool.SendBatch(ctx, &loads).Close(); err != nil {
		check.Abandon()
		return nil, err
	}
	for _, e := range events {
		var left []uint64
		for _, user := range e.users {
			if !check.Has(EntryOf(e.key, user)) {
				left = append(left, user)
			}
		}
		for _, user := range left {
			check.Add(EntryOf(e.key, user))
		}
		counted = append(counted, left)
	}
	check.QueueWrites(&writes)
	if !commit {
		check.Abandon()
		return counted, nil
	}
	if err := o.pool.SendBatch(ctx, &writes).Close(); err != nil {
		check.Abandon()
		return nil, err
	}
	check.Commit()
	return counted, nil
}

// merge merges until nothing is left to merge.
func (o *owner) merge(t fatal) {
	t.Helper()
	for {
		more, err := o.merger.Step(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if !more {
			return
		}
	}
}
