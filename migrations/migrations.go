// Package migrations owns the schema of the database: numbered SQL files,
// applied in order, each once and in a transaction of its own.
//
// Everything lives in the Postgres schema "badged".
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"
)

//go:embed *.sql
var files embed.FS

// DefaultPartitions is how many partitions a database gets that is not told
// otherwise.
const DefaultPartitions = 16

// versionsTable keeps which migrations have been applied.
const versionsTable = "badged.schema_migrations"

// Migration is one numbered file and whether it has been applied.
type Migration struct {
	Version int64
	Name    string
	// AppliedAt is zero while the migration is pending.
	AppliedAt time.Time
}

// Up applies every pending migration and returns those it applied. partitions
// settles how many partitions an empty database gets, 0 meaning
// DefaultPartitions; on any other it must be 0 or the number that the database
// has. Instances that call it at the same time wait for each other.
func Up(ctx context.Context, conn *pgx.ConnConfig, partitions int) ([]Migration, error) {
	return UpTo(ctx, conn, partitions, math.MaxInt64)
}

// UpTo is Up, but leaves the migrations after a version pending: for a database
// as an older release knows it.
func UpTo(ctx context.Context, conn *pgx.ConnConfig, partitions int, version int64) ([]Migration, error) {
	wanted := partitions
	if partitions == 0 {
		partitions = DefaultPartitions
	}
	db := open(conn, partitions)
	defer db.Close()

	if _, err := db.ExecContext(ctx, `CREATE SCHEMA IF NOT EXISTS badged`); err != nil && !schemaExists(ctx, db) {
		return nil, fmt.Errorf("create the schema badged: %w", err)
	}
	provider, err := newProvider(db)
	if err != nil {
		return nil, err
	}
	results, err := provider.UpTo(ctx, version)
	if err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	if wanted != 0 {
		var have int
		if err := db.QueryRowContext(ctx, `SELECT partitions FROM badged.settings`).Scan(&have); err != nil {
			return nil, fmt.Errorf("read the number of partitions: %w", err)
		}
		if have != wanted {
			return nil, fmt.Errorf("the database has %d partitions, not %d: the number is settled when the database is created and cannot change", have, wanted)
		}
	}
	if len(results) > 0 {
		if err := grantAgain(ctx, conn); err != nil {
			return nil, err
		}
	}
	applied := make([]Migration, len(results))
	for i, r := range results {
		applied[i] = Migration{Version: r.Source.Version, Name: r.Source.Path, AppliedAt: time.Now()}
	}
	return applied, nil
}

// Status returns every migration in order. A database that has never been
// migrated has them all pending; nothing is created in it.
func Status(ctx context.Context, conn *pgx.ConnConfig) ([]Migration, error) {
	db := open(conn, DefaultPartitions)
	defer db.Close()

	provider, err := newProvider(db)
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

// Pending returns how many of ms have not been applied.
func Pending(ms []Migration) int {
	n := 0
	for _, m := range ms {
		if m.AppliedAt.IsZero() {
			n++
		}
	}
	return n
}

// open returns a database handle whose sessions know how many partitions to
// create.
func open(conn *pgx.ConnConfig, partitions int) *sql.DB {
	// A statement rather than a startup parameter: poolers drop those.
	return stdlib.OpenDB(*conn, stdlib.OptionAfterConnect(func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, `SELECT set_config('badged.partitions', $1, false)`, strconv.Itoa(partitions))
		return err
	}))
}

func newProvider(db *sql.DB) (*goose.Provider, error) {
	store, err := database.NewStore(database.DialectPostgres, versionsTable)
	if err != nil {
		return nil, fmt.Errorf("set up migrations: %w", err)
	}
	// By default it looks for the lock every 5 seconds, which is how long an
	// instance that starts beside another would stand still.
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

// schemaExists tells a role that may not create schemas, but was given ours,
// from one that can do nothing; it also covers two instances that both create
// it at once.
func schemaExists(ctx context.Context, db *sql.DB) bool {
	var exists bool
	err := db.QueryRowContext(ctx, `SELECT to_regnamespace('badged') IS NOT NULL`).Scan(&exists)
	return err == nil && exists
}
