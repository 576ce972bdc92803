package archive

import (
	"context"
	"fmt"
	"io"
	"slices"
)

// Take copies files of a partition from another archive, durably, in place of those that
// the manifest has. They are all files of the partition up to some number. Both archives
// have them then.
func (a *Archive) Take(ctx context.Context, from *Archive, files []File) error {
	if err := a.RemoveStale(ctx); err != nil { // it may name what is copied now
		return err
	}
	for _, f := range files {
		a.expect(f.Name)
	}
	if err := a.save(ctx); err != nil {
		return err
	}
	for _, f := range files {
		if f.GivenUp != nil {
			continue
		}
		if err := a.takeFile(ctx, from, f); err != nil {
			return fmt.Errorf("copy archive file %s: %w", from.path(f), err)
		}
		if err := a.Check(ctx, f); err != nil {
			return err
		}
	}
	a.divide(files[0].Partition)
	a.manifest.Files = append(slices.DeleteFunc(a.manifest.Files, func(f File) bool { return f.Partition == files[0].Partition }), files...)
	return a.save(ctx)
}

func (a *Archive) takeFile(ctx context.Context, from *Archive, f File) error {
	r, err := from.store.Open(ctx, f.Name)
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := a.store.Create(ctx, f.Name)
	if err != nil {
		return err
	}
	if _, err := io.Copy(w, r); err != nil {
		w.Abort()
		return err
	}
	return w.Commit()
}
