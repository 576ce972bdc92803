package gateway

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/badged/badged/gateway/internal/view"
	"github.com/badged/badged/internal/wait"
)

const (
	// reconcileBatch is the most users of one query.
	reconcileBatch = 1000
	// reconcileGrace is how long an update may take before it counts as lost.
	reconcileGrace = 250 * time.Millisecond
	// gapPace is the pause between batches after a gap of the bus, when every
	// client may have missed something.
	gapPace = 20 * time.Millisecond
)

// reconcile compares clients with the tables until ctx is done: each user once in
// every interval, and all users soon after a gap of the bus. ADR 42 has the reasons.
func (g *Gateway) reconcile(ctx context.Context) {
	for {
		g.measureClock(ctx)
		users := g.hub.userIDs()
		rand.Shuffle(len(users), func(i, j int) { users[i], users[j] = users[j], users[i] }) //nolint:gosec // spreads load, guards nothing
		batches := max(1, (len(users)+reconcileBatch-1)/reconcileBatch)
		pause := g.cfg.ReconcileInterval / time.Duration(batches)
		for first := true; first || len(users) > 0; first = false {
			// Jitter keeps gateways out of step.
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

// suspect is a client that was behind the tables.
type suspect struct {
	session *session
	tables  view.Holding
}

// marked is a client and what it held before a read of the tables.
type marked struct {
	session *session
	mark    view.Mark
}

// mark records what the clients of users hold.
func (g *Gateway) mark(userIDs []string) map[string][]marked {
	all := make(map[string][]marked, len(userIDs))
	for _, id := range userIDs {
		for _, s := range g.hub.sessionsOf(id) {
			all[id] = append(all[id], marked{s, s.mailbox.Mark()})
		}
	}
	return all
}

// measureClock reads the clock of the database.
func (g *Gateway) measureClock(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.ReadTimeout)
	defer cancel()
	_ = g.clock.Measure(ctx, g.cfg.Badges.Now) // if it fails, the last reading holds
}

// compare brings the clients of users up to date if they have missed an update, or
// hold a state that the tables lack: it was forged, or Postgres has lost the commit.
func (g *Gateway) compare(ctx context.Context, userIDs []string) {
	if len(userIDs) == 0 {
		return
	}
	g.hub.renew(userIDs)
	readCtx, cancel := context.WithTimeout(ctx, g.cfg.ReadTimeout)
	defer cancel()
	marks, at := g.mark(userIDs), view.At(g.clock.Now())
	badges, err := g.cfg.Badges.Versions(readCtx, userIDs)
	if err != nil {
		if ctx.Err() == nil {
			g.metrics.reconcileErrors.Inc()
			g.log.WarnContext(ctx, "reconciliation cannot read the tables", "error", err)
		}
		return
	}
	var suspects []suspect
	compared, ahead := 0, 0
	for i := range badges {
		if badges[i].Epoch == "" { // it cannot be read now; the user is compared again later
			continue
		}
		compared++
		tables := view.HoldingOf(&badges[i])
		for _, m := range marks[badges[i].UserID] {
			switch m.session.mailbox.Compare(m.mark, tables, at) {
			case view.Behind:
				suspects = append(suspects, suspect{m.session, tables})
			case view.Denied:
				ahead++
			case view.UpToDate:
			}
		}
	}
	g.metrics.compared.Add(float64(compared))
	if ahead > 0 {
		g.metrics.aheadCompared.Add(float64(ahead))
		g.log.WarnContext(ctx, "clients held states that the tables do not have, and get snapshots: users were erased, Postgres has lost commits, or messages on the bus are forged",
			"clients", ahead)
	}
	if len(suspects) == 0 {
		return
	}
	if wait.For(ctx, reconcileGrace) != nil {
		return
	}
	for _, s := range suspects {
		if s.session.mailbox.Repair(s.tables) {
			g.metrics.repairs.Inc()
			g.log.DebugContext(ctx, "a client had missed an update", "version", s.tables.Version)
		}
	}
}
