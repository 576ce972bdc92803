package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/badged/badged/events"
)

// Replacing files takes three steps. First, Replace lists the name of the new file as stale in the
// manifest, and writes the file. Second, Adopt replaces the entries of the old files in the
// manifest by the entries of the new files, and lists the old files as stale. Third, RemoveStale
// deletes the stale files that have no entry. So after an interruption at any point, RemoveStale
// deletes the file without an entry: the new file or the old one.

// extension ends the names of files.
const extension = ".ndjson.zst"

// Replace durably writes the next revision of f, and reads it back to check it. The new file must
// have as many records as f, and the same last place. If several partitions share f, the new file
// belongs to f's partition only. The function eachRecord must call its argument once for every
// record, in order. Replace returns the manifest entry without its proof; [Archive.Adopt] adds the
// entry to the manifest.
func (a *Archive) Replace(ctx context.Context, f File, eachRecord func(func(*Record) error) error) (File, error) {
	next := File{
		Partition: f.Partition, Number: f.Number, Previous: f.Previous, Generations: f.Generations, DeadLetters: f.DeadLetters,
		Revision: f.Revision + 1, Origin: cmp.Or(f.Origin, f.SHA256),
	}
	next.Name = replacedName(f)
	// RemoveStale deletes the file unless Adopt adds it.
	a.expect(next.Name)
	if err := a.save(ctx); err != nil {
		return next, err
	}
	if err := a.put(ctx, &next, eachRecord); err != nil {
		return next, err
	}
	if next.Events != f.Events || next.Last != f.Last {
		err := fmt.Errorf("write archive file %s: it has %d events up to %s, and should have %d up to %s", a.path(next), next.Events, next.Last, f.Events, f.Last)
		return next, errors.Join(err, a.store.Remove(context.WithoutCancel(ctx), next.Name))
	}
	return next, nil
}

// Successor returns the text from which the proof of a file is computed, as a keyed hash. The text
// binds the SHA-256 of the file to its partition, number, Origin and revision.
func (f *File) Successor() string {
	return fmt.Sprintf("file %d/%d %s r%d %s", f.Whole().Partition, f.Number, f.Origin, f.Revision, f.SHA256)
}

// replacedName returns the name of the file that replaces f. The name contains the next revision
// number, so no earlier file with this partition and number has the same name.
func replacedName(f File) string {
	if f.Shared() {
		f.Name = "" // the new file belongs to one partition only: its revisions begin at 1
	}
	times := 0
	_, suffix, _ := strings.Cut(strings.TrimSuffix(f.Name, extension), ".r")
	_, _ = fmt.Sscanf(suffix, "%d", &times) // 0 for the first revision
	return fmt.Sprintf("%s.%05d.r%d%s", events.Topic(f.Partition), f.Number, times+1, extension)
}

// Adopt durably replaces entries of the manifest by `files`, the entries of files that Replace has
// written.
func (a *Archive) Adopt(ctx context.Context, files []File) error {
	for _, f := range files {
		a.divide(f.Partition)
		i := slices.IndexFunc(a.manifest.Files, func(old File) bool { return old.Partition == f.Partition && old.Number == f.Number })
		a.manifest.Stale = append(a.manifest.Stale, a.manifest.Files[i].Name)
		a.manifest.Files[i] = f
	}
	a.relink()
	return a.save(ctx)
}

// relink sets Previous of each entry to the hash of the entry before it.
func (a *Archive) relink() {
	previous := map[int]string{} // the files of a partition are in order
	for i := range a.manifest.Files {
		f := &a.manifest.Files[i]
		f.Previous = previous[f.Partition]
		previous[f.Partition] = f.SHA256
	}
}

// expect lists the name of a file as stale before the file is written, so that RemoveStale deletes
// the file unless it gets an entry in the manifest. It also lists the name that the file has until
// it is complete: a killed process leaves such a file.
func (a *Archive) expect(name string) {
	for _, left := range []string{name, name + partExtension} {
		if !slices.Contains(a.manifest.Stale, left) {
			a.manifest.Stale = append(a.manifest.Stale, left)
		}
	}
}

// RemoveStale deletes the files that are listed as stale and have no entry in the manifest. A stale
// file has an entry if another partition shares the file, or if its writing was completed.
func (a *Archive) RemoveStale(ctx context.Context) error {
	if len(a.manifest.Stale) == 0 {
		return nil
	}
	for _, name := range a.manifest.Stale {
		if slices.ContainsFunc(a.manifest.Files, func(f File) bool { return f.Name == name }) {
			continue
		}
		if err := a.store.Remove(ctx, path.Base(name)); err != nil {
			return fmt.Errorf("delete archive file %s: %w", name, err)
		}
	}
	a.manifest.Stale = nil
	return a.save(ctx)
}
