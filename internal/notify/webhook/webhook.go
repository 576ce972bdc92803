// Package webhook calls the endpoints of other backends when something changed, by the
// Standard Webhooks specification with CloudEvents as bodies.
//
// A failed call is repeated after growing waits, the ladder. After about two days of failures
// the webhook is paused. Each call sends the newest state.
//
// The package does not know the log or tables: it declares the interface of its queue. ADR 139
// has the reasons.
package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/badged/badged/internal/base/defaults"
	"github.com/badged/badged/pubsub"
)

// The types of events.
const (
	BadgeChanged     = "badge.changed"
	RoomChanged      = "room.changed"
	UnreadReminder   = "unread.reminder"
	DeadletterBuried = "deadletter.buried"
	DriftFound       = "drift.found"
	// Test is the type of the events of [Caller.Test].
	Test = "webhook.test"
)

// State says whether a webhook is called.
type State string

// The states. Changes while a webhook is paused are sent when it is active again. Changes
// while a webhook is disabled are never sent.
const (
	Active   State = "active"
	Paused   State = "paused"
	Disabled State = "disabled"
)

// Webhook is an endpoint with its settings and the results of its calls.
type Webhook struct {
	Name string
	// Generation is a new number after each change of the settings.
	Generation int64
	URL        string
	// Secrets all sign each call, so that receivers can verify with any of them.
	Secrets [][]byte
	// Categories are the categories whose numbers are sent; nil for all.
	Categories []string
	// Batch is the most events of a call. If it is more than 1, bodies are JSON arrays.
	Batch int
	// Rate is the most calls per minute that the endpoint permits; 0 means no limit.
	Rate  int
	State State
	Ladder
}

// Ladder is the state of the retries of a webhook.
type Ladder struct {
	// Step is 0 while calls succeed, and grows with failed calls.
	Step int
	// Due is when the next call may be made; zero for now.
	Due time.Time
	// FailingSince is the time of the first failed call since the last success.
	FailingSince                 time.Time
	LastSuccessAt, LastFailureAt time.Time
	// LastStatus is the status of the last answer; 0 if there was no answer.
	LastStatus int
	// LastError can be shown to anyone. It is "" if the last call succeeded.
	LastError string
}

// Change is a changed subject, about which a webhook must get an event.
type Change struct {
	Partition int
	// Type is the type of the event.
	Type string
	// Subject is what changed: the id of a user, of a room or of a dead letter.
	Subject string
	// QueuedAt is when the subject changed.
	QueuedAt time.Time
	// Attempts is how many calls about the change failed.
	Attempts int
	// Badge is the current badge of the user, if the subject is a user.
	Badge *pubsub.Badge
	// Room is the current state of the room, if the subject is a room.
	Room *Room
	// Letter is the dead letter, if the subject is a dead letter that still exists.
	Letter *DeadLetter
	// Told is the Tell of the last call about a reminder; nil if there was none.
	Told json.RawMessage
	// Tell is the state of a reminder after the call. Same is set if Tell equals Told. The
	// sender sets both.
	Tell json.RawMessage
	Same bool
	// Again is the time after which the change is due again, even if nothing changes; 0 for
	// never. The sender sets it.
	Again time.Duration
	// Ref belongs to the queue.
	Ref any
}

// Room is the state of a room with many members.
type Room struct {
	ConversationID string `json:"conversation_id"`
	Category       string `json:"category"`
	Epoch          string `json:"epoch"`
	// Version grows with each change of the room in a partition.
	Version int64 `json:"version"`
	LastSeq int64 `json:"last_seq"`
	Members int64 `json:"members"`
}

// DeadLetter is an event that could not be folded, or a broker's message that is no event.
type DeadLetter struct {
	ID int64 `json:"id"`
	// Partition and Position say where it is in the log, Origin where it is in the broker.
	Partition *int      `json:"partition,omitempty"`
	Position  string    `json:"position,omitempty"`
	Origin    string    `json:"origin,omitempty"`
	Reason    string    `json:"reason"`
	At        time.Time `json:"at"`
}

// Queue returns changes that are due, and gets reports. It is safe for concurrent use.
type Queue interface {
	// Next returns up to limit changes that are due for a webhook. It blocks until a change is
	// due; its only error is the error of ctx. The sender reports each change by one call of
	// Told, Retry or Hold, which do not block. Until then Next does not return the change
	// again.
	Next(ctx context.Context, webhook string, limit int) ([]Change, error)
	// Told reports that a change was sent, or need not be sent. The change is due again when
	// the subject changes and, unless again is 0, after that time.
	Told(c Change, again time.Duration)
	// Retry reports that a call about a change failed. The change is due again after the given
	// time. refused says that the failure may be due to this change alone.
	Retry(c Change, after time.Duration, refused bool)
	// Accepted reports that a webhook has accepted a call. Changes that the webhook refused
	// earlier no longer delay other changes.
	Accepted(webhook string)
	// Renewed reports that a webhook has new settings: changes that wait for a retry are due.
	Renewed(webhook string)
	// Hold reports that no call was tried. The change is due again after the given time.
	Hold(c Change, after time.Duration)
}

// Store stores webhooks. It is safe for concurrent use.
type Store interface {
	// Webhooks returns all webhooks.
	Webhooks(ctx context.Context) ([]Webhook, error)
	// Record stores the ladder of a webhook, and its state unless the webhook is paused or
	// disabled already. If the stored webhook has another generation, Record stores only a
	// success, and only if the URL is the same.
	Record(ctx context.Context, w Webhook) error
}

// Config configures a Sender. Queue, Store and Caller are required.
type Config struct {
	Queue  Queue
	Store  Store
	Caller *Caller
	// Now returns the time of the store, by which ladders are computed. Default time.Now.
	Now func() time.Time
	// Logger defaults to a logger that discards everything.
	Logger *slog.Logger
	// Metrics defaults to metrics that are not registered.
	Metrics *Metrics

	// RemindAfter is, by category, how long messages must be unread before an unread.reminder.
	// See [OtherCategories]. Categories without a value get no reminders.
	RemindAfter map[string]time.Duration
	// Calls is the most concurrent calls to a webhook. Default 32.
	Calls int
	// RefreshInterval is how often webhooks are read. Default 1s.
	RefreshInterval time.Duration
	// StopTimeout is how long a stopping sender waits for calls in progress. Default 5s.
	StopTimeout time.Duration
}

// Sender sends events to webhooks.
type Sender struct {
	cfg Config
	log *slog.Logger
}

// New returns a sender that does nothing until Run, or an error if a required field is
// missing.
func New(cfg Config) (*Sender, error) {
	if cfg.Queue == nil || cfg.Store == nil || cfg.Caller == nil {
		return nil, errors.New("webhook: Queue, Store and Caller are required")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics(nil)
	}
	if err := cmp.Or(
		defaults.Set("Calls", &cfg.Calls, 32),
		defaults.Set("RefreshInterval", &cfg.RefreshInterval, time.Second),
		defaults.Set("StopTimeout", &cfg.StopTimeout, 5*time.Second),
	); err != nil {
		return nil, fmt.Errorf("webhook: %w", err)
	}
	return &Sender{cfg: cfg, log: cfg.Logger}, nil
}

// Run sends until ctx is done. Then it waits for the calls in progress and returns nil.
func (s *Sender) Run(ctx context.Context) error {
	s.feedAll(ctx)
	return nil
}
