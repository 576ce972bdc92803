package eventlog

import (
	"context"
	"errors"
	"fmt"
)

// ErrRestored is returned if events were copied into the database by pg_dump or
// logical replication and the log has not been renumbered since. Its order is that
// of transaction ids, which are those of another cluster: events may be invisible,
// and new events may sort before old ones.
var ErrRestored = errors.New("the event log was restored from a dump or replicated from another database, " +
	"and its transaction ids mean nothing in this one; stop all badged servers and run `badged repair-log --database-url …`, " +
	"which puts it in order and loses nothing")

// checkOrigin returns ErrRestored if any part of the log was copied here and has not
// been renumbered.
func checkOrigin(ctx context.Context, q Querier) error {
	var needed bool
	if err := q.QueryRow(ctx, `SELECT badged.log_needs_repair()`).Scan(&needed); err != nil {
		return fmt.Errorf("check the origin of the log: %w", NotMigrated(err))
	}
	if needed {
		return ErrRestored
	}
	return nil
}
