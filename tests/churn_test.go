package tests

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/log/eventbatch"
)

var (
	churn = flag.Duration("churn", 2*time.Second, "how long instances come and go in TestOwnershipChurn")
	// There is no limit by default, since a busy machine cannot guarantee one.
	unowned = flag.Duration("unowned", 0, "how long a partition may be without an owner in TestOwnershipChurn; 0 only measures")
)

// fleet is the server processes (instances) of one database. Living instances accept events; of
// the others some are frozen and some are stopping.
type fleet struct {
	t               *testing.T
	database, redis string
	random          *rand.Rand
	frozen, leaving []*process

	mu     sync.Mutex
	living []*process
}

const fleetSize = 4

func (f *fleet) start() {
	p := serve(f.t, f.database, "--redis-url="+f.redis, "--roles=api,projector")
	f.mu.Lock()
	defer f.mu.Unlock()
	f.living = append(f.living, p)
}

// take removes one of the living instances and returns it.
func (f *fleet) take() *process {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := f.random.IntN(len(f.living))
	p := f.living[i]
	f.living = slices.Delete(f.living, i, i+1)
	return p
}

func (f *fleet) kill() { f.take().kill() }

func (f *fleet) stop() {
	p := f.take()
	p.signal(syscall.SIGTERM)
	f.leaving = append(f.leaving, p)
}

func (f *fleet) freeze() {
	p := f.take()
	p.signal(syscall.SIGSTOP)
	f.frozen = append(f.frozen, p)
}

func (f *fleet) thaw() {
	i := f.random.IntN(len(f.frozen))
	p := f.frozen[i]
	f.frozen = slices.Delete(f.frozen, i, i+1)
	p.signal(syscall.SIGCONT)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.living = append(f.living, p)
}

// act performs a random possible action. At least one instance stays alive.
func (f *fleet) act() {
	var acts []func()
	if len(f.living)+len(f.frozen) < fleetSize {
		acts = append(acts, f.start, f.start)
	}
	if len(f.living) > 1 {
		acts = append(acts, f.stop, f.kill, f.freeze)
	}
	if len(f.frozen) > 0 {
		acts = append(acts, f.thaw)
	}
	acts[f.random.IntN(len(acts))]()
}

// post publishes events to any instance, and retries: an instance that does not answer may still
// have accepted the events. Any goroutine may call it.
func (f *fleet) post(ctx context.Context, random *rand.Rand, evs []string) error {
	for ctx.Err() == nil {
		f.mu.Lock()
		p := f.living[random.IntN(len(f.living))]
		f.mu.Unlock()
		postCtx, cancel := context.WithTimeout(ctx, time.Second)
		_, err := p.postWithin(postCtx, evs...)
		cancel()
		if err == nil {
			return nil
		}
	}
	return ctx.Err()
}

// post publishes some events over HTTP, sometimes twice.
func (b *backend) post(ctx context.Context, f *fleet) error {
	evs := b.draw()
	var bodies []string
	for _, e := range evs {
		body, err := e.MarshalJSON()
		if err != nil {
			return err
		}
		bodies = append(bodies, string(body))
	}
	for range 1 + b.random.IntN(5)/4 {
		if err := f.post(ctx, b.random, bodies); err != nil {
			return err
		}
	}
	b.ledger.add(evs)
	return nil
}

// ownersSQL reads the partitions with an owner, and the database's time.
const ownersSQL = `SELECT clock_timestamp(), coalesce(array_agg(objid::int), '{}') FROM pg_locks
WHERE locktype = 'advisory' AND granted AND objsubid = 2 AND classid = x'62616467'::int
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

// watchOwners polls the owners until ctx is done. It returns the longest time for which a
// partition certainly had no owner: the time between the first and the last of consecutive polls
// that found none.
func watchOwners(ctx context.Context, t *testing.T, conn *pgx.Conn) (longest time.Duration) {
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	since := map[int]time.Time{} // by partition: when it was first seen without an owner
	for {
		select {
		case <-ctx.Done():
			return longest
		case <-look.C:
		}
		var now time.Time
		var owned []int
		if err := conn.QueryRow(context.WithoutCancel(ctx), ownersSQL).Scan(&now, &owned); err != nil {
			t.Errorf("look for owners: %v", err)
			return longest
		}
		for p := range partitions {
			first, without := since[p]
			switch {
			case slices.Contains(owned, p):
				delete(since, p)
			case !without:
				since[p] = now
			default:
				longest = max(longest, now.Sub(first))
			}
		}
	}
}

// ownershipSession returns the query for the session by which a process owns partitions or waits
// for some. A session without a lock does not count, since the process can freeze before it has
// set the timeout of the session.
func ownershipSession(p *process) string {
	return fmt.Sprintf(`SELECT FROM pg_stat_activity AS a
