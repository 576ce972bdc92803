package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/badged/badged/pubsub"
)

// badUser is a user whose state cannot be read, or only slowly. Its tables answer the
// first query when begin is closed.
type badUser struct {
	*tables
	begin chan struct{}
	state func(ctx context.Context) error

	mu sync.Mutex
	// now is the number of running queries for only the bad user. limit is the maximum of now so
	// far.
	now, limit int
}

func (b *badUser) count(alone bool, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if alone {
		b.now += n
		b.limit = max(b.limit, b.now)
	}
}

func (b *badUser) States(ctx context.Context, partition int, held []pubsub.Held) ([]pubsub.Snapshot, error) {
	<-b.begin
	if slices.ContainsFunc(held, func(h pubsub.Held) bool { return h.UserID == "bad" }) {
		alone := len(held) == 1
		b.count(alone, 1)
		err := b.state(ctx)
		b.count(alone, -1)
		if err != nil {
			return nil, err
		}
	}
	return b.tables.States(ctx, partition, held)
}

// Other users get their states although one user's state cannot be read, or not within the time
// limit, however many connections that user opens with whatever states.
func TestOneUserFailsNoOthers(t *testing.T) {
	broken := errors.New("a damaged row")
	for name, state := range map[string]func(context.Context) error{
		"failing": func(context.Context) error { return broken },
		"slow":    func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := &badUser{tables: newTables(), begin: make(chan struct{}), state: state}
				r := newReads(db, 5*time.Second)
				bad := make(chan error, 60)
				for i := range 60 {
					go func() {
						// Half hold a state of their own, half none.
						_, err := r.read(t.Context(), 0, pubsub.Held{UserID: "bad", Version: int64(max(0, i-30))})
						bad <- err
					}()
				}
				good := make(chan error, 300)
				for i := range 300 {
					user := fmt.Sprintf("u%d", i)
					db.commit(user, "c1", 1)
					go func() {
						state, err := r.read(t.Context(), 0, pubsub.Held{UserID: user})
						if err == nil && state.Total != 1 {
							err = fmt.Errorf("%s has %d unread", user, state.Total)
						}
						good <- err
					}()
				}
				synctest.Wait()
				close(db.begin)
				began := time.Now()
				for range 300 {
					if err := <-good; err != nil {
						t.Fatal(err)
					}
				}
				if took := time.Since(began); took > 3*time.Second { // by the fake clock
					t.Errorf("others waited %v", took)
				}
				for range 60 {
					if err := <-bad; err == nil {
						t.Error("the bad user has a state")
					}
				}
				if db.limit != 1 {
					t.Errorf("%d queries at once were for the bad user alone", db.limit)
				}
				r.stop()
			})
		})
	}
}

// Connections of clients with the same state share a read, and get their own copies of the
// result.
func TestEqualReadsAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newTables()
		db.hold = make(chan struct{})
		db.commit("ada", "c1", 1)
		r := newReads(db, time.Hour)
		const n = 20
		states := make(chan pubsub.Snapshot, n)
		for range n {
			go func() {
				state, err := r.read(t.Context(), 0, pubsub.Held{UserID: "ada"})
				if err != nil {
					t.Error(err)
				}
				states <- state
			}()
			synctest.Wait()
		}
		close(db.hold)
		for range n {
			state := <-states
			if state.Total != 1 || len(state.Conversations) != 1 || state.Conversations[0].Unread != 1 {
				t.Errorf("a state is %+v", state)
			}
			state.Conversations[0].Unread = 99
		}
		if db.reads != 2 { // the first began before the others came
			t.Errorf("%d states were read, want 2", db.reads)
		}
		r.stop()
	})
}

// While nothing can be read, a call takes about one query for each batch.
func TestFailedReadsAreNotSplitForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newTables()
		db.hold = make(chan struct{})
		db.setFail(errors.New("the database is away"))
		r := newReads(db, time.Hour)
		const n = 10 * readBatch
		failed := make(chan error, n)
		for i := range n {
			go func() {
				_, err := r.read(t.Context(), 0, pubsub.Held{UserID: fmt.Sprintf("u%d", i)})
				failed <- err
			}()
		}
		synctest.Wait()
		close(db.hold)
		for range n {
			if err := <-failed; err == nil {
				t.Error("a read succeeded")
			}
		}
		if limit := 4 * readFailures; len(db.queries) > limit {
			t.Errorf("%d users took %d queries, want at most %d", n, len(db.queries), limit)
		}
		r.stop()
	})
}
