package projector

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/internal/badge"
	"github.com/badged/badged/projector/internal/store"
	"github.com/badged/badged/pubsub"
)

// traffic is n messages to n/10 users, each in one of ten conversations, and
// every tenth event a read: round tells one run of it from the next.
func traffic(n, round int) []events.Event {
	evs := make([]events.Event, n)
	for i := range evs {
		user := fmt.Sprintf("user-%d", i*7919%(n/10+1))
		conversation := fmt.Sprintf("conversation-%d", i%10)
		seq := int64(round*n + i + 1)
		if i%10 == 9 {
			evs[i] = event(fmt.Sprint("read ", seq), events.ConversationRead, conversation, upTo(seq), user)
			continue
		}
		evs[i] = deliver(conversation, seq, user)
	}
	return evs
}

// BenchmarkFold folds one event an iteration, in memory.
func BenchmarkFold(b *testing.B) {
	const n = 10_000
	evs := traffic(n, 0)
	users := map[string]*badge.User{}
	for i := range evs {
		for _, id := range evs[i].Data.UserIDs {
			users[id] = badge.NewUser(id)
		}
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		e := &evs[i]
		store.Fold(e, users)
		if e.Type == events.MessageDelivered { // a later one the next time around
			e.Data.Seq += n
		} else {
			e.Data.UpToSeq += n
		}
		i = (i + 1) % n
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkBatch is what a batch does besides waiting for Postgres: 5,000
// messages to one user each, and one message to 5,000, all of them remembered.
// ns/op is that of a batch.
func BenchmarkBatch(b *testing.B) {
	const n = 5000
	for _, bench := range []struct {
		name   string
		events func(round int) []events.Event
	}{
		{"events=5000", func(round int) []events.Event { return traffic(n, round) }},
		{"members=5000", func(round int) []events.Event {
			members := make([]string, n)
			for i := range members {
				members[i] = fmt.Sprintf("user-%d", i*7919%n)
			}
			return []events.Event{deliver("group", int64(round+1), members...)}
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
				batch := store.NewBatch(events.Position{}, records, 0, 1)
				users, _ := store.UsersIn(batch.Items, remembered)
				for i := range batch.Items {
					store.Fold(&batch.Items[i].Event, users)
				}
				touched := store.Sorted(users)
				tables.QueueWrites(&pgx.Batch{}, touched)
				if err := bus.Publish(b.Context(), store.ClientUpdates(touched, 0, "epoch", bus.HasSubscribers)); err != nil {
					b.Fatal(err)
				}
				remembered.Keep(touched)
			}
		})
	}
}

// recordsOf returns events as they are read from the log.
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

// BenchmarkAppendAndFold appends so many events in one transaction and folds
// them, in one goroutine: the whole way into the tables, on a private Postgres
// with its default durability on the same machine. Keys are remembered from
// before, in as many generations as are probed.
func BenchmarkAppendAndFold(b *testing.B) {
	for _, n := range []int{1, 1000, 5000} {
		b.Run(fmt.Sprintf("events=%d", n), func(b *testing.B) {
			d := newDatabase(b)
			d.rememberKeys(b, 20_000)
			d.append(b, traffic(n, 0)...)
			d.fold(b)
			round, report := 1, d.measure(b)
			for b.Loop() {
				b.StopTimer()
				evs := traffic(n, round)
				round++
				b.StartTimer()
				d.append(b, evs...)
				d.fold(b)
			}
			report(n)
		})
	}
}

// BenchmarkDeliverAndRead delivers a message to each of 2,500 conversations of
// users, folds, reads them all and folds again: rows that have something unread
// and then nothing, every time, which no batch evens out.
func BenchmarkDeliverAndRead(b *testing.B) {
	const n = 2500
	d := newDatabase(b)
	round := int64(0)
	next := func() (messages, reads []events.Event) {
		round++
		for i := range n {
			user, conversation := fmt.Sprintf("user-%d", i%(n/10)), fmt.Sprintf("conversation-%d", i/(n/10))
			m := deliver(conversation, round, user)
			m.ID += user
			messages = append(messages, m)
			reads = append(reads, event(fmt.Sprint("read ", m.ID), events.ConversationRead, conversation, upTo(round), user))
		}
		return messages, reads
	}
	messages, _ := next()
	d.append(b, messages...)
	d.fold(b)
	report := d.measure(b)
	for b.Loop() {
		b.StopTimer()
		messages, reads := next()
		b.StartTimer()
		d.append(b, messages...)
		d.fold(b)
		d.append(b, reads...)
		d.fold(b)
	}
	report(2 * n)
}

// rememberKeys lets each partition remember so many keys in each generation.
func (d *database) rememberKeys(b *testing.B, keys int) {
	b.Helper()
	for _, p := range d.projector.partitions {
		for g := 1; g <= store.ProbedGenerations; g++ {
			if g > 1 {
				d.rotate(b, p)
			}
			d.exec(b, `INSERT INTO `+store.KeysTable(p.id, g)+` SELECT gen_random_uuid() FROM generate_series(1, $1)`, keys)
		}
	}
}

// measure returns a function that reports the rate of events and what they have
// cost since: bytes of WAL each, and the share of the updates of conversations
// that were heap-only. It takes how many events there were in an iteration.
func (d *database) measure(b *testing.B) (report func(events int)) {
	b.Helper()
	read := func() (wal, updates, heapOnly float64) {
		d.projector.connections.release()
		d.pool.Reset() // sessions tell what they did when they end
		err := d.pool.QueryRow(b.Context(), `SELECT pg_current_wal_insert_lsn() - '0/0'`).Scan(&wal)
		for others := 1; err == nil && others > 0; {
			err = d.pool.QueryRow(b.Context(), `SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()`).Scan(&others)
		}
		if err == nil {
			err = d.pool.QueryRow(b.Context(), `SELECT sum(n_tup_upd)::float8, sum(n_tup_hot_upd)::float8
FROM pg_stat_user_tables WHERE relname LIKE 'conversations\_p%'`).Scan(&updates, &heapOnly)
		}
		if err != nil {
			b.Fatal(err)
		}
		return wal, updates, heapOnly
	}
	wal, updates, heapOnly := read()
	return func(events int) {
		b.Helper()
		n := float64(b.N) * float64(events)
		b.ReportMetric(n/b.Elapsed().Seconds(), "events/s")
		wal2, updates2, heapOnly2 := read()
		b.ReportMetric((wal2-wal)/n, "WAL-B/event")
		b.ReportMetric(100*(heapOnly2-heapOnly)/max(1, updates2-updates), "%HOT")
	}
}

// BenchmarkRebuild rebuilds what so many events have come to, and says how that
// compares with publishing and folding them.
func BenchmarkRebuild(b *testing.B) {
	const n, batch = 200_000, 5000
	d := newDatabase(b)
	start := time.Now()
	evs := traffic(n, 0)
	for i := 0; i < n; i += batch {
		d.append(b, evs[i:i+batch]...)
		d.fold(b)
	}
	before := time.Since(start)
	for b.Loop() {
		d.rebuild(b, nil)
	}
	each := b.Elapsed() / time.Duration(b.N)
	b.ReportMetric(n/each.Seconds(), "events/s")
	b.ReportMetric(each.Seconds()/before.Seconds(), "of-publishing")
}
