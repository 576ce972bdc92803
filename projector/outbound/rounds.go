package outbound

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// MaxPromptMembers is the most members of a room in a partition that are told without a
// pause between two rounds.
const MaxPromptMembers = 1000

// MaxToldMembers is the most members of a room in a partition that webhooks are told of one
// by one. Of a larger room they are told once, by its name: telling forty takes as long as
// publishing a message to a room.
const MaxToldMembers = 50

// rooms makes rounds through the members of rooms due, and keeps notifications for
// them.
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

// room is a round that is due or under way.
type room struct {
	id      string
	changed bool
	began   *time.Time
	after   *string
	members int64
}

// round does a step of the round that is due first: it begins, passes a page of
// members, or is over.
func (w *worker) round(ctx context.Context) error {
	err := w.marking(ctx, func(m *marking) error {
		var r room
		// Another notifier that has this row does the step.
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
		return fmt.Errorf("tell the members of a room in partition %d: %w", w.partition, err)
	}
	return nil
}

// page makes the devices of some members due, and stores how far the round is.
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
