package archive

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"slices"

	"github.com/badged/badged/internal/remains"
)

// otherEvents is why a file is not accepted.
const otherEvents = "holds other events than the log: if the database was restored to before it was written, move it out of the archive, with the later files of its partition; otherwise choose another archive"

// Add adds a written file to the manifest, durably. It replaces an entry with the same
// number, which an interrupted run left, and if that is of another file, all later entries
// too. It fails with a [*FileError] if one of their files has events that f lacks, perhaps
// the only copy of them.
func (a *Archive) Add(ctx context.Context, f File) error {
	a.divide(f.Partition)
	var before []File // from its number on
	for _, old := range a.own(f.Partition) {
		if old.Number >= f.Number {
			before = append(before, old)
		}
	}
	if len(before) > 0 && before[0].SHA256 != f.SHA256 {
		if err := a.wantAllOf(ctx, f, before); err != nil {
			return err
		}
		a.manifest.Files = slices.DeleteFunc(a.manifest.Files, func(old File) bool { return old.Partition == f.Partition && old.Number > f.Number })
	}
	i := slices.IndexFunc(a.manifest.Files, func(old File) bool { return old.Partition == f.Partition && old.Number == f.Number })
	if i < 0 {
		a.manifest.Files = append(a.manifest.Files, f)
		return a.save(ctx)
	}
	a.manifest.Files[i] = f
	for _, old := range before {
		if !slices.ContainsFunc(a.manifest.Files, func(f File) bool { return f.Name == old.Name }) {
			a.manifest.Stale = append(a.manifest.Stale, old.Name)
		}
	}
	return a.save(ctx)
}

// wantAllOf fails unless a file begins with all events of others: of those that interrupted
// runs have left before a split, or of none, since they were moved out of the archive.
func (a *Archive) wantAllOf(ctx context.Context, f File, others []File) error {
	was := newContent()
	var ends []int    // of each of the others, in events
	var sums []string // up to there
	var present []File
	for _, old := range others {
		there := false
		if old.GivenUp == nil && old.Name != f.Name { // else f was written in its place
			var err error
			if there, err = a.exists(ctx, old.Name); err != nil {
				return fmt.Errorf("read archive file %s: %w", a.path(old), err)
			}
		}
		if !there {
			continue
		}
		if err := was.read(ctx, a, old, nil); err != nil {
			return err
		}
		present, ends, sums = append(present, old), append(ends, was.events), append(sums, was.sum())
	}
	is, next := newContent(), 0
	reached := func() {
		for next < len(ends) && is.events == ends[next] && is.sum() == sums[next] {
			next++
		}
	}
	reached()
	if err := is.read(ctx, a, f, reached); err != nil {
		return err
	}
	if next < len(present) {
		return &FileError{a.path(present[next]), otherEvents}
	}
	return nil
}

// content is a digest of events, without those of which nothing is left in their partition.
type content struct {
	events int
	hash   hash.Hash
	text   []byte
}

func newContent() *content { return &content{hash: sha256.New()} }

func (c *content) sum() string { return string(c.hash.Sum(nil)) }

// read adds the events of a file, and calls added, unless it is nil, after each.
func (c *content) read(ctx context.Context, a *Archive, f File, added func()) error {
	return a.Read(ctx, f, func(records []Record) error {
		for i := range records {
			if !records[i].Left() {
				continue
			}
			c.text = appendRecord(c.text[:0], &records[i])
			c.hash.Write(c.text)
			if c.events++; added != nil {
				added()
			}
		}
		return nil
	})
}

// Left reports whether anything of a record is left, of which users were erased or are in
// another partition.
func (r *Record) Left() bool {
	rest, ok := remains.Parse(r.Payload)
	return !ok || rest.Event != nil || rest.Members != nil
}
