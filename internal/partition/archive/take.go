package archive

import (
	"context"
	"slices"
)

// Take durably copies files of a partition from another archive, beginning with the first file of
// the partition. It replaces all entries of the partition in the manifest by these files.
func (a *Archive) Take(ctx context.Context, from *Archive, files []File) error {
	if err := a.RemoveStale(ctx); err != nil { // first, since a stale file may have the name of a new file
		return err
	}
	for _, f := range files {
		a.expect(f.Name)
	}
	if err := a.save(ctx); err != nil {
		return err
	}
	for _, f := range files {
		if f.GivenUp == nil {
			if err := a.copyFile(ctx, from, f); err != nil {
				return err
			}
		}
	}
	a.divide(files[0].Partition)
	a.manifest.Files = append(slices.DeleteFunc(a.manifest.Files, func(f File) bool { return f.Partition == files[0].Partition }), files...)
	return a.save(ctx)
}
