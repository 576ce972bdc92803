package replay

import "github.com/badged/badged/internal/pg/pgsession"

// Progress receives the progress of a verification, rebuild or archiving. Its methods are not
// called concurrently.
type Progress interface {
	// Planned reports additional work that the job must do on a partition. The job chooses the
	// unit, such as events or rows, and uses the same unit for Done.
	Planned(partition int, work int64)
	// Done reports how much of the planned work was done since the last call, and how many
	// events were read for this work.
	Done(work, events int)
	// Blocked is called repeatedly while tables of a partition cannot be swapped or dropped
	// because another transaction uses the tables. holder describes this transaction.
	Blocked(partition int, holder pgsession.Holder)
}

// Unwatched is a Progress that ignores its calls.
type Unwatched struct{}

// Planned implements Progress.
func (Unwatched) Planned(int, int64) {}

// Done implements Progress.
func (Unwatched) Done(int, int) {}

// Blocked implements Progress.
func (Unwatched) Blocked(int, pgsession.Holder) {}
