package gateway

import (
	"context"
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/badged/badged/gateway/internal/view"
	"github.com/badged/badged/internal/base/wait"
)

const (
	// reconcileBatch is the approximate number of users whose badges one query reads.
	reconcileBatch = 1000
	// reconcileGrace is used if the tables have a newer state than a client. The gateway waits
	// for this time, in which the update may still arrive from the bus, and then treats the
	// update as lost.
	reconcileGrace = 250 * time.Millisecond
	// gapPace is used after a gap of the bus, when every client may have missed an update. The
	// pause between two batches is then at least gapPace and at most twice gapPace.
	gapPace = 20 * time.Millisecond
)

// reconcile compares clients with the tables until ctx is done: each user at least once per
// ReconcileInterval, and all users soon after a gap of the bus. ADR 42 has the reasons.
//
// In each round reconcile compares every user once, in batches. The hash of a user's id
// determines the user's place in the round, for example after a third of it. The place does not
// depend on the number of batches, which may differ between rounds. So two comparisons of a
// user are at most one round apart, and a new client is compared within one round.
func (g *Gateway) reconcile(ctx context.Context) {
	seed := maphash.MakeSeed()
	for {
		g.measureClock(ctx)
		batches := max(1, (g.hub.countUsers()+reconcileBatch-1)/reconcileBatch)
		pause := g.cfg.ReconcileInterval / time.Duration(batches)
		for batch := 0; batch < batches; batch++ {
			// Jitter keeps gateways from comparing at the same times.
			gap, err := wait.Signal(ctx, g.hub.gap, pause/2+rand.N(pause/2+1)) //nolint:gosec // as above
			if err != nil {
				return
			}
			if gap {
				g.metrics.gaps.Inc()
				g.log.InfoContext(ctx, "the bus was down, comparing every client with the tables")
				batch, pause = 0, 2*gapPace
			}
			g.compare(ctx, g.hub.userIDs(func(id string) bool {
				return placeOf(maphash.String(seed, id), batches) == batch
			}))
		}
	}
}

// placeOf returns the index of a user's batch in a round, from the hash of the user's id and
// the number of batches. For any number of batches, the index divided by this number is about
// the same.
func placeOf(hash uint64, batches int) int {
	place, _ := bits.Mul64(hash, uint64(batches)) //nolint:gosec // positive
	return int(place)                             //nolint:gosec // less than batches
}

// suspect is a client whose state is older than the state `tables`. The update that the client
// lacks may still arrive.
type suspect struct {
	session *session
	tables  view.Holding
}

// marked is a session, and the state (mark) that its client had before a read of the tables.
type marked struct {
	session *session
	mark    view.Mark
}

// mark returns the sessions of each user, with the current states of their clients.
func (g *Gateway) mark(userIDs []string) map[string][]marked {
	all := make(map[string][]marked, len(userIDs))
	for _, id := range userIDs {
		for _, s := range g.hub.sessionsOf(id) {
			all[id] = append(all[id], marked{s, s.mailbox.Mark()})
		}
	}
	return all
}

// measureClock reads the clock of the database, and sets g.clock by it.
func (g *Gateway) measureClock(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.ReadTimeout)
	defer cancel()
	_ = g.clock.Measure(ctx, g.cfg.Badges.Now) // if it fails, g.clock continues to use the last reading
}

// compare compares the clients of users with the tables, and corrects clients that are wrong. A
// client is wrong if it has missed an update. It is also wrong if the tables do not have its
// state, because the state was forged or because Postgres has lost the commit.
func (g *Gateway) compare(ctx context.Context, userIDs []string) {
	if len(userIDs) == 0 {
		return
	}
	g.hub.renew(userIDs)
	readCtx, cancel := context.WithTimeout(ctx, g.cfg.ReadTimeout)
	defer cancel()
	marks, at := g.mark(userIDs), view.DBTimeOf(g.clock.Now())
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
		if badges[i].Epoch == "" { // the user's database cannot be read now; the user is compared again later
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
		g.log.WarnContext(ctx, "clients had states that are ahead of the tables, and get snapshots: users were erased, Postgres has lost commits, or messages on the bus are forged",
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
