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

// Replacing files: Replace notes them in the manifest and writes them under new names, Adopt puts them into the
// manifest and lists those that they replace as stale, and RemoveStale deletes these.
// After an interruption the manifest has either, and RemoveStale can be repeated.

// extension ends the names of files.
const extension = ".ndjson.zst"

// Replace writes a file durably in place of f, with as many records, and reads it back. If
// f is shared, the new file is of its partition alone.
// each calls its argument with every record in order. The result is the manifest
// entry without its proof; Replace does not add it to the manifest.
func (a *Archive) Replace(ctx context.Context, f File, each func(func(*Record) error) error) (File, error) {
	next := File{
		Partition: f.Partition, Number: f.Number, Previous: f.Previous, Generations: f.Generations, DeadLetters: f.DeadLetters,
		Revision: f.Revision + 1, Origin: cmp.Or(f.Origin, f.SHA256),
	}
	next.Name = replacedName(f)
	// Until it is in the manifest, it is one that nothing needs.
	a.expect(next.Name)
	if err := a.save(ctx); err != nil {
		return next, err
	}
	if err := a.put(ctx, &next, false, each); err != nil {
		return next, err
	}
	if next.Events != f.Events || next.Last != f.Last {
		err := fmt.Errorf("write archive file %s: it has %d events up to %s, and should have %d up to %s", a.path(next), next.Events, next.Last, f.Events, f.Last)
		return next, errors.Join(err, a.store.Remove(context.WithoutCancel(ctx), next.Name))
	}
	return next, nil
}

// Successor returns what the proof of a file is of: that the file at this place of the log,
// which first had the hash Origin, has this hash after that many revisions.
func (f *File) Successor() string {
	return fmt.Sprintf("file %d/%d %s r%d %s", f.Whole().Partition, f.Number, f.Origin, f.Revision, f.SHA256)
}

// replacedName returns the name of the file that replaces f: with a number that no
// file of its place has had.
func replacedName(f File) string {
	if f.Shared() {
		f.Name = "" // its own are numbered from 1
	}
	times := 0
	_, suffix, _ := strings.Cut(strings.TrimSuffix(f.Name, extension), ".r")
	_, _ = fmt.Sscanf(suffix, "%d", &times) // 0 for the first
	return fmt.Sprintf("%s.%05d.r%d%s", events.Topic(f.Partition), f.Number, times+1, extension)
}

// Adopt puts files that were written by Replace into the manifest, durably.
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

// relink makes each entry follow the one before it.
func (a *Archive) relink() {
	previous := map[int]string{} // the files of a partition are in order
	for i := range a.manifest.Files {
		f := &a.manifest.Files[i]
		f.Previous = previous[f.Partition]
		previous[f.Partition] = f.SHA256
	}
}

// expect notes a file that is to be deleted unless it comes into the manifest, and what a
// process that is killed leaves while it writes it.
func (a *Archive) expect(name string) {
	for _, left := range []string{name, name + partExtension} {
		if !slices.Contains(a.manifest.Stale, left) {
			a.manifest.Stale = append(a.manifest.Stale, left)
		}
	}
}

// RemoveStale deletes the files that are not in the manifest any more. One that another
// partition shares stays.
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
