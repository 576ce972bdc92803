package logread

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Reading costs what is in the page, at any backlog: it scans the primary key
// from the position on, by generic and by custom plans.
func TestReadingIsAnIndexRangeScan(t *testing.T) {
	conn, err := newDatabase(t).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	// 20,000 events on either side of the position.
	if _, err := conn.Exec(t.Context(), `INSERT INTO badged.events_p00 (transaction_id, uuid, payload)
SELECT (100 + n / 100)::text::xid8, gen_random_uuid(), '1' FROM generate_series(1, 40000) AS n;
ANALYZE badged.events_p00`); err != nil {
		t.Fatal(err)
	}
	for name, query := range map[string]struct{ sql, types, args string }{
		"next":         {nextSQL(0, false), `bigint, bigint, int`, `300, 20050, 100`},
		"next or late": {nextSQL(0, true), `bigint, bigint, bigint[], int`, `300, 20050, '{150,160}', 100`},
		"folded":       {foldedSQL(0), `bigint, bigint, bigint, bigint, bigint[], int`, `300, 20050, 400, 30000, '{150}', 100`},
	} {
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				if _, err := conn.Exec(t.Context(), fmt.Sprintf(`DEALLOCATE ALL; SET plan_cache_mode = %s; PREPARE query (%s) AS %s`, mode, query.types, query.sql),
					pgx.QueryExecModeSimpleProtocol); err != nil {
					t.Fatal(err)
				}
				rows, _ := conn.Query(t.Context(), `EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) EXECUTE query (`+query.args+`)`, pgx.QueryExecModeSimpleProtocol)
				lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
				if err != nil {
					t.Fatal(err)
				}
				text := strings.Join(lines, "\n")
				for _, bad := range []string{"Seq Scan", "Bitmap", "Rows Removed by Filter"} {
					if strings.Contains(text, bad) {
						t.Errorf("the plan has %q:\n%s", bad, text)
					}
				}
				if !strings.Contains(text, `ROW(transaction_id, "offset") > ROW(`) {
					t.Errorf("the plan does not start at the position:\n%s", text)
				}
			})
		}
	}
}
