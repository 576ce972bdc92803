package importing

import (
	"context"
	"fmt"
	"hash/maphash"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/badges"
)

// Touched reads the log. For each event that no import published, it calls the function `visit`
// with the users and the conversation of the event. An empty conversation means all conversations
// of the users.
type Touched func(ctx context.Context, visit func(users []string, conversation string)) error

// others is the set of the pairs (user, conversation) that were changed by events which no import
// published.
type others struct {
	seed  maphash.Seed
	pairs map[uint64]struct{}
}

func newOthers(ctx context.Context, touched Touched) (*others, error) {
	o := &others{maphash.MakeSeed(), map[uint64]struct{}{}}
	return o, touched(ctx, func(users []string, conversation string) {
		for _, u := range users {
			o.pairs[o.pair(u, conversation)] = struct{}{}
		}
	})
}

func (o *others) pair(user, conversation string) uint64 {
	return maphash.String(o.seed, user+"\x00"+conversation)
}

func (o *others) has(user, conversation string) bool {
	_, one := o.pairs[o.pair(user, conversation)]
	_, all := o.pairs[o.pair(user, "")]
	return one || all
}

// undo reverts the imports of the files: it makes the conversations empty again. It does not revert
// a row if the tables differ from the row, or if events of other sources have changed the
// conversation for the user.
func (im *importer) undo(ctx context.Context) error {
	im.meter.Begin("read the log", 0, false)
	touched, err := newOthers(ctx, im.cfg.Touched)
	if err != nil {
		return fmt.Errorf("find events that no import published: %w", err)
	}
	err = im.publish(ctx, func(p *plan, rows []located, now []badges.Stored) error {
		for i := range rows {
			r := &rows[i]
			if r.isUndone(&now[i]) {
				continue
			}
			refused := r.differences(r.file, &now[i])
			if len(refused) == 0 && touched.has(r.UserID, r.ConversationID) {
				refused = []Difference{{r.file, r.Line, r.UserID, r.ConversationID, eventsField, "only the import's", "others too"}}
			}
			if err := im.report(refused); err != nil {
				return err
			}
			if len(refused) == 0 {
				im.summary.Undone++
				p.undo(&r.Row)
			}
		}
		return nil
	})
	if err != nil || im.cfg.DryRun {
		return err
	}
	if err := im.settle(ctx); err != nil {
		return err
	}
	im.meter.Begin("compare", im.size, false)
	var left int64
	err = im.chunks(ctx, func(rows []located, now []badges.Stored, done int64) error {
		im.meter.Advance(done, 0)
		for i := range rows {
			if !rows[i].isUndone(&now[i]) {
				left++
			}
		}
		return nil
	})
	if more := left - im.summary.RowsDifferent; err == nil && more > 0 {
		err = fmt.Errorf("%d conversations have changed since they were undone; do not import or undo while users are active", more)
	}
	return err
}

// isUndone reports whether the tables have no state for the user and conversation of a row.
func (r *Row) isUndone(now *badges.Stored) bool {
	nothing := Row{UserID: r.UserID, ConversationID: r.ConversationID, Level: events.LevelDefault}
	return len(nothing.differences("", now)) == 0
}

// undoing is the value of `since` in the changes of an undo. So the events of an undo have other
// ids than the events of imports.
const undoing = -1

// undo adds the changes that revert a row. A read clears the user's mark, and a reset deletes the
// messages.
func (p *plan) undo(r *Row) {
	base := change{conversationID: r.ConversationID, since: undoing}
	if r.Level != events.LevelDefault {
		c := base
		c.level = events.LevelDefault
		p.add(0, c, r.UserID)
	}
	if r.MarkedUnread {
		c := base
		c.seq = max(1, r.ReadSeq, r.LastSeq)
		p.add(1, c, r.UserID)
	}
	p.add(len(stages)-1, base, r.UserID)
}
