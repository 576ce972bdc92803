package outbound

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/badged/badged/events"
)

// The types of events that webhooks may want.
const (
	BadgeChanged     = "badge.changed"
	RoomChanged      = "room.changed" // sent for large rooms to webhooks that want BadgeChanged
	UnreadReminder   = "unread.reminder"
	DeadletterBuried = "deadletter.buried"
	DriftFound       = "drift.found"
)

// State says whether a webhook is called.
type State string

// These are the states of webhooks. If a subject changes while a webhook is paused, the change is
// sent when the webhook is active again. If a subject changes while a webhook is disabled, the
// change is never sent.
const (
	Active   State = "active"
	Paused   State = "paused"
	Disabled State = "disabled"
)

// Webhook is an endpoint with its settings and the results of its calls.
type Webhook struct {
	Name, URL string
	// Secrets are the keys of signatures. Each call has one signature for each secret, so a
	// receiver can verify the call with any of the secrets. In the tables they may be sealed
	// (encrypted).
	Secrets [][]byte
	// Events are the types of events that the webhook wants. It never contains RoomChanged: a
	// webhook that wants BadgeChanged also gets the events of the type RoomChanged.
	Events []string
	// Categories are the categories about which the webhook gets events; nil means all.
	Categories []string
	// Batch is the maximum number of events in one call, 1 to 100. If it exceeds 1, bodies are
	// JSON arrays.
	Batch int
	// Rate is the maximum number of calls per minute; 0 means no limit.
	Rate  int
	State State
	// Declared is true if the settings come from a configuration file.
	Declared bool
	// Generation changes with each change of the settings.
	Generation           int64
	CreatedAt, UpdatedAt time.Time
	Ladder
}

// Ladder has the results of a webhook's last calls, and the time of the next retry. A failed call
// is repeated after a wait, and the waits grow; the list of these waits is called the ladder.
type Ladder struct {
	// Step is the index of the current wait in the ladder; the first index is 1. It is 0 while
	// calls succeed.
	Step int
	// Due is the earliest time of the next call; zero means now.
	Due time.Time
	// FailingSince is the time of the first failed call since the last success.
	FailingSince                 time.Time
	LastSuccessAt, LastFailureAt time.Time
	// LastStatus is the HTTP status of the last call; 0 if the endpoint did not answer.
	LastStatus int
	// LastError is "" if the last call succeeded. Its text may be shown to any user.
	LastError string
}

func scanWebhook(row pgx.CollectableRow) (w Webhook, err error) {
	return w, row.Scan(&w.Name, &w.URL, &w.Secrets, &w.Events, &w.Categories, &w.Batch, &w.Rate, &w.State, &w.Declared,
		&w.Generation, &w.CreatedAt, &w.UpdatedAt,
		&w.Step, (*zeronull.Timestamptz)(&w.Due), (*zeronull.Timestamptz)(&w.FailingSince),
		(*zeronull.Timestamptz)(&w.LastSuccessAt), (*zeronull.Timestamptz)(&w.LastFailureAt), &w.LastStatus, &w.LastError)
}

// PutWebhook replaces the settings of a webhook, or adds a webhook if generation is 0. generation
// is the Generation that the caller has read: if the stored webhook has another generation,
// PutWebhook fails with [ErrChanged]. If the new state is active, all rows in the webhook's queue
// that are waiting for a retry become due.
func (t *Targets) PutWebhook(ctx context.Context, w Webhook, generation int64) error {
	err := pgx.BeginFunc(ctx, t.pool, func(tx pgx.Tx) error {
		sql, arguments := statements.Get("add a webhook"), []any{w.Name, w.URL, w.Secrets, w.Events, w.Categories, w.Batch, w.Rate, w.State, w.Declared}
		if generation != 0 {
			sql, arguments = statements.Get("replace a webhook"), append(arguments, generation)
		}
		tag, err := tx.Exec(ctx, sql, arguments...)
		if err == nil && tag.RowsAffected() == 0 {
			err = ErrChanged
		}
		if err != nil || w.State != Active {
			return err
		}
		_, err = tx.Exec(ctx, statements.Get("try a webhook again"), w.Name)
		return err
	})
	if err != nil {
		return fmt.Errorf("store webhook %q: %w", w.Name, err)
	}
	return nil
}

