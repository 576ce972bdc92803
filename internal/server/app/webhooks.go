package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/internal/notify/egress"
	"github.com/badged/badged/internal/notify/outbound"
	"github.com/badged/badged/internal/notify/seal"
	"github.com/badged/badged/internal/notify/webhook"
	"github.com/badged/badged/internal/operations"
	"github.com/badged/badged/internal/server/config"
)

// webhookConns is the greatest number of connections to one host. It is large, since one host may
// have many webhooks, and a slow webhook must not use up the connections of other webhooks. The
// calls of each webhook are limited separately, by webhook.Config.Calls.
const webhookConns = 4096

// webhookCaller returns the client that calls the endpoints of webhooks for this process.
func (a *App) webhookCaller() *webhook.Caller {
	client := egress.NewClient(egress.Config{AllowPrivate: a.cfg.WebhooksAllowPrivate, MaxConnsPerHost: webhookConns})
	return &webhook.Caller{Client: client, Origin: a.cfg.WebhooksOrigin, Now: a.now}
}

// webhookOperations returns the operations on webhooks.
func (a *App) webhookOperations(box *seal.Box) *operations.Webhooks {
	return operations.NewWebhooks(operations.WebhooksConfig{
		Cluster: a.cluster, Box: box, Caller: operatorCalls{a.webhookCaller()}, WebhookRules: webhookRules(&a.cfg),
	})
}

func webhookRules(cfg *config.Server) operations.WebhookRules {
	return operations.WebhookRules{AllowPrivate: cfg.WebhooksAllowPrivate, Reminders: len(cfg.RemindAfter) > 0}
}

// openDeclared adds the stage that applies the file of declared webhooks, if there is one.
func (a *App) openDeclared(given parsed) {
	if given.webhooks == nil {
		return
	}
	a.declared = given.webhooks
	webhooks := a.webhookOperations(given.box)
	a.stage("declared webhooks", func(ctx context.Context) error { return a.declared.Run(ctx, webhooks) })
}

// openWebhooks adds the sender of webhooks, which makes the calls that the notifier queues.
func (a *App) openWebhooks(d *database, pool *pgxpool.Pool, n *outbound.Notifier, box *seal.Box, remindAfter map[string]time.Duration) error {
	sender, err := webhook.New(webhook.Config{
		Queue: webhookQueue{n}, Store: &webhookStore{outbound.NewTargets(pool, a.cluster), box, d.log, len(a.databases)},
		Caller: a.webhookCaller(), RemindAfter: remindAfter, Now: d.clock.Now,
		Logger: d.log, Metrics: webhook.NewMetrics(d.registry),
	})
	if err != nil {
		return err
	}
	a.stageOf(d, "webhooks", sender.Run)
	return nil
}

// operatorCalls implements operations.WebhookCaller.
type operatorCalls struct{ *webhook.Caller }

// Test implements operations.WebhookCaller.
func (c operatorCalls) Test(ctx context.Context, name, url string, secrets [][]byte, batch int) operations.WebhookTest {
	answer := c.Caller.Test(ctx, webhook.Webhook{Name: name, URL: url, Secrets: secrets, Batch: batch})
	result := operations.WebhookTest{Status: answer.Status, DurationSeconds: answer.Duration.Seconds()}
	if answer.Err != nil {
		result.Error = answer.Err.Error()
	}
	return result
}

// webhookQueue implements webhook.Queue.
type webhookQueue struct{ notifier *outbound.Notifier }

// Next implements webhook.Queue.
func (q webhookQueue) Next(ctx context.Context, name string, limit int) ([]webhook.Change, error) {
	calls, err := q.notifier.NextCalls(ctx, name, limit)
	changes := make([]webhook.Change, len(calls))
	for i, c := range calls {
		changes[i] = webhook.Change{
			Partition: c.Partition, Type: c.Type, Subject: c.Subject, QueuedAt: c.QueuedAt, Attempts: c.Attempts,
			Badge: c.Badge, Told: c.Told, Ref: c,
		}
		if c.Room != nil {
			changes[i].Room = &webhook.Room{
				ConversationID: c.Room.ConversationID, Category: c.Room.Category, Epoch: c.Room.Epoch,
				Version: c.Room.Changes, LastSeq: c.Room.LastSeq, Members: c.Room.Members,
			}
		}
		if c.Letter != nil {
			changes[i].Letter = (*webhook.DeadLetter)(c.Letter)
		}
	}
	return changes, err
}

