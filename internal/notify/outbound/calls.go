package outbound

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/pg/dbclock"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
)

// Call is a subject, such as a user or a room, about which a webhook may have to be called.
type Call struct {
	Partition              int
	Webhook, Type, Subject string
	// Changes is the number of changes in the row of the queue when NextCalls read it.
	Changes  int64
	Attempts int
	// QueuedAt is the time of the oldest change that was not sent to the webhook. A time that was
	// stored while a clock was wrong is not reliable. So for a reminder, QueuedAt is never before
	// the time at which the clocks of this process and of Postgres agreed again.
	QueuedAt time.Time
	// Badge is the current badge of the user if the subject is a user. It includes the change
	// that made the call due.
	Badge *pubsub.Badge
	// Room is the state of the room, if the subject is a room.
	Room *RoomState
	// Letter is the dead letter, if the subject is a dead letter that still exists.
	Letter *DeadLetter
	// SentState is the NewState that was stored after the last call about this reminder; nil if
	// there was no call.
	SentState json.RawMessage
	// NewState is the state of a reminder to store after the call. Unchanged is true if NewState
	// equals SentState. RepeatAfter is the duration after which the reminder is due again, even if
	// the user does not change; 0 means only after a change. The sender sets all three fields.
	NewState    json.RawMessage
	Unchanged   bool
	RepeatAfter time.Duration
	// subject is set if the call comes from events of the log; it is nil if the call comes from a
	// row of the queue.
	subject *subject
}

// RoomState is the data that a webhook gets about a large room.
type RoomState struct {
	ConversationID string `json:"conversation_id"`
	Category       string `json:"category"`
	Epoch          string `json:"epoch"`
	// Version grows with each change of the room's row in the partition. Members counts only the
	// members who belong to this partition.
	Version int64 `json:"version"`
	LastSeq int64 `json:"last_seq"`
	Members int64 `json:"members"`
}

// DeadLetter is the data that a webhook gets about an event that could not be folded.
type DeadLetter struct {
	ID int64 `json:"id"`
	// Partition and Position are the place of the event in the log. If the dead letter is a
	// message of a broker, Partition is nil, Position is "", and Origin is the message's place in
	// the broker.
	Partition *int      `json:"partition,omitempty"`
	Position  string    `json:"position,omitempty"`
	Origin    string    `json:"origin,omitempty"`
	Reason    string    `json:"reason"`
	At        time.Time `json:"at"`
}

func (c *Call) queueKey() queueKey { return queueKey{name: c.Webhook} }
func (c *Call) row() row           { return row{c.Partition, c.Type, c.Subject} }

// NextCalls returns up to limit subjects that are due for a webhook. The subjects come from the
// webhook's queue, and from events of the log after the webhook's position. NextCalls blocks until
// a subject is due; the only error is the error of ctx. It returns subjects even if the webhook is
// paused. For each subject, report the result with one of CallTold, CallRetry and CallHold.
func (n *Notifier) NextCalls(ctx context.Context, webhook string, limit int) ([]Call, error) {
	l := queueKey{name: webhook}
	limit = min(limit, badges.MaxBadges)
	return claim(ctx, n, l, func(partition int, taken []row) ([]Call, error) {
		due, more, err := n.dueCalls(ctx, n.readers.reader(webhook, partition), taken, limit)
		if err != nil {
			return nil, fmt.Errorf("read what is due for webhook %q: %w", webhook, err)
		}
		rows := make([]row, 0, len(due))
		for i := range due {
			if !due[i].repeats() {
				rows = append(rows, due[i].row())
			}
		}
		n.queues.start(l, partition, rows, more)
		return due, nil
	})
}

// repeats reports whether NextCalls may return another call about the same subject before the
// result of this call is reported. For calls about badges from the log, another call is harmless:
// each call sends the newest badge, and no row of the queue is stored.
func (c *Call) repeats() bool { return c.subject != nil && c.Type == BadgeChanged }

// agreedAt returns the time at which the clocks of the process and of Postgres agreed again after
// they had differed by too much. It is zero if they have never differed.
func (n *Notifier) agreedAt() time.Time {
	n.clocks.mu.Lock()
	defer n.clocks.mu.Unlock()
	switch differ := n.cfg.Clock.Check() != nil; {
	case differ:
		n.clocks.differed = true
	case n.clocks.differed:
		n.clocks.differed, n.clocks.agreedAt = false, n.cfg.Clock.Now()
	}
	return n.clocks.agreedAt
}