// Webhook returns a webhook, or [ErrNotFound].
func (t *Targets) Webhook(ctx context.Context, name string) (Webhook, error) {
	rows, _ := t.pool.Query(ctx, statements.Get("read a webhook"), name)
	w, err := pgx.CollectExactlyOneRow(rows, scanWebhook)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNotFound
	}
	if err != nil {
		return Webhook{}, fmt.Errorf("read webhook %q: %w", name, err)
	}
	return w, nil
}

// Webhooks returns all webhooks, sorted by name.
func (t *Targets) Webhooks(ctx context.Context) ([]Webhook, error) {
	rows, _ := t.pool.Query(ctx, statements.Get("list webhooks"))
	webhooks, err := pgx.CollectRows(rows, scanWebhook)
	if err != nil {
		return nil, fmt.Errorf("list webhooks: %w", err)
	}
	return webhooks, nil
}

// MaxDue is the maximum number of queue rows that DueEvents counts for a webhook.
const MaxDue = 10_000

// DueEvents returns the number of due events by webhook. It counts the folded events after the
// webhook's position in the log, and up to [MaxDue] due rows of the webhook's queue.
func (t *Targets) DueEvents(ctx context.Context, names ...string) (map[string]int64, error) {
	all := make(map[string]int64, len(names))
	var name string
	var n int64
	add := func() error {
		all[name] += n
		return nil
	}
	rows, _ := t.pool.Query(ctx, statements.Get("list the partitions"))
	held, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return nil, fmt.Errorf("list the partitions: %w", err)
	}
	groups := make([]string, len(names))
	for i := range names {
		groups[i] = webhookGroup(names[i])
	}
	each := make([]string, len(held))
	for i, p := range held {
		each[i] = statements.Of(p, "count events of the log")
	}
	rows, _ = t.pool.Query(ctx, statements.Get("count queued events"), names, MaxDue)
	_, err = pgx.ForEachRow(rows, []any{&name, &n}, add)
	if err == nil && len(held) > 0 {
		rows, _ = t.pool.Query(ctx, strings.Join(each, " UNION ALL "), events.ProjectorGroup, groups)
		_, err = pgx.ForEachRow(rows, []any{&name, &n}, add)
	}
	if err != nil {
		return nil, fmt.Errorf("count what is due for webhooks: %w", err)
	}
	return all, nil
}

// DeleteWebhook deletes a webhook and its queue. It returns [ErrNotFound] if the webhook does not
// exist.
func (t *Targets) DeleteWebhook(ctx context.Context, name string) error {
	tag, err := t.pool.Exec(ctx, statements.Get("delete a webhook"), name)
	if err == nil && tag.RowsAffected() == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("delete webhook %q: %w", name, err)
	}
	return nil
}

// RecordCall stores the Ladder of a webhook after a call. It also stores the State of the webhook,
// unless the stored state is paused or disabled. w has the settings with which the call was made:
// if the stored webhook has another generation, RecordCall stores only a success, and only if the
// URL is the same.
func (t *Targets) RecordCall(ctx context.Context, w Webhook) error {
	succeededAt := zeronull.Timestamptz(w.LastSuccessAt)
	tag, err := t.pool.Exec(ctx, statements.Get("record a call"), w.Name, w.Generation, w.State, w.Step, zeronull.Timestamptz(w.Due),
		zeronull.Timestamptz(w.FailingSince), succeededAt, zeronull.Timestamptz(w.LastFailureAt), w.LastStatus, w.LastError)
	if err == nil && tag.RowsAffected() == 0 && !w.LastSuccessAt.IsZero() && w.LastError == "" {
		_, err = t.pool.Exec(ctx, statements.Get("record an earlier success"), w.Name, w.URL, succeededAt, w.LastStatus)
	}
	if err != nil {
		return fmt.Errorf("record the call of webhook %q: %w", w.Name, err)
	}
	return nil
}

// Enqueue adds subjects to the queues of all webhooks that want the type of event. All subjects
// must belong to the given partition, which is the partition of the user or of the dead letter.
func (t *Targets) Enqueue(ctx context.Context, partition int, eventType string, subjects ...string) error {
	_, err := t.pool.Exec(ctx, statements.Of(partition, "enqueue subjects"), partition, eventType, subjects)
	if err != nil {
		return fmt.Errorf("queue %s for webhooks: %w", eventType, err)
	}
	return nil
}
