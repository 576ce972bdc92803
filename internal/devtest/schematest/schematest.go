// Package schematest gives tests databases with the schema of badged.
package schematest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/source"
	"github.com/badged/badged/migrations"
)

// Migrated returns the template of databases that have badged's schema with the given number of
// partitions.
func Migrated(partitions int) pgtest.Template {
	return pgtest.Template{Name: fmt.Sprint("migrated, partitions: ", partitions), Version: version(), Build: func(ctx context.Context, urls []string) error {
		cfg, err := pgx.ParseConfig(urls[0])
		if err != nil {
			return err
		}
		if _, err := migrations.Up(ctx, migrations.Config{Conn: cfg, Partitions: partitions}); err != nil {
			return err
		}
		return Publish(ctx, urls[0])
	}, Adopt: Adopt}
}

// Publish creates publications of all tables, like an operator who replicates the whole server. If
// a table is published and has no replica identity, Postgres refuses updates and deletes in it;
// tests then detect this.
func Publish(ctx context.Context, url string) (err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	_, err = conn.Exec(ctx, `
SET client_min_messages = error; -- wal_level may be too low to replicate what is published
CREATE PUBLICATION everything FOR ALL TABLES;
CREATE PUBLICATION everything_by_root FOR ALL TABLES WITH (publish_via_partition_root = true)`)
	return err
}

// Adopt makes the stored epochs belong to the running server, as if the database had been migrated
// there. Otherwise projectors would begin new epochs, because the server was started after the
// migration.
func Adopt(ctx context.Context, url string) (err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	// Disable the trigger that increases the revision: it would make all maintenance due again.
	if _, err := conn.Exec(ctx, `SET session_replication_role = replica`); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, `UPDATE badged.partitions
SET incarnation = left(pg_walfile_name(pg_current_wal_lsn()), 8) || '/' || extract(epoch FROM pg_postmaster_start_time())::text`)
	return err
}

// Outbox returns the template of databases that have an outbox.
func Outbox() pgtest.Template {
	return pgtest.Template{Name: "outbox", Version: version(), Build: func(ctx context.Context, urls []string) error {
		cfg, err := pgx.ParseConfig(urls[0])
		if err != nil {
			return err
		}
		if _, err := migrations.InstallOutbox(ctx, cfg); err != nil {
			return err
		}
		return Publish(ctx, urls[0])
	}}
}

// version returns a hash of the code that makes the schema.
var version = sync.OnceValue(func() string {
	return pgtest.Hash(source.Path("migrations"), source.Path("go.mod"), source.Path("internal/devtest/schematest"))
})
