package moving_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/partition/copier"
	"github.com/badged/badged/internal/partition/moving"
)

// Every table with rows of partitions moves, or there is a reason why not.
func TestEveryTableMovesOrStays(t *testing.T) {
	t.Parallel()
	d := projectortest.New(t)
	var have []string
	for _, name := range d.Lines(t, `SELECT c.relname::text FROM pg_class AS c
WHERE c.relnamespace = 'badged'::regnamespace AND c.relkind IN ('r', 'p')
  AND (c.relname ~ '_p00' AND c.relname !~ '_r[0-9]+$'
    OR NOT c.relispartition AND c.relname !~ '_p[0-9]+' AND EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attname = 'partition_id')
       AND NOT EXISTS (SELECT FROM pg_inherits AS i WHERE i.inhparent = c.oid))`) {
		have = append(have, strings.Replace(name, "_p00", "", 1))
	}
	want := slices.Collect(maps.Keys(moving.Stay()))
	for _, table := range moving.Tables(0) {
		want = append(want, table.Kind)
	}
	slices.Sort(have)
	slices.Sort(want)
	if diff := cmp.Diff(want, slices.Compact(have)); diff != "" {
		t.Errorf("tables that move or stay (-named +in the schema):\n%s\nAdd it to partition.Tables or to stay.", diff)
	}
}

// values returns a row for any table. n determines the columns of the key, version the other
// columns.
func values(t testing.TB, d *projectortest.Database, table moving.Moved, n, version int) (columns, row []string) {
	t.Helper()
	for _, line := range d.Lines(t, `SELECT a.attname || ' ' || format_type(a.atttypid, a.atttypmod) FROM pg_attribute AS a
WHERE a.attrelid = $1::text::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attidentity = ''`, table.Name) {
		name, typ, _ := strings.Cut(line, " ")
		v := n
		if !slices.Contains(table.Key, name) {
			v = 10*version + n
		}
		value := fmt.Sprint(v)
		switch {
		case name == "partition_id":
			value = "0"
		case name == "transaction_id":
			value = fmt.Sprintf(`(SELECT transaction_id FROM badged.events_p00 ORDER BY transaction_id, "offset" OFFSET %d LIMIT 1)`, n)
		case name == "offset":
			value = fmt.Sprintf(`(SELECT "offset" FROM badged.events_p00 ORDER BY transaction_id, "offset" OFFSET %d LIMIT 1)`, n)
		case table.Kind == "dedup_runs" && name == "state":
			value = `'live'`
		case table.Kind == "webhook_queue" && name == "type":
			value = `'badge.changed'`
		case name == "origin":
			value = "NULL"
		case name == "revision": // far from that of the log, which the move raises in both
			value = fmt.Sprint(1000 + v)
		case name == "webhook":
			value = `'hook'`
		case typ == "badged.level":
			value = `'mentions'`
		case typ == "boolean":
			value = fmt.Sprint(v%2 == 0)
		case typ == "text":
			value = fmt.Sprintf(`'x%d'`, v)
		case typ == "bytea":
			value = fmt.Sprintf(`'\x%04d'`, v)
		case typ == "uuid":
			value = fmt.Sprintf(`'00000000-0000-0000-0000-%012d'`, v)
		case typ == "jsonb":
			value = fmt.Sprintf(`'{"x": %d}'`, v)
		case typ == "text[]" || typ == "bigint[]":
			value = fmt.Sprintf(`'{%d}'`, v)
		case strings.HasPrefix(typ, "timestamp"):
			value = fmt.Sprintf(`timestamptz '2026-01-01' + interval '%d hours'`, v)
		}
		columns, row = append(columns, `"`+name+`"`), append(row, value)
	}
	return columns, row
}

// rowsOf returns the rows of a table. It replaces each place by the number of the log's rows up to
// this place.
func rowsOf(t testing.TB, d *projectortest.Database, table moving.Moved) []string {
	t.Helper()
	place := "0"
	if table.Row || table.Between {
		place = `(SELECT count(*) FROM badged.events_p00 AS e WHERE (e.transaction_id, e."offset") <= (t.transaction_id, t."offset"))`
	}
	rows := d.Lines(t, fmt.Sprintf(`SELECT %s || ' ' || (to_jsonb(t) - '{transaction_id,offset}'::text[])::text FROM %s AS t WHERE %s ORDER BY 1`, place, table.Name, table.Of))
	return rows
}

