package scenarios

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/privateredis"
	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/load"
	"github.com/badged/badged/tests/bench/measure"
	"github.com/badged/badged/tests/bench/rig"
	"github.com/badged/badged/tests/bench/stream"
	"github.com/badged/badged/tests/bench/ways"
)

// Measures of rooms.
const (
	allCPU      = "CPU badged, Postgres and Redis"
	loneMeasure = "time a message"
)

// roomSizes are the sizes of rooms that are compared.
var roomSizes = []int{100, 1000, 5000, 100_000}

func roomSide(members int) string  { return fmt.Sprintf("room of %d", members) }
func groupSide(members int) string { return fmt.Sprintf("events for %d", members) }
func redisSide(members int) string { return fmt.Sprintf("Redis script for %d", members) }

// rooms compares messages to rooms with the same messages as events that name all
// members, and with a script in Redis that increments a hash for each member.
func rooms() contest.Scenario {
	const lone = "lone message to a room of 100000"
	return contest.Scenario{
		Name: "rooms",
		Says: "messages to many members, over HTTP: as messages to rooms, as events that name all, and as increments in Redis",
		Main: allCPU,
		Aims: []contest.Aim{
			{Measure: allCPU, Of: groupSide(5000), Over: roomSide(5000), AtLeast: 50},
			{Measure: allCPU, Of: roomSide(100_000), AtMost: 2000},
			{Measure: allCPU, Of: roomSide(100_000), Over: roomSide(100), AtMost: 1.5},
			{Measure: loneMeasure, Of: lone, AtMost: 30},
		},
		Open: func(_ context.Context, r *rig.Rig, s contest.Scale) (*contest.Contest, error) {
			var sides []contest.Side
			for _, members := range roomSizes {
				l := roomLoad{
					// At most a million memberships.
					rooms: s.Pick(min(100, 1_000_000/members), 3), members: s.Pick(members, 20+members/2000),
					rate: float64(s.Pick(1000, 100)), duration: s.Duration, partitions: defaultPartitions,
				}
				// About as much work, whatever the size.
				inGroups := roomLoad{rooms: 1, members: l.members, partitions: defaultPartitions, messages: max(s.Pick(400_000, 400)/l.members, 3)}
				script := inGroups
				script.messages = max(s.Pick(4_000_000, 40_000)/l.members, 3)
				sides = append(sides,
					contest.Side{Name: roomSide(members), Says: l.String(), Run: func(ctx context.Context) ([]measure.Measure, error) { return l.run(ctx, r, l.posted) }},
					contest.Side{Name: groupSide(members), Says: inGroups.String(), Run: func(ctx context.Context) ([]measure.Measure, error) { return inGroups.run(ctx, r, inGroups.delivered) }},
					contest.Side{Name: redisSide(members), Says: script.String() + "; two increments a member in one script", Run: func(ctx context.Context) ([]measure.Measure, error) {
						return script.inRedis(ctx, r)
					}},
				)
			}
			l := roomLoad{rooms: 1, members: s.Pick(100_000, 70), messages: s.Pick(200, 5), partitions: 16}
			sides = append(sides, contest.Side{Name: lone, Says: l.String(), Run: func(ctx context.Context) ([]measure.Measure, error) { return l.run(ctx, r, l.posted) }})
			return contest.Of(sides...)
		},
	}
}

// roomLoad is a number of messages to rooms of equal size, in turns. Each user is in
// all of them.
type roomLoad struct {
	rooms, members int
	// prefix begins the ids of users.
	prefix string
	// rate is how many messages a second are sent, for a duration. If it is 0, the
	// messages are sent one after the other.
	rate       float64
	duration   time.Duration
	messages   int
	partitions int
}

// roomSenders is how many messages are sent at a time if they have a rate. The last
// of each waits until it is folded.
const roomSenders = 16

// String describes the load.
func (l roomLoad) String() string {
	if l.rate == 0 {
		return fmt.Sprintf("%d messages, each once the one before counts, to %d members, %d partitions", l.messages, l.members, l.partitions)
	}
	return fmt.Sprintf("%.0f messages/s for %s to %d rooms of the same %d members, %d partitions", l.rate, l.duration, l.rooms, l.members, l.partitions)
}

