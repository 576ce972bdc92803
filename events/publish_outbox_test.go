package events_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/schematest"
)

// inLogAndOutbox runs a test of publishing in SQL in both kinds of databases.
func inLogAndOutbox(t *testing.T, test func(t *testing.T, pool *pgxpool.Pool)) {
	t.Helper()
	_, withLog := newLog(t)
	withOutbox := newOutbox(t)
	t.Run("log", func(t *testing.T) { test(t, withLog) })
	t.Run("outbox", func(t *testing.T) { test(t, withOutbox) })
}

func newOutbox(t testing.TB) *pgxpool.Pool { return newPool(t, pgtest.NewDB(t, schematest.Outbox())) }

// inOutbox returns the events in an outbox, in order.
func inOutbox(t anyT, pool *pgxpool.Pool) (all []events.Event) {
	rows, _ := pool.Query(t.Context(), `SELECT payload FROM badged.outbox ORDER BY "offset"`)
	payloads, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, payload := range payloads {
		e, err := events.Decode([]byte(payload))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// An outbox keeps events as they are, in their order, and gives a time to those without.
func TestOutboxKeepsEvents(t *testing.T) {
	pool := newOutbox(t)
	rapid.Check(t, func(t *rapid.T) {
		evs := rapid.SliceOfN(publishable, 1, 5).Draw(t, "events")
		if _, err := pool.Exec(t.Context(), `TRUNCATE badged.outbox`); err != nil {
			t.Fatal(err)
		}
		before := time.Now().Truncate(time.Microsecond)
		if position, err := call(t.Context(), pool, publishBatchSQL, encode(t, evs)); err != nil || position != 0 {
			t.Fatal(position, err)
		}
		// A single event takes another way.
		if position, err := call(t.Context(), pool, publishSQL, encode(t, evs[0])); err != nil || position != 0 {
			t.Fatal(position, err)
		}
		got := inOutbox(t, pool)
		want := append(slices.Clone(evs), evs[0])
		for i := range want {
			if want[i].Time.IsZero() && i < len(got) {
				want[i].Time = got[i].Time
				if got[i].Time.Before(before) || got[i].Time.After(time.Now()) {
					t.Fatalf("an event without a time has got %v", got[i].Time)
				}
			}
		}
		if diff := gocmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("events (-want +got):\n%s", diff)
		}
	})
}

// The events exist if and only if the caller's transaction commits.
func TestOutboxInATransaction(t *testing.T) {
	pool := newOutbox(t)
	tx := begin(t, pool)
	if _, err := call(t.Context(), tx, publishSQL, read); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := inOutbox(t, pool); len(got) > 0 {
		t.Errorf("a transaction that was rolled back left %v", got)
	}
	many := "[" + strings.TrimSuffix(strings.Repeat(read+",", 10_000), ",") + "]"
	if _, err := call(t.Context(), pool, publishBatchSQL, many); err != nil {
		t.Fatal(err)
	}
	if n := len(inOutbox(t, pool)); n != 10_000 {
		t.Errorf("the outbox has %d of 10,000 events", n)
	}
	for json, want := range map[string]string{
		read:                                  "the batch must be a JSON array of events",
		many[:len(many)-1] + "," + read + "]": "the batch has more than 10000 events",
		"[" + read + ",[" + read + "]]":       "event 1: invalid event: must be a JSON object",
	} {
		_, err := call(t.Context(), pool, publishBatchSQL, json)
		if message, _ := refusal(err); message != want {
			t.Errorf("%.40s: %s, want %s", json, message, want)
		}
	}
}
