package migrations

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
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
// others that it has there, and remembers it: Up does the same again once the schema has
// changed. Only the owner of the schema can.
func Grant(ctx context.Context, cfg *pgx.ConnConfig, kind RoleKind, role string) error {
	return withConn(ctx, cfg, func(conn *pgx.Conn) error {
		as, err := grantedAs(ctx, conn)
		if err != nil {
			return err
		}
		return grant(ctx, conn, as, kind, role)
	})
}

// grantedAs returns what is remembered of a role that is granted its rights now: a digest
// of the schema and of the script.
func grantedAs(ctx context.Context, conn *pgx.Conn) (string, error) {
	var versions string
	if err := conn.QueryRow(ctx, `SELECT string_agg(DISTINCT version_id::text, ' ') FROM `+versionsTable).Scan(&versions); err != nil {
		return "", fmt.Errorf("read the migrations: %w", err)
	}
	sum := sha256.Sum256([]byte(versions + grantSQL))
	return hex.EncodeToString(sum[:8]), nil
}

// grantLock is the key of the advisory lock of grants: Postgres refuses two at once.
const grantLock = 0x6261646772 // "badgr"

func grant(ctx context.Context, conn *pgx.Conn, as string, kind RoleKind, role string) error {
	return runGrant(ctx, conn, grantSQL, kind, role, fmt.Sprintf(`SELECT pg_advisory_xact_lock(%d), set_config('badged.granted_as', '%s', true)`, grantLock, as))
}

// runGrant runs a script that grants a role the rights of a kind, after some statements.
func runGrant(ctx context.Context, conn *pgx.Conn, script string, kind RoleKind, role string, before ...string) error {
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		for _, sql := range before {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
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

// grantAgain renews the grants of every recorded role that still exists, after the schema
// has changed. So the next call completes one that was killed after its migrations.
func grantAgain(ctx context.Context, cfg *pgx.ConnConfig) error {
	return withConn(ctx, cfg, func(conn *pgx.Conn) error {
		as, err := grantedAs(ctx, conn)
		if err != nil {
			return err
		}
		// Only the owner can grant: others may call Up when all migrations are applied.
		rows, _ := conn.Query(ctx, `SELECT role::text, kind FROM badged.granted_roles JOIN pg_roles ON rolname = role
WHERE granted_as <> $1 AND pg_has_role((SELECT nspowner FROM pg_namespace WHERE nspname = 'badged'), 'USAGE') ORDER BY role`, as)
		type granted struct {
			Role string
			Kind RoleKind
		}
		roles, err := pgx.CollectRows(rows, pgx.RowToStructByPos[granted])
		if err != nil {
			return fmt.Errorf("read the roles: %w", err)
		}
		for _, r := range roles {
			if err := grant(ctx, conn, as, r.Kind, r.Role); err != nil {
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
