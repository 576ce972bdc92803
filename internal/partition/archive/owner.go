package archive

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
)

// Owner identifies the database that may write to an archive. Copies of the database have the
// same log id, but must not write to the archive: they would write files with the same numbers
// but different events.
type Owner struct {
	// Era is a random id of the database, and Database is its OID. A copy that a dump or logical
	// replication has made has a different era. A copy within the same Postgres cluster has a
	// different OID.
	Era      int64  `json:"era"`
	Database uint32 `json:"database"`
	// Claim is a random id that each command that writes to the archive stores in the archive
	// and in the database. If the database does not have the id, then the database was restored
	// to an earlier time, or it and the database that wrote last come from the same files: one
	// is a copy of the other.
	Claim uuid.UUID `json:"claim"`
	// Claimed is when the last command that writes to the archive began.
	Claimed time.Time `json:"claimed"`
	// Cluster is the id of the cluster of databases, or "" for a single database.
	Cluster string `json:"cluster,omitempty"`
}

// Erasure is the archive's record of the erasure of a user. If the database does not record the
// same erasure as complete, the erasure was interrupted, or the database was restored to an
// earlier time.
type Erasure struct {
	ID uuid.UUID `json:"id"`
	At time.Time `json:"at"`
	// Digest is a hash of the user id, keyed with a secret of the database.
	Digest string `json:"digest"`
}

// Path returns the name of the archive for messages.
func (a *Archive) Path() string { return a.store.Path("") }

// Owner returns the database that may write to the archive. It is zero before the first claim.
func (a *Archive) Owner() Owner { return a.manifest.Owner }

// Empty reports whether the archive has no files and no erasures.
func (a *Archive) Empty() bool { return len(a.manifest.Files) == 0 && len(a.manifest.Erasures) == 0 }

// Claim durably stores a database as the owner of the archive.
func (a *Archive) Claim(ctx context.Context, owner Owner) error {
	a.manifest.Owner = owner
	return a.save(ctx)
}

// Erasures returns the recorded erasures in their order.
func (a *Archive) Erasures() []Erasure { return slices.Clone(a.manifest.Erasures) }

// Erasing durably adds an erasure to the archive's record, before the erasure begins.
func (a *Archive) Erasing(ctx context.Context, e Erasure) error {
	a.manifest.Erasures = append(a.manifest.Erasures, e)
	return a.save(ctx)
}
