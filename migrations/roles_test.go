package migrations_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/migrations"
)

// A call of Up that is killed after its last migration has not granted the recorded roles their
// rights on new tables. The next call grants them, although no migration is pending.
func TestUpGrantsWhatAKilledOneHadNot(t *testing.T) {
	server := pgtest.NewServer(t) // roles belong to all databases of a server
	cfg, err := pgx.ParseConfig(server.NewDB(t, pgtest.Template{}))
	if err != nil {
		t.Fatal(err)
	}
	up(t, cfg, 1)
	column(t, cfg, `CREATE ROLE reports LOGIN`)
	if err := migrations.Grant(t.Context(), cfg, migrations.RoleReader, "reports"); err != nil {
		t.Fatal(err)
	}
	may := func() string {
		t.Helper()
		return column(t, cfg, `SELECT has_table_privilege('reports', 'badged.one_more', 'SELECT')::text`)[0]
	}
	grants := func() string {
		t.Helper()
		return column(t, cfg, `SELECT xmin::text FROM pg_namespace WHERE nspname = 'badged'`)[0]
	}
	// The state after the killed call.
	const table = `CREATE TABLE badged.one_more ()`
	column(t, cfg, table)
	column(t, cfg, `INSERT INTO badged.schema_migrations (version_id, is_applied) VALUES (99999, true)`)
	again := func() {
		t.Helper()
		applied, err := migrations.UpFrom(t.Context(), migrations.Config{Conn: cfg}, withOneMore(t, table), nil)
		if err != nil || len(applied) > 0 {
			t.Fatalf("applied %v, %v", applied, err)
		}
	}
	if may() != "false" {
		t.Fatal("the role may read the table already")
	}
	again()
	if may() != "true" {
		t.Error("the role may not read the table")
	}
	before := grants()
	again()
	if grants() != before {
		t.Error("what is granted was granted again")
	}
}
