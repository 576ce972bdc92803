package relay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/relay"
	"github.com/badged/badged/internal/shards"
)

// divided are databases with one partition for each of the users "0", "1" and so on. It
// remembers which events each user got, repeated ones once.
type divided struct {
	mu sync.Mutex
	// owner is the database of each partition, and away has those that are away.
	owner []int
	away  map[int]bool
	// unknown are away, and only an append shows it.
	unknown map[int]bool
	got     [][]string
	// refused is the id of an event that is refused.
	refused string
	// calls counts the calls.
	calls int
}

func newDivided(owner ...int) *divided {
	return &divided{owner: owner, away: map[int]bool{}, unknown: map[int]bool{}, got: make([][]string, len(owner))}
}

// AppendSome implements relay.Divided.
func (d *divided) AppendSome(_ context.Context, without []bool, evs ...events.Event) (*shards.Shortfall, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls++
	var lack *shards.Shortfall
	for shard := range slices.Max(d.owner) + 1 {
		var err error
		skipped := d.away[shard] || d.unknown[shard]
		if skipped {
			err = fmt.Errorf("shard %d is away", shard)
		}
		for p, is := range without {
			skipped = skipped || is && d.owner[p] == shard
		}
		if skipped {
			missing := &shards.Shortfall{Partitions: make([]bool, len(d.owner)), Err: err}
			for p, owner := range d.owner {
				missing.Partitions[p] = owner == shard && (without == nil || !without[p])
			}
			if slices.Contains(missing.Partitions, true) {
				lack = lack.Add(missing)
			}
			continue
		}
		for i := range evs {
			if d.refused != "" && evs[i].ID == d.refused {
				return nil, &events.BatchError{Events: []events.IndexedError{{Index: i, Err: &events.InvalidError{}}}}
			}
			for p, owner := range d.owner {
				users := evs[i].Data.UserIDs
				if owner == shard && (len(users) == 0 || slices.Contains(users, fmt.Sprint(p))) && !slices.Contains(d.got[p], evs[i].ID) {
					d.got[p] = append(d.got[p], evs[i].ID)
				}
			}
		}
	}
	return lack, nil
}

// PartitionOf implements relay.Divided.
func (d *divided) PartitionOf(userID string) (p int) {
	_, _ = fmt.Sscan(userID, &p)
	return p
}

// Away implements relay.Divided.
func (d *divided) Away(partition int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.away[d.owner[partition]]
}

// change changes what is away, or where partitions are.
func (d *divided) change(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

// has returns what a user got.
func (d *divided) has(user int) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.got[user])
}

// awaitUser waits until a user got so many events.
func (d *divided) awaitUser(t testing.TB, user, n int) []string {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for len(d.has(user)) < n {
		if time.Now().After(deadline) {
			t.Fatalf("user %d waits in vain for %d events: %v", user, n, d.has(user))
		}
		pausePoll()
	}
	return d.has(user)
}

func pausePoll() { <-time.After(time.Millisecond) }

// publishTo publishes a message to users, or to a room if there are none.
func publishTo(t anyT, q executor, id string, users ...int) {
	t.Helper()
	event := fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"chat","type":"room.posted","data":{"conversation_id":"r","seq":1}}`, id)
	if len(users) > 0 {
		event = fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"chat","type":"message.delivered","data":{"conversation_id":"c","seq":1,"user_ids":["%s"]}}`,
			id, strings.Trim(strings.Join(strings.Fields(fmt.Sprint(users)), `","`), "[]"))
	}
	if err := q.QueryRow(t.Context(), `SELECT badged.publish($1)`, event).Scan(new(int64)); err != nil {
		t.Fatal(err)
	}
}

// A lost database stops its own users alone. They get everything in order once it is
// back, and readiness tells meanwhile.
func TestLostDatabase(t *testing.T) {
	t.Parallel()
	pool, to := newPool(t), newDivided(0, 0, 1)
	r, stop := run(t, pool, nil, func(cfg *relay.Config) { cfg.Divided = to })
	publishTo(t, pool, "a", 0, 2)
	to.awaitUser(t, 0, 1)
	to.change(func() { to.unknown[1] = true })
	publishTo(t, pool, "b", 2)
	publishTo(t, pool, "c", 0, 2)
	publishTo(t, pool, "d", 1)
	publishTo(t, pool, "room")
	to.awaitUser(t, 0, 3)
	to.awaitUser(t, 1, 2)
	var partial *relay.PartialError
	for !errors.As(r.Health(), &partial) {
		pausePoll()
	}
	if text := partial.Error(); text != "events of some users wait in the outbox: shard 1 is away" {
		t.Error(text)
	}
	for number(t, pool, `SELECT count(*) FROM badged.outbox`) != 3 { // b, c and the room
		pausePoll()
	}
	to.change(func() { to.unknown[1] = false })
	if got, want := to.awaitUser(t, 2, 4), []string{"a", "b", "c", "room"}; !slices.Equal(got, want) {
		t.Errorf("the user of the lost database got %v, want %v", got, want)
	}
	for r.Health() != nil {
		pausePoll()
	}
	publishTo(t, pool, "e", 2)
	to.awaitUser(t, 2, 5)
	stop()
	if n := number(t, pool, `SELECT count(*) FROM badged.outbox`); n > 0 {
		t.Errorf("the outbox has %d events", n)
	}
	for user, want := range []string{"a c room", "d room", "a b c room e"} {
		if got := strings.Join(to.has(user), " "); got != want {
			t.Errorf("user %d got %s, want %s", user, got, want)
		}
	}
}

