package tests

import (
	"fmt"
	"testing"
	"time"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/partition/replay"
)

// Events of an open transaction are folded when the transaction commits, and do not delay other
// events. An explanation for a time before the commit does not include them, also if it is made
// later. Explanations show when each event was appended and when it was folded.
func TestExplainWhatAnOpenTransactionHolds(t *testing.T) {
	t.Parallel()
	database := newDatabase(t)
	p := serve(t, database)
	total(t, p, "ann", publish(t, p, delivered("c", 1, `"ann"`)))

	conn := pgtest.Connect(t, shardOf(t, database, "ann"))
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var began, appended, ending time.Time
	var position int64
	if err := tx.QueryRow(t.Context(), `SELECT clock_timestamp(), badged.publish($1), clock_timestamp()`, delivered("c", 3, `"ann"`)).Scan(&began, &position, &appended); err != nil {
		t.Fatal(err)
	}
	wantTotal(t, p, "ann", publish(t, p, delivered("c", 2, `"ann"`)), 2)
	explain := func(args ...string) (e replay.Explanation) {
		t.Helper()
		decode(t, must(t, append([]string{"user", "explain", "ann", "--json", "--database-url=" + database}, args...)...), &e)
		return e
	}
	// Times are exact to a second, so the transaction waits for two.
	if err := tx.QueryRow(t.Context(), `SELECT pg_sleep(2)::text, clock_timestamp()`).Scan(nil, &ending); err != nil {
		t.Fatal(err)
	}
	then := "--at=" + ending.Format(time.RFC3339Nano)
	if e := explain(then); e.Total != 2 {
		t.Errorf("while the transaction is open the explained total is %d, want 2", e.Total)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantTotal(t, p, "ann", fmt.Sprint(position), 3)

	if e := explain(then); e.Total != 2 {
		t.Errorf("the total of that time is %d afterwards, want 2", e.Total)
	}
	messages := explain().Conversations[0].Messages // the greatest seq first
	late := messages[0]
	if late.AppendedAt.Before(began) || late.AppendedAt.After(appended) || late.FoldedAt.Before(ending) {
		t.Errorf("the late message was appended at %v and folded at %v; want from %v to %v, and after %v",
			late.AppendedAt, late.FoldedAt, began, appended, ending)
	}
	for _, m := range messages[1:] {
		if !m.FoldedAt.Before(ending) {
			t.Errorf("message %d was appended at %v and folded at %v, after the end of the transaction at %v", m.Seq, m.AppendedAt, m.FoldedAt, ending)
		}
	}
	prints(t, "folded "+late.FoldedAt.Format("2006-01-02T15:04:05"), "user", "explain", "ann", "--database-url="+database)
	if e := explain("--at=" + late.FoldedAt.Format(time.RFC3339Nano)); e.Total != 3 {
		t.Errorf("the total when all was folded is %d, want 3", e.Total)
	}
}
