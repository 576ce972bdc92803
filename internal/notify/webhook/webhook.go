// Package webhook sends HTTP requests to endpoints of other backends when badges, rooms or other
// subjects have changed. It follows the Standard Webhooks specification, with CloudEvents as
// bodies.
//
// A failed call is repeated after a wait. The waits grow from 5 s to a day; this list of waits is
// called the ladder. After about two days of failures the webhook is paused. Each call sends the
// newest state of its subjects.
//
// The package does not know the log or tables: package outbound determines which calls are due.
// ADR 139 has the reasons.
package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/badged/badged/internal/base/defaults"
	"github.com/badged/badged/internal/notify/outbound"
)

// Test is the type of the events of [Caller.Test].
const Test = "webhook.test"

// Queue returns due calls and receives reports about them; usually it is an [outbound.Notifier]. It
// is safe for concurrent use.
type Queue interface {
	// NextCalls returns up to limit calls that are due for a webhook. It blocks until a call is
	// due; the only error is the error of ctx. For each call, the sender reports the result with
	// one of CallTold, CallRetry and CallHold; these methods do not block. Before this report,
	// NextCalls does not return the same call again, but it may return another call about the same
	// badge.
	NextCalls(ctx context.Context, webhook string, limit int) ([]outbound.Call, error)
	// CallTold reports that a call was made, or need not be made. The call is due again when the
	// subject changes and, unless c.RepeatAfter is 0, after c.RepeatAfter.
	CallTold(c outbound.Call)
	// CallRetry reports that a call failed. The call is due again after delay. refused is true if
	// the failure may be due to this call alone: the endpoint may be unable to accept it.
	CallRetry(c outbound.Call, delay time.Duration, refused bool)
	// CallHold reports that a call was not made. The call is due again after delay.
	CallHold(c outbound.Call, delay time.Duration)
	// CallsAccepted reports that an endpoint has accepted a call, so it works. From then on, calls
	// that the endpoint has refused must not delay other calls.
	CallsAccepted(webhook string)
	// CallsRenewed reports that a webhook has new settings. The queue must then make all calls due
	// that are waiting for a retry.
	CallsRenewed(webhook string)
}

// Store stores webhooks; see [outbound.Targets]. It is safe for concurrent use.
type Store interface {
	// Webhooks returns all webhooks. Their secrets are not sealed.
	Webhooks(ctx context.Context) ([]outbound.Webhook, error)
	RecordCall(ctx context.Context, w outbound.Webhook) error
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
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.Metrics = cmp.Or(cfg.Metrics, NewMetrics(nil))
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
