// Package webhook sends HTTP requests to endpoints of other backends when badges, rooms or other
// subjects have changed. It follows the Standard Webhooks specification, with CloudEvents as
// bodies.
//
// A failed call is repeated after a wait. The waits grow from 5 s to a day; this list of waits is
// called the ladder. After about two days of failures the webhook is paused. Each call sends the
// newest state of its subjects.
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

// The states of webhooks. If a subject changes while a webhook is paused, the change is sent when
// the webhook is active again. If a subject changes while a webhook is disabled, the change is
// never sent.
const (
	Active   State = "active"
	Paused   State = "paused"
	Disabled State = "disabled"
)

// Webhook is an endpoint with its settings and the results of its calls.
type Webhook struct {
	Name string
	// Generation changes with each change of the settings.
	Generation int64
	URL        string
	// Secrets are the keys of signatures. Each call has one signature for each secret, so a
	// receiver can verify the call with any of the secrets.
	Secrets [][]byte
	// Categories are the categories whose numbers are sent; nil means all.
	Categories []string
	// Batch is the maximum number of events in a call. If it exceeds 1, bodies are JSON arrays.
	Batch int
	// Rate is the maximum number of calls per minute; 0 means no limit.
	Rate  int
	State State
	Ladder
}

// Ladder has the results of the last calls of a webhook, and the time of the next retry.
type Ladder struct {
	// Step is the number of the current wait in the list of waits, which begins with 1. It is 0
	// while calls succeed.
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

// Change is a change of a subject about which a webhook may have to be called.
type Change struct {
	Partition int
	// Type is the type of the event.
	Type string
	// Subject is the id of the user, room or dead letter that has changed.
	Subject string
	// QueuedAt is the time at which the subject changed.
	QueuedAt time.Time
	// Attempts is the number of calls about the change that failed.
	Attempts int
	// Badge is the current badge of the user if the subject is a user.
	Badge *pubsub.Badge
	// Room is the current state of the room if the subject is a room.
	Room *Room
	// Letter is the dead letter, if the subject is a dead letter that still exists.
	Letter *DeadLetter
	// Told is the value that Tell had at the last call about this reminder; nil if there was no
	// call.
	Told json.RawMessage
	// Tell is the state of a reminder that the queue stores after the call. Same is set if Tell
	// equals Told. The sender sets Tell and Same.
	Tell json.RawMessage
	Same bool
	// Again is the duration after which the change is due again, even if the subject does not
	// change; 0 means never. The sender sets it.
	Again time.Duration
	// Ref is data that the queue attaches to the change. The sender does not use it.
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

// DeadLetter is an event that could not be folded, or a message of a broker that is not an event.
type DeadLetter struct {
	ID int64 `json:"id"`
	// Partition and Position are the place of an event in the log. Origin is the place of a
	// message in the broker.
	Partition *int      `json:"partition,omitempty"`
	Position  string    `json:"position,omitempty"`
	Origin    string    `json:"origin,omitempty"`
	Reason    string    `json:"reason"`
	At        time.Time `json:"at"`
}

// Queue returns due changes and receives reports about them. It is safe for concurrent use.
type Queue interface {
	// Next returns up to limit changes that are due for a webhook. It blocks until a change is
	// due; its only error is the error of ctx. For each change, the sender calls Told, Retry or
	// Hold once; these methods do not block. Before this call, Next does not return the change
	// again.
	Next(ctx context.Context, webhook string, limit int) ([]Change, error)
	// Told reports that a change was sent, or need not be sent. The change is due again when the
	// subject changes. Unless again is 0, the change is also due after the duration again.
	Told(c Change, again time.Duration)
	// Retry reports that a call about a change failed. The change is due again after the duration
	// after. refused is set if the failure may be due to this change alone: the endpoint may be
	// unable to accept it.
	Retry(c Change, after time.Duration, refused bool)
	// Accepted reports that an endpoint has accepted a call, so it works. The queue must then
	// stop delaying other changes because of changes that the endpoint has refused.
	Accepted(webhook string)
	// Renewed reports that a webhook has new settings. The queue must then make all changes due
	// that wait for a retry.
	Renewed(webhook string)
	// Hold reports that no call was made about a change. The change is due again after the
	// duration after.
	Hold(c Change, after time.Duration)
}

// Store stores webhooks. It is safe for concurrent use.
type Store interface {
	// Webhooks returns all webhooks.
	Webhooks(ctx context.Context) ([]Webhook, error)
	// Record stores the Ladder of a webhook. It also stores the State of the webhook, unless the
	// stored state is paused or disabled. If the stored webhook has another generation, its
	// settings have changed: Record then stores only a success, and only if the URL is the same.
	Record(ctx context.Context, w Webhook) error
}

// Config configures a Sender. Queue, Store and Caller are required.
type Config struct {
	Queue  Queue
	Store  Store
	Caller *Caller
	// Now returns the time on the clock of the store; waits are computed with this time. Default
	// time.Now.
	Now func() time.Time
	// Logger defaults to a logger that discards everything.
	Logger *slog.Logger
	// Metrics defaults to metrics that are not registered.
	Metrics *Metrics

	// RemindAfter maps categories to the time that messages must be unread before an
	// unread.reminder is sent. See [OtherCategories]. A category without a value gets no
	// reminders.
	RemindAfter map[string]time.Duration
	// Calls is the maximum number of concurrent calls to a webhook. Default 32.
	Calls int
	// RefreshInterval is how often the webhooks are read from Store. Default 1s.
	RefreshInterval time.Duration
	// StopTimeout limits how long Run waits for calls in progress after ctx is done. Default 5s.
	StopTimeout time.Duration
}

// Sender sends events to webhooks.
type Sender struct {
	cfg Config
	log *slog.Logger
}

// New returns a sender. The sender does nothing until Run is called. New fails if a required
// field is missing.
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

// Run sends events until ctx is done. Then it waits for the calls in progress, at most for
// StopTimeout, and returns nil.
func (s *Sender) Run(ctx context.Context) error {
	s.feedAll(ctx)
	return nil
}
