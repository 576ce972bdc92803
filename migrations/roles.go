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

// RoleKind says what a database role is used for. It determines the rights that the role gets.
type RoleKind string

// Values of RoleKind. The owner of the schema has all rights without a grant.
const (
	// RoleServer is for `badged serve`, the jobs of the admin page, and the commands verify,
	// rebuild and deadletters. It can append rows to the log and to the audit trail, but cannot
	// change or delete such rows.
	RoleServer RoleKind = "server"
	// RolePublisher may only publish, from Go or SQL.
	RolePublisher RoleKind = "publisher"
	// RoleConsumer reads the log and moves the positions of its consumer groups. Postgres does not
	// prevent it from moving the positions of other groups, or the position of the projector.
	RoleConsumer RoleKind = "consumer"
	// RoleReader reads all tables except the audit trail and jobs.
	RoleReader RoleKind = "reader"
)

//go:embed roles/grant.sql
var grantSQL string

// Grant grants a database role the rights of `kind` in the schema badged, and revokes all other
// rights of the role in this schema. It also records the role, so that Up can renew the grants
// after it has changed the schema. cfg must connect as the owner of the schema.
func Grant(ctx context.Context, cfg *pgx.ConnConfig, kind RoleKind, role string) error {
	return withConn(ctx, cfg, func(conn *pgx.Conn) error {
		as, err := grantedAs(ctx, conn)
		if err != nil {
			return err
		}
		return grant(ctx, conn, as, kind, role)
	})
}

// grantedAs returns a digest of the applied migrations and of the script that grants rights. The
// digest is stored with each recorded role. If grantedAs later returns another digest, the grants
// of the role must be renewed.
func grantedAs(ctx context.Context, conn *pgx.Conn) (string, error) {
	var versions string
	if err := conn.QueryRow(ctx, `SELECT string_agg(DISTINCT version_id::text, ' ') FROM `+versionsTable).Scan(&versions); err != nil {
		return "", fmt.Errorf("read the migrations: %w", err)
	}
	sum := sha256.Sum256([]byte(versions + grantSQL))
	return hex.EncodeToString(sum[:8]), nil
}

// grantLock is the key of an advisory lock that serializes grants. Without it, if two transactions
// grant rights on the same object at the same time, one of them fails with an error.
const grantLock = 0x6261646772 // "badgr"

func grant(ctx context.Context, conn *pgx.Conn, digest string, kind RoleKind, role string) error {
	// The sessions of migrations have a lock timeout. Disable it, since a grant waits for the lock
	// until concurrent grants have ended.
	return runGrant(ctx, conn, kind, role, `SET LOCAL lock_timeout = 0`, fmt.Sprintf(`SELECT pg_advisory_xact_lock(%d), set_config('badged.granted_as', '%s', true)`, grantLock, digest))
}

// runGrant grants a role the rights of `kind`. In one transaction it runs the statements in
// `before`, and then grantSQL, which reads role and kind from settings of the transaction.
func runGrant(ctx context.Context, conn *pgx.Conn, kind RoleKind, role string, before ...string) error {
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		for _, sql := range before {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, `SELECT set_config('badged.role', $1, true), set_config('badged.kind', $2, true)`, role, string(kind)); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, grantSQL)
		return err
	})
	if err != nil {
		return fmt.Errorf("grant role %q the rights of a %s: %w", role, kind, err)
	}
	return nil
}

// grantAgain renews the grants of every recorded role that still exists, if the schema has changed
// since the role got its grants. It compares digests, so it also renews the grants if an earlier
// call of Up was killed after its migrations.
func grantAgain(ctx context.Context, conn *pgx.Conn) error {
	as, err := grantedAs(ctx, conn)
	if err != nil {
		return err
	}
	// Only the owner of the schema can grant. Other roles may also call Up if no migration is
	// pending. For these roles, the query returns no rows.
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
}

// withConn opens a connection, calls do with it, and closes it.
func withConn(ctx context.Context, cfg *pgx.ConnConfig, do func(conn *pgx.Conn) error) (err error) {
	conn, err := pgx.ConnectConfig(ctx, cfg.Copy())
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	return do(conn)
}
