package outbound

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/logread"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/log/tombstones"
)

// changes has the users and rooms that events may have changed, and the notifications of the
// events.
type changes struct {
	// users are the users that events name. rooms are the rooms in which the badge of every
	// member may have changed. Both lists are sorted and without repeats, so that all
	// transactions lock rows in the same order.
	users, rooms []string
	// alerts has the notifications for single users. posts has the notifications for all members
	// of a room.
	alerts []alertRow
	posts  []alertRow
}

// gather returns the changes that events of a partition may have made. It skips an event that
// cannot be decoded, because such an event changes nothing.
func (w *worker) gather(records []events.Record) (c changes) {
	for i := range records {
		if records[i].Damage != nil {
			continue
		}
		e, err := events.Decode(tombstones.EventIn(records[i].Payload))
		if err != nil {
			continue
		}
		e.AppendedAt = records[i].AppendedAt
		switch {
		case e.Type.ToRoom():
			c.rooms, c.users = append(c.rooms, e.Data.ConversationID), append(c.users, w.usersIn(w.partition, e.Data.MentionedUserIDs)...)
		default:
			c.users = append(c.users, w.usersIn(w.partition, e.Data.UserIDs)...)
		}
		w.notify(&c, &e)
	}
	c.users, c.rooms = sortedUnique(c.users), sortedUnique(c.rooms)
	return c
}

// collect returns the changes that the projector of this process has reported.
func (w *worker) collect(s *lastBatches) changes {
	c := changes{users: slices.Sorted(maps.Keys(s.users)), rooms: slices.Sorted(maps.Keys(s.rooms))}
	for _, e := range s.notifying {
		w.notify(&c, e)
	}
	return c
}

// notify adds the notification of a message to c, if the message has a notification. Users that
// the message names, including mentioned members of a room, are notified at once. The other
// members of the room are notified by a round, which pages through the members.
func (w *worker) notify(c *changes, e *events.Event) {
	d := &e.Data
	if !d.Notifies() {
		return
	}
	users := d.UserIDs
	if e.Type == events.RoomPosted {
		c.posts = append(c.posts, alertRow{d.SenderID, d.MentionsAll, e.AppendedAt, d})
		users = d.MentionedUserIDs
	}
	for _, u := range w.usersIn(w.partition, users) {
		if u != d.SenderID {
			c.alerts = append(c.alerts, alertRow{u, slices.Contains(d.MentionedUserIDs, u), e.AppendedAt, d})
		}
	}
}

// usersIn returns the given users that belong to a partition.
func (n *Notifier) usersIn(partition int, users []string) []string {
	var all []string
	for _, u := range users {
		if eventlog.Belongs(u, partition, n.cfg.Layouts.Layout().First()) {
			all = append(all, u)
		}
	}
	return all
}

// next returns the changes between the notifier's position and the position `to`. It uses the
// reports of the projector if they cover the notifier's position; otherwise it reads a page of the
// log.
func (w *worker) next(ctx context.Context, s *partitionState) (c changes, to events.Position, err error) {
	if s.reported.covers(s.position, s.folded.Position) {
		return w.collect(&s.reported), s.reported.to, nil
	}
	records, err := logread.Folded(ctx, w.cfg.Pool, w.partition, s.position, s.folded, &w.size)
	if err != nil {
		return c, to, err
	}
	w.metrics.read.Add(float64(len(records)))
	to = s.folded.Position
	if len(records) > 0 {
		to = records[len(records)-1].Position
	}
	return w.gather(records), to, nil
}

// mark processes the next events after the notifier's position. The devices of all users whose
// badges these events may have changed become due, and the position moves past the events.
func (w *worker) mark(ctx context.Context, s *partitionState) error {
	c, to, err := w.next(ctx, s)
	if err != nil {
		return err
	}
	if err := w.marking(ctx, func(m *marking) error {
		if err := w.move(ctx, m.tx, s.position, to); err != nil {
			return err
		}
		if err := m.users(ctx, c.users); err != nil {
			return err
		}
		if err := m.alerts(ctx, c.alerts); err != nil {
			return err
		}
		return m.rooms(ctx, c.rooms, c.posts)
	}); err != nil {
		return fmt.Errorf("make the devices of the events up to %s of partition %d due: %w", to, w.partition, err)
	}
	s.caughtUp = to == s.folded.Position
	return nil
}

// marking is a transaction that makes devices due.
type marking struct {
	*worker
	tx pgx.Tx
	// touched has the queues of the devices that became due. marked is the number of these
	// devices.
	touched map[queueKey]struct{}
	marked  int64
}

// marking runs the function `do` in a transaction that makes devices due. After the commit, it
// makes the senders read the due devices of the partition.
func (w *worker) marking(ctx context.Context, do func(m *marking) error) error {
	m := marking{worker: w, touched: map[queueKey]struct{}{}}
	if err := w.transaction(ctx, func(tx pgx.Tx) error {
		m.tx = tx
		return do(&m)
	}); err != nil {
		return err
	}
	w.metrics.marked.Add(float64(m.marked))
	w.queues.markDue(w.partition, m.touched)
	return nil
}

// users makes the devices of users due.
func (m *marking) users(ctx context.Context, users []string) error {
	if len(users) == 0 {
		return nil
	}
	return m.mark(ctx, &m.marked, statements.Of(m.partition, "mark devices"), users)
}

// mark runs a statement that makes devices due. The statement returns the number of these devices
// for each queue; mark adds the numbers to total.
func (m *marking) mark(ctx context.Context, total *int64, sql string, args ...any) error {
	var l queueKey
	var n int64
	rows, _ := m.tx.Query(ctx, sql, args...)
	_, err := pgx.ForEachRow(rows, []any{&l.name, &l.platform, &n}, func() error {
		m.touched[l] = struct{}{}
		*total += n
		return nil
	})
	return err
}
