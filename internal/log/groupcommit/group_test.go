package groupcommit_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/schematest"
	"github.com/badged/badged/internal/log/eventbatch"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/log/groupcommit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

// partitions is how many partitions the logs of these tests have.
const partitions = 4

// newLog returns the log of a new database, and a pool on it.
func newLog(t *testing.T) (*events.Log, *pgxpool.Pool) {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(pgtest.NewDB(t, schematest.Migrated(partitions)))
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 10 // some tests hold several connections
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	log, err := events.Open(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	return log, pool
}

// userIn returns the nth user of a partition.
func userIn(partition, n int) string {
	for i := 0; ; i++ {
		user := fmt.Sprintf("user-%d", i)
		if events.PartitionOf(user, partitions) != partition {
			continue
		}
		if n == 0 {
			return user
		}
		n--
	}
}

// delivered is a message to users.
func delivered(id string, users ...string) events.Event {
	return events.Event{
		ID: id, Source: "/chat", Type: events.MessageDelivered,
		Data: events.Data{ConversationID: "c", UserIDs: users, Seq: 1},
	}
}

// stored returns how many events each partition has.
func stored(t *testing.T, pool *pgxpool.Pool) (n [partitions]int) {
	t.Helper()
	for p := range partitions {
		rows, _ := pool.Query(t.Context(), `SELECT payload FROM badged.`+events.Topic(p))
		var row []byte
		if _, err := pgx.ForEachRow(rows, []any{&row}, func() error {
			payloads, err := eventbatch.Unpack(row)
			n[p] += len(payloads)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// blockLog blocks appends to partition 0 until release is called; awaitWaiting waits until n
// sessions are blocked.
func blockLog(t *testing.T, pool *pgxpool.Pool) (release func(), awaitWaiting func(n int)) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, tx, `LOCK TABLE badged.events_p00 IN EXCLUSIVE MODE`)
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

// awaitJoined waits until n events are queued in g.
func awaitJoined(t *testing.T, g *groupcommit.Group, n int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); groupcommit.Size(g) < n; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d events wait, want %d", groupcommit.Size(g), n)
		}
	}
}

// Appends that arrive while another runs are committed together. Only a caller with an invalid
// event gets an error.
func TestGroupCommitsTogether(t *testing.T) {
	log, pool := newLog(t)
	leaks := goleak.IgnoreCurrent()
	g := groupcommit.New(log, log.Append, groupcommit.SmallAppend, 2)
	release, awaitWaiting := blockLog(t, pool)
	ann := userIn(0, 0)

	type answer struct {
		receipt events.Receipt
		err     error
	}
	const callers = 20
	answers := make(chan answer, callers+1)
	publish := func(evs ...events.Event) {
		receipt, err := g.Append(t.Context(), evs...)
		answers <- answer{receipt, err}
	}
	go publish(delivered("first", ann))
	awaitWaiting(1)
	for i := range callers {
		go publish(delivered(fmt.Sprint("a", i), ann), delivered(fmt.Sprint("b", i), userIn(1, i)))
	}
	awaitJoined(t, g, 2*callers)
	release()

	transactions := map[int64]int{}
	for range callers + 1 {
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
	if rows := stored(t, pool); rows[0] != callers+1 {
		t.Errorf("partition 0 has %d events, want %d", rows[0], callers+1)
	}
	pool.Close()
	goleak.VerifyNone(t, leaks)
}

// An invalid event does not fail the events of other callers.
func TestGroupWithAnInvalidEvent(t *testing.T) {
	log, pool := newLog(t)
	g := groupcommit.New(log, log.Append, groupcommit.SmallAppend, 2)
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
	if rows := stored(t, pool); rows[0] != 2 {
		t.Errorf("partition 0 has %d events, want the first and the good one", rows[0])
	}
}

// If a queued call is canceled, it returns immediately and its events are not appended. If its
// append is running, perhaps with events of other callers, it returns when the append ends.
func TestGroupWithCanceledCallers(t *testing.T) {
	log, pool := newLog(t)
	g := groupcommit.New(log, log.Append, groupcommit.SmallAppend, 2)
	release, awaitWaiting := blockLog(t, pool)
	ann := userIn(0, 0)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	publish := func(ctx context.Context, id string) chan error {
		ended := make(chan error, 1)
		go func() {
			_, err := g.Append(ctx, delivered(id, ann))
			ended <- err
		}()
		return ended
	}
	first := publish(ctx, "first")
	awaitWaiting(1)
	second := publish(ctx, "second")
	awaitJoined(t, g, 1)
	third := publish(t.Context(), "third")
	awaitJoined(t, g, 2)
	cancel(gone)
	if err := <-second; !errors.Is(err, gone) {
		t.Errorf("the canceled caller got %v", err)
	}
	release()
	if err := errors.Join(<-first, <-third); err != nil {
		t.Errorf("the callers whose events are appended got %v", err)
	}
	if rows := stored(t, pool); rows[0] != 2 {
		t.Errorf("partition 0 has %d events, want the first and the third event", rows[0])
	}
}

// heldLog is a log whose appends block until the test releases them.
type heldLog struct {
	mu      sync.Mutex
	running []*heldAppend
}

type heldAppend struct {
	evs []events.Event
	end chan struct{}
}

func (l *heldLog) append(_ context.Context, evs ...events.Event) (events.Receipt, error) {
	a := &heldAppend{evs, make(chan struct{})}
	l.mu.Lock()
	l.running = append(l.running, a)
	l.mu.Unlock()
	<-a.end
	return events.Receipt{}, nil
}

// release ends the append at index i and returns once the appends that it unblocks have begun.
func (l *heldLog) release(i int) {
	l.mu.Lock()
	close(l.running[i].end)
	l.running = slices.Delete(l.running, i, i+1)
	l.mu.Unlock()
	synctest.Wait()
}

// ids returns the ids of the events of each running append.
func (l *heldLog) ids() []string {
	var all []string
	for _, a := range l.running {
		var ids []string
		for _, e := range a.evs {
			ids = append(ids, e.ID)
		}
		all = append(all, strings.Join(ids, " "))
	}
	slices.Sort(all)
	return all
}

// heldGroup tests a group of two concurrent appends: publish appends an event to some partitions,
// or to a room if no partitions are given, and want compares the running appends.
func heldGroup(t *testing.T, test func(l *heldLog, publish func(id string, in ...int), want func(...string))) {
	synctest.Test(t, func(t *testing.T) {
		var l heldLog
		g := groupcommit.New(events.Attach(nil, partitions), l.append, groupcommit.SmallAppend, 2)
		test(&l, func(id string, in ...int) {
			var users []string
			for _, p := range in {
				users = append(users, userIn(p, 0))
			}
			e := delivered(id, users...)
			if len(in) == 0 {
				e.Type = events.RoomPosted
			}
			go func() {
				if _, err := g.Append(t.Context(), e); err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
		}, func(ids ...string) {
			t.Helper()
			if diff := cmp.Diff(ids, l.ids()); diff != "" {
				t.Errorf("appends that run (-want +got):\n%s", diff)
			}
		})
		for len(l.running) > 0 {
			l.release(0)
		}
	})
}

// Many events for other partitions do not wait for a running append; few do.
func TestGroupAppendsBesideAnother(t *testing.T) {
	heldGroup(t, func(l *heldLog, publish func(string, ...int), want func(...string)) {
		publish("first", 0)
		for i := range 7 {
			publish(fmt.Sprint("a", i), 1+i%3)
		}
		publish("same", 0)
		want("first")
		publish("a7", 3)
		want("a1 a4 a0 a3 a6 a2 a5 a7", "first")
		l.release(0)
		want("a1 a4 a0 a3 a6 a2 a5 a7")
		l.release(0)
		want("same")
	})
}

// At most two appends run at once, however long the queue is.
func TestGroupAppendsTwoAtOnce(t *testing.T) {
	heldGroup(t, func(l *heldLog, publish func(string, ...int), want func(...string)) {
		for p := range partitions {
			for i := range 9 {
				publish(fmt.Sprint(p, i), p)
			}
		}
		want("0 0", "1 0 1 1 1 2 1 3 1 4 1 5 1 6 1 7")
	})
}

// An append for several calls expects the placement that all of them expect.
func TestGroupsExpectWhatTheirCallsDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, goOn := make(chan *eventlog.PlacementSnapshot, 3), make(chan bool)
		g := groupcommit.New(events.Attach(nil, partitions), func(ctx context.Context, _ ...events.Event) (events.Receipt, error) {
			begun <- eventlog.ExpectedBy(ctx)
			<-goOn
			return events.Receipt{}, nil
		}, 1000, 1)
		var answers sync.WaitGroup
		expected := func(partitions ...int) *eventlog.PlacementSnapshot {
			var set eventlog.Set
			for _, p := range partitions {
				set.Add(p)
			}
			return eventlog.NewPlacementSnapshot(set)
		}
		for _, e := range []*eventlog.PlacementSnapshot{nil, expected(0, 1), expected(1, 2)} {
			ctx := eventlog.Expect(t.Context(), e)
			answers.Go(func() {
				if _, err := g.Append(ctx, delivered("x", userIn(0, 0))); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		close(goOn)
		if first := <-begun; first != nil {
			t.Errorf("the first append expects %v", first)
		}
		if diff := cmp.Diff(expected(0, 1, 2), <-begun, cmp.AllowUnexported(eventlog.PlacementSnapshot{})); diff != "" {
			t.Errorf("the append for two calls expects (-want +got):\n%s", diff)
		}
		answers.Wait()
	})
}

// If a caller is canceled when its append may begin, the other calls of its group are still
// appended.
func TestGroupOfCallersThatAreLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := groupcommit.New(events.Attach(nil, partitions), func(context.Context, ...events.Event) (events.Receipt, error) {
			return events.Receipt{}, nil
		}, groupcommit.SmallAppend, 2)
		late, cancel := context.WithCancel(t.Context())
		cancel()
		for range 50 { // either may be seen first
			_, _ = g.Append(late, delivered("late", userIn(0, 0)))
			if _, err := g.Append(t.Context(), delivered("next", userIn(0, 0))); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Queued appends to all partitions are divided into groups that run at the same time.
func TestGroupDividesThePartitions(t *testing.T) {
	heldGroup(t, func(l *heldLog, publish func(string, ...int), want func(...string)) {
		publish("all", 0, 1, 2, 3)
		for i := range 16 {
			publish(fmt.Sprint(i), i%4)
		}
		want("all")
		l.release(0)
		want("0 4 8 12 2 6 10 14", "1 5 9 13 3 7 11 15")
	})
}

// An event for two partitions is in one append, which waits for both partitions. Later events for
// either partition wait for that append.
func TestGroupKeepsTheOrderOfAPartition(t *testing.T) {
	heldGroup(t, func(l *heldLog, publish func(string, ...int), want func(...string)) {
		publish("first", 0)
		for i := range 8 {
			publish(fmt.Sprint("b", i), 1)
		}
		publish("both", 0, 1)
		for i := range 8 {
			publish(fmt.Sprint("c", i), 1)
		}
		want("b0 b1 b2 b3 b4 b5 b6 b7", "first")
		l.release(1)
		want("first")
		l.release(0)
		want("both c0 c1 c2 c3 c4 c5 c6 c7")
	})
}

// A message to a room without known members may go to every partition.
func TestGroupOfRooms(t *testing.T) {
	heldGroup(t, func(l *heldLog, publish func(string, ...int), want func(...string)) {
		publish("first", 0)
		publish("room")
		for i := range 8 {
			publish(fmt.Sprint(i), 1)
		}
		want("first")
		l.release(0)
		want("room 0 1 2 3 4 5 6 7")
	})
}

// With random calls and cancellations, concurrent appends share no partition, their number is
// bounded, and each event is appended once, in the order of its partition.
func TestGroupOfRandomCalls(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			const limit = 3
			var l heldLog
			g := groupcommit.New(events.Attach(nil, partitions), l.append, groupcommit.SmallAppend, limit)
			last := map[string]int{} // of each user
			seen := map[*heldAppend]bool{}
			check := func() {
				if len(l.running) > limit {
					rt.Fatalf("%d appends run", len(l.running))
				}
				owner := map[string]*heldAppend{}
				for _, a := range l.running {
					for _, e := range a.evs {
						for _, u := range e.Data.UserIDs {
							if other := owner[u]; other != nil && other != a {
								rt.Fatalf("two appends run for %s: %q", u, l.ids())
							}
							owner[u] = a
							if seen[a] {
								continue
							}
							if n := int(e.Data.Seq); n <= last[u] {
								rt.Fatalf("event %d of %s is appended after %d", n, u, last[u])
							}
							last[u] = int(e.Data.Seq)
						}
					}
					seen[a] = true
				}
			}
			var cancels []context.CancelFunc
			var answers sync.WaitGroup
			step := func(n int) {
				switch choice := rapid.IntRange(0, 9).Draw(rt, "what"); {
				case choice < 6:
					e := delivered(fmt.Sprint(n))
					e.Data.Seq = int64(n)
					for p := range partitions {
						if rapid.IntRange(0, 3).Draw(rt, "touches") == 0 || p == partitions-1 && e.Data.UserIDs == nil {
							e.Data.UserIDs = append(e.Data.UserIDs, userIn(p, 0))
						}
					}
					ctx, cancel := context.WithCancel(t.Context())
					cancels = append(cancels, cancel)
					answers.Go(func() { _, _ = g.Append(ctx, e) })
				case choice == 9 && len(cancels) > 0:
					cancels[rapid.IntRange(0, len(cancels)-1).Draw(rt, "canceled")]()
				case len(l.running) > 0:
					l.release(rapid.IntRange(0, len(l.running)-1).Draw(rt, "released"))
				}
				synctest.Wait()
				check()
			}
			for n := range rapid.IntRange(1, 60).Draw(rt, "steps") {
				step(n + 1)
			}
			for len(l.running) > 0 {
				l.release(0)
				check()
			}
			for _, cancel := range cancels {
				cancel()
			}
			answers.Wait()
			if n := groupcommit.Size(g); n != 0 {
				rt.Fatalf("%d events still wait", n)
			}
		})
	})
}
