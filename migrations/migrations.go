// Package migrations creates and changes the tables and functions of the database, by numbered SQL
// files. Each file is applied once, in the order of the numbers, and in its own transaction. All
// objects are in the Postgres schema "badged".
//
// The package does not know any other package of badged, since it runs on databases of any age.
// ADR 28 says what a migration may change, ADR 40 which rights roles have.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"
)

//go:embed *.sql outbox/*.sql
var files embed.FS

// DefaultPartitions is the number of partitions of a new database, unless Config says otherwise.
const DefaultPartitions = 4

// versionsTable is the table that records which migrations were applied.
const versionsTable = "badged.schema_migrations"

// Migration describes a numbered SQL file, and says whether the file was applied to the database.
type Migration struct {
	Version int64
	Name    string
	// AppliedAt is zero while the migration is pending.
	AppliedAt time.Time
}

// Config configures Up.
type Config struct {
	// Conn says how to connect to the database. Its user must be the owner of the schema. Required.
	Conn *pgx.ConnConfig
	// Partitions is the number of partitions that Up creates in an empty database; 0 means
	// DefaultPartitions. If the database already has partitions, Partitions must be 0 or the
	// initial number of partitions.
	Partitions int
	// Retrying, if not nil, is called after a migration could not acquire its locks and was rolled
	// back. wait is the pause before the next attempt.
	Retrying func(err error, wait time.Duration)
}

// lockTimeout is how long a migration waits for a lock. The timeout is short, because projectors
// and publishers that need the same table queue behind the migration's lock request.
const lockTimeout = 3 * time.Second

// backoff returns the pauses between attempts to apply a migration whose locks are not available.
// They sum to about 24 s.
func backoff() []time.Duration {
	return []time.Duration{
		250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 8 * time.Second,
	}
}

// Up applies every pending migration. It returns the migrations that it has applied, even if a
// later migration fails. If several processes call Up at the same time, an advisory lock makes
// them run one after another.
//
// If a migration runs into a deadlock or waits too long for a lock, the whole migration is rolled
// back and tried again. After eight failed attempts Up returns an error.
func Up(ctx context.Context, cfg Config) ([]Migration, error) {
	return up(ctx, cfg, files, backoff())
}

func up(ctx context.Context, cfg Config, files fs.FS, waits []time.Duration) ([]Migration, error) {
	partitions := cfg.Partitions
	if partitions == 0 {
		partitions = DefaultPartitions
	}
	db := open(cfg.Conn, partitions)
	defer db.Close()

	var hasOutbox bool
	if err := db.QueryRowContext(ctx, `SELECT to_regclass($1) IS NOT NULL`, outboxVersions).Scan(&hasOutbox); err != nil {
		return nil, fmt.Errorf("look at the database: %w", err)
	}
	if hasOutbox {
		return nil, errors.New("the database has an outbox, whose functions have the names of badged's; give badged a database of its own")
	}
	if err := createSchema(ctx, db, cfg.Conn); err != nil {
		return nil, err
	}
	provider, err := newProvider(db, files, versionsTable)
	if err != nil {
		return nil, err
	}
	applied, err := applyAll(ctx, provider, waits, cfg.Retrying)
	if err != nil {
		return applied, err
	}
	if cfg.Partitions != 0 {
		var have int
		if err := db.QueryRowContext(ctx, `SELECT partitions FROM badged.settings`).Scan(&have); err != nil {
			return applied, fmt.Errorf("read the number of partitions: %w", err)
		}
		if have != cfg.Partitions {
			return applied, fmt.Errorf("the number of partitions of the database is %d, not %d: it is chosen when the database is created; `badged partition split` makes more of them", have, cfg.Partitions)
		}
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return applied, fmt.Errorf("connect to the database: %w", err)
	}
	defer conn.Close()
	return applied, conn.Raw(func(driver any) error { return grantAgain(ctx, driver.(*stdlib.Conn).Conn()) }) //nolint:forcetypeassert // open uses it
}

// applyAll applies the pending migrations. If a migration cannot acquire its locks, applyAll waits
// and tries the migration again.
func applyAll(ctx context.Context, provider *goose.Provider, waits []time.Duration, retrying func(error, time.Duration)) (applied []Migration, err error) {
	for {
		results, err := provider.Up(ctx)
		if partial, ok := errors.AsType[*goose.PartialError](err); ok {
			results = partial.Applied
		}
		for _, r := range results {
			applied = append(applied, Migration{Version: r.Source.Version, Name: r.Source.Path, AppliedAt: time.Now()})
		}
		switch {
		case err == nil:
			return applied, nil
		case !lostALock(err):
			return applied, fmt.Errorf("migrate: %w", err)
		case len(waits) == 0:
			return applied, fmt.Errorf("migrate: the locks were not available: end long transactions (pg_stat_activity shows them) and try again: %w", err)
		}
		if retrying != nil {
			retrying(err, waits[0])
		}
		select {
		case <-ctx.Done():
			return applied, fmt.Errorf("migrate: %w", ctx.Err())
		case <-time.After(waits[0]):
		}
		waits = waits[1:]
	}
}

