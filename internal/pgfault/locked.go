package pgfault

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// LockedError is returned for a read or an append that was given up because it waited for a
// partition: something else holds a lock on its tables, such as a migration by hand.
type LockedError struct {
	Partition int
	// Err is nil if it waited behind other reads of the partition.
	Err error
}

// Error implements error.
func (e *LockedError) Error() string {
	if e.Err == nil {
		return e.Which() + ": waited behind others that wait for them"
	}
	return fmt.Sprintf("%s: %v", e.Which(), e.Err)
}

// Which says what waited, as a sentence without its end.
func (e *LockedError) Which() string {
	return fmt.Sprintf("the tables of partition %d are locked by something else in the database", e.Partition)
}

// Unwrap returns the error.
func (e *LockedError) Unwrap() error { return e.Err }

// OfLock reports whether a statement has waited for a lock for as long as it may.
func OfLock(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "55P03" // lock_not_available
}
