package ingest_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/bridge/ingest"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/log/eventbatch"
	"github.com/badged/badged/internal/partition/copier"
	"github.com/badged/badged/internal/partition/moving"
	"github.com/badged/badged/projector"
)

// gate stops a session before the first statement with a text, once it is armed.
type gate struct {
	with           string
	armed          atomic.Bool
	reached, leave chan struct{}
}

func (g *gate) pass(sql string) {
	if strings.Contains(sql, g.with) && g.armed.CompareAndSwap(true, false) {
		close(g.reached)
		<-g.leave
	}
}

func (g *gate) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	g.pass(data.SQL)
	return ctx
}

func (g *gate) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (g *gate) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		g.pass(q.SQL)
	}
	return ctx
}

func (g *gate) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (g *gate) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// A partition moves from the shard that has the position of the broker, after the other shard
// has taken its part of a batch and before the first has. A message to a room whose part was
// too early on the one and is too late on the other is not lost, and counts once.
func TestABatchThatSpansASwitch(t *testing.T) {
	t.Parallel()
	for name, remembered := range map[string]bool{"a remembered room": true, "an unknown room": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			batchThatSpansASwitch(t, remembered)
		})
	}
}

func batchThatSpansASwitch(t *testing.T, remembered bool) {
	t.Helper()
	s := newSharded(t)
	var both []*projectortest.Database
	cfg := moving.Config{Partition: 0, To: "b", Options: copier.Options{Patience: 10 * time.Second}} // of a busy machine
	for i, name := range []string{"a", "b"} {
		d := projectortest.Open(t, s.pools[i].Config().ConnString())
		d.Start(t, func(cfg *projector.Config) {
			cfg.PollInterval, cfg.OwnershipInterval = 10*time.Millisecond, 250*time.Millisecond
		})
		both = append(both, d)
		cfg.Databases = append(cfg.Databases, moving.Database{Name: name, Pool: d.Pool, Log: d.Log})
	}
	members := []string{userIn(0), userIn(1), userIn(2)}
	b := &fakeBroker{messages: []string{joined(0, 0, 1, 2)}}
	s.ingestAll(t, b)

	g := &gate{with: "INSERT INTO " + eventbatch.Table(events.Topic(0)), reached: make(chan struct{}), leave: make(chan struct{})}
	var databases []cluster.Candidate
	for i, shard := range s.Databases() {
		pool := s.pools[i].Config()
		if i == 0 {
			pool.ConnConfig.Tracer = g
		}
		traced, err := pgxpool.NewWithConfig(t.Context(), pool)
		if err != nil {
			t.Fatal(err)
		}
		databases = append(databases, cluster.Candidate{Name: shard.Name, Pool: traced})
	}
	dbs, err := cluster.Open(t.Context(), cluster.Config{Databases: databases}) // nothing tells it of moves
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dbs.Close)
	want := int64(1)
	ingesting := func(arm bool) *running {
		return run(t, &projectortest.Database{Pool: s.pools[0], Log: s.Databases()[0].Log}, []ingest.Source{ingest.SourceOf("fake", b)}, func(cfg *ingest.Config) {
			cfg.Cluster = dbs
			first := arm
			cfg.Admit = func(context.Context, []events.Event) error {
				g.armed.Store(first)
				first = false
				return nil
			}
		})
	}
	if remembered {
		b.messages = append(b.messages, eventTo(1))
		want++
		r := ingesting(false)
		s.awaitRead(t, 2)
		r.stop()
	}
	b.messages = append(b.messages, eventTo(2))
	r := ingesting(true)
	projectortest.Await(t, g.reached, "the part of the first shard") // which comes last
	if _, err := moving.Move(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if err := dbs.Reload(t.Context()); err != nil { // too late for the batch, whose parts are made
		t.Fatal(err)
	}
	close(g.leave)
	s.awaitRead(t, len(b.messages))
	for _, d := range both {
		d.AwaitFolded(t)
	}
	reader := cluster.NewReader(dbs)
	for p, user := range members {
		if badge, err := reader.Badge(t.Context(), user); err != nil || badge.Total != want {
			t.Errorf("the member in partition %d has a total of %d, want %d: %v", p, badge.Total, want, err)
		}
	}
	if strings.Contains(r.logs.String(), "level=ERROR") {
		t.Error("a move is logged as a failure")
	}
}
