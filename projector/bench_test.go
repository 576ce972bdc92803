package projector

import (
	"fmt"
	"testing"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/fold/keys"
)

// BenchmarkAppendAndFold appends n events in one transaction and folds them in
// one goroutine, on a private Postgres with default durability on the same
// machine. Every probed generation holds keys from before.
func BenchmarkAppendAndFold(b *testing.B) {
	for _, n := range []int{1, 1000, 5000} {
		b.Run(fmt.Sprintf("events=%d", n), func(b *testing.B) {
			d := newDatabase(b)
			d.rememberKeys(b, 20_000)
			d.append(b, foldtest.Traffic(n, 0)...)
			d.fold(b)
			round, report := 1, d.measure(b)
			for b.Loop() {
				b.StopTimer()
				evs := foldtest.Traffic(n, round)
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
// users, folds, reads them all and folds again: rows alternate between unread
// and read, which no batch cancels out.
func BenchmarkDeliverAndRead(b *testing.B) {
	const n = 2500
	d := newDatabase(b)
	round := int64(0)
	next := func() (messages, reads []events.Event) {
		round++
		for i := range n {
			user, conversation := fmt.Sprintf("user-%d", i%(n/10)), fmt.Sprintf("conversation-%d", i/(n/10))
			m := foldtest.Deliver(conversation, round, user)
			m.ID += user
			messages = append(messages, m)
			reads = append(reads, foldtest.Event(fmt.Sprint("read ", m.ID), events.ConversationRead, conversation, foldtest.UpTo(round), user))
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

// rememberKeys puts keys into runs of each generation of each partition.
func (d *database) rememberKeys(b *testing.B, n int) {
	b.Helper()
	for _, p := range d.projector.partitions {
		for g := 1; g <= keys.ProbedGenerations; g++ {
			if g > 1 {
				d.rotate(b, p)
			}
			d.exec(b, fmt.Sprintf(`INSERT INTO badged.dedup_blocks_p%02d SELECT $1, '\x01'::bytea || uuid_send(gen_random_uuid()) FROM generate_series(1, $2)`, p.id), g, n)
		}
		p.keys.Forget()
		drain(b, p)
		sizes := p.merger.Sizes
		d.merge(b, p)
		p.merger.Sizes = sizes
	}
}

// measure returns a function that reports the rate of events and their cost
// since: bytes of WAL per event, and the share of heap-only updates of
// conversations. It takes the number of events per iteration.
func (d *database) measure(b *testing.B) (report func(events int)) {
	b.Helper()
	read := func() (wal, updates, heapOnly float64) {
		d.projector.release()
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
