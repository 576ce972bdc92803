package archiving

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/partition/archive"
	"github.com/badged/badged/internal/partition/claims"
	"github.com/badged/badged/internal/partition/replay"
)

// Other is the archive of another database.
type Other struct {
	Store archive.Store
	// Pool is nil if the database cannot be reached.
	Pool *pgxpool.Pool
}

// Gather completes the archive of a database after partitions were moved to it. The files of these
// partitions are still in the archives of other databases. Gather first copies each file that the
// database lists and its archive does not have. Then it deletes all files of the database's
// partitions from the other archives. It deletes no file before the copy is durable. After an
// interruption the next call resumes.
//
// Gather fails with an [*archive.FileError] if a file to delete has events that are neither in the
// database's log nor in its archive. It fails with a [*claims.CopyError] if an archive belongs to
// a copy of its database; it checks this only for databases that can be reached.
func Gather(ctx context.Context, pool *pgxpool.Pool, partitions int, store archive.Store, others []Other) (err error) {
	held, err := eventlog.Held(ctx, pool)
	if err != nil {
		return err
	}
	var from []*archive.Archive
	var having []Other
	for _, other := range others {
		a, err := archive.OpenStore(ctx, other.Store)
		if errors.Is(err, archive.ErrNone) {
			continue
		}
		if err != nil {
			return err
		}
		from, having = append(from, a), append(having, other)
	}
	stale := make([][]int, len(from))
	for i, a := range from {
		for _, p := range held {
			if len(a.Files(p)) > 0 {
				stale[i] = append(stale[i], p)
			}
		}
	}
	for i, some := range stale {
		if len(some) == 0 {
			continue
		}
		if other := having[i].Pool; other != nil {
			if err := claims.Check(ctx, other, from[i]); err != nil {
				return err
			}
		}
		if err := gather(ctx, pool, partitions, store, from[i], some); err != nil {
			return err
		}
		if err := forget(ctx, pool, having[i].Store, store, some); err != nil {
			return err
		}
	}
	return nil
}

// gather copies the files of the partitions in `rows` from the archive `from` to the archive in
// `store`, which belongs to the database of `pool`. It skips a partition if the archive in `store`
// already has all files that the database lists.
func gather(ctx context.Context, pool *pgxpool.Pool, partitions int, store archive.Store, from *archive.Archive, rows []int) (err error) {
	id, archived, err := identity(ctx, pool)
	if err != nil {
		return err
	}
	if archived == 0 {
		return nil // the files are leftovers of an interrupted run
	}
	a, err := archive.Continue(ctx, store)
	if errors.Is(err, archive.ErrNone) {
		a, err = archive.Create(ctx, store, id, partitions)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	if err := claims.Check(ctx, pool, a); err != nil {
		return err
	}
	claimed := false
	for _, p := range rows {
		if _, err := replay.ArchivedFiles(ctx, pool, a, p); err == nil {
			continue
		}
		files, err := replay.MovedFiles(ctx, pool, from, p)
		if err != nil {
			return err
		}
		if len(files) == 0 {
			continue
		}
		if err := a.CheckCut(ctx, archive.Tail{Partition: p, Copies: files, Lacking: lacking(pool, from, p)}); err != nil {
			return err
		}
		if !claimed {
			if err := claims.Claim(ctx, pool, a); err != nil {
				return err
			}
			claimed = true
		}
		if err := a.Take(ctx, from, files); err != nil {
			return err
		}
	}
	return nil
}

// forget deletes the files of partitions from the archive in `store`. ownStore contains the archive
// of the database that now holds the partitions, and `pool` connects to this database.
func forget(ctx context.Context, pool *pgxpool.Pool, store, ownStore archive.Store, partitions []int) (err error) {
	has, err := archive.OpenStore(ctx, ownStore)
	if err != nil && !errors.Is(err, archive.ErrNone) {
		return err
	}
	if has != nil {
		if err := claims.Check(ctx, pool, has); err != nil {
			return err
		}
	}
	a, err := archive.Continue(ctx, store)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	var tails []archive.Tail
	for _, p := range partitions {
		t := archive.Tail{Partition: p, Lacking: lacking(pool, has, p)}
		if has != nil {
			t.Copies = has.Files(p)
		}
		if err := a.CheckCut(ctx, t); err != nil {
			return err
		}
		tails = append(tails, t)
	}
	return a.Cut(ctx, tails...)
}

// lacking returns a function that determines which of the given rows of a partition are neither in
// the log of the database nor in the archive a. If a is nil, the function searches only the log.
func lacking(pool *pgxpool.Pool, a *archive.Archive, partition int) archive.Lacking {
	inLog := replay.Lacking(pool, partition)
	return func(ctx context.Context, rows []archive.Row) ([]archive.Row, error) {
		rows, err := inLog(ctx, rows)
		if err != nil || a == nil {
			return rows, err
		}
		for _, f := range a.Files(partition) {
			if len(rows) == 0 {
				break
			}
			if f.GivenUp != nil {
				continue
			}
			there := map[archive.Row]bool{}
			if err := a.EachRow(ctx, f, func(rows []archive.Row) error {
				for _, r := range rows {
					there[r] = true
				}
				return nil
			}); err != nil {
				return nil, err
			}
			rows = slices.DeleteFunc(rows, func(r archive.Row) bool { return there[r] })
		}
		return rows, nil
	}
}
