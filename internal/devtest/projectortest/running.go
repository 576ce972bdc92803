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

// Running is a projector that is running.
type Running struct {
	*projector.Projector
	// Stop stops the projector. It returns when the projector has released its partitions and its
	// sessions have ended.
	Stop func()
}

// Start runs a projector until the test ends or Stop is called. The projector folds all events in
// the log, and later only the partitions for which it is woken. change may change its
// configuration; it may be nil.
func (d *Database) Start(t testing.TB, change func(*projector.Config)) *Running {
	t.Helper()
	cfg := projector.Config{
		Pool: d.Pool, Log: d.Log, Bus: d.Bus,
		// Nothing is done on a schedule, not even on a slow machine.
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

// Fold folds all events that were appended. Its projector continues to run after the call, but does
// nothing until the next call. In rare cases it also folds events that are appended immediately
// after the call; call StopFolding to prevent this.
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

// Happen appends events in one transaction, and folds them.
func (d *Database) Happen(t testing.TB, evs ...events.Event) {
	t.Helper()
	d.Append(t, evs...)
	d.Fold(t)
}

// StopFolding stops the projector of Fold, so that its caches of rows and keys are lost. The next
// call of Fold starts another projector.
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

// held returns the partitions that the database holds, including those that splits have created.
func (d *Database) held(t testing.TB) []int {
	t.Helper()
	held, err := eventlog.Held(t.Context(), d.Pool)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

// BeginGeneration begins a new generation of event keys in a partition, after the events that are
// folded. A batch does this when the current generation has lasted for its span. Batches also move
// the position; here, the increased revision informs the owner.
func (d *Database) BeginGeneration(t testing.TB, partition int) {
	t.Helper()
	d.Exec(t, `INSERT INTO badged.dedup_generations (partition_id, generation, transaction_id, "offset")
SELECT $1, max(g.generation) + 1, max(o.last_processed_transaction_id::text::bigint)::text::xid8, max(o.offset_acked)
FROM badged.dedup_generations AS g, badged.`+events.Topic(partition)+`_offsets AS o
WHERE g.partition_id = $1 AND o.consumer_group = 'projector'`, partition)
	d.Exec(t, `UPDATE badged.partitions SET revision = revision + 1 WHERE partition_id = $1`, partition)
}

// GenerationsOf returns, for each event of a history, the generation of its key in a partition, 0
// if the event is not in the partition. The history must be what the partition's log contains after
// a position.
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

// AppendAndFold appends a history in transactions of random sizes. It folds at random times and at
// the end, and sometimes begins a generation of keys.
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
