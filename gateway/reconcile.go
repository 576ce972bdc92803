package gateway

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/badged/badged/pubsub"
)

const (
	// reconcileBatch is how many users are compared in one query.
	reconcileBatch = 1000
	// reconcileGrace is how long an update may be on its way before it counts
	// as lost.
	reconcileGrace = 250 * time.Millisecond
	// gapPace is the pause between batches after the bus has been away, when
	// everybody may have missed something: soon, but not all at once.
	gapPace = 20 * time.Millisecond
)

// reconcile compares, until ctx is done, what clients hold with the tables:
// each user once in every interval, and everybody soon after a gap of the bus.
func (g *Gateway) reconcile(ctx context.Context) {
	for {
		users := g.hub.userIDs()
		rand.Shuffle(len(users), func(i, j int) { users[i], users[j] = users[j], users[i] }) //nolint:gosec // spreads load, guards nothing
		batches := max(1, (len(users)+reconcileBatch-1)/reconcileBatch)
		pause := g.cfg.ReconcileInterval / time.Duration(batches)
		for first := true; first || len(users) > 0; first = false {
			// Jitter, so that many gateways do not ask in step.
			wait := time.NewTimer(pause/2 + rand.N(pause/2+1)) //nolint:gosec // as above
			select {
			case <-ctx.Done():
				wait.Stop()
				return
			case <-g.hub.gap:
				wait.Stop()
				g.metrics.gaps.Inc()
				g.log.InfoContext(ctx, "the bus was away, comparing every client with the tables")
				users, pause = g.hub.userIDs(), 2*gapPace
			case <-wait.C:
			}
			n := min(len(users), reconcileBatch)
			g.compare(ctx, users[:n])
			users = users[n:]
		}
	}
}

// suspect is a client that was behind the tables a moment ago.
type suspect struct {
	session *session
	badge   pubsub.Badge
}

// compare brings those clients of some users up to date that have missed an
// update.
func (g *Gateway) compare(ctx context.Context, userIDs []string) {
	if len(userIDs) == 0 {
		return
	}
	readCtx, cancel := context.WithTimeout(ctx, g.cfg.ReadTimeout)
	defer cancel()
	badges, err := g.cfg.Badges.Versions(readCtx, userIDs)
	if err != nil {
		if ctx.Err() == nil {
			g.metrics.reconcileErrors.Inc()
			g.log.WarnContext(ctx, "reconciliation cannot read the tables", "error", err)
		}
		return
	}
	g.metrics.compared.Add(float64(len(userIDs)))
	var suspects []suspect
	for _, b := range badges {
		for _, s := range g.hub.sessionsOf(b.UserID) {
			if s.mailbox.behind(b.Epoch, b.Version) {
				suspects = append(suspects, suspect{s, b})
			}
		}
	}
	if len(suspects) == 0 {
		return
	}
	grace := time.NewTimer(reconcileGrace)
	defer grace.Stop()
	select {
	case <-ctx.Done():
		return
	case <-grace.C:
	}
	for _, s := range suspects {
		if s.session.mailbox.repair(s.badge.Epoch, s.badge.Version) {
			g.metrics.repairs.Inc()
			g.log.DebugContext(ctx, "a client had missed an update", "version", s.badge.Version)
		}
	}
}
