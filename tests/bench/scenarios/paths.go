package scenarios

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/badged/badged/events"
	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/load"
	"github.com/badged/badged/tests/bench/measure"
	"github.com/badged/badged/tests/bench/rig"
	"github.com/badged/badged/tests/bench/stream"
	"github.com/badged/badged/tests/bench/ways"
)

// paths measures what categories of several parts cost in bulk, and what users with many
// of them do.
func paths() contest.Scenario {
	const flat, nested, few, many, ofAll = "1 part", "3 parts", "10 paths", "10,000 paths", "5,000 conversations"
	return contest.Scenario{
		Name: "paths",
		Says: "messages published in batches of 1,000 over HTTP and folded: with categories of one part and of three, and to users with few paths and with many",
		Main: allCPU,
		Aims: []contest.Aim{
			{Measure: allCPU, Of: flat, Over: flat + OfBaseline, AtMost: 1.02},
			{Measure: allCPU, Of: nested, Over: flat, AtMost: 1.15},
			{Measure: allCPU, Of: many, Over: few, AtMost: 1.25},
		},
		Open: func(_ context.Context, r *rig.Rig, s contest.Scale) (*contest.Contest, error) {
			usual := pathLoad{users: s.Pick(5000, 50), conversations: 20, messages: s.Pick(200_000, 2000)}
			large := pathLoad{users: 10, conversations: s.Pick(10_000, 200), messages: s.Pick(100_000, 2000)}
			name := func(format string, paths int) func(int) string {
				return func(conversation int) string { return fmt.Sprintf(format, conversation%paths) }
			}
			var sides []contest.Side
			add := func(name, binary string, l pathLoad, category func(int) string) {
				l.category = category
				sides = append(sides, contest.Side{Name: name, Says: fmt.Sprintf("%s, such as %q", l, category(3)), Run: func(ctx context.Context) ([]measure.Measure, error) {
					return l.run(ctx, r, binary)
				}})
			}
			add(flat, r.Binary, usual, name("kind-%d", 4))
			if s.Baseline != "" {
				add(flat+OfBaseline, s.Baseline, usual, name("kind-%d", 4))
			}
			add(nested, r.Binary, usual, name("acme/team/channel-%d", 4))
			add("20 categories of 1 part", r.Binary, usual, name("channel-%d", 20))
			add("20 categories of 3 parts", r.Binary, usual, name("acme/team/channel-%d", 20))
			add(few, r.Binary, large, name("server/channel-%d", 9))
			add(many, r.Binary, large, func(c int) string { return fmt.Sprintf("server-%d/channel-%d", c%200, c) })
			all := pathLoad{users: 1, conversations: s.Pick(5000, 100), category: name("acme/channel-%d", 100)}
			sides = append(sides, contest.Side{Name: ofAll, Says: all.String(), Run: func(ctx context.Context) ([]measure.Measure, error) { return all.runAll(ctx, r) }})
			return contest.Of(sides...)
		},
	}
}

// pathLoad is a number of messages, in turns to each conversation of each user. Each
// conversation has one before.
type pathLoad struct {
	users, conversations, messages int
	// category is that of a conversation of a user.
	category func(conversation int) string
}

func (l pathLoad) String() string {
	return fmt.Sprintf("%d users with %d conversations each, %d messages", l.users, l.conversations, l.messages)
}

func (l pathLoad) message(i int) events.Event {
	user, conversation := i%l.users, i/l.users%l.conversations
	return events.Event{
		ID: fmt.Sprint("m", i), Source: ways.EventSource, Type: events.MessageDelivered,
		Data: events.Data{
			ConversationID: fmt.Sprintf("c-%d-%d", user, conversation), Seq: int64(i/l.users/l.conversations) + 1,
			UserIDs: []string{stream.UserID(int32(user))}, Category: l.category(conversation), //nolint:gosec // few users
		},
	}
}

// deploy starts a binary and delivers the first messages.
func (l pathLoad) deploy(ctx context.Context, r *rig.Rig, binary string) (_ *load.API, stop func(context.Context) error, err error) {
	defer func(ours string) { r.Binary = ours }(r.Binary)
	r.Binary = binary
	d, err := r.Deploy(ctx, rig.OneProcess, fmt.Sprintf("--partitions=%d", defaultPartitions))
	if err != nil {
		return nil, nil, err
	}
	a := load.NewAPI(d.API, bulk.Workers)
	return a, func(ctx context.Context) error { a.Close(); return d.Stop(ctx) }, l.publish(ctx, a, 0, l.users*l.conversations)
}

// publish publishes messages and returns once they are folded.
func (l pathLoad) publish(ctx context.Context, a *load.API, from, to int) error {
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(bulk.Workers)
	for first := from; first < to; first += bulk.Batch {
		group.Go(func() error {
			var batch []events.Event
			for i := first; i < min(first+bulk.Batch, to); i++ {
				batch = append(batch, l.message(i))
			}
			_, err := publishAll(within, a, batch)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return l.settle(ctx, a, l.message(to-1)) // again, after all others
}

// settle publishes an event and waits until it is folded, with all before it.
func (l pathLoad) settle(ctx context.Context, a *load.API, e events.Event) error {
	return roomLoad{members: l.users, partitions: defaultPartitions}.settle(ctx, a, []events.Event{e})
}

func (l pathLoad) run(ctx context.Context, r *rig.Rig, binary string) (_ []measure.Measure, err error) {
	a, stop, err := l.deploy(ctx, r, binary)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop(ctx)) }()
	first := l.users * l.conversations
	used, err := r.Meter(ctx, func(ctx context.Context) (int, error) {
		return l.messages, l.publish(ctx, a, first, first+l.messages)
	})
	if err != nil {
		return nil, err
	}
	user := stream.UserID(0)
	totals, err := a.Totals(ctx, []string{user})
	if err != nil {
		return nil, err
	}
	cpu := measure.Of(allCPU, "µs/message", used.Resource("CPU badged")+used.Resource("CPU Postgres"))
	return append([]measure.Measure{cpu}, used.All()...), measure.Check(totals, map[string]int64{user: int64((first + l.messages) / l.users)})
}

// runAll measures how long events for all conversations of a category take, from the
// request until they are folded.
func (l pathLoad) runAll(ctx context.Context, r *rig.Rig) (measures []measure.Measure, err error) {
	a, stop, err := l.deploy(ctx, r, r.Binary)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop(ctx)) }()
	for _, typ := range []events.Type{events.CategoryLevelSet, events.UserSeenAll, events.UserReadAll, events.UserLeftAll} {
		e := events.Event{
			ID: string(typ), Source: ways.EventSource, Type: typ,
			Data: events.Data{UserIDs: []string{stream.UserID(0)}, Category: "acme"},
		}
		if typ == events.CategoryLevelSet {
			e.Data.Level = events.LevelMentions
		}
		began := time.Now()
		if err := l.settle(ctx, a, e); err != nil {
			return nil, err
		}
		measures = append(measures, measure.Of(string(typ), "ms", measure.Milliseconds(time.Since(began))))
	}
	return measures, nil
}
