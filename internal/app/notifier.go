package app

import (
	"context"

	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/projector"
	"github.com/badged/badged/projector/outbound"
)

// openNotifier adds what tells devices and webhooks of changed badges, if this
// process has the role. Senders are stages after the notifier: they stop before it,
// so that it can store what they have told.
func (a *App) openNotifier(ctx context.Context, given parsed) error {
	if !a.cfg.Has(config.RoleNotifier) {
		return nil
	}
	pool, err := a.pool(ctx, "notifying", config.NotifyingConns)
	if err != nil {
		return err
	}
	n, err := outbound.NewNotifier(outbound.NotifierConfig{
		Pool: pool, Partitions: a.eventLog.Partitions(), Logger: a.log, Metrics: outbound.NewMetrics(a.registry),
		RoomInterval: a.cfg.RoomPushInterval,
	})
	if err != nil {
		return err
	}
	a.folded = func(b projector.FoldedBatch) { n.Folded(outbound.Batch(b)) }
	a.stage("notifier", n.Run)
	if given.webhooks != nil {
		given.webhooks.Use(a.webhooksConfig(pool, given.box))
		a.declared = given.webhooks
		a.stage("declared webhooks", given.webhooks.Run)
	}
	if err := a.openPush(n, given.apps, given.box); err != nil {
		return err
	}
	return a.openWebhooks(pool, n, given.box)
}
