package projector

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/store"
)

// beginEpochSQL begins a new epoch of a partition. The update also raises the revision that the
// fence of each batch compares. So batches of other projectors then fail, and these projectors
// clear their caches.
var beginEpochSQL = `UPDATE badged.partitions
SET epoch = substr(replace(gen_random_uuid()::text, '-', ''), 1, 12), incarnation = ` + store.IncarnationSQL + `
WHERE partition_id = $1`

// endTimelineSQL records which transactions were folded when timeline $2 of Postgres ended.
// These transactions were not lost.
const endTimelineSQL = `INSERT INTO badged.timeline_ends AS t (partition, timeline, next_timeline, transaction_id, pending) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (partition, timeline) DO UPDATE
SET next_timeline = excluded.next_timeline, transaction_id = excluded.transaction_id, pending = excluded.pending, noticed_at = now()`

// Reasons for a new epoch: values of a metric label.
const (
	// epochRestart: Postgres was restarted, promoted or restored, and may have
	// lost commits.
	epochRestart = "restart"
	// epochRewind: Postgres has lost commits that this process saw.
	epochRewind = "rewind"
)

// outdated reports whether the epoch must end, and the reason. The epoch must end if clients
// may have newer states than the tables. There are two cases: the epoch began in an earlier
// incarnation of Postgres, or the position is before a position that this process has seen
// committed.
func (p *partition) outdated() (reason string, outdated bool) {
	switch {
	case p.cursor.Before(p.reached):
		return epochRewind, true
	case !p.state.SameLife:
		return epochRestart, true
	}
	return "", false
}

// beginEpoch begins a new epoch, unless another projector has done so, and reads the state of the
// partition. It is called when commits may have been lost. The tables may then reach a version that
// clients already have, but with a different state. So after a change of the epoch, clients load a
// snapshot instead of comparing versions. ADR 41 has the reasons.
func (p *partition) beginEpoch(ctx context.Context, conn *pgxpool.Conn) error {
	var reason string
	var begun bool
	reached := p.reached
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		// Lock the row of the position, so that no batch commits meanwhile.
		if _, err := tx.Exec(ctx, `SELECT FROM badged.`+events.Topic(p.id)+`_offsets WHERE consumer_group = $1 FOR UPDATE`, events.ProjectorGroup); err != nil {
			return err
		}
		if err := p.look(ctx, tx); err != nil {
			return err
		}
		if reason, begun = p.outdated(); !begun {
			return nil
		}
		if ended, now := timelineOf(p.state.Incarnation), timelineOf(incarnationOf(conn)); ended < now {
			if _, err := tx.Exec(ctx, endTimelineSQL, p.id, ended, now, p.cursor.TransactionID, p.cursor.PendingArg()); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, beginEpochSQL, p.id); err != nil {
			return err
		}
		return p.look(ctx, tx)
	})
	if err != nil {
		return fmt.Errorf("begin a new epoch of partition %d: %w", p.id, err)
	}
	if !begun {
		return nil
	}
	p.reached = p.cursor.Position // set here in case reload fails later: the epoch must begin only once
	p.projector.metrics.epochs.WithLabelValues(reason).Inc()
	if reason == epochRewind {
		p.projector.log.WarnContext(ctx, "Postgres lost commits that clients have seen; a new epoch begins and clients get snapshots. Publish the lost events again",
			"partition", p.id, "folded_before", reached, "folded_now", p.cursor.Position, "epoch", p.state.Epoch)
	} else {
		p.projector.tellRestart(ctx)
	}
	return nil
}

// restartInterval is the minimum time between two log lines about a restart of Postgres. After a
// restart, every partition begins a new epoch, one after the other, but only one line is
// logged.
const restartInterval = time.Minute

// tellRestart logs a restart of Postgres, at most once per restartInterval for all partitions.
func (p *Projector) tellRestart(ctx context.Context) {
	now, last := time.Now().UnixNano(), p.restartTold.Load()
	if now-last < int64(restartInterval) || !p.restartTold.CompareAndSwap(last, now) {
		return
	}
	p.log.InfoContext(ctx, "Postgres was restarted, promoted or restored and may have lost commits; its partitions begin new epochs and clients get snapshots")
}
