package events_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
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

// statements captures the statements sent on a connection.
type statements []string

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	*s = append(*s, data.SQL)
	return ctx
}

func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// Reading a batch costs what is in the batch, at any backlog: it scans the
// primary key in order from the position, without a sort and without
// discarding rows. This holds for generic and for custom plans.
func TestReadingIsAnIndexRangeScan(t *testing.T) {
	var sent statements
	cfg, err := pgx.ParseConfig(pgtest.NewDB(t, migrated))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Tracer = &sent
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
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

	sent = nil
	if _, err := events.Read(t.Context(), conn, 0, events.Position{}, 1, 1); err != nil {
		t.Fatal(err)
	}
	for _, query := range []struct{ name, sql, types, args string }{
		{"Read", sent[0], `bigint, bigint, bigint`, `300, 20050, 100`},
		{"SelectQuery", events.NewSchema(100).SelectQuery(events.Topic(0), "projector", events.NewOffsets()).Query, `text`, `'projector'`},
	} {
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			t.Run(query.name+"/"+mode, func(t *testing.T) {
				exec(`SET plan_cache_mode = ` + mode)
				exec(`DEALLOCATE ALL`)
				exec(fmt.Sprintf(`PREPARE query (%s) AS %s`, query.types, query.sql))
				var text string
				if err := conn.QueryRow(t.Context(), fmt.Sprintf(`EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE query (%s)`, query.args),
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