// count returns how many messages are sent.
func (l roomLoad) count() int {
	if l.rate == 0 {
		return l.messages
	}
	return max(1, int(l.rate*l.duration.Seconds()))
}

func (l roomLoad) room(i int) string { return fmt.Sprintf("room-%d", i%l.rooms) }

func (l roomLoad) users() []string {
	users := make([]string, l.members)
	for i := range users {
		users[i] = l.prefix + stream.UserID(int32(i))
	}
	return users
}

// message returns message i, from 0 on, without users.
func (l roomLoad) message(i int, typ events.Type) events.Event {
	return events.Event{
		ID: fmt.Sprintf("m-%d", i), Source: ways.EventSource, Type: typ,
		Data: events.Data{ConversationID: l.room(i), Seq: int64(i/l.rooms) + 1, SenderID: "somebody"},
	}
}

// posted returns message i to a room.
func (l roomLoad) posted(i int) []events.Event {
	return []events.Event{l.message(i, events.RoomPosted)}
}

// delivered returns message i as events for all members.
func (l roomLoad) delivered(i int) (all []events.Event) {
	for users := range slices.Chunk(l.users(), events.MaxUsers) {
		e := l.message(i, events.MessageDelivered)
		e.ID += fmt.Sprintf("/%d", len(all))
		e.Data.UserIDs = users
		all = append(all, e)
	}
	return all
}

// joins returns the events by which all users join all rooms.
func (l roomLoad) joins() (all []events.Event) {
	for room := range l.rooms {
		for users := range slices.Chunk(l.users(), events.MaxUsers) {
			all = append(all, events.Event{
				ID: fmt.Sprintf("join-%s%d-%d", l.prefix, room, len(all)), Source: ways.EventSource, Type: events.RoomJoined,
				Data: events.Data{ConversationID: l.room(room), UserIDs: users},
			})
		}
	}
	return all
}

// run sends the messages to the binary. Before those that are measured, all users
// join the rooms, or each gets the first message, which inserts the rows.
func (l roomLoad) run(ctx context.Context, r *rig.Rig, eventsOf func(i int) []events.Event) (_ []measure.Measure, err error) {
	d, err := r.Deploy(ctx, rig.OneProcess, fmt.Sprintf("--partitions=%d", l.partitions))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Stop(ctx)) }()
	a := load.NewAPI(d.API, roomSenders)
	defer a.Close()
	if eventsOf(0)[0].Type == events.RoomPosted {
		for _, e := range l.joins() {
			if _, err := publishAll(ctx, a, []events.Event{e}); err != nil {
				return nil, err
			}
		}
	}
	if err := l.settle(ctx, a, eventsOf(0)); err != nil {
		return nil, err
	}
	measures, err := l.measure(ctx, r, func(ctx context.Context, i int) error {
		if l.rate == 0 || i > l.count()-roomSenders {
			return l.settle(ctx, a, eventsOf(i))
		}
		_, err := publishAll(ctx, a, eventsOf(i))
		return err
	})
	if err != nil {
		return nil, err
	}
	users := l.users()
	return measures, l.check(users[:min(len(users), load.BadgesAtOnce)], func(users []string) (map[string]int64, error) { return a.Totals(ctx, users) })
}

// measure sends the messages after the first.
func (l roomLoad) measure(ctx context.Context, r *rig.Rig, send func(ctx context.Context, i int) error) ([]measure.Measure, error) {
	n := l.count()
	var took []float64
	used, err := r.Meter(ctx, func(ctx context.Context) (int, error) {
		if l.rate == 0 {
			for i := range n {
				began := time.Now()
				if err := send(ctx, i+1); err != nil {
					return 0, err
				}
				took = append(took, measure.Milliseconds(time.Since(began)))
			}
			return n, nil
		}
		var next atomic.Int64
		began := time.Now()
		senders, ctx := errgroup.WithContext(ctx)
		for range roomSenders {
			senders.Go(func() error {
				for {
					i := int(next.Add(1))
					if i > n {
						return nil
					}
					select {
					case <-time.After(time.Until(began.Add(time.Duration(float64(i) / l.rate * float64(time.Second))))):
					case <-ctx.Done():
						return ctx.Err()
					}
					if err := send(ctx, i); err != nil {
						return err
					}
				}
			})
		}
		return n, senders.Wait()
	})
	if err != nil {
		return nil, err
	}
	cpu := used.Resource("CPU badged") + used.Resource("CPU Postgres") + used.Resource("CPU Redis")
	measures := append([]measure.Measure{measure.Of(allCPU, "µs/message", cpu)}, used.All()...)
	if len(took) > 0 {
		slices.Sort(took)
		measures = append(measures, measure.Of(loneMeasure, "ms", measure.Percentile(took, 50)), measure.Of(loneMeasure+", p99", "ms", measure.Percentile(took, 99)))
	}
	return measures, nil
}

