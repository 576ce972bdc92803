package scenarios

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/load"
	"github.com/badged/badged/tests/bench/measure"
	"github.com/badged/badged/tests/bench/receivers"
	"github.com/badged/badged/tests/bench/rig"
	"github.com/badged/badged/tests/bench/stream"
)

// catchingUp is how fast users are told after an endpoint was away.
const catchingUp = "catching up"

// endpoints measures what webhooks cost a chat: the same load without any, and with some.
func endpoints() contest.Scenario {
	const none, works, fails = "no webhook", "one that works", "one that works, one that fails"
	scenario := contest.Scenario{
		Name: "endpoints",
		Says: "single events over HTTP, many to rooms, with webhooks that follow them",
		Main: "CPU badged",
		Aims: []contest.Aim{{Measure: catchingUp + ", batches of 100", Of: works, AtLeast: 10_000}},
		Open: func(_ context.Context, r *rig.Rig, s contest.Scale) (*contest.Contest, error) {
			l := endpointLoad{
				roomLoad: roomLoad{rooms: s.Pick(200, 4), members: s.Pick(50_000, 100), rate: float64(s.Pick(145, 100)), duration: s.Duration, partitions: defaultPartitions},
				least:    s.Pick(50, 10), most: s.Pick(5000, 50),
			}
			var sides []contest.Side
			for hooks, name := range []string{none, works, fails} {
				sides = append(sides, contest.Side{Name: name, Says: l.String(), Run: func(ctx context.Context) ([]measure.Measure, error) {
					return l.round(ctx, r, hooks)
				}})
			}
			return contest.Of(sides...)
		},
	}
	for name, most := range map[string]float64{"WAL": 1.3, "CPU Postgres": 1.25, "CPU badged": 1.25} {
		scenario.Aims = append(scenario.Aims, contest.Aim{Measure: name, Of: fails, Over: none, AtMost: most})
	}
	return scenario
}

// endpointLoad is a rate of events: a tenth are messages to rooms of least to most of the
// users, one in twenty is a message to one busy user, and of the others two thirds are
// messages to up to three users, and the rest reads.
type endpointLoad struct {
	roomLoad
	least, most int
}

// String describes the load.
func (l endpointLoad) String() string {
	return fmt.Sprintf("%.0f events/s for %s, %d users, %d rooms of %d to %d", l.rate, l.duration, l.members, l.rooms, l.least, l.most)
}

// events returns event i, which may be negative.
func (l endpointLoad) events(i int) []events.Event {
	random := rand.New(rand.NewPCG(uint64(i), 5))                                   //nolint:gosec // the same events every time
	user := func() string { return stream.UserID(random.Int32N(int32(l.members))) } //nolint:gosec // at most 50,000
	e := l.message(i, events.MessageDelivered)
	e.Data.ConversationID, e.Data.Seq = "direct", int64(i)+1_000_000
	switch n := random.IntN(20); {
	case n < 2:
		e.Type, e.Data.ConversationID = events.RoomPosted, l.room(random.IntN(l.rooms))
	case n == 2:
		e.Data.UserIDs = []string{stream.UserID(0)}
	default:
		for range 1 + random.IntN(3) {
			e.Data.UserIDs = append(e.Data.UserIDs, user())
		}
		slices.Sort(e.Data.UserIDs)
		e.Data.UserIDs = slices.Compact(e.Data.UserIDs)
		if n > 14 {
			e.Type, e.Data.UpToSeq, e.Data.Seq, e.Data.SenderID = events.ConversationRead, e.Data.Seq, 0, ""
		}
	}
	return []events.Event{e}
}

// joins returns the events by which the rooms get their members. Their sizes are even on a
// logarithmic scale.
func (l endpointLoad) joins() (all []events.Event) {
	for room := range l.rooms {
		size := float64(l.least) * math.Pow(float64(l.most)/float64(l.least), float64(room)/float64(max(1, l.rooms-1)))
		e := l.message(room, events.RoomJoined)
		e.ID, e.Data.Seq, e.Data.SenderID = fmt.Sprint("join-", room), 0, ""
		for i := range int32(size) {
			e.Data.UserIDs = append(e.Data.UserIDs, stream.UserID((int32(room)*7919+i)%int32(l.members))) //nolint:gosec // at most 50,000
		}
		all = append(all, e)
	}
	return all
}

// hookNames are the names of webhooks. The second fails.
var hookNames = []string{"works", "fails"}

// round runs the load with the first hooks of these, and then lets the first catch up with a
// message to each user.
func (l endpointLoad) round(ctx context.Context, r *rig.Rig, hooks int) (_ []measure.Measure, err error) {
	to, err := receivers.Webhook(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	d, err := deployTelling(ctx, r, to)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Stop(ctx)) }()
	a := load.NewAPI(d.API, roomSenders)
	defer a.Close()
	for _, e := range l.joins() {
		if err := l.settle(ctx, a, []events.Event{e}); err != nil {
			return nil, err
		}
	}
	put := func(status int, h receivers.Hook) error {
		return to.Put(ctx, func(ctx context.Context, method, path, body string) error {
			caller := *a
			caller.Key = receivers.AdminKey
			_, err := caller.Do(ctx, method, path, "application/json", []byte(body), status)
			return err
		}, h)
	}
	for i := range hooks {
		if err := put(http.StatusCreated, receivers.Hook{Name: hookNames[i], State: "active", Batch: 100, Fails: i > 0}); err != nil {
			return nil, err
		}
	}
	// Sessions of Postgres plan statements anew at first, which takes longer than they do.
	warm := l.roomLoad
	warm.duration /= 2
	if _, err := warm.measure(ctx, r, func(ctx context.Context, i int) error {
		_, err := publishAll(ctx, a, l.events(i-500_000))
		return err
	}); err != nil {
		return nil, err
	}
	to.Take()
	measures, err := l.measure(ctx, r, func(ctx context.Context, i int) error {
		_, err := publishAll(ctx, a, l.events(i))
		return err
	})
	if err != nil || hooks == 0 {
		return measures, err
	}
	measures = append(measures, measure.Of("told", "users/event", float64(len(to.Take()))/float64(l.count())))
	for _, batch := range []int{100, 1} {
		h := receivers.Hook{Name: hookNames[0], State: "paused", Batch: batch}
		if err := put(http.StatusOK, h); err != nil {
			return nil, err
		}
		to.Take()
		all := l.message(0, events.MessageDelivered)
		for some := range slices.Chunk(l.users(), 500) {
			all.ID, all.Data.ConversationID, all.Data.Seq, all.Data.UserIDs = fmt.Sprint("all-", batch, some[0]), "all", int64(batch), some
			if err := l.settle(ctx, a, []events.Event{all}); err != nil {
				return nil, err
			}
		}
		h.State = "active"
		began, told := time.Now(), map[string]struct{}{}
		if err := put(http.StatusOK, h); err != nil {
			return nil, err
		}
		for len(told) < l.members {
			if err := pause(ctx, tellInterval); err != nil {
				return nil, err
			}
			for _, one := range to.Take() {
				told[one.User] = struct{}{}
			}
		}
		measures = append(measures, measure.Of(catchingUp+", batches of "+fmt.Sprint(batch), "users/s", float64(l.members)/time.Since(began).Seconds()))
	}
	for _, wrong := range to.Violations() {
		err = errors.Join(err, fmt.Errorf("the receiver complains: %s: %w", wrong, measure.ErrWrong))
	}
	return measures, err
}