// dueCalls returns up to limit calls that are due for a webhook in a partition. It omits the rows
// in taken, which senders are processing. more is true if further calls may be due.
func (n *Notifier) dueCalls(ctx context.Context, r *reader, taken []row, limit int) (due []Call, more bool, err error) {
	now := time.Now()
	if r.full || now.Sub(r.lookedAt) >= n.cfg.IdleInterval {
		if due, err = n.queuedCalls(ctx, r, append(taken, r.heldRows(now)...), limit); err != nil {
			return nil, false, err
		}
		r.lookedAt, r.full = now, len(due) == limit
		r.setBehind(true)
	}
	isTaken := make(map[row]struct{}, len(taken))
	for _, t := range taken {
		isTaken[t] = struct{}{}
	}
	for i := range due {
		isTaken[due[i].row()] = struct{}{}
	}
	more = r.full
	for len(due) < limit {
		subjects := r.take(limit-len(due), isTaken, now)
		if len(subjects) == 0 && r.isFull() {
			break
		}
		if len(subjects) == 0 {
			read, err := n.readOn(ctx, r)
			if err != nil && len(due) == 0 {
				return nil, false, err
			}
			if err != nil || !read {
				break
			}
			continue
		}
		for _, s := range subjects {
			due = append(due, Call{Partition: r.partition, Webhook: r.webhook, Type: s.kind, Subject: s.name, Attempts: s.attempts, QueuedAt: s.queuedAt, subject: s})
		}
		more = true
	}
	due, err = n.addStates(ctx, r, due)
	return due, more, err
}

func (n *Notifier) queuedCalls(ctx context.Context, r *reader, taken []row, limit int) ([]Call, error) {
	types, subjects := columns(taken)
	rows, _ := n.cfg.Pool.Query(ctx, statements.Of(r.partition, "read due calls"), r.webhook, types, subjects, limit,
		n.cfg.LongestReminder, time.Now(), dbclock.MaxDifference)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (Call, error) {
		c := Call{Partition: r.partition, Webhook: r.webhook}
		return c, row.Scan(&c.Type, &c.Subject, &c.Changes, &c.Attempts, &c.QueuedAt, &c.SentState)
	})
}

// addStates adds to each call in due the current state of its subject, such as the badge. It
// returns the calls to make now (left). If the clocks of the process and of Postgres differ, left
// omits the reminders that come from events of the log. After an error, left is empty. The omitted
// calls remain due.
func (n *Notifier) addStates(ctx context.Context, r *reader, due []Call) (left []Call, err error) {
	if len(due) == 0 {
		return nil, nil
	}
	agree, err := n.statesOf(ctx, r, due)
	if err == nil && agree {
		return due, nil
	}
	for _, c := range due {
		switch {
		case err == nil && (c.Type != UnreadReminder || c.subject == nil):
			left = append(left, c)
		case c.subject != nil:
			r.giveBack(c.subject, time.Now().Add(n.cfg.IdleInterval))
		}
	}
	return left, err
}

// statesOf adds to each call the state of its subject. agree reports whether the clocks of the
// process and of Postgres agree: otherwise no reminder may be sent, because it could be too early
// and cannot be undone.
func (n *Notifier) statesOf(ctx context.Context, r *reader, due []Call) (agree bool, err error) {
	agreedAt := n.agreedAt()
	var users, unread, rooms []string
	var letters []int64
	for i := range due {
		c := &due[i]
		switch c.Type {
		case UnreadReminder:
			if c.QueuedAt.Before(agreedAt) {
				c.QueuedAt = agreedAt
			}
			if c.subject != nil {
				unread = append(unread, c.Subject)
			}
			users = append(users, c.Subject)
		case BadgeChanged, DriftFound:
			users = append(users, c.Subject)
		case RoomChanged:
			rooms = append(rooms, c.Subject)
		case DeadletterBuried:
			if id, err := strconv.ParseInt(c.Subject, 10, 64); err == nil {
				letters = append(letters, id)
			}
		}
	}
	badgeOf, err := n.badgesOf(ctx, sortedUnique(users))
	if err != nil {
		return false, err
	}
	toldOf, agree, err := n.unreadOf(ctx, r, unread)
	if err != nil {
		return false, err
	}
	roomOf, err := n.roomsOf(ctx, r.partition, rooms)
	if err != nil {
		return false, err
	}
	letterOf, err := n.lettersOf(ctx, letters)
	if err != nil {
		return false, err
	}
	for i := range due {
		switch c := &due[i]; c.Type {
		case RoomChanged:
			c.Room = roomOf[c.Subject]
		case DeadletterBuried:
			c.Letter = letterOf[c.Subject]
		default:
			c.Badge = badgeOf[c.Subject]
			if c.Type == UnreadReminder && c.subject != nil {
				c.SentState = toldOf[c.Subject]
			}
		}
	}
	return agree, nil
}

// unreadOf returns the stored states of reminders by user. agree reports whether the clocks of
// the process and of Postgres agree.
func (n *Notifier) unreadOf(ctx context.Context, r *reader, users []string) (states map[string]json.RawMessage, agree bool, err error) {
	agree = true
	if len(users) == 0 {
		return nil, agree, nil
	}
	states = make(map[string]json.RawMessage, len(users))
	var user string
	var told json.RawMessage
	rows, _ := n.cfg.Pool.Query(ctx, statements.Of(r.partition, "read what was unread"), r.webhook, users, time.Now(), dbclock.MaxDifference)
	_, err = pgx.ForEachRow(rows, []any{&user, &told, &agree}, func() error {
		states[user], told = told, nil
		return nil
	})
	return states, agree, err
}

