package projectortest

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/fold/lag"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/pg/pgsession"
	"github.com/badged/badged/projector"
)

// Running is a projector that runs.
type Running struct {
	*projector.Projector
	// Stop stops it and returns when it has given up its partitions.
	Stop func()
}

// Start runs a projector until the test ends or it is stopped. It folds what is
// there, and then only what it is woken for. change may be nil.
func (d *Database) Start(t testing.TB, change func(*projector.Config)) *Running {
	t.Helper()
	cfg := projector.Config{
		Pool: d.Pool, Log: d.Log, Bus: d.Bus,
		// Nothing happens by itself, not even on a busy machine.
		PollInterval: time.Hour, OwnershipInterval: time.Hour, MaintenanceInterval: time.Hour,
	}
	if change != nil {
		change(&cfg)
	}
	p, err := projector.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	stop := Run(t, p.Run)
	return &Running{p, func() {
		stop()
		d.awaitNoSession(t, pgsession.ApplicationName("projector"))
	}}
}

// Fold folds everything that was appended, with a projector that keeps running
// and does nothing between two calls. In rare cases it also folds what is
// appended just after; StopFolding prevents that.
func (d *Database) Fold(t testing.TB) {
	t.Helper()
	if d.folding == nil {
		d.folding = d.Start(t, func(cfg *projector.Config) { cfg.Folded = d.Folded })
		t.Cleanup(func() { d.folding = nil })
		held := d.held(t)
		Until(t, "all partitions", func() bool { return len(d.folding.OwnedPartitions()) == len(held) })
	}
	for _, l := range d.lags(t) {
		if l.Folded.Before(l.Head) {
			d.folding.Wake(l.Partition)
		}
	}
	d.AwaitFolded(t)
}

// StopFolding stops the projector of Fold, which then knows no rows or keys. The
// next Fold starts another.
func (d *Database) StopFolding() {
	if d.folding != nil {
		d.folding.Stop()
		d.folding = nil
	}
}

// AwaitFolded waits until every event in the log is folded.
func (d *Database) AwaitFolded(t testing.TB) {
	t.Helper()
	Until(t, "the projector", func() bool {
		return !slices.ContainsFunc(d.lags(t), func(l lag.Lag) bool { return l.Folded.Before(l.Head) })
	})
}

func (d *Database) lags(t testing.TB) []lag.Lag {
	t.Helper()
	lags, err := lag.Measure(t.Context(), d.Pool, d.held(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	return lags
}

// held returns the partitions, after splits too.
func (d *Database) held(t testing.TB) []int {
	t.Helper()
	held, err := eventlog.Held(t.Context(), d.Pool)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

// BeginGeneration begins a generation of keys in a partition behind what is
// folded, as a batch does when the present one has had its span. Batches move the
// position too; here the revision tells the owner.
func (d *Database) BeginGeneration(t testing.TB, partition int) {
	t.Helper()
	d.Exec(t, `INSERT INTO badged.dedup_generations (partition_id, generation, transaction_id, "offset")
SELECT $1, max(g.generation) + 1, max(o.last_processed_transaction_id::text::bigint)::text::xid8, max(o.offset_acked)
FROM badged.dedup_generations AS g, badged.`+events.Topic(partition)+`_offsets AS o
WHERE g.partition_id = $1 AND o.consumer_group = 'projector'`, partition)
	d.Exec(t, `UPDATE badged.partitions SET revision = revision + 1 WHERE partition_id = $1`, partition)
}

// GenerationsOf returns the generation of keys of each event of a history, 0 if
// it is not in a partition. The history is what follows a position there.
func (d *Database) GenerationsOf(t testing.TB, history []events.Event, partition int, after events.Position) []int {
	t.Helper()
	generations := d.Lines(t, `SELECT transaction_id || '/' || "offset" FROM badged.dedup_generations WHERE partition_id = $1 ORDER BY generation`, partition)
	records := slices.DeleteFunc(d.Records(t, partition), func(r events.Record) bool { return !after.Before(r.Position) })
	of := make([]int, len(history))
	for i := range history {
		here := func(user string) bool { return events.PartitionOf(user, foldtest.Partitions) == partition }
		if !slices.ContainsFunc(history[i].Data.UserIDs, here) {
			continue
		}
		for n, begin := range generations {
			if p, err := events.ParsePosition(begin); err != nil {
				t.Fatal(err)
			} else if p.Before(records[0].Position) {
				of[i] = n + 1
			}
		}
		records = records[1:]
	}
	return of
}

// AppendAndFold appends a history in transactions of any size. It folds now and
// then, also as the first batch of a generation of keys, and in the end.
func (d *Database) AppendAndFold(t testing.TB, rt *rapid.T, history []events.Event) {
	t.Helper()
	for rest := history; len(rest) > 0; {
		size := rapid.IntRange(1, len(rest)).Draw(rt, "transaction")
		d.Append(t, rest[:size]...)
		rest = rest[size:]
		switch rapid.IntRange(0, 19).Draw(rt, "fold") {
		case 0:
			d.BeginGeneration(t, rapid.SampledFrom(d.held(t)).Draw(rt, "partition"))
		case 1, 2, 3:
			d.Fold(t)
		}
	}
	d.Fold(t)
}
