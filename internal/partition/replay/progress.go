package replay

import "github.com/badged/badged/internal/pg/pgsession"

// Progress receives the progress of a verification, rebuild or archiving. One goroutine at a
// time calls it.
type Progress interface {
	// Planned adds to the planned work on a partition. The caller chooses the unit, and uses
	// the same unit for Done.
	Planned(partition int, work int64)
	// Done reports how much planned work was done since the last call, and the number of events
	// in it.
	Done(work, events int)
	// Blocked is called repeatedly while work on a partition waits for a transaction that reads
	// the tables to swap or drop.
	Blocked(partition int, by pgsession.Holder)
}

// Unwatched is a Progress that ignores its calls.
type Unwatched struct{}

// Planned implements Progress.
func (Unwatched) Planned(int, int64) {}

// Done implements Progress.
func (Unwatched) Done(int, int) {}

// Blocked implements Progress.
func (Unwatched) Blocked(int, pgsession.Holder) {}
