package archive

import (
	"context"
)

// Take durably copies `files`, the first files of a partition, from the archive `from`. It replaces
// all entries of the partition in a's manifest by the entries of these files.
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
	a.replace(files[0].Partition, files)
	return a.save(ctx)
}
