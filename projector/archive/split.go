package archive

import (
	"fmt"
	"slices"
	"strings"

	"github.com/badged/badged/internal/eventlog"
	"github.com/badged/badged/projector/internal/share"
)

// Partitions that were split: the files of the parent stay as they are, and are files of
// both children too, each of which reads its share of them. Until something of a child is
// added to the manifest, or taken out of it, it is the manifest from before the split, and
// the children are looked up by their ancestor.

// Shared reports whether the file has the events of a partition that was split, and f is
// the share of a partition that came from it.
func (f *File) Shared() bool { return f.From != nil }

// Whole returns the file as that of the partition whose events it has.
func (f File) Whole() File {
	if f.From != nil {
		f.Partition, f.From = *f.From, nil
	}
	return f
}

// as returns the file as that of a partition which came from the file's.
func (f File) as(partition int) File {
	if f.From == nil {
		from := f.Partition
		f.From = &from
	}
	f.Partition = partition
	return f
}

// divide gives both children of each ancestor of a partition the files of the ancestor, if
// the manifest has them still as its files.
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
		a.leave(top, len(divided)) // no call for the parent will delete it
	}
	if len(a.own(partition)) > 0 {
		return
	}
	for parent, ok := a.parent(partition); ok; parent, ok = a.parent(parent) {
		a.leave(parent, 0) // its first, if that was interrupted
	}
}

// SplitError is returned if the archive has files of partitions into which some of the log's
// were split, of which the log does not know.
type SplitError struct {
	// Partitions are to be split, in this order.
	Partitions []int
}

// Error implements error.
func (e *SplitError) Error() string {
	list := strings.Trim(fmt.Sprint(e.Partitions), "[]")
	return fmt.Sprintf("the archive was continued after partition %d was split, and the database was restored to before that: run `badged partition split %s`, which makes them agree, then repeat this command", e.Partitions[0], list)
}

// Split returns the partitions that have to be split, in this order, for a log with a
// partition to have those of which the archive has files. There is none, unless something
// was archived after a split of which the log does not know, since it was restored to
// before that.
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
	slices.Sort(split) // those that come from another have higher numbers
	return slices.Compact(split)
}

// parent returns the partition that was split into one.
func (a *Archive) parent(partition int) (int, bool) {
	return eventlog.Parent(partition, a.manifest.Partitions)
}

// own returns the files that the manifest has for a partition.
func (a *Archive) own(partition int) []File {
	var files []File
	for _, f := range a.manifest.Files {
		if f.Partition == partition {
			files = append(files, f)
		}
	}
	return files
}

// shares returns how the records of a file become those of its partition: the shares of
// its ancestors, from the one whose events the file has. It fails if that is none.
func (a *Archive) shares(f File) (steps []share.Of, err error) {
	if f.From == nil {
		return nil, nil
	}
	for at := f.Partition; at != *f.From; {
		parent, ok := a.parent(at)
		if !ok {
			return nil, &FileError{a.path(f), fmt.Sprintf("is of partition %d, from which partition %d did not come", *f.From, f.Partition)}
		}
		first, _, _ := eventlog.Children(parent, a.manifest.Partitions)
		steps = append(steps, share.Of{Parent: parent, Child: at, Partitions: a.manifest.Partitions, First: at == first})
		at = parent
	}
	slices.Reverse(steps)
	return steps, nil
}

// reduce makes a record that of a partition, by the shares of its ancestors.
func reduce(r *Record, steps []share.Of) (err error) {
	for _, s := range steps {
		if r.Payload, err = s.Archived(r.Payload); err != nil {
			return fmt.Errorf("the event at %s: %w", r.Place, err)
		}
	}
	return nil
}
