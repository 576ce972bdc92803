package topics_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/events/topics"
	"github.com/badged/badged/internal/devtest/pgtest"
)

// plan is a node of a query plan, from EXPLAIN (FORMAT JSON).
type plan struct {
	Type      string  `json:"Node Type"`
	Relation  string  `json:"Relation Name"`
	Condition string  `json:"Index Cond"`
	Rows      float64 `json:"Actual Rows"`
	Removed   float64 `json:"Rows Removed by Filter"`
	Plans     []plan  `json:"Plans"`
}

// walk calls visit for p and all nodes below it.
func (p plan) walk(visit func(plan)) {
	visit(p)
	for _, child := range p.Plans {
		child.walk(visit)
	}
}

// Reading costs a subscriber, stock or not, what it reads, at any backlog: it scans the
// primary key in order from the position, without a sort and without
// discarding rows. This holds for generic and for custom plans.
func TestSubscribingIsAnIndexRangeScan(t *testing.T) {
	conn, err := pgx.Connect(t.Context(), pgtest.NewDB(t, migrated))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	exec := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	// The positions are in the middle, with 20,000 events on either side.
	exec(`INSERT INTO badged.events_p00 (transaction_id, uuid, payload)
SELECT (100 + n / 100)::text::xid8, gen_random_uuid(), '{"data": {"user_ids": ["somebody"]}}' FROM generate_series(1, 40000) AS n;
UPDATE badged.events_p00_offsets SET last_processed_transaction_id = '300', offset_acked = 20050;
ANALYZE badged.events_p00, badged.events_p00_offsets`)

	for name, query := range map[string]struct{ prepare, execute string }{
		"stock subscriber": {
			`(text) AS ` + topics.NewSchema(100).SelectQuery(events.Topic(0), "projector", topics.NewOffsets()).Query, `('projector')`,
		},
		"subscriber": {
			`(bigint, bigint, bigint, bigint, bigint[]) AS ` + topics.PageSQL(events.Topic(0)), `(300, 20050, 500, 40000, '{}')`,
		},
	} {
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			t.Run(name+" "+mode, func(t *testing.T) {
				exec(`SET plan_cache_mode = ` + mode)
				exec(`DEALLOCATE ALL`)
				exec(`PREPARE query ` + query.prepare)
				var text string
				if err := conn.QueryRow(t.Context(), `EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE query `+query.execute,
					pgx.QueryExecModeSimpleProtocol).Scan(&text); err != nil {
					t.Fatal(err)
				}
				checkRangeScan(t, text)
			})
		}
	}
}

func checkRangeScan(t *testing.T, text string) {
	t.Helper()
	var explained []struct{ Plan plan }
	if err := json.Unmarshal([]byte(text), &explained); err != nil {
		t.Fatal(err)
	}
	scans := 0
	explained[0].Plan.walk(func(p plan) {
		if strings.Contains(p.Type, "Sort") {
			t.Errorf("the plan has a sort:\n%s", text)
		}
		if !strings.HasPrefix(p.Relation, "events_p00_r") {
			return
		}
		scans++
		if p.Type != "Index Scan" || !strings.Contains(p.Condition, `ROW(transaction_id, "offset") > ROW(`) || p.Rows != 100 || p.Removed != 0 {
			t.Errorf("%s on %q read %v rows and %v in vain:\n%s", p.Type, p.Condition, p.Rows, p.Removed, text)
		}
	})
	if scans != 1 {
		t.Errorf("the log is scanned %d times:\n%s", scans, text)
	}
}
