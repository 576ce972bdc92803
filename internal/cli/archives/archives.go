// Package archives opens the archives of the log that commands name.
//
// It does not know what commands do with the archives.
package archives

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/badged/badged/internal/bucket"
	"github.com/badged/badged/internal/cli/connect"
	"github.com/badged/badged/internal/operators"
	"github.com/badged/badged/internal/shards"
	"github.com/badged/badged/projector/archive"
	"github.com/badged/badged/projector/archiving"
)

// Keys is the flag of commands that open an archive.
type Keys struct {
	ArchiveKeys string `help:"File of the keys of an encrypted archive, as age-keygen makes it: the first encrypts, all of them decrypt." placeholder:"FILE"`
}

// Store returns the place of an archive, encrypted if there are keys.
func (k *Keys) Store(location string) (archive.Store, error) {
	store, err := bucket.Store(location)
	if err != nil || k.ArchiveKeys == "" {
		return store, err
	}
	f, err := os.Open(k.ArchiveKeys)
	if err != nil {
		return nil, fmt.Errorf("--archive-keys: %w", err)
	}
	defer f.Close()
	keys, err := archive.ParseKeys(f)
	if err != nil {
		return nil, fmt.Errorf("--archive-keys: %s: %w", k.ArchiveKeys, err)
	}
	return archive.Sealed{Store: store, Keys: keys}, nil
}

// Gathered returns the place of the archive of a shard, with the files of partitions that
// have moved there.
func (k *Keys) Gathered(ctx context.Context, cluster *shards.Cluster, s *shards.Shard, location string) (archive.Store, error) {
	store, err := k.Store(operators.ArchiveOf(s, location))
	if err != nil || !cluster.Sharded() {
		return store, err
	}
	var others []archiving.Other
	for _, other := range cluster.Shards() {
		if other == s {
			continue
		}
		from, err := k.Store(operators.ArchiveOf(other, location))
		if err != nil {
			return nil, err
		}
		one := archiving.Other{Store: from}
		if other.Err() == nil {
			one.Pool = other.Pool
		}
		others = append(others, one)
	}
	return store, archiving.Gather(ctx, s.Pool, cluster.Partitions(), store, others)
}

// Given is the flag of commands that replay the log.
type Given struct {
	Keys    `embed:""`
	Archive string `help:"Archive, a directory or s3://bucket/prefix: replay it before the log, instead of starting from the baseline." placeholder:"DIR" env:"-"`
}

// Open opens the archive of a shard. It returns nil if none is named.
func (c *Given) Open(ctx context.Context, cluster *shards.Cluster, s *shards.Shard) (*archive.Archive, error) {
	if c.Archive == "" {
		return nil, nil //nolint:nilnil // no archive given
	}
	store, err := c.Gathered(ctx, cluster, s, c.Archive)
	if err != nil {
		return nil, fmt.Errorf("--archive: %w", err)
	}
	a, err := archive.OpenStore(ctx, store)
	return OrNone(ctx, s, a, err)
}

// Warn says what an archive knows that the database does not; a may be nil.
func (c *Given) Warn(ctx context.Context, w io.Writer, s *shards.Shard, a *archive.Archive) {
	if err := archiving.WantErased(ctx, s.Pool, a); err != nil {
		fmt.Fprintf(w, "badged: %s%v\n", connect.Prefix(s.Name), err)
	}
}

// OrNone returns no archive, in place of the error that there is none, for a shard that has
// archived nothing.
func OrNone(ctx context.Context, s *shards.Shard, a *archive.Archive, err error) (*archive.Archive, error) {
	if s.Name == "" || !errors.Is(err, archive.ErrNone) {
		return a, archiving.WithoutArchive(ctx, s.Pool, err)
	}
	if archived, lookErr := archiving.Any(ctx, s.Pool); lookErr != nil || archived {
		return nil, errors.Join(archiving.WithoutArchive(ctx, s.Pool, err), lookErr)
	}
	return nil, nil //nolint:nilnil // the shard needs none
}
