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
	"github.com/badged/badged/internal/bridge/relay"
	"github.com/badged/badged/internal/cluster"
)

// divided are databases with one partition for each of the users "0", "1" and so on. It
// remembers which events each user got, repeated ones once.
type divided struct {
	mu sync.Mutex
	// owner is the database of each partition, and away has those that are unavailable.
	owner []int
	away  map[int]bool
	// unknown are away, and only an append shows it.
	unknown map[int]bool
	got     [][]string
	// clock counts what was appended, and at has when users got events.
	clock int
	at    []map[string]int
	// refused is the id of an event that is refused.
	refused string
	// calls counts the calls.
	calls int
}

func newDivided(owner ...int) *divided {
	d := &divided{owner: owner, away: map[int]bool{}, unknown: map[int]bool{}, got: make([][]string, len(owner))}
	for range owner {
		d.at = append(d.at, map[string]int{})
	}
	return d
}

// AppendBestEffort implements relay.Divided.
func (d *divided) AppendBestEffort(_ context.Context, excluded []bool, evs ...events.Event) (*cluster.PartialFailure, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls++
	var lack *cluster.PartialFailure
	for shard := range slices.Max(d.owner) + 1 {
		var err error
		skipped := d.away[shard] || d.unknown[shard]
		if skipped {
			err = fmt.Errorf("shard %d is away", shard)
		}
		for p, is := range excluded {
			skipped = skipped || is && d.owner[p] == shard
		}
		if skipped {
			missing := &cluster.PartialFailure{Partitions: make([]bool, len(d.owner)), Err: err}
			for p, owner := range d.owner {
				missing.Partitions[p] = owner == shard && (excluded == nil || !excluded[p])
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
					d.at[p][evs[i].ID], d.clock = d.clock, d.clock+1
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

// when returns when a user got an event.
func (d *divided) when(user int, id string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at[user][id]
}

// awaitUser waits until a user got that many events.
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
	kind, data := "room.posted", `"conversation_id":"r","seq":1`
	if len(users) > 0 {
		kind, data = "message.delivered", `"conversation_id":"c","seq":1,`+userIDs(users)
	}
	publishEvent(t, q, id, kind, data)
}

// publishJoin publishes that users join the room.
func publishJoin(t anyT, q executor, id string, users ...int) {
	t.Helper()
	publishEvent(t, q, id, "room.joined", `"conversation_id":"r",`+userIDs(users))
}

func userIDs(users []int) string {
	return `"user_ids":["` + strings.Trim(strings.Join(strings.Fields(fmt.Sprint(users)), `","`), "[]") + `"]`
}

func publishEvent(t anyT, q executor, id, kind, data string) {
	t.Helper()
	event := fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"chat","type":%q,"data":{%s}}`, id, kind, data)
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
	var partial *relay.WaitingError
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

// Messages to a room behind a join that waits are for none until the database has the join,
// also if the relay starts again meanwhile. Other rooms go on.
func TestMessagesToARoomWaitForItsJoins(t *testing.T) {
	t.Parallel()
	pool, to := newPool(t), newDivided(0, 1, 2)
	to.away[1], to.away[2] = true, true
	running := func() (stop func()) {
		_, stop = run(t, pool, nil, func(cfg *relay.Config) { cfg.Divided = to })
		return stop
	}
	stop := running()
	publishTo(t, pool, "first")
	publishJoin(t, pool, "join", 0, 1)
	publishTo(t, pool, "message")
	publishEvent(t, pool, "other", "room.posted", `"conversation_id":"s","seq":1`)
	publishTo(t, pool, "a", 0)
	check := func(user int, want ...string) {
		t.Helper()
		if got := to.awaitUser(t, user, len(want)); !slices.Equal(got, want) {
			t.Errorf("user %d got %v, want %v", user, got, want)
		}
	}
	check(0, "first", "join", "other", "a")
	stop()
	stop = running()
	publishTo(t, pool, "b", 0)
	check(0, "first", "join", "other", "a", "b")
	to.change(func() { to.away[2] = false }) // whose user has not joined
	publishTo(t, pool, "c", 2)
	check(2, "first", "other", "c")
	to.change(func() { to.away[1] = false })
	check(1, "first", "join", "message", "other")
	check(0, "first", "join", "other", "a", "b", "message")
	check(2, "first", "other", "c", "message")
	publishTo(t, pool, "last")
	check(0, "first", "join", "other", "a", "b", "message", "last")
	stop()
	if n := number(t, pool, `SELECT count(*) FROM badged.outbox`); n > 0 {
		t.Errorf("the outbox has %d events", n)
	}
}

// An event that is refused while a database is unavailable is set aside once.
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
// partitions move between them and relays come and go. Every user gets every event, those of
// a conversation in the order of transactions. No user gets a message to a room before all users
// have the joins that precede it.
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
		before, users, joins := map[string]int{}, map[string][]int{}, map[string]bool{}
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
				if joins[id] = len(users[id]) > 0 && rapid.Bool().Draw(rt, "join"); joins[id] {
					publishJoin(rt, open[i], id, users[id]...)
				} else {
					publishTo(rt, open[i], id, users[id]...)
				}
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
		want := make([][]string, len(to.owner))
		for user := range to.owner {
			for _, id := range committed {
				if len(users[id]) == 0 || slices.Contains(users[id], user) {
					want[user] = append(want[user], id)
				}
			}
			to.awaitUser(t, user, len(want[user]))
		}
		ofRoom := func(id string) bool { return joins[id] || len(users[id]) == 0 }
		for user, ids := range want {
			got := to.has(user)
			place := map[string]int{}
			for i, id := range got {
				place[id] = i
			}
			if len(got) != len(ids) || len(place) != len(ids) {
				rt.Fatalf("user %d got %v, want %v", user, got, ids)
			}
			for _, id := range ids {
				for _, earlier := range committed[:before[id]] {
					if i, is := place[earlier]; is && ofRoom(earlier) == ofRoom(id) && i > place[id] {
						rt.Fatalf("user %d: %s came before %s: %v", user, id, earlier, got)
					}
					for _, joined := range users[earlier] {
						if joins[earlier] && len(users[id]) == 0 && to.when(joined, earlier) > to.when(user, id) {
							rt.Fatalf("user %d got the message %s before user %d the join %s", user, id, joined, earlier)
						}
					}
				}
			}
		}
		for number(t, pool, `SELECT count(*) FROM badged.outbox`) > 0 {
			pausePoll()
		}
	})
}
