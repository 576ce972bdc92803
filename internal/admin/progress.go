package admin

import "fmt"

// Meter receives the progress of a rebuild, verification or archiving; see
// [progress.Meter]. It is called by one goroutine at a time.
type Meter interface {
	Begin(phase string, total int64, countsEvents bool)
	Advance(done int64, events int)
	Note(text string)
}

// Partitions shows on a meter the progress over partitions, which are worked
// on one after the other. The amount of work on a partition is known only once
// it begins. It implements [replay.Progress].
type Partitions struct {
	meter         Meter
	finished      int64
	planned, done int64 // of the partition at hand
}

// wholePartition is the progress of one whole partition.
const wholePartition = 1000

// BeginPartitions begins a phase of a meter.
func BeginPartitions(m Meter, phase string, partitions int, countsEvents bool) *Partitions {
	m.Begin(phase, wholePartition*int64(partitions), countsEvents)
	return &Partitions{meter: m}
}

// Planned implements replay.Progress.
func (p *Partitions) Planned(_ int, work int64) { p.planned += work }

// Done implements replay.Progress.
func (p *Partitions) Done(work, events int) {
	p.done += int64(work)
	// Less than the whole: after the planned work, a rebuild must catch up,
	// and may wait for readers.
	p.meter.Advance(wholePartition*p.finished+(wholePartition-1)*p.done/max(p.planned, p.done, 1), events)
}

// Blocked implements replay.Progress.
func (p *Partitions) Blocked(partition, pid int, application string) {
	p.meter.Note(fmt.Sprintf("partition %d waits for %q (Postgres process %d) to stop reading its tables", partition, application, pid))
}

// Finish records that more partitions are finished.
func (p *Partitions) Finish(partitions int) {
	p.finished += int64(partitions)
	p.planned, p.done = 0, 0
	p.meter.Advance(wholePartition*p.finished, 0)
}
