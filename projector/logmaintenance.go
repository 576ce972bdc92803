package projector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/internal/pgsession"
)

// The log of a partition is split into ranges of transaction ids, a table each;
// the last has no end. A range is complete, and can be archived, when the ids
// have passed its end.
const (
	// rangeSpan is roughly how long a range lasts.
	rangeSpan = 7 * 24 * time.Hour
	// leastRange is the least number of transaction ids in a range, counting
	// all that the cluster gives out: each range costs a little when the log
	// is read.
	leastRange = 1 << 20
)

const buryUnissuedSQL = `SELECT badged.bury_unissued($1)`

// buryUnissued turns events whose transaction id was not given out yet into
// dead letters.
func (p *partition) buryUnissued(ctx context.Context) error {
	var n int
	if err := p.projector.cfg.Pool.QueryRow(ctx, buryUnissuedSQL, p.id).Scan(&n); err != nil {
		return fmt.Errorf("bury events with unissued transaction ids in partition %d: %w", p.id, err)
	}
	if n > 0 {
		p.projector.metrics.deadLetters.Add(float64(n))
		p.projector.log.ErrorContext(ctx, "events in the log had transaction ids that were not given out yet; they are dead letters now, see `badged deadletters list`",
			"partition", p.id, "events", n)
	}
	return nil
}

const extendLogSQL = `SELECT badged.extend_log($1, $2::interval, $3)`

// extendLog adds ranges until the last one begins in the future. ADR 25 has the reasons.
func (p *partition) extendLog(ctx context.Context) error {
	for more := true; more; {
		err := p.projector.cfg.Pool.QueryRow(ctx, extendLogSQL, p.id, rangeSpan, leastRange).Scan(&more)
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == pgsession.LockNotAvailable {
			return nil // not urgent: the range takes events meanwhile
		}
		if err != nil {
			return fmt.Errorf("extend the log of partition %d: %w", p.id, err)
		}
	}
	return nil
}
