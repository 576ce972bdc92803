package events

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// ErrNotMigrated is returned if the database has no log.
var ErrNotMigrated = errors.New("the database has no badged schema; run `badged migrate up`")

// ErrNotHeld is returned if the database does not have a partition, because it was moved to
// another database or was split.
var ErrNotHeld = errors.New("the partition is not in this database any more")

// ErrRestored is returned if events were copied into the database by pg_dump or logical replication
// and the log has not been renumbered since. The log is ordered by transaction ids, and the copied
// events have transaction ids of another cluster: readers may miss some events, and new events may
// sort before old events.
var ErrRestored = errors.New("the event log was restored from a dump or replicated from another database, " +
	"so its transaction ids are not valid in this one; stop all badged servers and run `badged repair-log --database-url …`, " +
	"which renumbers the events and loses none")

// checkOrigin returns ErrRestored if any part of the log was copied into this database and has
// not been renumbered.
func checkOrigin(ctx context.Context, q Querier) error {
	var needed bool
	if err := q.QueryRow(ctx, `SELECT badged.log_needs_repair()`).Scan(&needed); err != nil {
		return fmt.Errorf("check the origin of the log: %w", notMigrated(err))
	}
	if needed {
		return ErrRestored
	}
	return nil
}

// codeNotHeld is the error code with which a database rejects events of a partition that it
// does not have.
const codeNotHeld = "BD100"

// refusal converts an error with which Postgres rejects an append into ErrNotHeld or
// ErrNotMigrated. It returns other errors as they are.
func refusal(err error) error {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == codeNotHeld {
		return fmt.Errorf("%w (%w)", ErrNotHeld, err)
	}
	return notMigrated(err)
}

// refusal does what the function refusal does, for an append to a partition. A missing table also
// becomes ErrNotHeld, if the partition was created by a split: a database has tables of such
// partitions only if it stores them.
func (l *Layout) refusal(partition int, err error) error {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == undefinedTable && partition >= l.n {
		return fmt.Errorf("%w (%w)", ErrNotHeld, err)
	}
	return refusal(err)
}

const undefinedTable = "42P01"

// notMigrated converts an error of Postgres about a missing table or schema into
// ErrNotMigrated.
func notMigrated(err error) error {
	const invalidSchemaName = "3F000"
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && (pgErr.Code == undefinedTable || pgErr.Code == invalidSchemaName) {
		return fmt.Errorf("%w (%s)", ErrNotMigrated, pgErr.Message)
	}
	return err
}
