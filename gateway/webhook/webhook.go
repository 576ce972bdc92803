// Package webhook calls the endpoints of other backends when something
// changed, by the Standard Webhooks specification with CloudEvents as bodies.
//
// A call that fails is repeated by a ladder of waits, until the webhook is
// paused after two days. Each call tells the newest state.
//
// It does not know the log or tables: it declares the interface of its queue. ADR 139 has
// the reasons.
package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/badged/badged/internal/defaults"
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

// State is whether a webhook is called.
type State string

// The states. What changes while a webhook is paused is told when it is active
// again.
const (
	Active   State = "active"
	Paused   State = "paused"
	Disabled State = "disabled"
)

// Webhook is an endpoint, its settings, and what became of its calls.
type Webhook struct {
	Name string
	// Generation differs after each change of the settings.
	Generation int64
	URL        string
	// Secrets sign each call, all of them: receivers verify with any.
	Secrets [][]byte
	// Categories are those whose numbers are told; nil for all.
	Categories []string
	// Batch is the most events of a call. More than 1 makes bodies lists.
	Batch int
	// Rate is the most calls a minute that the endpoint permits; 0 is no limit.
	Rate  int
	State State
	Ladder
}

// Ladder is how far a webhook is on the ladder of retries.
type Ladder struct {
	// Step is 0 while calls succeed, and grows with each that fails.
	Step int
	// Due is when the next call may be made; zero for now.
	Due time.Time
	// FailingSince is when the first call failed since the last success.
	FailingSince                 time.Time
	LastSuccessAt, LastFailureAt time.Time
	// LastStatus is that of the last answer; 0 if there was none.
	LastStatus int
	// LastError is safe to show; "" if the last call succeeded.
	LastError string
}

// Change is a subject of which a webhook must be told.
type Change struct {
	Partition int
	// Type is the type of the event.
	Type string
	// Subject is what changed: a user, a room, or the place of a dead letter.
	Subject string
	// QueuedAt is when it changed.
	QueuedAt time.Time
	// Attempts is how many calls failed to tell it.
	Attempts int
	// Badge is the badge of the user now, if the subject is one.
	Badge *pubsub.Badge
	// Room is the room now, if the subject is one.
	Room *Room
	// Letter is the dead letter, if the subject is one that is still there.
	Letter *DeadLetter
	// Told is what Tell was in the last call about a reminder; nil if there was none.
	Told json.RawMessage
	// Tell is what is known of a reminder after the call, and Same is set if that is Told.
	// The sender sets both.
	Tell json.RawMessage
	Same bool
	// Again is when the change is due again after it was told, even if nothing
	// changes; 0 for never. The sender sets it.
	Again time.Duration
	// Ref is the queue's own.
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

// DeadLetter is an event that could not be folded, or a message of a broker that is
// none.
type DeadLetter struct {
	ID int64 `json:"id"`
	// Partition and Position are the place in the log, Origin the place in the broker.
	Partition *int      `json:"partition,omitempty"`
	Position  string    `json:"position,omitempty"`
	Origin    string    `json:"origin,omitempty"`
	Reason    string    `json:"reason"`
	At        time.Time `json:"at"`
}

// Queue hands out what webhooks have to be told. It is safe for concurrent use.
type Queue interface {
	// Next takes up to limit changes that are due for a webhook. It waits until
	// there is one; the only error is that of ctx. Each change is reported by one
	// call of Told, Retry or Hold, which do not block; until then it is not
	// taken again.
	Next(ctx context.Context, webhook string, limit int) ([]Change, error)
	// Told reports that a webhook was told a change, or need not be told. It is due
	// again when it changes, and after a time unless that is 0.
	Told(c Change, again time.Duration)
	// Retry reports that a change was not told, and is due again after a time; refused is
	// whether that may be for what it tells.
	Retry(c Change, after time.Duration, refused bool)
	// Accepted reports that a webhook has accepted a call: what it refused before need not
	// hold up the rest.
	Accepted(webhook string)
	// Renewed reports that the settings of a webhook are others: what was put off is due.
	Renewed(webhook string)
	// Hold gives back a change that was not tried, due again after a time.
	Hold(c Change, after time.Duration)
}

// Store keeps webhooks. It is safe for concurrent use.
type Store interface {
	// Webhooks returns all webhooks.
	Webhooks(ctx context.Context) ([]Webhook, error)
	// Record stores the ladder of a webhook, and its state unless it is paused or
	// disabled already. If the generation is another, it stores only when a call
	// succeeded, and only if the URL is the same.
	Record(ctx context.Context, w Webhook) error
}

// Config configures a Sender. Queue, Store and Caller are required.
type Config struct {
	Queue  Queue
	Store  Store
	Caller *Caller
	// Now returns the time of the store, in which ladders are kept. Default time.Now.
	Now func() time.Time
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Metrics defaults to metrics that are not registered.
	Metrics *Metrics

	// RemindAfter is, by category, how long something must have been unread for
	// an unread.reminder. Other categories have none.
	RemindAfter map[string]time.Duration
	// Calls is the most calls to a webhook at a time. Default 32.
	Calls int
	// RefreshInterval is how often webhooks are read. Default 1s.
	RefreshInterval time.Duration
	// StopTimeout is how long a stopping sender waits for calls. Default 5s.
	StopTimeout time.Duration
}

// Sender tells webhooks what is due to them.
type Sender struct {
	cfg Config
	log *slog.Logger
}

// New returns a sender that does nothing until Run.
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

// Run sends until ctx is done, finishes the calls in progress and returns nil.
func (s *Sender) Run(ctx context.Context) error {
	s.feedAll(ctx)
	return nil
}
