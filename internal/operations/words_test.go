package operations

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/schematest"
)

// A redaction reads the records that may name the user, however long the trail is.
func TestRecordsOfAUserAreFoundByTheirIndex(t *testing.T) {
	conn, err := pgx.Connect(t.Context(), pgtest.NewDB(t, schematest.Migrated(1)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	for _, sql := range []string{
		`INSERT INTO badged.audit (who, via, action, arguments) SELECT 'ops', 'api', 'user.explain', json_build_object('user', 'user-' || n) FROM generate_series(1, 1000) AS n`,
		`INSERT INTO badged.audit_ends (audit_id, result) SELECT id, json_build_array('end-' || id) FROM badged.audit`,
		`ANALYZE badged.audit, badged.audit_ends`,
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	rows, _ := conn.Query(t.Context(), `EXPLAIN (ANALYZE, COSTS off, TIMING off) `+statements.Get("find records that may name a user"), "end-472")
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if plan := strings.Join(lines, "\n"); strings.Contains(plan, "Seq Scan") {
		t.Errorf("the plan is\n%s", plan)
	}
	tag, err := conn.Exec(t.Context(), statements.Get("find records that may name a user"), "end-472")
	if err != nil || tag.RowsAffected() != 1 {
		t.Errorf("it finds %d records, %v", tag.RowsAffected(), err)
	}
}