// callOf converts a change back into the queued call from which it was made, with the results that
// the sender has stored in the change.
func callOf(c webhook.Change) outbound.Call {
	call, _ := c.Ref.(outbound.Call)
	call.Tell, call.Same = c.Tell, c.Same
	return call
}

// Told implements webhook.Queue.
func (q webhookQueue) Told(c webhook.Change, again time.Duration) {
	q.notifier.CallTold(callOf(c), again)
}

// Retry implements webhook.Queue.
func (q webhookQueue) Retry(c webhook.Change, after time.Duration, refused bool) {
	q.notifier.CallRetry(callOf(c), after, refused)
}

// Accepted implements webhook.Queue.
func (q webhookQueue) Accepted(name string) { q.notifier.CallsAccepted(name) }

// Renewed implements webhook.Queue.
func (q webhookQueue) Renewed(name string) { q.notifier.CallsRenewed(name) }

// Hold implements webhook.Queue.
func (q webhookQueue) Hold(c webhook.Change, after time.Duration) {
	q.notifier.CallHold(callOf(c), after)
}

// webhookStore implements webhook.Store.
type webhookStore struct {
	targets *outbound.Targets
	box     *seal.Box
	log     *slog.Logger
	// senders is the number of senders in this process, one for each database. The senders share
	// the rate of calls that the endpoint permits to each process.
	senders int
}

// Webhooks implements webhook.Store. It skips a webhook whose secrets cannot be decrypted, since
// its calls could not be signed.
func (s *webhookStore) Webhooks(ctx context.Context) ([]webhook.Webhook, error) {
	stored, err := s.targets.Webhooks(ctx)
	if err != nil {
		return nil, err
	}
	var all []webhook.Webhook
	for _, w := range stored {
		secrets, err := operations.OpenWebhook(s.box, w)
		if err != nil {
			s.log.ErrorContext(ctx, "a webhook is not called; give its key in --outbound-keys, or set its secrets again", "webhook", w.Name, "error", err)
			continue
		}
		all = append(all, webhook.Webhook{
			Name: w.Name, Generation: w.Generation, URL: w.URL, Secrets: secrets, Categories: w.Categories,
			Batch: w.Batch, Rate: (w.Rate + s.senders - 1) / s.senders, State: webhook.State(w.State),
			Ladder: webhook.Ladder{
				Step: w.Step, Due: value(w.Due), FailingSince: value(w.FailingSince),
				LastSuccessAt: value(w.LastSuccessAt), LastFailureAt: value(w.LastFailureAt),
				LastStatus: value(w.LastStatus), LastError: value(w.LastError),
			},
		})
	}
	return all, nil
}

// Record implements webhook.Store.
func (s *webhookStore) Record(ctx context.Context, w webhook.Webhook) error {
	return s.targets.RecordCall(ctx, w.Name, w.URL, w.Generation, outbound.State(w.State), outbound.Ladder{
		Step: w.Step, Due: pointer(w.Due), FailingSince: pointer(w.FailingSince),
		LastSuccessAt: pointer(w.LastSuccessAt), LastFailureAt: pointer(w.LastFailureAt),
		LastStatus: pointer(w.LastStatus), LastError: pointer(w.LastError),
	})
}

// value returns *p, or the zero value if p is nil.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// pointer is the inverse of value: it returns nil for the zero value.
func pointer[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// driftTeller returns a function that queues webhook calls about users whose badges differ from
// the log.
func (a *App) driftTeller(pool *pgxpool.Pool) func(ctx context.Context, partition int, users []string) {
	targets := outbound.NewTargets(pool, a.cluster)
	return func(ctx context.Context, partition int, users []string) {
		if err := targets.Enqueue(ctx, partition, outbound.DriftFound, users...); err != nil {
			a.log.WarnContext(ctx, "cannot queue webhook calls about drift", "error", err)
		}
	}
}
