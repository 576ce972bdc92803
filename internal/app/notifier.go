package app

import (
	"context"
	"time"

	"github.com/badged/badged/projector"
	"github.com/badged/badged/projector/outbound"
)

// openNotifier adds what tells devices and webhooks of changed badges, for one database.
// Senders are stages after the notifier: they stop before it, so that it can store what
// they have told.
func (a *App) openNotifier(ctx context.Context, d *database, given parsed) error {
	pool, err := a.pool(ctx, d, "notifying", d.conns.Notifying)
	if err != nil {
		return err
	}
	remindAfter, err := a.cfg.RemindAfterByCategory()
	if err != nil {
		return err
	}
	var longest time.Duration
	for _, after := range remindAfter {
		longest = max(longest, after)
	}
	n, err := outbound.NewNotifier(outbound.NotifierConfig{
		Pool: pool, Layouts: a.cluster, Held: d.Held, Clock: &d.clock, Logger: d.log, Metrics: outbound.NewMetrics(d.registry),
		RoomInterval: a.cfg.RoomPushInterval, LongestReminder: longest,
	})
	if err != nil {
		return err
	}
	d.folded = func(b projector.FoldedBatch) { n.Folded(outbound.Batch(b)) }
	a.stageOf(d, "notifier", n.Run)
	if given.webhooks != nil {
		declared := given.webhooks.For(a.webhooksConfig(d, given.box), d.log)
		a.declared = append(a.declared, declared)
		a.stageOf(d, "declared webhooks", declared.Run)
	}
	if err := a.openPush(d, n, given.apps, given.box); err != nil {
		return err
	}
	return a.openWebhooks(d, pool, n, given.box, remindAfter)
}