// lettersOf returns dead letters by their ids.
func (n *Notifier) lettersOf(ctx context.Context, ids []int64) (map[string]*DeadLetter, error) {
	if len(ids) == 0 {
		return nil, nil //nolint:nilnil // an empty map
	}
	of := make(map[string]*DeadLetter, len(ids))
	var l DeadLetter
	rows, _ := n.cfg.Pool.Query(ctx, statements.Get("read dead letters"), ids)
	_, err := pgx.ForEachRow(rows, []any{&l.ID, &l.Partition, &l.Position, &l.Origin, &l.Reason, &l.At}, func() error {
		letter := l
		of[strconv.FormatInt(l.ID, 10)] = &letter
		return nil
	})
	return of, err
}

func (n *Notifier) badgesOf(ctx context.Context, users []string) (map[string]*pubsub.Badge, error) {
	if len(users) == 0 {
		return nil, nil //nolint:nilnil // an empty map
	}
	all, err := n.tables.Badges(ctx, users)
	of := make(map[string]*pubsub.Badge, len(all))
	for i := range all {
		of[all[i].UserID] = &all[i]
	}
	return of, err
}

func (n *Notifier) roomsOf(ctx context.Context, partition int, rooms []string) (map[string]*RoomState, error) {
	if len(rooms) == 0 {
		return nil, nil //nolint:nilnil // an empty map
	}
	of := make(map[string]*RoomState, len(rooms))
	var r RoomState
	rows, _ := n.cfg.Pool.Query(ctx, statements.Of(partition, "read rooms"), partition, rooms)
	_, err := pgx.ForEachRow(rows, []any{&r.ConversationID, &r.Category, &r.Epoch, &r.Version, &r.LastSeq, &r.Members}, func() error {
		room := r
		of[r.ConversationID] = &room
		return nil
	})
	return of, err
}

// storeCalls stores the results of calls; all results have the kind b.kind. If a call needs no
// retry and there is no state of a reminder to store, storeCalls deletes the call's row from the
// queue, if there is one. Otherwise it updates the row or, if the call comes from the log, adds a
// row.
func storeCalls(ctx context.Context, tx pgx.Tx, b batch, calls []report) error {
	var queued, gone, kept, failed callRows
	for i := range calls {
		switch c := &calls[i].call; {
		case b.kind == callRetry:
			failed.add(&calls[i])
		case b.kind == callTold && (c.Type != UnreadReminder || len(c.NewState) == 0):
			gone.add(&calls[i])
		case c.subject != nil:
			queued.add(&calls[i])
		default:
			kept.add(&calls[i])
		}
	}
	name := b.queue.name
	var batch pgx.Batch
	if len(gone.types) > 0 {
		batch.Queue(statements.Of(b.partition, "delete told calls"), name, gone.types, gone.subjects, gone.changes)
		kept.join(&gone) // a row that was queued again meanwhile is not deleted: make it due
	}
	if len(kept.types) > 0 {
		batch.Queue(statements.Of(b.partition, "store told calls"), name, kept.types, kept.subjects, kept.changes, kept.told, kept.delays)
	}
	if len(failed.types) > 0 {
		batch.Queue(statements.Of(b.partition, "store calls that were not made"), name, failed.types, failed.subjects, failed.delays)
	}
	if len(queued.types) > 0 {
		batch.Queue(statements.Of(b.partition, "queue calls"), b.partition, name, queued.types, queued.subjects, queued.queuedAt, queued.told, queued.delays, queued.attempts)
	}
	return tx.SendBatch(ctx, &batch).Close()
}

// callRows are rows of the queue as columns, for statements with arrays.
type callRows struct {
	types, subjects, told []string
	changes               []int64
	attempts              []int
	queuedAt              []time.Time
	delays                []time.Duration
}

func (r *callRows) add(one *report) {
	c := &one.call
	attempts := c.Attempts
	if one.kind == callTold {
		attempts = 0
	}
	r.types, r.subjects, r.told = append(r.types, c.Type), append(r.subjects, c.Subject), append(r.told, string(c.NewState))
	r.changes, r.attempts, r.queuedAt, r.delays = append(r.changes, c.Changes), append(r.attempts, attempts), append(r.queuedAt, c.QueuedAt), append(r.delays, one.delay)
}

// join appends the rows of `other`, but only the columns that the statement "store told calls"
// uses.
func (r *callRows) join(other *callRows) {
	r.types, r.subjects, r.told = append(r.types, other.types...), append(r.subjects, other.subjects...), append(r.told, other.told...)
	r.changes, r.delays = append(r.changes, other.changes...), append(r.delays, other.delays...)
}
