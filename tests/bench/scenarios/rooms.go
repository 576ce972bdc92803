package scenarios

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/load"
	"github.com/badged/badged/tests/bench/rig"
	"github.com/badged/badged/tests/bench/stream"
)

const loneMeasure = "time a message"

func rooms(r *rig.Rig, s contest.Scale) contest.Scenario {
	room := func(members int) string { return fmt.Sprintf("room of %d", members) }
	group := func(members int) string { return fmt.Sprintf("events for %d", members) }
	var sides []contest.Side
	add := func(name string, l roomLoad, run func(*contest.Run) []contest.Measure) {
		sides = append(sides, contest.Side{Name: name, Says: l.String(), Run: run})
	}
	for _, members := range []int{100, 1000, 5000, 100_000} {
		l := roomLoad{
			// At most a million memberships.
			rooms: s.Pick(min(100, 1_000_000/members), 3), members: s.Pick(members, 20+members/2000),
			rate: float64(s.Pick(1000, 100)), duration: s.Duration, partitions: defaultPartitions,
		}
		// About as much work, whatever the size.
		inGroups := roomLoad{rooms: 1, members: l.members, partitions: defaultPartitions, messages: max(s.Pick(400_000, 400)/l.members, 3)}
		script := inGroups
		script.messages = max(s.Pick(4_000_000, 40_000)/l.members, 3)
		add(room(members), l, func(run *contest.Run) []contest.Measure { return l.run(run, r, l.posted) })
		add(group(members), inGroups, func(run *contest.Run) []contest.Measure { return inGroups.run(run, r, inGroups.delivered) })
		add(fmt.Sprintf("Redis script for %d", members), script, func(run *contest.Run) []contest.Measure { return script.inRedis(run, r) })
	}
	const lone = "lone message to a room of 100000"
	l := roomLoad{rooms: 1, members: s.Pick(100_000, 70), messages: s.Pick(200, 5), partitions: 16}
	add(lone, l, func(run *contest.Run) []contest.Measure { return l.run(run, r, l.posted) })
	return contest.Scenario{
		Name: "rooms",
		Says: "messages to many members, over HTTP: as messages to rooms, as events that name all, and as increments in Redis",
		Main: rig.ProcessorTime,
		Aims: []contest.Aim{
			{Measure: rig.ProcessorTime, Of: group(5000), Over: room(5000), AtLeast: 50},
			{Measure: rig.ProcessorTime, Of: room(100_000), AtMost: 2000},
			{Measure: rig.ProcessorTime, Of: room(100_000), Over: room(100), AtMost: 1.5},
			{Measure: loneMeasure, Of: lone, AtMost: 30},
		},
		Sides: sides,
	}
}

// roomLoad is a number of messages to rooms of equal size, in turns. Each user is in all rooms.
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

// roomSenders is how many messages are sent at a time if the load has a rate. Each sender waits until
// its last message is folded.
const roomSenders = 16

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
	return event(fmt.Sprintf("m-%d", i), typ, events.Data{ConversationID: l.room(i), Seq: int64(i/l.rooms) + 1, SenderID: "somebody"})
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
			all = append(all, event(fmt.Sprintf("join-%s%d-%d", l.prefix, room, len(all)), events.RoomJoined, events.Data{ConversationID: l.room(room), UserIDs: users}))
		}
	}
	return all
}

// run sends the messages to the binary. Before the measured messages, all users join the rooms, or each
// user gets the first message, which inserts the rows.
func (l roomLoad) run(run *contest.Run, r *rig.Rig, eventsOf func(i int) []events.Event) []contest.Measure {
	ctx, d := run.Context(), r.Deploy(run, rig.Deploy{Partitions: l.partitions})
	a := load.NewAPI(run, d.API.URL, roomSenders)
	if eventsOf(0)[0].Type == events.RoomPosted {
		for _, e := range l.joins() {
			contest.Must(a.Publish(ctx, e))
		}
	}
	witnesses := load.Witnesses(l.users(), l.partitions)
	contest.Check(a.Settle(ctx, witnesses, eventsOf(0)...))
	measures := l.measure(run, r, func(ctx context.Context, i int) (err error) {
		if l.rate == 0 || i > l.count()-roomSenders {
			return a.Settle(ctx, witnesses, eventsOf(i)...)
		}
		_, err = a.Publish(ctx, eventsOf(i)...)
		return err
	})
	l.check(func(users []string) (map[string]int64, error) { return a.Totals(ctx, users) })
	return measures
}

// measure sends the messages after the first.
func (l roomLoad) measure(run *contest.Run, r *rig.Rig, send func(ctx context.Context, i int) error) []contest.Measure {
	n, limit, due := l.count(), 1, func(int) time.Duration { return 0 }
	if l.rate > 0 {
		limit, due = roomSenders, func(i int) time.Duration { return time.Duration(float64(i+1) / l.rate * float64(time.Second)) }
	}
	took := make([]float64, n)
	measures := r.Meter(run, func() int {
		contest.Check(load.Paced(run.Context(), n, limit, due, func(ctx context.Context, i int) error {
			began := time.Now()
			err := send(ctx, i+1)
			took[i] = contest.Milliseconds(time.Since(began))
			return err
		}))
		return n
	})
	slices.Sort(took)
	return append(measures, contest.Of(loneMeasure, "ms", contest.Percentile(took, 50)), contest.Of(loneMeasure+", p99", "ms", contest.Percentile(took, 99)))
}

