package rig

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/tests/bench/measure"
)

// Usage is the cost of some work.
type Usage struct {
	Events float64 // number of events of the work
	// pace is the rate and the duration of work at full speed.
	pace []measure.Measure
	// Resources are the processor time and peak memory of each program, the sum of the
	// processor time, and the write-ahead log.
	Resources []measure.Measure
}

// All returns all measures.
func (u Usage) All() []measure.Measure { return append(u.pace, u.Resources...) }

// ProcessorTime is the sum of the processor time of the servers that do the work: of
// badged and Postgres, or of Redis.
const ProcessorTime = "CPU badged, Postgres and Redis"

// Meter runs work, which returns its number of events, and measures its cost.
func (r *Rig) Meter(ctx context.Context, work func(ctx context.Context) (events int, err error)) (u Usage, err error) {
	debug.FreeOSMemory() // do not count the memory of earlier rounds
	before, err := r.walUsage(ctx)
	if err != nil {
		return u, err
	}
	stopProfile, err := r.startProfile(ctx)
	if err != nil {
		return u, err
	}
	watch := watchMemory()
	cpuBefore, began := readCPU(), time.Now()
	events, err := work(ctx)
	took, cpuAfter := time.Since(began), readCPU()
	memory := watch()
	if err := errors.Join(err, stopProfile(ctx)); err != nil {
		return u, err
	}
	if events == 0 {
		return u, errors.New("nothing happened in the time given")
	}
	after, err := r.walUsage(ctx)
	if err != nil {
		return u, err
	}
	n := float64(events)
	u.Events = n
	u.pace = []measure.Measure{
		measure.Of("rate", "events/s", n/took.Seconds()),
		measure.Of("cost", "µs/event", took.Seconds()*1e6/n),
		measure.Of("time", "s", took.Seconds()),
		measure.Of("events", "events", n),
	}
	sum := measure.Of(ProcessorTime, "µs/event", 0)
	u.Resources = cpuMeasures(cpuBefore, cpuAfter, events)
	for _, m := range u.Resources {
		if m.Name == "CPU badged" || m.Name == "CPU Postgres" || m.Name == "CPU Redis" {
			sum.Value += m.Value
		}
	}
	u.Resources = append(append(u.Resources, sum,
		measure.Of("WAL", "bytes/event", float64(after.bytes-before.bytes)/n),
		measure.Of("fsyncs", "per 1,000 events", float64(after.syncs-before.syncs)*1000/n)), memory...)
	return u, nil
}

// walUsage is the size and the syncs of the write-ahead log.
type walUsage struct{ bytes, syncs int64 }

// walUsageSQL reads the position of the write-ahead log, because statistics are delayed. Syncs are only
// in the statistics, which may not include the last second.
const walUsageSQL = `SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint, wal_sync FROM pg_stat_wal`

func (r *Rig) walUsage(ctx context.Context) (u walUsage, err error) {
	err = inDatabase(ctx, r.Postgres.URL(), func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, walUsageSQL).Scan(&u.bytes, &u.syncs)
	})
	if err != nil {
		return u, fmt.Errorf("read the use of the write-ahead log: %w", err)
	}
	return u, nil
}

// memoryInterval is how often memory is read, which takes 10 ms if many processes
// run.
const memoryInterval = 2 * time.Second

// watchMemory samples the memory of this process and its descendants. The returned function stops the
// sampling and returns the peak of each program.
func watchMemory() func() []measure.Measure {
	most := map[string]int64{}
	stop := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(memoryInterval)
		defer tick.Stop()
		for ended := false; ; {
			for program, bytes := range residentMemory() {
				most[program] = max(most[program], bytes)
			}
			if ended {
				return
			}
			select {
			case <-stop:
				ended = true
			case <-tick.C:
			}
		}
	})
	return func() (all []measure.Measure) {
		close(stop)
		watching.Wait()
		for _, part := range parts() {
			if bytes, ok := most[part.program]; ok {
				all = append(all, measure.Of("memory "+part.name, "MiB", float64(bytes)/(1<<20)))
			}
		}
		return all
	}
}
