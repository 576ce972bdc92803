package scenarios

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/badged/badged/events"
	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/load"
	"github.com/badged/badged/tests/bench/rig"
	"github.com/badged/badged/tests/bench/stream"
)

// paths measures the cost of categories with several parts in bulk, and of users with many categories.
func paths(r *rig.Rig, s contest.Scale) contest.Scenario {
	const flat, nested, few, many = "1 part", "3 parts", "10 paths", "10,000 paths"
	usual := pathLoad{users: s.Pick(5000, 50), conversations: 20, messages: s.Pick(200_000, 2000)}
	large := pathLoad{users: 10, conversations: s.Pick(10_000, 200), messages: s.Pick(100_000, 2000)}
	in := func(format string, paths int) func(int) string {
		return func(conversation int) string { return fmt.Sprintf(format, conversation%paths) }
	}
	side := func(name, binary string, l pathLoad, category func(int) string) contest.Side {
		l.category = category
		return contest.Side{Name: name, Says: fmt.Sprintf("%s, such as %q", l, category(3)), Run: func(run *contest.Run) []contest.Measure {
			return l.measure(run, r, l.open(run, r, binary))
		}}
	}
	sides := append(ofBuilds(s, flat, func(name, binary string) contest.Side { return side(name, binary, usual, in("kind-%d", 4)) }),
		side(nested, "", usual, in("acme/team/channel-%d", 4)),
		side("20 categories of 1 part", "", usual, in("channel-%d", 20)),
		side("20 categories of 3 parts", "", usual, in("acme/team/channel-%d", 20)),
		side(few, "", large, in("server/channel-%d", 9)),
		side(many, "", large, func(c int) string { return fmt.Sprintf("server-%d/channel-%d", c%200, c) }))
	all := pathLoad{users: 1, conversations: s.Pick(5000, 100), category: in("acme/channel-%d", 100)}
	return contest.Scenario{
		Name: "paths",
		Says: "messages published in batches of 1,000 over HTTP and folded: with categories of one part and of three, and to users with few paths and with many",
		Main: rig.ProcessorTime,
		Aims: []contest.Aim{
			{Measure: rig.ProcessorTime, Of: flat, Over: flat + OfBaseline, AtMost: 1.02},
			{Measure: rig.ProcessorTime, Of: nested, Over: flat, AtMost: 1.15},
			{Measure: rig.ProcessorTime, Of: many, Over: few, AtMost: 1.25},
		},
		Sides: append(sides, contest.Side{Name: "5,000 conversations", Says: all.String(), Run: func(run *contest.Run) []contest.Measure {
			return all.time(run.Context(), all.open(run, r, ""))
		}}),
	}
}

// pathLoad is a number of messages to the conversations of users, in turns. Before the load each
// conversation gets one message.
type pathLoad struct {
	users, conversations, messages int
	// category returns the category of a conversation.
	category func(conversation int) string
}

func (l pathLoad) String() string {
	return fmt.Sprintf("%d users with %d conversations each, %d messages", l.users, l.conversations, l.messages)
}

func (l pathLoad) message(i int) events.Event {
	user, conversation := i%l.users, i/l.users%l.conversations
	return event(fmt.Sprint("m", i), events.MessageDelivered, events.Data{
		ConversationID: fmt.Sprintf("c-%d-%d", user, conversation), Seq: int64(i/l.users/l.conversations) + 1,
		UserIDs: []string{stream.UserID(int32(user))}, Category: l.category(conversation), //nolint:gosec // few users
	})
}

// publish publishes messages and returns once they are folded.
func (l pathLoad) publish(ctx context.Context, a *load.API, from, to int) error {
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(bulk.workers)
	for first := from; first < to; first += bulk.batch {
		group.Go(func() error {
			var batch []events.Event
			for i := first; i < min(first+bulk.batch, to); i++ {
				batch = append(batch, l.message(i))
			}
			_, err := a.Publish(within, batch...)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return l.settle(ctx, a, l.message(to-1)) // repeats the last message, after all others
}

// settle publishes an event and waits until it and all earlier events are folded.
func (l pathLoad) settle(ctx context.Context, a *load.API, e events.Event) error {
	return a.Settle(ctx, load.Witnesses(roomLoad{members: l.users}.users(), defaultPartitions), e)
}

// open starts a binary and delivers the first messages.
func (l pathLoad) open(run *contest.Run, r *rig.Rig, binary string) *load.API {
	d := r.Deploy(run, rig.Deploy{Binary: binary, Partitions: defaultPartitions})
	a := load.NewAPI(run, d.API.URL, bulk.workers)
	contest.Check(l.publish(run.Context(), a, 0, l.users*l.conversations))
	return a
}

// measure measures the cost of the messages.
func (l pathLoad) measure(run *contest.Run, r *rig.Rig, a *load.API) []contest.Measure {
	first := l.users * l.conversations
	used := r.Meter(run, func() int {
		contest.Check(l.publish(run.Context(), a, first, first+l.messages))
		return l.messages
	})
	user := stream.UserID(0)
	totals := contest.Must(a.Totals(run.Context(), []string{user}))
	contest.Check(contest.CheckTotals(totals, map[string]int64{user: int64((first + l.messages) / l.users)}))
	return used.All()
}

// time measures how long events for all conversations of a category take, from the
// request until they are folded.
func (l pathLoad) time(ctx context.Context, a *load.API) (measures []contest.Measure) {
	for _, typ := range []events.Type{events.CategoryLevelSet, events.UserSeenAll, events.UserReadAll, events.UserLeftAll} {
		e := event(string(typ), typ, events.Data{UserIDs: []string{stream.UserID(0)}, Category: "acme"})
		if typ == events.CategoryLevelSet {
			e.Data.Level = events.LevelMentions
		}
		began := time.Now()
		contest.Check(l.settle(ctx, a, e))
		measures = append(measures, contest.Of(string(typ), "ms", contest.Milliseconds(time.Since(began))))
	}
	return measures
}
