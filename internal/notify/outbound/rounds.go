package outbound

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// MaxPromptMembers is the largest number of a room's members in one partition with which the
// rounds through the members follow each other without a pause.
const MaxPromptMembers = 1000

// MaxToldMembers is the largest number of a room's members in one partition with which webhooks
// get an event for each member. For a larger room, webhooks get one event with the room's name,
// since notifying a webhook about forty members costs as much as publishing the message.
const MaxToldMembers = 50

// rooms schedules a round through the members of each room in rooms. It stores the notifications
// in posts, which the rounds deliver to the devices.
func (m *marking) rooms(ctx context.Context, rooms []string, posts []alertRow) error {
	if len(rooms) == 0 {
		return nil
	}
	if _, err := m.tx.Exec(ctx, statements.Of(m.partition, "mark rooms"), m.partition, rooms); err != nil {
		return err
	}
	if len(posts) == 0 {
		return nil
	}
	_, err := m.tx.Exec(ctx, statements.Of(m.partition, "add alerts of rooms"), append([]any{m.partition}, alertArgs(posts)...)...)
	return err
}

// room is a round through the members of a room. changed is set if the room has changed since the
// round began. began is when the round began; nil if it is scheduled. after is the last member
// that was handled. members is the number of members in the partition.
type room struct {
	id      string
	changed bool
	began   *time.Time
	after   *string
	members int64
}

// round does one step of the round that is due first: it begins the round, handles a page of
// members, ends the round, or deletes it if the room has not changed since the last round.
func (w *worker) round(ctx context.Context) error {
	err := w.marking(ctx, func(m *marking) error {
		var r room
		// If no row is found, another notifier has locked it and does the step.
		err := m.tx.QueryRow(ctx, statements.Of(m.partition, "take a round"), m.cfg.RoomInterval).Scan(&r.id, &r.changed, &r.began, &r.after, &r.members)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		if r.began == nil && !r.changed {
			_, err := m.tx.Exec(ctx, statements.Of(m.partition, "forget a round"), r.id)
			return err
		}
		return m.page(ctx, &r)
	})
	if err != nil {
		return fmt.Errorf("notify the members of a room in partition %d: %w", w.partition, err)
	}
	return nil
}

// page makes the devices of the next members due, and stores the last member that it has handled.
func (m *marking) page(ctx context.Context, r *room) error {
	after := ""
	if r.began == nil {
		if _, err := m.tx.Exec(ctx, statements.Of(m.partition, "begin a round"), r.id); err != nil {
			return err
		}
	} else if r.after != nil {
		after = *r.after
	}
	rows, _ := m.tx.Query(ctx, statements.Of(m.partition, "page through members"), r.id, after, usersPage)
	users, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	if len(users) > 0 {
		if err := m.mark(ctx, &m.marked, statements.Of(m.partition, "mark devices"), users); err != nil {
			return err
		}
		if err := m.mark(ctx, new(int64), statements.Of(m.partition, "hand out alerts of a room"), m.partition, r.id, users); err != nil {
			return err
		}
	}
	if len(users) == usersPage {
		_, err := m.tx.Exec(ctx, statements.Of(m.partition, "continue a round"), r.id, users[len(users)-1])
		return err
	}
	pause := time.Duration(0)
	if r.members > MaxPromptMembers {
		pause = m.cfg.RoomInterval
	}
	if _, err := m.tx.Exec(ctx, statements.Of(m.partition, "forget alerts of a room"), r.id); err != nil {
		return err
	}
	_, err = m.tx.Exec(ctx, statements.Of(m.partition, "end a round"), r.id, pause)
	return err
}
