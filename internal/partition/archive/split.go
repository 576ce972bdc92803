package archive

import (
	"fmt"
	"slices"
	"strings"

	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/partition/childfilter"
)

// A split does not change the files of the parent. Both children share these files, and a reader
// of a child gets only the events of the child's users. At first the manifest still lists the
// files under the parent, and Files finds them through the ancestors of the child. When an entry
// of a child is added or changed, divide lists the files under both children instead.

// Shared reports whether f is the entry of a partition for a file that was written for one of its
// ancestors.
func (f *File) Shared() bool { return f.From != nil }

// Whole returns the entry for the partition whose events the file contains.
func (f File) Whole() File {
	if f.From != nil {
		f.Partition, f.From = *f.From, nil
	}
	return f
}

// as returns the entry for a descendant of the file's partition.
func (f File) as(partition int) File {
	if f.From == nil {
		from := f.Partition
		f.From = &from
	}
	f.Partition = partition
	return f
}

// divide prepares the manifest for a change of entries of a partition. If only an ancestor of the
// partition has entries, divide replaces them by entries of the ancestor's children, and so on
// down to the partition.
func (a *Archive) divide(partition int) {
	for len(a.own(partition)) == 0 {
		var divided []File
		top := partition
		for parent, ok := a.parent(partition); ok && len(divided) == 0; parent, ok = a.parent(parent) {
			top, divided = parent, a.own(parent)
		}
		one, other, ok := eventlog.Children(top, a.manifest.Partitions)
		if len(divided) == 0 || !ok {
			break
		}
		a.manifest.Files = slices.DeleteFunc(a.manifest.Files, func(f File) bool { return f.Partition == top })
		for _, child := range []int{one, other} {
			for _, f := range divided {
				a.manifest.Files = append(a.manifest.Files, f.as(child))
			}
		}
		a.markLeftover(top, len(divided)) // later calls look for leftovers of the children only
	}
	if len(a.own(partition)) > 0 {
		return
	}
	for parent, ok := a.parent(partition); ok; parent, ok = a.parent(parent) {
		a.markLeftover(parent, 0) // an interrupted run may have written its first file
	}
}

// SplitError is returned if the archive has files of a child partition, but the parent is not
// split in the database. So the database was restored to a time before the split.
type SplitError struct {
	// Partitions are the partitions to split, in this order.
	Partitions []int
}

// Error implements error.
func (e *SplitError) Error() string {
	list := strings.Trim(fmt.Sprint(e.Partitions), "[]")
	return fmt.Sprintf("the archive was continued after partition %d was split, and the database was restored to a time before the split: run `badged partition split %s`, so that the database agrees with the archive, then repeat this command", e.Partitions[0], list)
}

// Split returns the partitions to split, in this order, so that the log has all descendants of
// the given partition that have files in the archive: the partition itself and descendants of
// it. Split returns none unless the log was restored to a time before a split.
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

// parent returns the partition whose split created a partition.
func (a *Archive) parent(partition int) (int, bool) {
	return eventlog.Parent(partition, a.manifest.Partitions)
}

// own returns the manifest's entries for a partition.
func (a *Archive) own(partition int) []File {
	var files []File
	for _, f := range a.manifest.Files {
		if f.Partition == partition {
			files = append(files, f)
		}
	}
	return files
}

// filters returns the child filters to apply to the records of a file, one for each split between
// f.From and f.Partition. It fails if f.From is not an ancestor of f.Partition.
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
