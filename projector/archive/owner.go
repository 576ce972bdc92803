package archive

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
)

// Owner is the database that may write to an archive. Copies of it have the same log, but
// would write other events under the same numbers.
type Owner struct {
	// Era is the era of the database, and Database its OID: a copy by a dump or by replication
	// has another era, one within the cluster of Postgres another OID.
	Era      int64  `json:"era"`
	Database uint32 `json:"database"`
	// Claim changes with each command that writes. The database has the same, unless it was
	// restored to before that, or a copy of its files has written.
	Claim uuid.UUID `json:"claim"`
	// Claimed is when the last such command began.
	Claimed time.Time `json:"claimed"`
	// Cluster is the id of the cluster of shards, "" of a single database.
	Cluster string `json:"cluster,omitempty"`
}

// Erasure is an erasure of a user from the log. A database that does not know it was restored
// to before it, or the erasure was interrupted.
type Erasure struct {
	ID uuid.UUID `json:"id"`
	At time.Time `json:"at"`
	// Digest is of the id of the user, with a secret of the database.
	Digest string `json:"digest"`
}

// Path names the archive in messages.
func (a *Archive) Path() string { return a.store.Path("") }

// Owner returns the database that may write to the archive; its zero value if none has yet.
func (a *Archive) Owner() Owner { return a.manifest.Owner }

// Empty reports whether nothing was archived yet.
func (a *Archive) Empty() bool { return len(a.manifest.Files) == 0 && len(a.manifest.Erasures) == 0 }

// Claim makes a database the owner, durably.
func (a *Archive) Claim(ctx context.Context, owner Owner) error {
	a.manifest.Owner = owner
	return a.save(ctx)
}

// Erasures returns the erasures that the archive knows, in their order.
func (a *Archive) Erasures() []Erasure { return slices.Clone(a.manifest.Erasures) }

// Erasing notes that an erasure begins, durably.
func (a *Archive) Erasing(ctx context.Context, e Erasure) error {
	a.manifest.Erasures = append(a.manifest.Erasures, e)
	return a.save(ctx)
}
