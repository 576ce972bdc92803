package pgfault

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// LockedError is the error of a read or an append that has waited too long for a lock on the
// tables of a partition. Usually another program holds the lock, such as a migration by hand.
type LockedError struct {
	Partition int
	// Err is the error of Postgres. It is nil if the read was not sent to Postgres, because other
	// reads of the partition were already waiting for the lock.
	Err error
}

// Error implements error.
func (e *LockedError) Error() string {
	if e.Err == nil {
		return e.Which() + ": waited behind other reads that wait for this lock"
	}
	return fmt.Sprintf("%s: %v", e.Which(), e.Err)
}

// Which returns a sentence that names the locked tables, without its full stop.
func (e *LockedError) Which() string {
	return fmt.Sprintf("the tables of partition %d are locked by something else in the database", e.Partition)
}

// Unwrap returns the error of Postgres, or nil.
func (e *LockedError) Unwrap() error { return e.Err }

// OfLock reports whether a statement failed because it waited for a lock longer than
// lock_timeout.
func OfLock(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "55P03" // lock_not_available
}
