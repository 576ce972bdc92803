package events_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
)

// blockLog blocks appends to partition 0 until release is called; awaitWaiting
// waits until n sessions wait for that.
func blockLog(t *testing.T, pool *pgxpool.Pool) (release func(), awaitWaiting func(n int)) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `LOCK TABLE badged.events_p00 IN EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	release = sync.OnceFunc(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	t.Cleanup(release)
	return release, func(n int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for waiting := 0; waiting != n; {
			if err := pool.QueryRow(ctx, `SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'badged.events_p00'::regclass`).Scan(&waiting); err != nil {
				t.Fatalf("waiting for %d sessions: %v", n, err)
			}
		}
	}
}

// awaitJoined waits until n events wait in g for the append under way.
func awaitJoined(t *testing.T, g *events.Group, n int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); events.GroupSize(g) < n; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d events wait, want %d", events.GroupSize(g), n)
		}
	}
}

// Appends that come while another runs are committed together. Only a caller
// with an invalid event gets an error.
func TestGroupCommitsTogether(t *testing.T) {
	log, pool := openLog(t, pgtest.NewDB(t, migrated))
	leaks := goleak.IgnoreCurrent()
	g := events.NewGroup(log.Append)
	release, awaitWaiting := blockLog(t, pool)
	ann := userIn(0, 0)

	type answer struct {
		receipt events.Receipt
		err     error
	}
	const company = 20
	answers := make(chan answer, company+1)
	publish := func(evs ...events.Event) {
		receipt, err := g.Append(t.Context(), evs...)
		answers <- answer{receipt, err}
	}
	go publish(delivered("first", ann))
	awaitWaiting(1)
	for i := range company {
		go publish(delivered(fmt.Sprint("a", i), ann), delivered(fmt.Sprint("b", i), userIn(1, i)))
	}
	awaitJoined(t, g, 2*company)
	release()

	transactions := map[int64]int{}
	for range company + 1 {
		a := <-answers
		if a.err != nil {
			t.Fatal(a.err)
		}
		if !slices.Contains(a.receipt.Partitions, 0) {
			t.Errorf("the receipt names partitions %v", a.receipt.Partitions)
		}
		transactions[a.receipt.TransactionID]++
	}
	if len(transactions) != 2 {
		t.Errorf("appended in %v, want two transactions", transactions)
	}
	if rows := stored(t, pool); len(rows[0]) != company+1 {
		t.Errorf("partition 0 has %d events, want %d", len(rows[0]), company+1)
	}
	pool.Close()
	goleak.VerifyNone(t, leaks)
}

// An invalid event does not fail the events of other callers.
func TestGroupWithAnInvalidEvent(t *testing.T) {
	log, pool := openLog(t, pgtest.NewDB(t, migrated))
	g := events.NewGroup(log.Append)
	release, awaitWaiting := blockLog(t, pool)
	ann := userIn(0, 0)
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := g.Append(t.Context(), delivered("first", ann)); err != nil {
			t.Error(err)
		}
	})
	awaitWaiting(1)
	wg.Go(func() {
		if _, err := g.Append(t.Context(), delivered("good", ann)); err != nil {
			t.Error(err)
		}
	})
	wg.Go(func() {
		e := delivered("bad", ann)
		e.Data.Seq = 0
		_, err := g.Append(t.Context(), delivered("good too", ann), e)
		if bad := (*events.BatchError)(nil); !errors.As(err, &bad) || len(bad.Events) != 1 || bad.Events[0].Index != 1 {
			t.Errorf("error %v, want event 1 named", err)
		}
	})
	awaitJoined(t, g, 3)
	release()
	wg.Wait()
	if rows := stored(t, pool); len(rows[0]) != 2 {
		t.Errorf("partition 0 has %q, want the first and the good one", rows[0])
	}
}

// A caller that gives up does not fail the append for the others.
func TestGroupOutlivesItsLeader(t *testing.T) {
	log, pool := openLog(t, pgtest.NewDB(t, migrated))
	g := events.NewGroup(log.Append)
	release, awaitWaiting := blockLog(t, pool)
	ann := userIn(0, 0)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	first := make(chan error, 1)
	go func() {
		_, err := g.Append(ctx, delivered("first", ann))
		first <- err
	}()
	awaitWaiting(1)
	leader := make(chan error, 1)
	go func() {
		_, err := g.Append(ctx, delivered("leader", ann))
		leader <- err
	}()
	awaitJoined(t, g, 1)
	follower := make(chan error, 1)
	go func() {
		_, err := g.Append(t.Context(), delivered("follower", ann))
		follower <- err
	}()
	awaitJoined(t, g, 2)
	cancel(gone)
	for _, err := range []error{<-first, <-leader} {
		if !errors.Is(err, gone) {
			t.Errorf("the canceled caller got %v", err)
		}
	}
	release()
	if err := <-follower; err != nil {
		t.Errorf("the waiting caller got %v", err)
	}
	if rows := stored(t, pool); len(rows[0]) != 3 {
		t.Errorf("partition 0 has %q", rows[0])
	}
}
