package projector

import (
	"context"

	"github.com/badged/badged/internal/pg/pgsession"
)

// silentIntervals is how many ownership intervals the session of an owner may be silent. After
// that, the owner loses its partitions.
const silentIntervals = 3

// ownerKind names projectors among the kinds of owners of partitions.
const ownerKind = "projector"

// runOwnership acquires a fair share of the partitions and folds them until ctx is done. Ownership
// only avoids duplicate work: the fence keeps the counts correct even if a partition has two owners.
func (p *Projector) runOwnership(ctx context.Context) error {
	owner := pgsession.Owner{
		Connect: p.cfg.Pool.Config().ConnConfig, Kind: ownerKind, Class: pgsession.LockClass, MemberClass: pgsession.MemberClass,
		Held: p.cfg.Held, HeldChanged: p.cfg.HeldChanged, Interval: p.cfg.OwnershipInterval, Silence: p.silence,
		Work:    func(ctx context.Context, partition int) { p.partition(partition).run(ctx) },
		Changed: p.metrics.setOwned, Logger: p.log,
	}
	owner.Run(ctx)
	return nil
}

// follow reads the layout of the log again. The layout changes when partitions are split.
func (p *Projector) follow(ctx context.Context) {
	if err := p.cfg.Log.Refresh(ctx); err != nil && ctx.Err() == nil {
		p.log.WarnContext(ctx, "cannot read which partitions were split", "error", err)
	}
}