// check compares the totals of some users. Every message counts for each.
func (l roomLoad) check(totals func(users []string) (map[string]int64, error)) {
	users, want := l.users(), map[string]int64{}
	users = users[:min(len(users), load.BadgesAtOnce)]
	for _, u := range users {
		want[u] = int64(l.count()) + 1
	}
	contest.Check(contest.CheckTotals(contest.Must(totals(users)), want))
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
func (l roomLoad) inRedis(run *contest.Run, r *rig.Rig) []contest.Measure {
	ctx, client := run.Context(), rig.NewRedis(run)
	hash := contest.Must(client.ScriptLoad(ctx, incrementLua).Result())
	for _, e := range l.joins() {
		contest.Check(client.SAdd(ctx, e.Data.ConversationID, e.Data.UserIDs).Err())
	}
	send := func(ctx context.Context, i int) error { return client.EvalSha(ctx, hash, []string{l.room(i)}).Err() }
	contest.Check(send(ctx, 0))
	measures := l.measure(run, r, send)
	l.check(func(users []string) (map[string]int64, error) { return redisTotals(ctx, client, "total", users) })
	return measures
}

func roomReads(r *rig.Rig, s contest.Scale) contest.Scenario {
	const none, many, nested = "no rooms", "200 rooms", "200 rooms and 1,000 paths"
	l := roomLoad{rooms: s.Pick(200, 5), members: s.Pick(1000, 20), messages: s.Pick(2000, 20), partitions: defaultPartitions}
	ordinary, inPaths, paths := l, l, s.Pick(1000, 10)
	ordinary.prefix, inPaths.prefix, inPaths.members = "ordinary-", "nested-", 20
	var a *load.API
	side := func(name, says string, of roomLoad, want int) contest.Side {
		return contest.Side{Name: name, Says: fmt.Sprintf("%d users %s", of.members, says), Run: func(run *contest.Run) []contest.Measure {
			return of.read(run, r, a, int64(want), s.Duration)
		}}
	}
	inRooms := fmt.Sprintf("in %d rooms, with %d messages in all", l.rooms, l.count()+1)
	return contest.Scenario{
		Name: "room-reads",
		Says: "badges read over HTTP, one user each, one after the other: of users in 200 rooms and of users in none",
		Main: rig.ProcessorTime,
		Aims: []contest.Aim{
			{Measure: rig.ProcessorTime, Of: many, Over: none, AtMost: 3},
			{Measure: rig.ProcessorTime, Of: nested, Over: many, AtMost: 2},
		},
		Open: func(run *contest.Run) {
			a = load.NewAPI(run, r.Deploy(run, rig.Deploy{Partitions: l.partitions}).API.URL, roomSenders)
			batch := append(l.joins(), inPaths.joins()...)
			for i := range l.count() + 1 {
				batch = append(batch, l.posted(i)...)
			}
			for i := range paths {
				batch = append(batch, inPaths.direct(fmt.Sprintf("acme/channel-%d", i)))
			}
			for some := range slices.Chunk(append(batch, ordinary.direct("ordinary")), 100) {
				contest.Check(a.Settle(run.Context(), load.Witnesses(l.users(), l.partitions), some...))
			}
		},
		Sides: []contest.Side{
			side(none, "with an ordinary conversation", ordinary, 1),
			side(many, inRooms, l, l.count()+1),
			side(nested, fmt.Sprintf("%s, and with a conversation in each of %d categories", inRooms, paths), inPaths, l.count()+1+paths),
		},
	}
}

// direct returns an event that delivers one message to each user, in a conversation and category with
// the given name.
func (l roomLoad) direct(category string) events.Event {
	return event(category, events.MessageDelivered, events.Data{ConversationID: category, Category: category, UserIDs: l.users(), Seq: 1, SenderID: "somebody"})
}

// read reads the badges of users in turns, and checks that each has the total want.
func (l roomLoad) read(run *contest.Run, r *rig.Rig, a *load.API, want int64, duration time.Duration) []contest.Measure {
	users := l.users()
	return r.Meter(run, func() (n int) {
		for began := time.Now(); time.Since(began) < duration; n++ {
			body := contest.Must(a.Do(run.Context(), http.MethodGet, "/v1/users/"+users[n%len(users)]+"/badge", nil, http.StatusOK))
			var badge struct{ Total int64 }
			if err := json.Unmarshal(body, &badge); err != nil || badge.Total != want {
				contest.Check(fmt.Errorf("the badge is %s, want total %d: %w", body, want, contest.ErrWrong))
			}
		}
		return n
	})
}
