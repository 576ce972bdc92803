package projector

import (
	"context"

	"github.com/badged/badged/internal/pgsession"
)

// silentIntervals is how many intervals the session of an owner may be silent.
const silentIntervals = 3

// ownerKind names projectors among the owners of partitions.
const ownerKind = "projector"

// own folds a fair share of the partitions until ctx is done. The locks of the
// owner only save work; the fence keeps the counts right.
func (p *Projector) own(ctx context.Context) error {
	owner := pgsession.Owner{
		Connect: p.cfg.Pool.Config().ConnConfig, Kind: ownerKind, Class: pgsession.LockClass, MemberClass: pgsession.MemberClass,
		Held: p.cfg.Held, HeldChanged: p.cfg.HeldChanged, Interval: p.cfg.OwnershipInterval, Silence: p.silence,
		Work:    func(ctx context.Context, partition int) { p.partition(partition).run(ctx) },
		Changed: p.metrics.own, Logger: p.log,
	}
	owner.Run(ctx)
	return nil
}

// follow reads the layout of the log again, unless others tell it.
func (p *Projector) follow(ctx context.Context) {
	if err := p.cfg.Log.Refresh(ctx); err != nil && ctx.Err() == nil {
		p.log.WarnContext(ctx, "cannot read which partitions were split", "error", err)
	}
}
