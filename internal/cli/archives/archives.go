// Package archives opens the archives of the log for commands.
//
// It does not know the commands that use it.
package archives

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/badged/badged/internal/cli/connect"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/partition/archive"
	"github.com/badged/badged/internal/partition/archiving"
	"github.com/badged/badged/internal/partition/bucket"
	"github.com/badged/badged/internal/partition/claims"
)

// Keys has the flag --archive-keys, for commands that open an archive.
type Keys struct {
	ArchiveKeys string `help:"File with the keys of an encrypted archive, in the format of age-keygen. The first key encrypts, all keys decrypt." placeholder:"FILE"`
}

// Store returns the store of the archive at a location. If --archive-keys is given, the store
// encrypts the files that it writes and decrypts the files that it reads.
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

// Gathered returns the store of the archive of a database. If a partition has moved to this
// database, other archives may still have files of this partition; Gathered first moves such
// files to the archive of this database.
func (k *Keys) Gathered(ctx context.Context, dbs *cluster.Cluster, s *cluster.Database, location string) (archive.Store, error) {
	store, err := k.Store(s.Archive(location))
	if err != nil {
		return store, err
	}
	var others []archiving.Other
	for _, other := range dbs.Databases() {
		if other == s {
			continue
		}
		from, err := k.Store(other.Archive(location))
		if err != nil {
			return nil, err
		}
		one := archiving.Other{Store: from}
		if other.Err() == nil {
			one.Pool = other.Pool
		}
		others = append(others, one)
	}
	return store, archiving.Gather(ctx, s.Pool, dbs.Partitions(), store, others)
}

// Opened opens the archive of a database with the function `open`, after [Keys.Gathered] has moved
// files from other archives to it. If there is no archive, it returns what [OrNone] returns. If
// location is "", it returns nil.
func (k *Keys) Opened(ctx context.Context, dbs *cluster.Cluster, s *cluster.Database, location string, open func(context.Context, archive.Store) (*archive.Archive, error)) (*archive.Archive, error) {
	if location == "" {
		return nil, nil //nolint:nilnil // no archive given
	}
	store, err := k.Gathered(ctx, dbs, s, location)
	if err != nil {
		return nil, fmt.Errorf("--archive: %w", err)
	}
	a, err := open(ctx, store)
	return OrNone(ctx, s, a, err)
}

// Given has the flag --archive of commands that replay the log.
type Given struct {
	Keys    `embed:""`
	Archive string `help:"The archive, a directory or s3://bucket/prefix. The replay starts with the archive instead of the baseline, and goes on with the log." placeholder:"DIR" env:"-"`
}

// Open opens the archive of a database at the location in --archive. Without --archive it returns
// nil.
func (c *Given) Open(ctx context.Context, dbs *cluster.Cluster, s *cluster.Database) (*archive.Archive, error) {
	return c.Opened(ctx, dbs, s, c.Archive, archive.OpenStore)
}

// Warn prints a warning if the archive lists erasures of users that the database has not
// completed. a is nil if there is no archive.
func (c *Given) Warn(ctx context.Context, w io.Writer, s *cluster.Database, a *archive.Archive) {
	if err := claims.WantErased(ctx, s.Pool, a); err != nil {
		fmt.Fprintf(w, "badged: %s%v\n", connect.Prefix(s.Name), err)
	}
}

// OrNone is called with a and err, the results of opening the archive of a database. If there is no
// archive, it returns err with advice. But if the database is one of several and has archived
// nothing, it needs no archive, and OrNone returns nil and no error. In all other cases it returns
// a and err.
func OrNone(ctx context.Context, s *cluster.Database, a *archive.Archive, err error) (*archive.Archive, error) {
	if s.Name == "" || !errors.Is(err, archive.ErrNone) {
		return a, archiving.WithoutArchive(ctx, s.Pool, err)
	}
	if archived, lookErr := archiving.HasArchives(ctx, s.Pool); lookErr != nil || archived {
		return nil, errors.Join(archiving.WithoutArchive(ctx, s.Pool, err), lookErr)
	}
	return nil, nil //nolint:nilnil // the database needs none
}
