package outbound

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
)

// What webhooks may be told.
const (
	BadgeChanged     = "badge.changed"
	RoomChanged      = "room.changed" // comes with BadgeChanged
	UnreadReminder   = "unread.reminder"
	DeadletterBuried = "deadletter.buried"
	DriftFound       = "drift.found"
)

// State is whether a webhook is called.
type State string

// The states. What changes for a paused webhook is kept; a disabled one is told
// nothing of what changes meanwhile.
const (
	Active   State = "active"
	Paused   State = "paused"
	Disabled State = "disabled"
)

// WebhookSettings are what operators say of a webhook.
type WebhookSettings struct {
	Name, URL string
	// Secrets are sealed or not. The first signs.
	Secrets [][]byte
	// Events are the types of events that are wanted; RoomChanged is not named.
	Events []string
	// Categories are those that are told; nil for all.
	Categories []string
	// Batch is the most users in one call, 1 to 100.
	Batch int
	// Rate is the most calls a minute that the endpoint permits; 0 is no limit.
	Rate  int
	State State
	// Declared says that a file of the configuration has the settings.
	Declared bool
}

// Webhook is an endpoint.
type Webhook struct {
	WebhookSettings
	// Generation is another with each change of the settings.
	Generation           int64
	CreatedAt, UpdatedAt time.Time
	Ladder
}

// Ladder is what became of the calls of a webhook.
type Ladder struct {
	// Step is 0 while calls succeed, and grows with each call that fails.
	Step int
	// Due is when the next call may be made; nil for now.
	Due *time.Time
	// FailingSince is when the first call failed since the last success.
	FailingSince                 *time.Time
	LastSuccessAt, LastFailureAt *time.Time
	// LastStatus is that of HTTP; nil if there was no answer.
	LastStatus *int
	LastError  *string
}

func (w *Webhook) targets() []any {
	return []any{
		&w.Name, &w.URL, &w.Secrets, &w.Events, &w.Categories, &w.Batch, &w.Rate, &w.State, &w.Declared,
		&w.Generation, &w.CreatedAt, &w.UpdatedAt,
		&w.Step, &w.Due, &w.FailingSince, &w.LastSuccessAt, &w.LastFailureAt, &w.LastStatus, &w.LastError,
	}
}

// PutWebhook stores a webhook in place of the one with a generation, or a new one if
// that is 0. It begins at the bottom of its ladder: if it is active, all that it was not
// told is due. The error is [ErrChanged] if another is stored.
func (t *Targets) PutWebhook(ctx context.Context, w WebhookSettings, generation int64) error {
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
	var w Webhook
	err := t.pool.QueryRow(ctx, statements.Get("read a webhook"), name).Scan(w.targets()...)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNotFound
	}
	if err != nil {
		return Webhook{}, fmt.Errorf("read webhook %q: %w", name, err)
	}
	return w, nil
}

// Webhooks returns all webhooks, in the order of their names.
func (t *Targets) Webhooks(ctx context.Context) ([]Webhook, error) {
	rows, _ := t.pool.Query(ctx, statements.Get("list webhooks"))
	webhooks, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (w Webhook, err error) { return w, row.Scan(w.targets()...) })
	if err != nil {
		return nil, fmt.Errorf("list webhooks: %w", err)
	}
	return webhooks, nil
}

// MaxDue is up to how many rows of its queue DueEvents counts for a webhook.
const MaxDue = 10_000

// DueEvents returns how many events are due for webhooks: the events of the log behind the
// position of each webhook, and the rows of its queue, of which at most [MaxDue] are counted.
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

// DeleteWebhook deletes a webhook with what is queued for it, or returns
// [ErrNotFound].
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

// RecordCall stores what became of a call: where the webhook is on its ladder, and
// its state, unless the webhook is paused or disabled already. If the settings have changed
// since generation, it stores only when a call succeeded, and only if the URL is the same.
func (t *Targets) RecordCall(ctx context.Context, name, url string, generation int64, state State, l Ladder) error {
	tag, err := t.pool.Exec(ctx, statements.Get("record a call"), name, generation, state,
		l.Step, l.Due, l.FailingSince, l.LastSuccessAt, l.LastFailureAt, l.LastStatus, l.LastError)
	if err == nil && tag.RowsAffected() == 0 && l.LastSuccessAt != nil && l.LastError == nil {
		_, err = t.pool.Exec(ctx, statements.Get("record an earlier success"), name, url, l.LastSuccessAt, l.LastStatus)
	}
	if err != nil {
		return fmt.Errorf("record the call of webhook %q: %w", name, err)
	}
	return nil
}

// Enqueue makes subjects of a type due for the webhooks that want it. They belong to
// a partition: that of the user, or of the dead letter.
func (t *Targets) Enqueue(ctx context.Context, partition int, eventType string, subjects ...string) error {
	_, err := t.pool.Exec(ctx, statements.Of(partition, "enqueue subjects"), partition, eventType, subjects)
	if err != nil {
		return fmt.Errorf("queue %s for webhooks: %w", eventType, err)
	}
	return nil
}
