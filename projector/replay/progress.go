package replay

import "github.com/badged/badged/internal/pgsession"

// Progress receives the progress of a verification, rebuild or archiving. It
// is called by one goroutine at a time.
type Progress interface {
	// Planned adds to the planned work on a partition, in any unit that Done
	// uses too.
	Planned(partition int, work int64)
	// Done reports the planned work done since the last call, and its number
	// of events.
	Done(work, events int)
	// Blocked is called from time to time while a partition waits for a transaction
	// that reads tables to be swapped or dropped.
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
