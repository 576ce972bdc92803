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

// webhookConns is the maximum number of connections to one host. It is large, since one host may
// have many webhooks, and a slow webhook must not use up the connections of other webhooks. The
// calls of each webhook are limited separately, by webhook.Config.Calls.
const webhookConns = 4096

// webhookCaller returns the client that calls the endpoints of webhooks for this process.
func (a *App) webhookCaller() *webhook.Caller {
	client := egress.NewClient(egress.Config{AllowPrivate: a.cfg.WebhooksAllowPrivate, MaxConnsPerHost: webhookConns})
	return &webhook.Caller{Client: client, Origin: a.cfg.WebhooksOrigin, Now: a.now}
}

func (a *App) webhookOperations(box *seal.Box) *operations.Webhooks {
	return operations.NewWebhooks(operations.WebhooksConfig{
		Cluster: a.cluster, Box: box, Caller: a.webhookCaller(), WebhookRules: webhookRules(&a.cfg),
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
		Queue: n, Store: &webhookStore{outbound.NewTargets(pool, a.cluster), box, d.log, len(a.databases)},
		Caller: a.webhookCaller(), RemindAfter: remindAfter, Now: d.clock.Now,
		Logger: d.log, Metrics: webhook.NewMetrics(d.registry),
	})
	if err != nil {
		return err
	}
	a.stageOf(d, "webhooks", sender.Run)
	return nil
}

// webhookStore is a webhook.Store that decrypts the secrets of webhooks.
type webhookStore struct {
	*outbound.Targets
	box *seal.Box
	log *slog.Logger
	// senders is the number of senders in this process, one for each database. They share the
	// maximum rate of each webhook, which is a limit per process.
	senders int
}

// Webhooks implements webhook.Store. It skips a webhook whose secrets cannot be decrypted, since
// its calls could not be signed.
func (s *webhookStore) Webhooks(ctx context.Context) ([]outbound.Webhook, error) {
	stored, err := s.Targets.Webhooks(ctx)
	var all []outbound.Webhook
	for _, w := range stored {
		if err := operations.OpenWebhook(s.box, &w); err != nil {
			s.log.ErrorContext(ctx, "a webhook is not called; give its key in --outbound-keys, or set its secrets again", "webhook", w.Name, "error", err)
			continue
		}
		w.Rate = (w.Rate + s.senders - 1) / s.senders
		all = append(all, w)
	}
	return all, err
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