WHERE datname = current_database() AND application_name LIKE 'badged projector %%/%d'
  AND EXISTS (SELECT FROM pg_locks AS l WHERE l.pid = a.pid AND l.locktype = 'advisory' AND l.granted)`, p.cmd.Process.Pid)
}

// Instances are started, stopped, killed, frozen and continued at random, while four backends
// publish through them and in SQL, to conversations and to rooms. Afterwards the log has every
// committed event, and the badges match the log. The versions show that each event was folded
// once, although frozen instances continued after others had become owners of their partitions.
func TestOwnershipChurn(t *testing.T) {
	t.Parallel()
	database, redis := pgtest.NewServer(t).NewDB(t, migrated()), newRedis(t)
	f := &fleet{t: t, database: database, redis: redis.URL(), random: rand.New(rand.NewPCG(rand.Uint64(), 1))}
	f.start()
	f.start()
	pool, err := pgxpool.New(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	onlooker := pgtest.Connect(t, database)
	for owned := []int(nil); len(owned) < partitions; {
		if err := onlooker.QueryRow(t.Context(), ownersSQL).Scan(new(time.Time), &owned); err != nil {
			t.Fatal(err)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	ledger := &ledger{grown: make(chan struct{})}
	for n := range halls {
		join := events.Event{ID: "join " + hall(n), Source: "backend", Type: events.RoomJoined, Data: events.Data{ConversationID: hall(n), UserIDs: allUsers}}
		body, err := join.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		f.living[0].mustPost(string(body))
		ledger.add([]events.Event{join})
	}
	publishing, stop := context.WithCancel(ctx)
	defer stop()
	var backends, watching sync.WaitGroup
	defer func() { cancel(); backends.Wait(); watching.Wait() }()
	for n := range uint64(4) {
		backends.Go(func() {
			b := &backend{n: n, random: rand.New(rand.NewPCG(n, 9)), pool: pool, ledger: ledger, halls: true}
			for publishing.Err() == nil {
				publish := func() error { return b.transact(ctx, n == 0, nil, nil) }
				if n >= 2 {
					publish = func() error { return b.post(ctx, f) }
				}
				if err := publish(); err != nil {
					if ctx.Err() == nil {
						t.Errorf("backend %d: %v", n, err)
					}
					cancel() // it would wait for events that do not come
				}
			}
		})
	}
	var longest time.Duration
	conn := pgtest.Connect(t, database)
	watching.Go(func() { longest = watchOwners(publishing, t, conn) })

	acts := 0
	for began := time.Now(); time.Since(began) < *churn && ctx.Err() == nil; acts++ {
		ledger.await(ctx, 1+f.random.IntN(100))
		f.act()
	}
	// Frozen instances stay frozen until other instances own their partitions.
	for len(f.living) < 2 {
		f.start()
	}
	f.freeze()
	for _, p := range f.frozen {
		awaitRow(t, onlooker, `SELECT WHERE NOT EXISTS (`+ownershipSession(p)+`)`)
	}
	ledger.await(ctx, 100)
	for len(f.frozen) > 0 {
		f.thaw()
	}
	for _, p := range f.living {
		awaitRow(t, onlooker, ownershipSession(p))
	}
	ledger.await(ctx, 100)
	stop()
	backends.Wait()
	watching.Wait()
	for _, p := range f.leaving {
		if <-p.done; p.err != nil {
			t.Errorf("an instance that was stopped ended with %v", p.err)
		}
	}
	if t.Failed() {
		return
	}
	t.Logf("%d events were committed, and instances came and went %d times; no partition was without an owner for longer than %s",
		len(ledger.committed), acts, longest.Round(time.Millisecond))
	if *unowned > 0 && longest > *unowned {
		t.Errorf("a partition was without an owner for %s, want at most %s", longest, *unowned)
	}
	checkChurned(t, f, ledger)
}

// checkChurned compares the log with the committed events, and the badges with
// the log.
func checkChurned(t *testing.T, f *fleet, ledger *ledger) {
	t.Helper()
	last := events.Event{
		ID: "last", Source: "backend", Type: events.MessageDelivered,
		Data: events.Data{ConversationID: "room 0", Seq: 1_000_000, UserIDs: allUsers},
	}
	body, err := last.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	p := f.living[0]
	position := p.mustPost(string(body))
	ledger.add([]events.Event{last})
	for _, user := range allUsers {
		total(t, p, user, position) // waits until everything is folded
	}

	truth := tally{}
	conn := pgtest.Connect(t, f.database)
	for partition := range partitions {
		rows, err := conn.Query(t.Context(), `SELECT payload FROM badged.`+events.Topic(partition)+` AS log ORDER BY log.transaction_id, log."offset"`)
		if err != nil {
			t.Fatal(err)
		}
		batches, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
		if err != nil {
			t.Fatal(err)
		}
		var payloads [][]byte
		for _, batch := range batches {
			more, err := eventbatch.Unpack(batch)
			if err != nil {
				t.Fatal(err)
			}
			payloads = append(payloads, more...)
		}
		var log []events.Event
		committed, logged := map[string]bool{}, map[string]bool{}
		for _, payload := range payloads {
			e, err := events.Decode(payload)
			if err != nil {
				t.Fatal(err)
			}
			log = append(log, e)
			logged[e.ID] = true
		}
		for _, e := range ledger.committed {
			// Events of rooms without users are in every partition.
			if users := e.Data.UserIDs; len(users) == 0 || slices.ContainsFunc(users, func(user string) bool { return events.PartitionOf(user, partitions) == partition }) {
				committed[e.ID] = true
			}
		}
		if !maps.Equal(logged, committed) {
			t.Errorf("partition %d has %d events in its log, and %d were committed", partition, len(logged), len(committed))
		}
		truth.count(log)
	}
	for _, user := range allUsers {
		var badge struct{ Version, Total int64 }
		get(t, p.url+"/v1/users/"+user+"/badge", &badge)
		want, sum := truth.unread(user)
		if badge.Total != sum || badge.Version != truth[user].version {
			t.Errorf("the badge of %s is %d at version %d, want %d at %d", user, badge.Total, badge.Version, sum, truth[user].version)
		}
		if got := listed(t, p, user); !maps.Equal(got, want) {
			t.Errorf("%s has %v unread, want %v", user, got, want)
		}
	}
	must(t, "verify", "--quiet", "--database-url="+f.database) // exits with 1 on any difference

	fenced := 0.0
	for _, p := range f.living {
		page := metricsOf(t, p)
		fenced += metric(t, page, "badged_projector_fenced_total")
	}
	t.Logf("the instances alive at the end were fenced off %.0f times", fenced)
}
