package migrations_test

import (
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/admin"
	"github.com/badged/badged/migrations"
)

// Actions that an earlier version recorded become the start of the chain.
func TestEarlierActionsAreChained(t *testing.T) {
	cfg := emptyDatabase(t)
	const chain = "00010_audit_chain.sql"
	earlier := fstest.MapFS{}
	all, err := fs.Glob(migrations.Files(), "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		if name >= chain {
			continue
		}
		data, err := fs.ReadFile(migrations.Files(), name)
		if err != nil {
			t.Fatal(err)
		}
		earlier[name] = &fstest.MapFile{Data: data}
	}
	if _, err := migrations.UpFrom(t.Context(), migrations.Config{Conn: cfg, Partitions: 1}, earlier, nil); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), `
INSERT INTO badged.audit (at, who, via, action, arguments) SELECT '2026-01-31'::timestamptz + n * interval '2 s', 'ops', 'api', 'rebuild', '{}' FROM generate_series(1, 3) AS n;
INSERT INTO badged.audit_ends (audit_id, ended_at, error) SELECT id, at + interval '3 s', 'it is broken' FROM badged.audit WHERE id < 3`); err != nil {
		t.Fatal(err)
	}
	up(t, cfg, 1)
	v, err := admin.VerifyAudit(t.Context(), conn, admin.AuditHead{})
	if err != nil || v.Fault != nil || v.Count != 5 {
		t.Errorf("the trail is %+v, %v", v, err)
	}
}
