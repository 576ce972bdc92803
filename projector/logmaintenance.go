package projector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/pg/pgsession"
	"github.com/badged/badged/internal/pg/query"
)

// The log of a partition is divided into ranges of transaction ids; each range is a table. The
// last range has no end. A range is complete, and can be archived, when Postgres assigns only
// ids beyond its end.
const (
	// rangeSpan is about how long new events are appended to a range before the next range begins.
	rangeSpan = 7 * 24 * time.Hour
	// leastRange is the minimum number of transaction ids in a range; transactions of all databases
	// of the Postgres server use these ids. The minimum limits the number of ranges, since each
	// range adds to the cost of reading the log.
	leastRange = 1 << 20
)

const buryUnissuedSQL = `SELECT badged.bury_unissued($1)`

// buryUnissued makes events dead letters if Postgres has not assigned their transaction ids yet.
// Only the owner of the schema can write such events. Until Postgres assigns the ids, the events
// could not be folded, and the range of the log that has them could not be completed and archived.
func (p *partition) buryUnissued(ctx context.Context) error {
	n, err := query.One[int](ctx, p.projector.cfg.Pool, fmt.Sprintf("bury events with unissued transaction ids in partition %d", p.id), buryUnissuedSQL, p.id)
	if n > 0 {
		p.projector.metrics.deadLetters.Add(float64(n))
		p.projector.log.ErrorContext(ctx, "events in the log had transaction ids that Postgres had not assigned yet; they are dead letters now, see `badged deadletters list`",
			"partition", p.id, "events", n)
	}
	return err
}

const extendLogSQL = `SELECT badged.extend_log($1, $2::interval, $3)`

// extendLog adds ranges to the log until the last range begins at a transaction id that
// Postgres has not assigned yet. ADR 151 has the reasons.
func (p *partition) extendLog(ctx context.Context) error {
	// If repeat cannot get a lock, the next call tries again: until then, events are appended to
	// the last range.
	return p.projector.repeat(ctx, fmt.Sprintf("extend the log of partition %d", p.id), extendLogSQL, p.id, rangeSpan, leastRange)
}

// repeat runs a query until it returns false, or cannot get a lock.
func (p *Projector) repeat(ctx context.Context, action, sql string, args ...any) error {
	for {
		more, err := query.One[bool](ctx, p.cfg.Pool, action, sql, args...)
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == pgsession.LockNotAvailable {
			return nil
		}
		if err != nil || !more {
			return err
		}
	}
}

const indexLogSQL = `SELECT badged.index_log($1)`

// indexLog builds the index of user and conversation ids for complete ranges of the owned
// partitions, one range after the other, until ctx is done. Commands that show, verify, export
// and erase a user need this index to search the log. ADR 151 has the reasons.
func (p *Projector) indexLog(ctx context.Context) error {
	for wait.For(ctx, p.cfg.MaintenanceInterval) == nil {
		for _, id := range p.OwnedPartitions() {
			if err := p.indexRanges(ctx, id); err != nil && ctx.Err() == nil {
				p.log.WarnContext(ctx, "cannot build the index of a range of the log, will try again; until then, searches read the whole range", "partition", id, "error", err)
			}
		}
	}
	return nil
}

// indexRanges builds the missing indexes of a partition's ranges. If an erasure is writing to a
// range, indexRanges ends without an error, and the next call tries again.
func (p *Projector) indexRanges(ctx context.Context, partition int) error {
	return p.repeat(ctx, fmt.Sprintf("index the log of partition %d", partition), indexLogSQL, partition)
}
