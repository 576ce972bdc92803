package revocation_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/schematest"
	"github.com/badged/badged/internal/server/revocation"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

func newPool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), pgtest.NewDB(t, schematest.Migrated(1)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// process is what a process knows.
type process struct {
	*revocation.List
	// ended has the users whose connections are to end.
	ended chan string
}

// load returns a process that has read the table once.
func load(t *testing.T, pool *pgxpool.Pool) *process {
	t.Helper()
	p := &process{ended: make(chan string, 1000)}
	p.List = revocation.New(pool, revocation.Config{Ended: func(userIDs []string) {
		for _, id := range userIDs {
			p.ended <- id
		}
	}})
	if err := p.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	for len(p.ended) > 0 { // of earlier processes
		<-p.ended
	}
	return p
}

// run is load for a process that keeps up with the table.
func run(t *testing.T, pool *pgxpool.Pool) *process {
	t.Helper()
	p := load(t, pool)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return p
}

// end ends the connections of a user and returns the moment that holds.
func (p *process) end(t *testing.T, userID string, before time.Time) time.Time {
	t.Helper()
	holds, err := p.End(t.Context(), userID, before)
	if err != nil {
		t.Fatal(err)
	}
	return holds
}

// await returns when a process was told to end the connections of a user.
func (p *process) await(t *testing.T, userID string) {
	t.Helper()
	if got := <-p.ended; got != userID {
		t.Fatalf("the connections of %s are to end, want %s", got, userID)
	}
}

func execute(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	pgtest.Exec(t, pool, sql)
}

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

func TestEveryProcessLearnsWithoutAMessage(t *testing.T) {
	pool := newPool(t)
	here, there := load(t, pool), run(t, pool)
	if holds := here.end(t, "ann", noon); !holds.Equal(noon) {
		t.Errorf("tokens from before %s are revoked", holds)
	}
	there.await(t, "ann")
	later := load(t, pool) // a process that was restarted
	for name, p := range map[string]*process{"here": here, "there": there, "later": later} {
		for _, tt := range []struct {
			userID string
			issued time.Time
			want   bool
		}{
			{"ann", noon.Add(-time.Second), true},
			{"ann", noon, false},
			{"ann", time.Time{}, true}, // the token does not say
			{"bob", noon.Add(-time.Second), false},
			{"bob", time.Time{}, false},
		} {
			if got := p.Revoked(tt.userID, tt.issued); got != tt.want {
				t.Errorf("%s: a token of %s issued at %s is revoked: %t", name, tt.userID, tt.issued, got)
			}
		}
	}
}

// A moment in the future, which a clock that was wrong has left, ends with the next request:
// else the user could not sign in until then.
func TestRevocationsInTheFuture(t *testing.T) {
	pool := newPool(t)
	p := load(t, pool)
	p.end(t, "ann", noon)
	execute(t, pool, `UPDATE badged.revocations SET revoked_before = now() + interval '30 days'`)
	for _, before := range []time.Time{{}, noon} {
		if holds := p.end(t, "ann", before); time.Until(holds) > time.Second || holds.Before(noon) {
			t.Errorf("after %s, tokens from before %s are revoked", before, holds)
		}
	}
	if p.Revoked("ann", time.Now().Add(time.Minute)) {
		t.Error("a token that is issued later is refused")
	}
}

func TestRevocationsAreNeverTakenBack(t *testing.T) {
	pool := newPool(t)
	p := load(t, pool)
	if holds := p.end(t, "ann", time.Time{}); !holds.IsZero() || p.Revoked("ann", time.Time{}) {
		t.Errorf("ending connections revokes tokens from before %s", holds)
	}
	p.end(t, "ann", noon)
	for _, before := range []time.Time{noon.Add(-time.Hour), {}} {
		if holds := p.end(t, "ann", before); !holds.Equal(noon) {
			t.Errorf("after noon, %s: tokens from before %s are revoked", before, holds)
		}
	}
	for range 4 {
		p.await(t, "ann")
	}
	if !load(t, pool).Revoked("ann", noon.Add(-time.Second)) {
		t.Error("a later process accepts a revoked token")
	}
}

// Requests at the same time commit in any order, and no process misses one.
func TestConcurrentRequests(t *testing.T) {
	pool := newPool(t)
	here, there := load(t, pool), run(t, pool)
	const requests = 100
	var all sync.WaitGroup
	for i := range requests {
		all.Go(func() {
			if _, err := here.End(context.WithoutCancel(t.Context()), fmt.Sprint("user ", i), noon); err != nil {
				t.Error(err)
			}
			there.Look()
		})
	}
	all.Wait()
	told := map[string]bool{}
	for range requests {
		told[<-there.ended] = true
	}
	if len(told) != requests {
		t.Errorf("%d of %d users are told", len(told), requests)
	}
}

// A backup that was restored has given fewer numbers than the process has read.
func TestRestoredDatabase(t *testing.T) {
	pool := newPool(t)
	p := run(t, pool)
	for _, id := range []string{"ann", "bob", "cat"} {
		p.end(t, id, noon)
		p.await(t, id)
	}
	execute(t, pool, `WITH deleted AS (DELETE FROM badged.revocations) UPDATE badged.revocation_counter SET last = 0`)
	load(t, pool).end(t, "dan", noon)
	p.await(t, "dan")
	if p.Revoked("ann", time.Time{}) {
		t.Error("a revocation that the database has lost is in force")
	}
}

// erase erases a user as package erasure does.
func erase(t *testing.T, pool *pgxpool.Pool, userID string) {
	t.Helper()
	execute(t, pool, `WITH gone AS (DELETE FROM badged.revocations WHERE user_id = '`+userID+`' RETURNING revoked_before),
counted AS (UPDATE badged.revocation_counter SET last = last + 1 RETURNING last)
INSERT INTO badged.erased_revocations SELECT last, revoked_before, sha256(secret || convert_to('`+userID+`', 'UTF8')) FROM gone, counted, badged.revocation_secret`)
}

// The tokens of a user stay revoked after the user was erased, until every such token has
// expired.
func TestErasedUsersStayRevoked(t *testing.T) {
	pool := newPool(t)
	p := load(t, pool)
	p.end(t, "ann", noon)
	erase(t, pool, "ann")
	if err := p.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, q := range map[string]*process{"that knew the user": p, "that starts": load(t, pool)} {
		for userID, want := range map[string]bool{"ann": true, "an": false, "annn": false, "bob": false} {
			if got := q.Revoked(userID, noon.Add(-time.Second)); got != want {
				t.Errorf("in a process %s, a token of %s is revoked: %t", name, userID, got)
			}
		}
		if q.Revoked("ann", noon) {
			t.Errorf("in a process %s, a token from after the revocation is refused", name)
		}
	}
}
