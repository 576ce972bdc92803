package app

import (
	"context"
	"time"

	"github.com/badged/badged/internal/notify/outbound"
	"github.com/badged/badged/projector"
)

// openNotifier adds the notifier of devices and webhooks for one database. The stages of the
// senders are added after the notifier, so they stop earlier: the notifier can then still store
// which changes were sent.
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
	if err := a.openPush(d, n, given.apps, given.box); err != nil {
		return err
	}
	return a.openWebhooks(d, pool, n, given.box, remindAfter)
}
