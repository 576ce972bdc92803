package archive

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/badged/badged/events"
)

// Leftovers are files of which the database knows nothing. Interrupted runs leave them, and
// then the log still has their events. If the database was restored to before they were
// written, they may have the only copy.

// lostEvents is why a leftover is not deleted.
const lostEvents = "holds events that the log lacks: if the database was restored to before it was written, move it out of the archive, with the later files of its partition; it may name users who are erased now"

// Row identifies a row of the log. Splits, moves, erasures and restores of an archive keep
// both, but not the row's place.
type Row struct {
	UUID       uuid.UUID
	AppendedAt time.Time
}

// Lacking returns those of some rows of a partition that are nowhere else.
type Lacking func(ctx context.Context, rows []Row) ([]Row, error)

// Cut takes the files of a partition behind the first n out of the manifest, durably, with
// those that an interrupted run has left without an entry. It fails as CheckCut does, and
// then changes nothing.
func (a *Archive) Cut(ctx context.Context, partition, n int, copies []File, lacking Lacking) error {
	if err := a.CheckCut(ctx, partition, n, copies, lacking); err != nil {
		return err
	}
	a.divide(partition)
	for _, f := range a.leftovers(partition, n) {
		a.expect(f.Name)
	}
	a.manifest.Files = slices.DeleteFunc(a.manifest.Files, func(f File) bool { return f.Partition == partition && f.Number > n })
	return a.save(ctx)
}

// CheckCut fails with a [*FileError] if a file that Cut deletes has an event that is
// nowhere else, or cannot be read. It does not read those of which copies, in another
// archive, are the same, nor miss those that were moved out of the archive.
func (a *Archive) CheckCut(ctx context.Context, partition, n int, copies []File, lacking Lacking) error {
	if err := a.CheckSplit(ctx, partition, lacking); err != nil {
		return err
	}
	return a.check(ctx, a.leftovers(partition, n), copies, lacking)
}

// CheckSplit does what CheckCut does for files of partitions that were split, from which the
// partition came. They are deleted once a file of the partition is added or replaced.
func (a *Archive) CheckSplit(ctx context.Context, partition int, lacking Lacking) error {
	var files []File
	at := partition
	for len(a.own(at)) == 0 {
		parent, ok := a.parent(at)
		if !ok {
			break
		}
		at = parent
		number := len(a.Files(at)) + 1
		files = append(files, File{Partition: at, Number: number, Name: fileName(at, number)}.as(partition))
	}
	return a.check(ctx, files, nil, lacking)
}

func (a *Archive) check(ctx context.Context, files, copies []File, lacking Lacking) error {
	for _, f := range files {
		if f.GivenUp != nil || slices.ContainsFunc(copies, func(same File) bool { return f.SHA256 != "" && same.SHA256 == f.SHA256 }) {
			continue
		}
		there, err := a.exists(ctx, f.Name)
		if err != nil {
			return fmt.Errorf("read archive file %s: %w", a.path(f), err)
		}
		if !there {
			continue
		}
		if err := a.wantElsewhere(ctx, f, lacking); err != nil {
			return err
		}
	}
	return nil
}

// wantElsewhere fails if a file has an event that is nowhere else.
func (a *Archive) wantElsewhere(ctx context.Context, f File, lacking Lacking) error {
	const atOnce = 100_000 // each time, the log is read
	var rows []Row
	want := func() error {
		missing, err := lacking(ctx, rows)
		if err == nil && len(missing) > 0 {
			err = &FileError{a.path(f), lostEvents}
		}
		rows = nil
		return err
	}
	if err := a.EachRow(ctx, f, func(more []Row) error {
		if rows = append(rows, more...); len(rows) >= atOnce {
			return want()
		}
		return nil
	}); err != nil || len(rows) == 0 {
		return err
	}
	return want()
}

// leftovers returns the files of a partition behind the first n: those of the manifest, and
// those without an entry that an interrupted run may have left behind the first n, or behind
// all.
func (a *Archive) leftovers(partition, n int) (files []File) {
	all := a.Files(partition)
	for _, f := range all {
		if f.Number > n {
			files = append(files, f)
		}
	}
	for _, before := range []int{n, len(all)} {
		name := fileName(partition, before+1)
		if !slices.ContainsFunc(files, func(f File) bool { return f.Name == name }) {
			files = append(files, File{Partition: partition, Number: before + 1, Name: name})
		}
	}
	return files
}

// EachRow calls visit with the rows of a file that have an event left, in order and in
// pages.
func (a *Archive) EachRow(ctx context.Context, f File, visit func([]Row) error) error {
	_, _, err := a.read(ctx, f, func(page []Record) error {
		var rows []Row
		for i := range page {
			row := Row{page[i].UUID, page[i].AppendedAt}
			if page[i].Left() && (len(rows) == 0 || rows[len(rows)-1] != row) {
				rows = append(rows, row)
			}
		}
		return visit(rows)
	})
	return err
}

// leave records that an interrupted run may have left a file after the first n of a partition.
func (a *Archive) leave(partition, n int) { a.expect(fileName(partition, n+1)) }

// fileName returns the name of a file that was not replaced.
func fileName(partition, number int) string {
	return fmt.Sprintf("%s.%05d%s", events.Topic(partition), number, extension)
}
