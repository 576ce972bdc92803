package archive

import (
	"fmt"
	"slices"
	"strings"

	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/partition/childfilter"
)

// A split does not change the archived files of the parent. Both children share these files, and
// Read filters the events by the users of a child. At first the manifest still lists the files
// under the parent, and Files finds them through the ancestors of the child. When an entry of a
// child is added or changed, divide lists the files under both children instead.

// Shared reports whether f is the entry of a partition for a file that was written for an ancestor
// of this partition.
func (f *File) Shared() bool { return f.From != nil }

// Whole returns the entry of the file for the partition for which the file was written.
func (f File) Whole() File {
	if f.From != nil {
		f.Partition, f.From = *f.From, nil
	}
	return f
}

// entriesFor returns the entries of files for `partition`, a descendant of the files' partition.
func entriesFor(files []File, partition int) []File {
	entries := make([]File, len(files))
	for i, f := range files {
		entries[i] = f.forPartition(partition)
	}
	return entries
}

// forPartition returns the entry of the file for `partition`, a descendant of the file's partition.
func (f File) forPartition(partition int) File {
	if f.From == nil {
		from := f.Partition
		f.From = &from
	}
	f.Partition = partition
	return f
}

// divide prepares the manifest for a change of a partition's entries. If the partition has no
// entries, its files are listed under an ancestor. In this case divide lists the files of the
// nearest such ancestor under both children of this ancestor instead. It repeats this until the
// partition has entries.
func (a *Archive) divide(partition int) {
	top, divided := a.holder(partition)
	for ; top != partition && len(divided) > 0; top, divided = a.holder(partition) {
		one, other, _ := eventlog.Children(top, a.manifest.Partitions)
		a.replace(top, append(entriesFor(divided, one), entriesFor(divided, other)...))
		a.markLeftover(top, len(divided)) // later calls look for leftovers of the children only
	}
	if len(divided) > 0 {
		return
	}
	for parent, ok := a.parent(partition); ok; parent, ok = a.parent(parent) {
		a.markLeftover(parent, 0) // an interrupted run may have written its first file
	}
}

// replace replaces the entries of a partition by files, which come last in the manifest.
func (a *Archive) replace(partition int, files []File) {
	others := slices.DeleteFunc(a.manifest.Files, func(f File) bool { return f.Partition == partition })
	a.manifest.Files = append(others, files...)
}

// SplitError is returned if the archive has files of a child partition, but the database has not
// split the parent. So the database was restored to a time before the split.
type SplitError struct {
	// Partitions are the partitions to split, in this order.
	Partitions []int
}

// Error implements error.
func (e *SplitError) Error() string {
	list := strings.Trim(fmt.Sprint(e.Partitions), "[]")
	return fmt.Sprintf("the archive was continued after partition %d was split, and the database was restored to a time before the split: run `badged partition split %s`, so that the database agrees with the archive, then repeat this command", e.Partitions[0], list)
}

// Split returns the partitions that must be split, so that the log gets all descendants of
// `partition` that have files in the archive. The result has the partition itself and perhaps some
// of its descendants, in the order in which to split them. It is empty unless the log is new, or
// was restored to a time before a split.
func (a *Archive) Split(partition int) (split []int) {
	for _, number := range a.Numbers() {
		var through []int
		for parent, ok := a.parent(number); ok; parent, ok = a.parent(parent) {
			through = append(through, parent)
			if parent == partition {
				split = append(split, through...)
			}
		}
	}
	slices.Sort(split) // children have higher numbers than their parents
	return slices.Compact(split)
}

// parent returns the partition whose split created a partition. The result is false for a partition
// that the log had from the start.
func (a *Archive) parent(partition int) (int, bool) {
	return eventlog.Parent(partition, a.manifest.Partitions)
}

// holder finds the partition under which the manifest lists the files of a partition: the
// partition itself, or else its nearest ancestor with entries. It returns the found partition and
// its entries. If no partition has entries, it returns the given partition and no entries.
func (a *Archive) holder(partition int) (holder int, files []File) {
	for at, ok := partition, true; ok; at, ok = a.parent(at) {
		if files = a.ownFiles(at); len(files) > 0 {
			return at, files
		}
	}
	return partition, nil
}

// ownFiles returns the manifest's entries for a partition.
func (a *Archive) ownFiles(partition int) []File {
	var files []File
	for _, f := range a.manifest.Files {
		if f.Partition == partition {
			files = append(files, f)
		}
	}
	return files
}

// filters returns the child filters to apply to the records of a file, in order: one for each split
// on the path from f.From to f.Partition. It fails if f.From is not an ancestor of f.Partition.
func (a *Archive) filters(f File) (steps []childfilter.Filter, err error) {
	if f.From == nil {
		return nil, nil
	}
	for at := f.Partition; at != *f.From; {
		parent, ok := a.parent(at)
		if !ok {
			return nil, &FileError{a.path(f), fmt.Sprintf("is a file of partition %d, which is not an ancestor of partition %d", *f.From, f.Partition)}
		}
		first, _, _ := eventlog.Children(parent, a.manifest.Partitions)
		steps = append(steps, childfilter.Filter{Parent: parent, Child: at, Partitions: a.manifest.Partitions, First: at == first})
		at = parent
	}
	slices.Reverse(steps)
	return steps, nil
}

// reduce applies child filters to a record.
func reduce(r *Record, steps []childfilter.Filter) (err error) {
	for _, s := range steps {
		if r.Payload, err = s.Archived(r.Payload); err != nil {
			return fmt.Errorf("the event at %s: %w", r.Place, err)
		}
	}
	return nil
}
