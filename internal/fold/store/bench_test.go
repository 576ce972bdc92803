package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/fold/badge"
	"github.com/badged/badged/internal/fold/logread"
	"github.com/badged/badged/internal/fold/store"
	"github.com/badged/badged/pubsub"
)

// BenchmarkFold folds one event per iteration, in memory.
func BenchmarkFold(b *testing.B) {
	const n = 10_000
	evs := foldtest.Traffic(n, 0)
	s := &badge.State{Users: map[string]*badge.User{}}
	for i := range evs {
		for _, id := range evs[i].Data.UserIDs {
			s.Users[id] = badge.NewUser(id)
		}
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		e := &evs[i]
		s.Fold(e)
		if e.Type == events.MessageDelivered { // a later message in the next round
			e.Data.Seq += n
		} else {
			e.Data.UpToSeq += n
		}
		i = (i + 1) % n
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkBatch measures the work of a batch without Postgres: 5,000 messages
// to one user each, and one message to 5,000, all cached. ns/op is per batch.
func BenchmarkBatch(b *testing.B) {
	const n = 5000
	for _, bench := range []struct {
		name   string
		events func(round int) []events.Event
	}{
		{"events=5000", func(round int) []events.Event { return foldtest.Traffic(n, round) }},
		{"members=5000", func(round int) []events.Event {
			members := make([]string, n)
			for i := range members {
				members[i] = fmt.Sprintf("user-%d", i*7919%n)
			}
			return []events.Event{foldtest.Deliver("group", int64(round+1), members...)}
		}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			tables, remembered := store.NewTables(0), store.NewCache(1<<30)
			bus := pubsub.NewMemory()
			b.ReportAllocs()
			round := 0
			for b.Loop() {
				b.StopTimer()
				records := recordsOf(b, bench.events(round))
				round++
				b.StartTimer()
				batch := store.NewBatch(&logread.Page{Records: records}, &store.Letters{}, 0, 1)
				state, _ := store.StateOf(batch.Items, remembered, false)
				for i := range batch.Items {
					state.Fold(&batch.Items[i].Event)
				}
				touched := store.Sorted(state.Users)
				tables.QueueWrites(&pgx.Batch{}, touched, nil)
				if err := bus.Publish(b.Context(), store.ClientUpdates(touched, nil, 0, 0, "epoch", bus.HasSubscribers).Users, nil); err != nil {
					b.Fatal(err)
				}
				remembered.Keep(touched, nil)
			}
		})
	}
}

// recordsOf returns events as records read from the log.
func recordsOf(b *testing.B, evs []events.Event) []events.Record {
	b.Helper()
	records := make([]events.Record, len(evs))
	for i := range evs {
		payload, err := evs[i].MarshalJSON()
		if err != nil {
			b.Fatal(err)
		}
		records[i] = events.Record{Payload: payload, AppendedAt: time.Now()}
	}
	return records
}
