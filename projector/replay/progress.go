package replay

// Progress is told how far a verification, rebuild or archiving is. It is
// called by one goroutine at a time.
type Progress interface {
	// Planned adds to the work on a partition, in a unit that only its ratio
	// to what is done depends on.
	Planned(partition int, work int64)
	// Done says how much of the planned work was done since the last call, and
	// how many events that was.
	Done(work, events int)
	// Blocked is called from time to time while a partition waits for a session
	// that reads tables to be swapped or dropped.
	Blocked(partition, pid int, application string)
}

// Unwatched is the Progress that tells nothing.
type Unwatched struct{}

// Planned implements Progress.
func (Unwatched) Planned(int, int64) {}

// Done implements Progress.
func (Unwatched) Done(int, int) {}

// Blocked implements Progress.
func (Unwatched) Blocked(int, int, string) {}
