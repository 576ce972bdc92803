// Package claims decides which of several copies of a database may write to the archive of
// their log. It also finds erasures of users that the archive lists and the database has not
// completed.
//
// It does not know the content of archive files. ADR 133 has the reasons.
package claims

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/partition/archive"
	"github.com/badged/badged/internal/pg/query"
	"github.com/badged/badged/internal/pg/sqlfile"
)

//go:embed claims.sql
var statementsText string

var statements = sqlfile.Parse(statementsText)

// Writer is a connection or a pool of a database.
type Writer interface {
	events.Querier
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// CopyError is returned if another copy of the database owns the archive.
type CopyError struct {
	// Path names the archive. Since is when the other copy began its last command that writes to
	// the archive, zero if unknown.
	Path  string
	Since time.Time
	// Reason says how the database differs from the owner.
	Reason string
}

// Error implements error.
func (e *CopyError) Error() string {
	since := ""
	if !e.Since.IsZero() {
		since = ", which last wrote to it at " + e.Since.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("the archive %s belongs to another copy of this log%s: %s. If this database replaces the other one, as after a restore or a failover, run `badged archive --take-over --to DIR`. Otherwise copy the archive, and run the command with the copy",
		e.Path, since, e.Reason)
}

// known is what a database stores about itself and an archive.
type known struct {
	logID      uuid.UUID
	partitions int
	// claims is true if the database stores the claim in the archive's manifest.
	claims bool
	// owner identifies this database as archive.Owner does, without a claim.
	owner archive.Owner
}

func read(ctx context.Context, q events.Querier, a *archive.Archive) (k known, err error) {
	o := &k.owner
	claim := [16]byte(a.Owner().Claim)
	if err := q.QueryRow(ctx, statements.Get("read the identity"), claim).Scan((*[16]byte)(&k.logID), &k.partitions, &k.claims, &o.Era, &o.Database, &o.Cluster, &o.Claimed); err != nil {
		return k, fmt.Errorf("read the owner of the archive: %w", err)
	}
	return k, a.WantLog(k.logID, k.partitions)
}

// Check fails with a [*CopyError] unless the database may write to the archive of its log.
func Check(ctx context.Context, q events.Querier, a *archive.Archive) error {
	k, err := read(ctx, q, a)
	if err != nil {
		return err
	}
	has, why := a.Owner(), ""
	switch {
	case has == archive.Owner{} && a.Empty():
		return nil
	case has == archive.Owner{}:
		why = "its manifest has files and names no owner"
	case has.Era != k.owner.Era:
		why = "this database or the other one was restored from a dump or replicated since"
	case has.Database != k.owner.Database:
		why = "this database or the other one was copied within its cluster of Postgres since"
	case !k.claims:
		why = "this database was restored to an earlier time, or is a copy of the files of the other one"
	default:
		return nil
	}
	return &CopyError{a.Path(), has.Claimed, why}
}

// Claim records that the database writes to an archive. It stores a new random id, the claim, in
// the database and in the archive's manifest. From then on Check fails for other copies of the
// database. If Check fails for this database, Claim fails too and changes nothing. The archive must
// be open for writing.
func Claim(ctx context.Context, w Writer, a *archive.Archive) error {
	if err := Check(ctx, w, a); err != nil {
		return err
	}
	return TakeOver(ctx, w, a)
}

// TakeOver makes the database the owner of an archive of its log, even if another copy owns it.
func TakeOver(ctx context.Context, w Writer, a *archive.Archive) error {
	k, err := read(ctx, w, a)
	if err != nil {
		return err
	}
	k.owner.Claim = uuid.New()
	// Write to the database first: if the manifest then cannot be written, the additional claim in
	// the database is harmless.
	if err := query.Exec(ctx, w, "claim the archive", statements.Get("claim the archive"), [16]byte(k.owner.Claim)); err != nil {
		return err
	}
	return a.Claim(ctx, k.owner)
}
