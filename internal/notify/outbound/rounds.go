package outbound

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// MaxPromptMembers is the number of members in a partition above which the rounds of a room need a
// pause. A round makes the devices of all members due. If a room has more members, two rounds begin
// at least RoomInterval apart.
const MaxPromptMembers = 1000

// MaxToldMembers separates small rooms from large rooms, by the number of members in a partition.
// When a small room changes, webhooks get an event about each member. When a room with more members
// changes, they get one event about the room instead: events about forty members cost as much as
// publishing the message.
const MaxToldMembers = 50

// rooms schedules a round for each of the given rooms: the round makes the devices of the members
// due, page by page. rooms also stores the notifications in posts, which the rounds copy to the
// devices.
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

// room is a round through the members of a room. changed is true if the room has changed since the
// last round began. began is the time at which the round began; it is nil if the round has not
// begun. after is the last member whose devices were made due. members is the number of members
// in the partition.
type room struct {
	id      string
	changed bool
	began   *time.Time
	after   *string
	members int64
}

// round does one step of telling a changed room's members. A round of a room visits all members
// page by page. Each step marks the devices of one page of members as due for a push. The first
// step also begins the round, and the last step ends it. round takes the room whose round has
// waited longest. If the room has not changed since its last round began, round only deletes the
// room from the table of rounds.
func (w *worker) round(ctx context.Context) error {
	err := w.marking(ctx, func(m *marking) error {
		var r room
		// If no row is found, another notifier has locked the row and does the step.
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

// page makes the devices of the next page of members due, and stores the last member of the page.
// After the last page, it ends the round.
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
