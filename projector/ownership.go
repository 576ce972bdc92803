package projector

import (
	"context"

	"github.com/badged/badged/internal/pg/pgsession"
)

// silentIntervals is how many intervals the session of an owner may be silent before it loses
// its partitions.
const silentIntervals = 3

// ownerKind is the kind of owner that projectors are.
const ownerKind = "projector"

// own folds a fair share of the partitions until ctx is done. The locks of owners only save
// work; the fence keeps the counts correct.
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

// follow reads the layout of the log again, to learn of splits.
func (p *Projector) follow(ctx context.Context) {
	if err := p.cfg.Log.Refresh(ctx); err != nil && ctx.Err() == nil {
		p.log.WarnContext(ctx, "cannot read which partitions were split", "error", err)
	}
}