// check compares the totals of users. Every message counts for each.
func (l roomLoad) check(users []string, totals func(users []string) (map[string]int64, error)) error {
	got, err := totals(users)
	if err != nil {
		return err
	}
	want := map[string]int64{}
	for _, u := range users {
		want[u] = int64(l.count()) + 1
	}
	return measure.Check(got, want)
}

// publishAll publishes events in one request, and returns their position.
func publishAll(ctx context.Context, a *load.API, evs []events.Event) (position string, err error) {
	var body bytes.Buffer
	for i := range evs {
		b, err := evs[i].MarshalJSON()
		if err != nil {
			return "", err
		}
		body.Write(append(b, '\n'))
	}
	header, _, err := a.Call(ctx, http.MethodPost, "/v1/events", "application/x-ndjson", body.Bytes(), http.StatusAccepted)
	return header.Get("Badged-Position"), err
}

// settle publishes events and returns once they and those before them count for all
// users.
func (l roomLoad) settle(ctx context.Context, a *load.API, evs []events.Event) error {
	position, err := publishAll(ctx, a, evs)
	if err != nil {
		return err
	}
	// A user of each partition stands for the others.
	witnesses := map[int]string{}
	for i := int32(0); len(witnesses) < min(l.partitions, l.members) && i < int32(l.members); i++ { //nolint:gosec // at most 100,000
		u := stream.UserID(i)
		witnesses[events.PartitionOf(u, l.partitions)] = u
	}
	query, err := json.Marshal(map[string]any{"user_ids": slices.Collect(maps.Values(witnesses)), "at_least": position, "timeout": "10s"})
	if err != nil {
		return err
	}
	_, err = a.Do(ctx, http.MethodPost, "/v1/badges/query", "application/json", query, http.StatusOK)
	return err
}

// incrementLua counts a message for each member of a room: in the hash of the user,
// for the conversation and in total.
const incrementLua = `
for _, user in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  redis.call('HINCRBY', 'user:' .. user, KEYS[1], 1)
  redis.call('HINCRBY', 'user:' .. user, 'total', 1)
end
return 0
`

// inRedis sends the messages as calls of a script.
func (l roomLoad) inRedis(ctx context.Context, r *rig.Rig) (_ []measure.Measure, err error) {
	server, err := privateredis.Start(ctx, privateredis.Config{Args: rig.RedisAsShipped()})
	if err != nil {
		return nil, err
	}
	defer server.Stop()
	client := goredis.NewClient(&goredis.Options{Addr: server.Addr(), ReadTimeout: time.Minute})
	defer func() { err = errors.Join(err, client.Close()) }()
	hash, err := client.ScriptLoad(ctx, incrementLua).Result()
	if err != nil {
		return nil, fmt.Errorf("load the script: %w", err)
	}
	for room := range l.rooms {
		for users := range slices.Chunk(l.users(), events.MaxUsers) {
			if err := client.SAdd(ctx, l.room(room), users).Err(); err != nil {
				return nil, fmt.Errorf("add members: %w", err)
			}
		}
	}
	send := func(ctx context.Context, i int) error { return client.EvalSha(ctx, hash, []string{l.room(i)}).Err() }
	if err := send(ctx, 0); err != nil {
		return nil, fmt.Errorf("increment: %w", err)
	}
	measures, err := l.measure(ctx, r, send)
	if err != nil {
		return nil, err
	}
	users := l.users()
	return measures, l.check(users[:min(len(users), load.BadgesAtOnce)], func(users []string) (map[string]int64, error) {
		got := map[string]int64{}
		for _, u := range users {
			n, err := client.HGet(ctx, "user:"+u, "total").Int64()
			if err != nil {
				return nil, fmt.Errorf("read the total of %s: %w", u, err)
			}
			got[u] = n
		}
		return got, nil
	})
}

