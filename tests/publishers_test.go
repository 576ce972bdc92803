package tests

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
)

// ledger keeps the committed events. They are of types that commute, so their
// order does not matter.
type ledger struct {
	mu        sync.Mutex
	committed []events.Event
	grown     chan struct{} // closed and replaced whenever there are more
}

func (l *ledger) add(evs []events.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.committed = append(l.committed, evs...)
	close(l.grown)
	l.grown = make(chan struct{})
}

// await waits until n more events are committed, or ctx is done.
func (l *ledger) await(ctx context.Context, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	want := len(l.committed) + n
	for len(l.committed) < want && ctx.Err() == nil {
		grown := l.grown
		l.mu.Unlock()
		select {
		case <-grown:
		case <-ctx.Done():
		}
		l.mu.Lock()
	}
}

// backend is a chat backend that publishes in its own transactions.
type backend struct {
	n      uint64
	random *rand.Rand
	pool   *pgxpool.Pool
	ledger *ledger
	seq    int64
}

var allUsers, _ = users(12)

// draw draws some events. All backends deliver, recall and read in the same
// rooms. They move on after a hundred messages each, so that no unread set
// becomes large enough for blocks.
func (b *backend) draw() (evs []events.Event) {
	for range 1 + b.random.IntN(4) {
		b.seq++
		recent := 10*(b.seq-b.random.Int64N(min(b.seq, 50))) + b.random.Int64N(10)
		d := events.Data{UserIDs: slices.Clone(allUsers[:1+b.random.IntN(len(allUsers))])}
		e := events.Event{ID: fmt.Sprint(b.n, "/", b.seq), Source: "backend", Type: events.MessageDelivered}
		seq := 10*b.seq + int64(b.n)
		switch b.random.IntN(10) {
		case 0:
			e.Type, seq, d.Seq = events.MessageRecalled, recent, recent
		case 1:
			e.Type, seq, d.UpToSeq = events.ConversationRead, recent, recent
			d.UserIDs = d.UserIDs[:1]
		default:
			d.Seq = seq
		}
		d.ConversationID = fmt.Sprint("room ", seq/1000)
		e.Data = d
		evs = append(evs, e)
	}
	return evs
}

// transact publishes some events in one transaction, in Go or in SQL, and
// commits three times out of four. If until is not nil, it keeps the
// transaction open until that is closed.
func (b *backend) transact(ctx context.Context, inSQL bool, published chan<- struct{}, until <-chan struct{}) error {
	tx, err := b.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx) //nolint:errcheck // does nothing after Commit
	evs := b.draw()
	if err := b.publish(ctx, tx, inSQL, evs); err != nil {
		return err
	}
	if until != nil {
		close(published)
		<-until
	} else if b.random.IntN(4) == 0 {
		return tx.Rollback(ctx)
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	b.ledger.add(evs)
	if b.random.IntN(5) > 0 {
		return nil
	}
	return pgx.BeginFunc(ctx, b.pool, func(again pgx.Tx) error { // a retry
		return b.publish(ctx, again, inSQL, evs)
	})
}

// publish publishes events in a transaction, in SQL or in Go.
func (b *backend) publish(ctx context.Context, tx pgx.Tx, inSQL bool, evs []events.Event) error {
	for _, e := range evs {
		if !inSQL {
			if _, err := events.Publish(ctx, tx, e); err != nil {
				return err
			}
			continue
		}
		payload, err := e.MarshalJSON()
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `SELECT badged.publish($1::text::jsonb)`, string(payload)); err != nil {
			return err
		}
	}
	return nil
}

// Four backends publish in their own transactions, in Go and in SQL: some roll
// back, some repeat, and one commits long after others that began later.
// Meanwhile projectors are killed and replaced. No event is skipped or counted
// twice.
func TestPublishersWhileProjectorsAreKilled(t *testing.T) {
	database, redis := pgtest.NewServer(t).NewDB(t, pgtest.Template{}), newRedis(t)
	p := roles(t, database, redis, "--reconcile-interval=1s")
	pool, err := pgxpool.New(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	ledger := &ledger{grown: make(chan struct{})}
	newBackend := func(n uint64) *backend {
		return &backend{n: n, random: rand.New(rand.NewPCG(n, 7)), pool: pool, ledger: ledger}
	}

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	over := make(chan struct{})
	var wg sync.WaitGroup
	for n := range uint64(4) {
		wg.Go(func() {
			b := newBackend(n)
			for {
				select {
				case <-over:
					return
				default:
				}
				if err := b.transact(ctx, n%2 == 0, nil, nil); err != nil {
					t.Errorf("backend %d: %v", n, err)
					stop() // waiting for what does not come
					return
				}
			}
		})
	}

	projector := p["projector"]
	for n := range uint64(3) {
		ledger.await(ctx, 100)
		published, until, late := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		b := newBackend(4 + n)
		b.seq = int64(20 * n)
		go func() { late <- b.transact(ctx, n%2 == 0, published, until) }()
		select {
		case <-published:
		case err := <-late:
			t.Fatal(err)
		}
		ledger.await(ctx, 50) // these began later and must wait
		projector.kill()
		projector = serve(t, database, "--redis-url="+redis.URL(), "--roles=projector")
		ledger.await(ctx, 50)
		close(until)
		if err := <-late; err != nil {
			t.Fatal(err)
		}
	}
	close(over)
	wg.Wait()
	if t.Failed() {
		return
	}

	last := p["api"].mustPost(delivered("the last", 1, `"dan"`))
	t.Logf("%d events were committed", len(ledger.committed))
	truth := tally{}
	truth.count(ledger.committed)
	for _, user := range allUsers {
		want, sum := truth.unread(user)
		if n := total(t, p["api"], user, last); n != sum {
			t.Errorf("the total of %s is %d, want %d", user, n, sum)
		}
		if got := listed(t, p["api"], user); !maps.Equal(got, want) {
			t.Errorf("%s has %v unread, want %v", user, got, want)
		}
	}
}
