package migrations

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"

	"github.com/jackc/pgx/v5"
)

// RoleRelay is for the relay. The role can read events from an outbox, and delete the events that
// the relay has published to badged.
const RoleRelay RoleKind = "relay"

var (
	// ErrNoOutbox is returned if a database has no outbox.
	ErrNoOutbox = errors.New("the database has no outbox; run `badged relay install`")
	// ErrHasLog is returned if a database cannot have an outbox, because it has a log.
	ErrHasLog = errors.New("the database has badged's own schema, where badged.publish appends to the log: it needs no outbox and no relay")
)

// outboxVersions is the table that records which migrations of the outbox were applied.
const outboxVersions = "badged.outbox_migrations"

// outboxFiles returns the migrations of an outbox. The outbox checks events by the same rules as
// the log. So a new migration of the log that changes these rules must also be added here.
func outboxFiles() fs.FS {
	return renamed{
		"00001_rules.sql":  "00003_rules.sql",
		"00002_outbox.sql": "outbox/00002_outbox.sql",
	}
}

// renamed is a file system of embedded files under other names. It maps new names to the embedded
// names.
type renamed map[string]string

// Open implements fs.FS.
func (r renamed) Open(name string) (fs.File, error) {
	source, ok := r[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return files.Open(source)
}

// Glob implements fs.GlobFS.
func (r renamed) Glob(pattern string) (names []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(r)) {
		matches, err := path.Match(pattern, name)
		if err != nil {
			return nil, err
		}
		if matches {
			names = append(names, name)
		}
	}
	return names, nil
}

// InstallOutbox creates the outbox in a database, or migrates an outbox that exists. It returns the
// migrations that it has applied, or [ErrHasLog] if the database has a log.
func InstallOutbox(ctx context.Context, conn *pgx.ConnConfig) ([]Migration, error) {
	db := open(conn, DefaultPartitions)
	defer db.Close()
	var hasLog bool
	if err := db.QueryRowContext(ctx, `SELECT to_regclass($1) IS NOT NULL`, versionsTable).Scan(&hasLog); err != nil {
		return nil, fmt.Errorf("look at the database: %w", err)
	}
	if hasLog {
		return nil, ErrHasLog
	}
	if err := createSchema(ctx, db, conn); err != nil {
		return nil, err
	}
	provider, err := newProvider(db, outboxFiles(), outboxVersions)
	if err != nil {
		return nil, err
	}
	return applyAll(ctx, provider, backoff(), nil)
}

// CheckOutbox returns an error unless the database has an outbox with the version that this program
// needs: [ErrNoOutbox] if there is no outbox, [ErrHasLog] if the database has a log.
func CheckOutbox(ctx context.Context, conn *pgx.ConnConfig) error {
	names, err := fs.Glob(outboxFiles(), "*.sql")
	if err != nil {
		return fmt.Errorf("read the migrations of the outbox: %w", err)
	}
	known := int64(len(names)) // they are numbered without gaps
	return withConn(ctx, conn, func(c *pgx.Conn) error {
		var hasLog, hasOutbox bool
		if err := c.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL, to_regclass($2) IS NOT NULL`, versionsTable, outboxVersions).Scan(&hasLog, &hasOutbox); err != nil {
			return fmt.Errorf("look for the outbox: %w", err)
		}
		switch {
		case hasLog:
			return ErrHasLog
		case !hasOutbox:
			return ErrNoOutbox
		}
		var version int64
		if err := c.QueryRow(ctx, `SELECT max(version_id) FROM `+outboxVersions+` WHERE is_applied`).Scan(&version); err != nil {
			return fmt.Errorf("read the version of the outbox: %w", err)
		}
		switch {
		case version < known:
			return fmt.Errorf("the outbox has version %d, and this program needs %d; run `badged relay install`", version, known)
		case version > known:
			return fmt.Errorf("the outbox has version %d, and this program knows %d; install a newer badged", version, known)
		}
		return nil
	})
}

// GrantOutbox grants a database role the rights that its kind, [RolePublisher] or [RoleRelay],
// needs on the outbox. It revokes all other rights of the role in the schema of the outbox.
func GrantOutbox(ctx context.Context, cfg *pgx.ConnConfig, kind RoleKind, role string) error {
	return withConn(ctx, cfg, func(conn *pgx.Conn) error { return runGrant(ctx, conn, kind, role) })
}
