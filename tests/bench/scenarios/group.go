package scenarios

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/measure"
	"github.com/badged/badged/tests/bench/rig"
	"github.com/badged/badged/tests/bench/stream"
	"github.com/badged/badged/tests/bench/ways"
)

// group compares two ways to publish a message to a large group: one event that
// names all members, and one event per member.
func group() contest.Scenario {
	const one, single = "one event", "single events"
	return contest.Scenario{
		Name: "group",
		Says: "messages to a group, as one event with all members and as an event for each",
		Main: "time",
		Aims: []contest.Aim{
			{Measure: "log", Of: single, Over: one, AtLeast: 20},
			{Measure: "time", Of: single, Over: one, AtLeast: 5},
		},
		Open: func(_ context.Context, r *rig.Rig, s contest.Scale) (*contest.Contest, error) {
			g := groupChat{members: s.Pick(5000, 50), messages: s.Pick(20, 2)}
			return contest.Of(
				contest.Side{Name: one, Says: g.String(), Run: func(ctx context.Context) ([]measure.Measure, error) { return g.run(ctx, r, false) }},
				contest.Side{Name: single, Says: g.String() + "; appended 5,000 at once", Run: func(ctx context.Context) ([]measure.Measure, error) { return g.run(ctx, r, true) }},
			)
		},
	}
}

// groupChat is a group and the number of messages sent to it. Each is sent
// once the one before counts for all members.
type groupChat struct{ members, messages int }

// String describes the group.
func (g groupChat) String() string {
	return fmt.Sprintf("%d messages, one after the other, to %d members", g.messages, g.members)
}

func (g groupChat) run(ctx context.Context, r *rig.Rig, single bool) (_ []measure.Measure, err error) {
	url, drop, err := r.Database(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, drop(context.WithoutCancel(ctx))) }()
	server, err := ways.Embed(ctx, url)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Close(context.WithoutCancel(ctx))) }()

	// The first message inserts the rows; the others only update them.
	witnesses := server.Witnesses(g.users())
	if err := g.send(ctx, server, witnesses, 1, single); err != nil {
		return nil, err
	}
	logged, err := logBytes(ctx, url, server.Log.Partitions())
	if err != nil {
		return nil, err
	}
	used, err := r.Meter(ctx, func(ctx context.Context) (int, error) {
		for seq := range g.messages {
			if err := g.send(ctx, server, witnesses, seq+2, single); err != nil {
				return 0, err
			}
		}
		return g.messages, nil
	})
	if err != nil {
		return nil, err
	}
	after, err := logBytes(ctx, url, server.Log.Partitions())
	if err != nil {
		return nil, err
	}
	measures := append(used.All(), measure.Of("log", "bytes/message", float64(after-logged)/float64(g.messages)))
	return measures, g.check(ctx, server)
}

// send publishes a message and waits until it counts for all members.
func (g groupChat) send(ctx context.Context, server *ways.Embedded, witnesses []string, seq int, single bool) error {
	message := events.Event{
		ID: fmt.Sprintf("m-%d", seq), Source: ways.EventSource, Type: events.MessageDelivered, Time: time.Now(),
		Data: events.Data{ConversationID: "group", Seq: int64(seq), SenderID: "somebody", UserIDs: g.users()},
	}
	batch := []events.Event{message}
	if single {
		batch = batch[:0]
		for _, user := range message.Data.UserIDs {
			e := message
			e.ID += "/" + user
			e.Data.UserIDs = []string{user}
			batch = append(batch, e)
		}
	}
	return server.Deliver(ctx, batch, witnesses)
}

func (g groupChat) users() []string {
	users := make([]string, g.members)
	for i := range users {
		users[i] = stream.UserID(int32(i))
	}
	return users
}

func (g groupChat) check(ctx context.Context, server *ways.Embedded) error {
	got, err := server.API.Totals(ctx, g.users())
	if err != nil {
		return err
	}
	want := map[string]int64{}
	for _, u := range g.users() {
		want[u] = int64(g.messages) + 1
	}
	return measure.Check(got, want)
}

// logBytes returns the size of the log's tables without indexes.
func logBytes(ctx context.Context, database string, partitions int) (total int64, err error) {
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	for p := range partitions {
		var bytes int64
		err := conn.QueryRow(ctx, `SELECT coalesce(sum(pg_column_size(log)), 0) FROM badged.`+events.Topic(p)+` AS log`).Scan(&bytes)
		if err != nil {
			return 0, fmt.Errorf("size of partition %d of the log: %w", p, err)
		}
		total += bytes
	}
	return total, nil
}