// The rows of every table move, also if they are added, changed or deleted during the move.
func TestEveryRowMoves(t *testing.T) {
	t.Parallel()
	a, b := newShards(t)
	for n := range 9 {
		a.Append(t, foldtest.Deliver("c", int64(n+1), foldtest.User(0, 0)))
	}
	a.Fold(t)
	a.StopFolding()
	for _, d := range []*projectortest.Database{a, b} { // as if b had had the partition before
		for _, table := range moving.Tables(0) {
			d.Exec(t, `DELETE FROM `+table.Name+` AS t WHERE `+table.Of)
		}
	}
	a.Exec(t, `INSERT INTO badged.webhooks (generation, batch, rate, name, url, state, secrets, events) VALUES (1, 1, 1, 'hook', 'https://example.com', 'active', '{}', '{deadletter.buried}')`)
	insert := func(n, version int) {
		for _, table := range moving.Tables(0) {
			if table.Frozen && version > 0 {
				continue
			}
			columns, row := values(t, a, table, n, version)
			a.Exec(t, fmt.Sprintf(`INSERT INTO %s (%s) VALUES (%s) ON CONFLICT DO NOTHING`, table.Name, strings.Join(columns, ", "), strings.Join(row, ", ")))
		}
	}
	const first, changed, deleted, added = 1, 2, 3, 4
	for _, n := range []int{first, changed, deleted} {
		insert(n, 0)
	}
	a.Exec(t, `INSERT INTO badged.revocations (user_id, seq, revoked_before, ended_at) VALUES ($1, 1, now(), now()), ($2, 2, now(), now())`, foldtest.User(0, 1), foldtest.User(1, 1))
	a.Exec(t, `INSERT INTO badged.events_p00_offsets (consumer_group, offset_acked, last_processed_transaction_id)
SELECT 'reader', "offset", transaction_id FROM badged.events_p00 ORDER BY 1 OFFSET 4 LIMIT 1`)

	cfg := config(a, b, 0, "b")
	change := sync.OnceFunc(func() {
		insert(added, 1)
		for _, table := range moving.Tables(0) {
			if table.Frozen || len(table.Key) == 0 {
				continue
			}
			columns, row := values(t, a, table, changed, 2)
			key := func(n int) string {
				names, values := values(t, a, table, n, 0)
				where := []string{table.Of}
				for i, name := range names {
					if slices.Contains(table.Key, strings.Trim(name, `"`)) {
						where = append(where, name+" = "+values[i])
					}
				}
				return strings.Join(where, " AND ")
			}
			a.Exec(t, fmt.Sprintf(`UPDATE %s AS t SET (%s) = ROW(%s) WHERE %s`, table.Name, strings.Join(columns, ", "), strings.Join(row, ", "), key(changed)))
			a.Exec(t, fmt.Sprintf(`DELETE FROM %s AS t WHERE %s`, table.Name, key(deleted)))
		}
		a.Exec(t, `DELETE FROM badged.expiry_progress WHERE partition_id = 0`)
	})
	want := map[string][]string{}
	positions := `SELECT consumer_group || ' ' || (SELECT count(*) FROM badged.events_p00 AS e WHERE (e.transaction_id, e."offset") <= (o.last_processed_transaction_id, o.offset_acked)) || ' ' || folded
FROM badged.events_p00_offsets AS o ORDER BY 1`
	var wantPositions, wantLog []string
	const log = `SELECT concat_ws(' ', uuid, created_at, own, events, payload, metadata, era) FROM badged.events_p00 ORDER BY transaction_id, "offset"`
	cfg.Progress = func(step copier.Step, _ int64) {
		switch step {
		case copier.CatchingUp:
			change()
		case copier.Switching:
			for _, table := range moving.Tables(0) {
				want[table.Kind] = rowsOf(t, a, table)
			}
			wantPositions, wantLog = a.Lines(t, positions), a.Lines(t, log)
		}
	}
	move(t, cfg)
	for _, table := range moving.Tables(0) {
		rows := want[table.Kind]
		if len(rows) == 0 && table.Kind != "expiry_progress" {
			t.Errorf("%s has no rows to move", table.Kind)
		}
		got := rowsOf(t, b, table)
		if diff := cmp.Diff(rows, got); diff != "" {
			t.Errorf("%s (-source +target):\n%s", table.Name, diff)
		}
		if left := rowsOf(t, a, table); len(left) > 0 {
			t.Errorf("%s of the source still has %v", table.Name, left)
		}
	}
	if diff := cmp.Diff(wantPositions, b.Lines(t, positions)); diff != "" {
		t.Errorf("positions (-source +target):\n%s", diff)
	}
	if diff := cmp.Diff(wantLog, b.Lines(t, log)); diff != "" {
		t.Errorf("log (-source +target):\n%s", diff)
	}
	if got := b.Lines(t, `SELECT user_id FROM badged.revocations`); !slices.Equal(got, []string{foldtest.User(0, 1)}) {
		t.Errorf("revocations of %v have moved", got)
	}
}

// Revocations before the switch are copied. A server with an old map revokes tokens on the source
// after the switch; they are still revoked when the source is cleaned up.
func TestTokensRevokedBehindTheMoveStayRevoked(t *testing.T) {
	t.Parallel()
	a, b := newShards(t)
	a.StopFolding()
	early, late, gone := foldtest.User(0, 0), foldtest.User(0, 1), foldtest.User(0, 2)
	revoke := func(user, moment string) {
		a.Exec(t, `WITH counted AS (UPDATE badged.revocation_counter SET last = last + 1 RETURNING last)
INSERT INTO badged.revocations AS r (user_id, seq, revoked_before, ended_at) SELECT $1, last, $2::timestamptz, $2::timestamptz FROM counted
ON CONFLICT (user_id) DO UPDATE SET seq = excluded.seq, revoked_before = excluded.revoked_before`, user, moment)
	}
	revoke(early, "2027-01-01T00:00:00Z")
	revoke(gone, "2027-01-04T00:00:00Z")
	cfg := config(a, b, 0, "b")
	cfg.Progress = func(step copier.Step, _ int64) {
		switch step {
		case copier.CatchingUp:
			a.Exec(t, `DELETE FROM badged.revocations WHERE user_id = $1`, gone)
		case copier.CleaningUp:
			revoke(early, "2027-01-02T00:00:00Z")
			revoke(late, "2027-01-03T00:00:00Z")
		}
	}
	move(t, cfg)
	got := b.Lines(t, `SELECT user_id || ' ' || (revoked_before AT TIME ZONE 'UTC')::date FROM badged.revocations ORDER BY revoked_before`)
	if want := []string{early + " 2027-01-02", late + " 2027-01-03", gone + " 2027-01-04"}; !slices.Equal(got, want) {
		t.Errorf("the target revokes %q, want %q", got, want)
	}
	if left := a.Lines(t, `SELECT user_id FROM badged.revocations`); len(left) > 0 {
		t.Errorf("the source still has revocations of %q", left)
	}
}
