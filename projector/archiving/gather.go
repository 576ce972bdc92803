package archiving

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/internal/eventlog"
	"github.com/badged/badged/projector/archive"
	"github.com/badged/badged/projector/replay"
)

// Gather moves the files of partitions that have moved to a shard from the archives of
// other shards to that of the shard. It changes nothing if the archive has all files that
// the shard lists, and the others have none of its partitions. After an interruption the
// next call completes it: no file is deleted before its copy is durable.
func Gather(ctx context.Context, pool *pgxpool.Pool, partitions int, store archive.Store, others []archive.Store) (err error) {
	held, err := eventlog.Held(ctx, pool)
	if err != nil {
		return err
	}
	var from []*archive.Archive
	var stores []archive.Store
	for _, other := range others {
		a, err := archive.OpenStore(ctx, other)
		if errors.Is(err, archive.ErrNone) {
			continue
		}
		if err != nil {
			return err
		}
		from, stores = append(from, a), append(stores, other)
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
		if err := gather(ctx, pool, partitions, store, from[i], some); err != nil {
			return err
		}
		if err := forget(ctx, stores[i], some); err != nil {
			return err
		}
	}
	return nil
}

// gather copies what the archive of a shard lacks of some partitions.
func gather(ctx context.Context, pool *pgxpool.Pool, partitions int, store archive.Store, from *archive.Archive, some []int) (err error) {
	var id uuid.UUID
	var archived int64
	if err := pool.QueryRow(ctx, statements.Get("read the identity of the log")).Scan((*[16]byte)(&id), &archived); err != nil {
		return fmt.Errorf("read the list of archived files: %w", err)
	}
	if archived == 0 {
		return nil // the files are of an archiving that was interrupted
	}
	a, err := archive.Continue(ctx, store)
	if errors.Is(err, archive.ErrNone) {
		a, err = archive.Create(ctx, store, id, partitions)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	for _, p := range some {
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
		if err := a.Take(ctx, from, files); err != nil {
			return err
		}
	}
	return nil
}

// forget deletes the files of partitions from the archive of a shard that had them.
func forget(ctx context.Context, store archive.Store, partitions []int) (err error) {
	a, err := archive.Continue(ctx, store)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	for _, p := range partitions {
		if err := a.Cut(ctx, p, 0); err != nil {
			return err
		}
	}
	return a.RemoveStale(ctx)
}
