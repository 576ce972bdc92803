package tests

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/projector/replay"
)

// While a transaction is open, no event published after it began is folded.
// The explanation at a time in between lacks these events, then and later, and
// shows when events were appended and when they were folded.
func TestExplainWhatAnOpenTransactionHid(t *testing.T) {
	database := newDatabase(t)
	p := serve(t, database)
	total(t, p, "ann", publish(t, p, delivered("c", 1, `"ann"`)))

	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var began, published time.Time
	if err := tx.QueryRow(t.Context(), `SELECT pg_current_xact_id() IS NOT NULL, clock_timestamp()`).Scan(nil, &began); err != nil {
		t.Fatal(err)
	}
	position := publish(t, p, delivered("c", 2, `"ann"`))
	// Times are exact to a second, so the database waits longer.
	if err := tx.QueryRow(t.Context(), `SELECT pg_sleep(2)::text, clock_timestamp()`).Scan(nil, &published); err != nil {
		t.Fatal(err)
	}
	// The last event is appended in the open transaction, long after it began.
	if _, err := tx.Exec(t.Context(), `SELECT badged.publish($1)`, delivered("c", 3, `"ann"`)); err != nil {
		t.Fatal(err)
	}
	explain := func(args ...string) (e replay.Explanation) {
		t.Helper()
		decode(t, must(t, append([]string{"user", "explain", "ann", "--json", "--database-url=" + database}, args...)...), &e)
		return e
	}
	then := "--at=" + published.Format(time.RFC3339Nano)
	if e := explain(then); e.Total != 1 {
		t.Errorf("while the transaction is open the total is %d, want 1", e.Total)
	}
	var ending time.Time
	if err := tx.QueryRow(t.Context(), `SELECT clock_timestamp()`).Scan(&ending); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := total(t, p, "ann", position); n != 3 {
		t.Fatalf("the total is %d, want 3", n)
	}

	if e := explain(then); e.Total != 1 {
		t.Errorf("the total of that time is %d afterwards, want 1", e.Total)
	}
	if e := explain("--at=" + ending.Format(time.RFC3339Nano)); e.Total != 1 {
		t.Errorf("the total when the transaction ended is %d, want 1", e.Total)
	}
	now := explain()
	messages := now.Conversations[0].Messages // the greatest seq first
	for _, m := range messages[:2] {
		if m.FoldedAt.Before(ending) {
			t.Errorf("message %d was folded at %v, before the transaction ended at %v", m.Seq, m.FoldedAt, ending)
		}
	}
	if m := messages[0]; m.AppendedAt.Before(published) {
		t.Errorf("the last message was appended at %v, before %v", m.AppendedAt, published)
	}
	if m := messages[1]; m.AppendedAt.Before(began) || m.AppendedAt.After(published) {
		t.Errorf("the second message was appended at %v, not from %v to %v", m.AppendedAt, began, published)
	}
	if m := messages[2]; m.FoldedAt != m.AppendedAt {
		t.Errorf("the first message was folded at %v, and appended at %v", m.FoldedAt, m.AppendedAt)
	}
	if out := must(t, "user", "explain", "ann", "--database-url="+database); !strings.Contains(out, "folded "+messages[1].FoldedAt.Format("2006-01-02T15:04:05")) {
		t.Errorf("the explanation does not say when the second message was folded:\n%s", out)
	}
	later := "--at=" + messages[0].FoldedAt.Format(time.RFC3339Nano)
	if e := explain(later); e.Total != 3 {
		t.Errorf("the total when all was folded is %d, want 3", e.Total)
	}
}