// Sides of room-reads.
const (
	readNone  = "no rooms"
	readMany  = "200 rooms"
	readPaths = "200 rooms and 1,000 paths"
)

// roomReads measures reading the badge of a user who is in many rooms.
func roomReads() contest.Scenario {
	return contest.Scenario{
		Name: "room-reads",
		Says: "badges read over HTTP, one user each, one after the other: of users in 200 rooms and of users in none",
		Main: allCPU,
		Aims: []contest.Aim{
			{Measure: allCPU, Of: readMany, Over: readNone, AtMost: 3},
			{Measure: allCPU, Of: readPaths, Over: readMany, AtMost: 2},
		},
		Open: func(ctx context.Context, r *rig.Rig, s contest.Scale) (_ *contest.Contest, err error) {
			l := roomLoad{rooms: s.Pick(200, 5), members: s.Pick(1000, 20), messages: s.Pick(2000, 20), partitions: defaultPartitions}
			d, err := r.Deploy(ctx, rig.OneProcess, fmt.Sprintf("--partitions=%d", l.partitions))
			if err != nil {
				return nil, err
			}
			a := load.NewAPI(d.API, roomSenders)
			closeAll := func(ctx context.Context) error { a.Close(); return d.Stop(ctx) }
			defer func() {
				if err != nil {
					err = errors.Join(err, closeAll(context.WithoutCancel(ctx)))
				}
			}()
			ordinary, nested, paths := l, l, s.Pick(1000, 10)
			ordinary.prefix, nested.prefix, nested.members = "ordinary-", "nested-", 20
			batch := append(l.joins(), nested.joins()...)
			for i := range l.count() + 1 {
				batch = append(batch, l.posted(i)...)
			}
			for i := range paths {
				batch = append(batch, nested.direct(fmt.Sprintf("acme/channel-%d", i)))
			}
			for some := range slices.Chunk(append(batch, ordinary.direct("ordinary")), 100) {
				if err := l.settle(ctx, a, some); err != nil {
					return nil, err
				}
			}
			var sides []contest.Side
			add := func(name, says string, of roomLoad, want int) {
				sides = append(sides, contest.Side{Name: name, Says: fmt.Sprintf(says, of.members), Run: func(ctx context.Context) ([]measure.Measure, error) {
					return of.read(ctx, r, a, int64(want), s.Duration)
				}})
			}
			add(readNone, "%d users with an ordinary conversation", ordinary, 1)
			many := fmt.Sprintf("%%d users in %d rooms, with %d messages in all", l.rooms, l.count()+1)
			add(readMany, many, l, l.count()+1)
			add(readPaths, fmt.Sprintf("%s, and with a conversation in each of %d categories", many, paths), nested, l.count()+1+paths)
			return &contest.Contest{Sides: sides, Close: closeAll}, nil
		},
	}
}

// direct returns the delivery of one message to each user, in a conversation and category
// of that name.
func (l roomLoad) direct(category string) events.Event {
	e := l.message(0, events.MessageDelivered)
	e.ID, e.Data.ConversationID, e.Data.Category, e.Data.UserIDs = category, category, category, l.users()
	return e
}

// read reads the badges of users in turns, which have the total that is wanted.
func (l roomLoad) read(ctx context.Context, r *rig.Rig, a *load.API, want int64, duration time.Duration) ([]measure.Measure, error) {
	users := l.users()
	used, err := r.Meter(ctx, func(ctx context.Context) (n int, err error) {
		for began := time.Now(); time.Since(began) < duration; n++ {
			body, err := a.Do(ctx, http.MethodGet, "/v1/users/"+users[n%len(users)]+"/badge", "", nil, http.StatusOK)
			if err != nil {
				return n, err
			}
			var badge struct{ Total int64 }
			if err := json.Unmarshal(body, &badge); err != nil || badge.Total != want {
				return n, fmt.Errorf("the badge is %s, want total %d: %w", body, want, measure.ErrWrong)
			}
		}
		return n, nil
	})
	if err != nil {
		return nil, err
	}
	return append([]measure.Measure{measure.Of(allCPU, "µs/read", used.Resource("CPU badged")+used.Resource("CPU Postgres"))}, used.All()...), nil
}