// An event that is refused while a database is away is set aside once.
func TestRefusalWhileADatabaseIsAway(t *testing.T) {
	t.Parallel()
	pool, to := newPool(t), newDivided(0, 1)
	to.away[1], to.refused = true, "bad"
	_, stop := run(t, pool, nil, func(cfg *relay.Config) { cfg.Divided = to })
	publishTo(t, pool, "a", 1)
	publishTo(t, pool, "bad", 0, 1)
	publishTo(t, pool, "b", 0)
	to.awaitUser(t, 0, 1)
	to.change(func() { to.away[1] = false })
	to.awaitUser(t, 1, 1)
	stop()
	if waiting, refused := number(t, pool, `SELECT count(*) FROM badged.outbox`), number(t, pool, `SELECT count(*) FROM badged.outbox_refused`); waiting != 0 || refused != 1 {
		t.Errorf("%d events wait, %d are set aside", waiting, refused)
	}
}

// Random transactions publish to users of databases that are lost and come back, while
// partitions move between them and relays come and go. Every user gets every event, in
// the order of transactions.
func TestLostDatabasesAndConcurrentTransactions(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	rapid.Check(t, func(rt *rapid.T) {
		to := newDivided(0, 0, 1, 2)
		running := func() func() {
			_, stop := run(t, pool, nil, func(cfg *relay.Config) { cfg.Divided = to })
			return stop
		}
		stop := running()
		defer func() { stop() }()
		var open [3]pgx.Tx
		var unpublished [3][]string
		var committed []string
		before, users := map[string]int{}, map[string][]int{}
		for n := range rapid.IntRange(1, 40).Draw(rt, "steps") {
			i := rapid.IntRange(0, len(open)-1).Draw(rt, "transaction")
			shard := rapid.IntRange(0, 2).Draw(rt, "shard")
			if open[i] == nil {
				var err error
				if open[i], err = pool.Begin(t.Context()); err != nil {
					rt.Fatal(err)
				}
			}
			switch rapid.IntRange(0, 9).Draw(rt, "what") {
			case 0, 1:
				if err := open[i].Commit(t.Context()); err != nil {
					rt.Fatal(err)
				}
				committed = append(committed, unpublished[i]...)
				open[i], unpublished[i] = nil, nil
			case 2:
				to.change(func() { to.away[shard] = !to.away[shard] })
			case 3:
				to.change(func() { to.unknown[shard] = !to.unknown[shard] })
			case 4:
				to.change(func() { // while both databases can be reached, and all that was folded moves too
					if p := n % len(to.owner); !to.away[to.owner[p]] && !to.away[shard] {
						to.owner[p] = shard
					}
				})
			case 5:
				stop()
				stop = running()
			default:
				id := fmt.Sprint(n)
				users[id] = rapid.SliceOfNDistinct(rapid.IntRange(0, 3), 0, 3, rapid.ID[int]).Draw(rt, "users")
				publishTo(rt, open[i], id, users[id]...)
				unpublished[i] = append(unpublished[i], id)
				before[id] = len(committed)
			}
		}
		for i := range open {
			if open[i] != nil {
				if err := open[i].Commit(t.Context()); err != nil {
					rt.Fatal(err)
				}
				committed = append(committed, unpublished[i]...)
			}
		}
		to.change(func() { clear(to.away); clear(to.unknown) })
		for user := range to.owner {
			var want []string
			for _, id := range committed {
				if len(users[id]) == 0 || slices.Contains(users[id], user) {
					want = append(want, id)
				}
			}
			got := to.awaitUser(t, user, len(want))
			place := map[string]int{}
			for i, id := range got {
				place[id] = i
			}
			for _, id := range want {
				for _, earlier := range committed[:before[id]] {
					if i, is := place[earlier]; is && i > place[id] {
						rt.Fatalf("user %d: %s came before %s: %v", user, id, earlier, got)
					}
				}
			}
			if len(got) != len(want) || len(place) != len(want) {
				rt.Fatalf("user %d got %v, want %v", user, got, want)
			}
		}
		for number(t, pool, `SELECT count(*) FROM badged.outbox`) > 0 {
			pausePoll()
		}
	})
}