// lostALock reports whether a migration failed because it could not acquire a lock.
func lostALock(err error) bool {
	var pgErr *pgconn.PgError
	const deadlockDetected, lockNotAvailable = "40P01", "55P03"
	return errors.As(err, &pgErr) && (pgErr.Code == deadlockDetected || pgErr.Code == lockNotAvailable)
}

// Status returns all migrations of this program, in order. In a database that was never migrated,
// all migrations are pending. Status changes nothing in the database.
func Status(ctx context.Context, conn *pgx.ConnConfig) ([]Migration, error) {
	db := open(conn, DefaultPartitions)
	defer db.Close()

	provider, err := newProvider(db, files, versionsTable)
	if err != nil {
		return nil, err
	}
	var exists bool
	if err := db.QueryRowContext(ctx, `SELECT to_regclass($1) IS NOT NULL`, versionsTable).Scan(&exists); err != nil {
		return nil, fmt.Errorf("look for the table of migrations: %w", err)
	}
	if !exists {
		var all []Migration
		for _, s := range provider.ListSources() {
			all = append(all, Migration{Version: s.Version, Name: s.Path})
		}
		return all, nil
	}
	statuses, err := provider.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the state of migrations: %w", err)
	}
	all := make([]Migration, len(statuses))
	for i, s := range statuses {
		all[i] = Migration{Version: s.Source.Version, Name: s.Source.Path, AppliedAt: s.AppliedAt}
	}
	return all, nil
}

// Partitions returns the initial number of partitions of a database, or 0 if the database has no
// schema yet.
func Partitions(ctx context.Context, conn *pgx.ConnConfig) (n int, err error) {
	err = withConn(ctx, conn, func(c *pgx.Conn) error {
		var exists bool
		if err := c.QueryRow(ctx, `SELECT to_regclass('badged.settings') IS NOT NULL`).Scan(&exists); err != nil || !exists {
			return err
		}
		return c.QueryRow(ctx, `SELECT partitions FROM badged.settings`).Scan(&n)
	})
	if err != nil {
		return 0, fmt.Errorf("read the number of partitions: %w", err)
	}
	return n, nil
}

// open returns a database handle. Its sessions have the settings that migrations need: the number
// of partitions to create, a lock_timeout, and a search_path that hides no built-in function.
func open(conn *pgx.ConnConfig, partitions int) *sql.DB {
	// Set the settings by a statement, because connection poolers drop startup parameters.
	return stdlib.OpenDB(*conn, stdlib.OptionAfterConnect(func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, `
SELECT set_config('badged.partitions', $1, false), set_config('lock_timeout', $2, false),
    set_config('search_path', 'pg_catalog, pg_temp', false)`,
			strconv.Itoa(partitions), strconv.FormatInt(lockTimeout.Milliseconds(), 10))
		return err
	}))
}

func newProvider(db *sql.DB, files fs.FS, versionsTable string) (*goose.Provider, error) {
	store, err := database.NewStore(database.DialectPostgres, versionsTable)
	if err != nil {
		return nil, fmt.Errorf("set up migrations: %w", err)
	}
	// Try to acquire the lock every second, 300 times. With goose's default interval of 5 seconds,
	// processes that start at the same time would wait longer for each other.
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300))
	if err != nil {
		return nil, fmt.Errorf("set up migrations: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectCustom, db, files,
		goose.WithStore(store), goose.WithSessionLocker(locker))
	if err != nil {
		return nil, fmt.Errorf("set up migrations: %w", err)
	}
	return provider, nil
}

// createSchema creates the schema badged, unless it exists.
func createSchema(ctx context.Context, db *sql.DB, account *pgx.ConnConfig) error {
	_, err := db.ExecContext(ctx, `CREATE SCHEMA IF NOT EXISTS badged`)
	if err == nil || schemaExists(ctx, db) {
		return nil
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "42501" {
		return fmt.Errorf("create the schema badged: %s; run `GRANT CREATE ON DATABASE %s TO %s` as the owner of the database, or connect as it",
			pg.Message, pgx.Identifier{account.Database}.Sanitize(), pgx.Identifier{account.User}.Sanitize())
	}
	return fmt.Errorf("create the schema badged: %w", err)
}

// schemaExists reports whether the schema badged exists. createSchema calls it after CREATE SCHEMA
// has failed. If the schema exists, the failure does not matter: either an administrator has
// created the schema for a role without the privilege, or another process has just created it.
func schemaExists(ctx context.Context, db *sql.DB) bool {
	var exists bool
	err := db.QueryRowContext(ctx, `SELECT to_regnamespace('badged') IS NOT NULL`).Scan(&exists)
	return err == nil && exists
}
