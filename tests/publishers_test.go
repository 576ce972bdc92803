package tests

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
)

// ledger records the committed events, in the order of the log.
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
	// halls is true if the backend also posts to rooms, whose members are at first all
	// users.
	halls bool
	seq   int64
}

var allUsers, _ = users(12)

// regulars is how many of the users stay in the rooms and read there. The other users join and leave.
const regulars = 8

// halls is how many rooms there are.
const halls = 3

// hall returns the name of a room.
func hall(n int) string { return fmt.Sprint("hall ", n) }

// drawHall makes e an event of a room. All backends post, recall and read in every room.
func (b *backend) drawHall(e *events.Event, seq, recent int64) {
	d := events.Data{ConversationID: hall(b.random.IntN(halls))}
	visitors := allUsers[regulars+b.random.IntN(len(allUsers)-regulars):]
	switch b.random.IntN(12) {
	case 0:
		e.Type, d.Seq = events.RoomRecalled, recent
	case 1:
		e.Type, d.UserIDs = events.RoomJoined, visitors
	case 2:
		e.Type, d.UserIDs = events.RoomLeft, visitors
	case 3, 4, 5:
		e.Type, d.UpToSeq, d.UserIDs = events.ConversationRead, recent, []string{allUsers[b.random.IntN(regulars)]}
	default:
		e.Type, d.Seq, d.SenderID = events.RoomPosted, seq, allUsers[b.random.IntN(len(allUsers))]
		if b.random.IntN(5) == 0 {
			d.MentionedUserIDs = []string{allUsers[b.random.IntN(len(allUsers))]}
		}
	}
	e.Data = d
}

// draw draws some events. All backends deliver, recall and read in the same conversations. After a
// hundred messages they use other conversations, so that no unread set becomes large enough for
// blocks.
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
		if b.halls && b.random.IntN(2) == 0 {
			b.drawHall(&e, 10*b.seq+int64(b.n), recent)
		}
		evs = append(evs, e)
	}
	return evs
}

// transact publishes some events in one transaction, in Go or in SQL, and commits three times out of
// four. If until is not nil, the transaction stays open until it is closed.
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
