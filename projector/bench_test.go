package projector

import (
	"fmt"
	"testing"

	"github.com/badged/badged/events"
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
	users := map[string]*user{}
	for i := range evs {
		for _, id := range evs[i].Data.UserIDs {
			users[id] = newUser(id)
		}
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		e := &evs[i]
		fold(e, users)
		if e.Type == events.MessageDelivered { // a later one the next time around
			e.Data.Seq += n
		} else {
			e.Data.UpToSeq += n
		}
		i = (i + 1) % n
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
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
			round := 0
			for b.Loop() {
				b.StopTimer()
				evs := traffic(n, round)
				round++
				b.StartTimer()
				d.append(b, evs...)
				d.fold(b)
			}
			b.ReportMetric(float64(b.N)*float64(n)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// rememberKeys lets each partition remember so many keys in each generation.
func (d *database) rememberKeys(b *testing.B, keys int) {
	b.Helper()
	for _, p := range d.projector.partitions {
		for g := 1; g <= probedGenerations; g++ {
			if g > 1 {
				d.rotate(b, p)
			}
			d.exec(b, `INSERT INTO `+keysTable(p.id, g)+` SELECT gen_random_uuid() FROM generate_series(1, $1)`, keys)
		}
	}
}
