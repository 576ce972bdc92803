package archive

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/log/tombstones"
)

// Leftovers are files of the archive that the database does not list. Usually an interrupted run
// has written them, and the log still has their events. But if the database was restored to an
// earlier time, a leftover may have the only copy of its events.

// lostEvents is the reason in the FileError about a leftover that must not be deleted.
const lostEvents = "has events that are not in the log: if the database was restored to a time before the file was written, move the file out of the archive, with the later files of its partition; it may name users who are erased now"

// Row identifies a row of the log by values that splits, moves, erasures and restores do not
// change. It does not have the place of the row, since moves and restores change the place.
type Row struct {
	UUID       uuid.UUID
	AppendedAt time.Time
}

// Lacking returns the given rows of an archive file that would be lost if the file were deleted:
// rows that are not in the log of the partition and, if the function also searches another
// archive, not in that archive either.
type Lacking func(ctx context.Context, rows []Row) ([]Row, error)

// Tail selects the leftovers of a partition: its files with numbers above Known.
type Tail struct {
	// Known is the number of files that the database lists.
	Partition, Known int
	// Copies are files of another archive. CheckCut does not check a leftover with the same content
	// as one of Copies.
	Copies  []File
	Lacking Lacking
}

// Cut deletes the leftovers that `tails` select: files that the database does not list. It also
// deletes their entries in the manifest, and files that an interrupted run has written and not
// added to the manifest. Call CheckCut for each tail first.
func (a *Archive) Cut(ctx context.Context, tails ...Tail) error {
	for _, t := range tails {
		for _, f := range a.leftovers(t) {
			a.expect(f.Name)
		}
		if len(a.Files(t.Partition)) > t.Known {
			a.divide(t.Partition)
			a.manifest.Files = slices.DeleteFunc(a.manifest.Files, func(f File) bool { return f.Partition == t.Partition && f.Number > t.Known })
		}
	}
	if err := a.save(ctx); err != nil {
		return err
	}
	return a.RemoveStale(ctx)
}

// CheckCut fails with a [*FileError] if a file that Cut would delete cannot be read, or has an
// event that exists nowhere else. It skips files that do not exist, were declared lost, or have the
// same content as one of t.Copies.
//
// If the manifest has no entries of the partition itself, CheckCut also checks one file of each
// ancestor, up to the nearest ancestor with entries: the file whose number follows the last entry.
// An interrupted run may have written this file before the split. As soon as an entry of the
// partition is added or changed, the manifest lists the file as stale, and the file is deleted.
func (a *Archive) CheckCut(ctx context.Context, t Tail) error {
	files := a.leftovers(t)
	at := t.Partition
	for len(a.ownFiles(at)) == 0 {
		parent, ok := a.parent(at)
		if !ok {
			break
		}
		at = parent
		number := len(a.Files(at)) + 1
		files = append(files, File{Partition: at, Number: number, Name: FileName(at, number)}.forPartition(t.Partition))
	}
	for _, f := range files {
		if f.GivenUp != nil || slices.ContainsFunc(t.Copies, func(same File) bool { return f.SHA256 != "" && same.SHA256 == f.SHA256 }) {
			continue
		}
		there, err := a.exists(ctx, f.Name)
		if err != nil {
			return fmt.Errorf("read archive file %s: %w", a.path(f), err)
		}
		if !there {
			continue
		}
		if err := a.wantElsewhere(ctx, f, t.Lacking); err != nil {
			return err
		}
	}
	return nil
}

// wantElsewhere fails unless every row of a file also exists elsewhere, according to `lacking`.
func (a *Archive) wantElsewhere(ctx context.Context, f File, lacking Lacking) error {
	const atOnce = 100_000 // lacking reads the whole log for each batch
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

// leftovers returns the files that a tail selects: the manifest's entries with numbers above
// t.Known, and up to two files without an entry, which an interrupted run may have written. One of
// them has the number after t.Known, the other the number after the last entry.
func (a *Archive) leftovers(t Tail) (files []File) {
	all := a.Files(t.Partition)
	for _, f := range all {
		if f.Number > t.Known {
			files = append(files, f)
		}
	}
	for _, before := range []int{t.Known, len(all)} {
		name := FileName(t.Partition, before+1)
		if !slices.ContainsFunc(files, func(f File) bool { return f.Name == name }) {
			files = append(files, File{Partition: t.Partition, Number: before + 1, Name: name})
		}
	}
	return files
}

// EachRow calls visit with pages of the rows from which the records of a file were archived, in
// order. It omits a row if each of its events was erased or belongs to another partition.
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

// Left reports whether a record still has an event, or the number of erased members of a room,
// after erasures of users and splits of the partition.
func (r *Record) Left() bool {
	rest, ok := tombstones.Parse(r.Payload)
	return !ok || rest.Event != nil || rest.Members != nil
}

// markLeftover makes RemoveStale delete the file that follows the first n files of a partition,
// unless the file has an entry in the manifest: an interrupted run may have written the file.
func (a *Archive) markLeftover(partition, n int) { a.expect(FileName(partition, n+1)) }

// FileName returns the name of the first revision of a file.
func FileName(partition, number int) string {
	return fmt.Sprintf("%s.%05d%s", events.Topic(partition), number, extension)
}
