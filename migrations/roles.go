package migrations

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// RoleKind says what a role of the database does, and so which rights it has.
type RoleKind string

// The kinds. The owner of the schema has all rights, and needs none of these.
const (
	// RoleServer serves: all of `badged serve`, the jobs of the admin page, verify,
	// rebuild and dead letters. It can neither change nor delete what is in the log
	// or the audit trail.
	RoleServer RoleKind = "server"
	// RolePublisher publishes from Go or SQL, and does nothing else.
	RolePublisher RoleKind = "publisher"
	// RoleConsumer reads the log beside the projector, and moves the positions of
	// consumer groups. It could move those of others and of the projector.
	RoleConsumer RoleKind = "consumer"
	// RoleReader reads everything but the audit trail and jobs.
	RoleReader RoleKind = "reader"
)

//go:embed roles/grant.sql
var grantSQL string

// Grant gives a role the rights of its kind in the schema badged, takes away all
// others that it has there, and remembers it: Up does the same again after it
// has applied migrations. Only the owner of the schema can.
func Grant(ctx context.Context, cfg *pgx.ConnConfig, kind RoleKind, role string) error {
	return withConn(ctx, cfg, func(conn *pgx.Conn) error { return grant(ctx, conn, kind, role) })
}

func grant(ctx context.Context, conn *pgx.Conn, kind RoleKind, role string) error {
	return runGrant(ctx, conn, grantSQL, kind, role)
}

// runGrant runs a script that grants a role the rights of a kind.
func runGrant(ctx context.Context, conn *pgx.Conn, script string, kind RoleKind, role string) error {
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT set_config('badged.role', $1, true), set_config('badged.kind', $2, true)`, role, string(kind)); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, script)
		return err
	})
	if err != nil {
		return fmt.Errorf("grant role %q the rights of a %s: %w", role, kind, err)
	}
	return nil
}

// grantAgain grants the roles that are remembered and exist what they need of
// new tables.
func grantAgain(ctx context.Context, cfg *pgx.ConnConfig) error {
	return withConn(ctx, cfg, func(conn *pgx.Conn) error {
		rows, _ := conn.Query(ctx, `SELECT role::text, kind FROM badged.granted_roles JOIN pg_roles ON rolname = role ORDER BY role`)
		type granted struct {
			Role string
			Kind RoleKind
		}
		roles, err := pgx.CollectRows(rows, pgx.RowToStructByPos[granted])
		if err != nil {
			return fmt.Errorf("read the roles: %w", err)
		}
		for _, r := range roles {
			if err := grant(ctx, conn, r.Kind, r.Role); err != nil {
				return err
			}
		}
		return nil
	})
}

// withConn calls do with a connection of its own.
func withConn(ctx context.Context, cfg *pgx.ConnConfig, do func(conn *pgx.Conn) error) (err error) {
	conn, err := pgx.ConnectConfig(ctx, cfg.Copy())
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	return do(conn)
}
