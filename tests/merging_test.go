package tests

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
)

// mergingLock is the key of an advisory lock that makes a merge of event keys wait.
const mergingLock = 4242

// publishMany publishes messages to ann, which may be repetitions, and returns the position.
func publishMany(t *testing.T, conn *pgx.Conn, from, to, step int) (position string) {
	t.Helper()
	err := conn.QueryRow(t.Context(), `SELECT badged.publish_batch(jsonb_agg(jsonb_build_object(
    'specversion', '1.0', 'id', 'many/' || seq, 'source', 'test', 'type', 'message.delivered',
    'data', jsonb_build_object('conversation_id', 'many-' || seq % 10, 'seq', seq, 'user_ids', '["ann"]'::jsonb))))::text
FROM generate_series($1::integer, $2::integer, $3::integer) AS seq`, from, to, step).Scan(&position)
	if err != nil {
		t.Fatal(err)
	}
	return position
}

// The server is killed while it merges event keys: while it writes a run from blocks, a segment of a
// merge of runs, and the end of that merge, and while it deletes merged runs. The next server
// continues, no event counts twice, and no rows of an interrupted merge remain.
func TestKilledWhileMergingKeys(t *testing.T) {
	t.Parallel()
	database := newDatabase(t)
	conn := pgtest.Connect(t, shardOf(t, database, "ann"))
	exec := func(statement string) {
		t.Helper()
		pgtest.Exec(t, conn, statement)
	}
	count := func(query string) (n int) {
		t.Helper()
		if err := conn.QueryRow(t.Context(), query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	const (
		some = 1100 // more than 1,024 keys, at which blocks are merged with this little memory
		runs = 8    // this number of runs is merged at once
		many = 8000 // enough keys for several runs
	)
	number := events.PartitionOf("ann", count(`SELECT partitions FROM badged.settings`))
	inPartition := func(sql string) string { return strings.ReplaceAll(sql, "pNN", fmt.Sprintf("p%02d", number)) }
	exec(fmt.Sprintf(`CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM pg_advisory_xact_lock(%d);
    RETURN coalesce(NEW, OLD);
END $$`, mergingLock))
	// idle reports whether everything is folded and merged.
	idle := func() bool {
		return count(inPartition(`SELECT
    (SELECT count(*) FROM badged.events_pNN AS e JOIN badged.events_pNN_offsets AS o ON consumer_group = 'projector'
     WHERE (e.transaction_id, e."offset") > (o.last_processed_transaction_id, o.offset_acked))
  + (SELECT coalesce(sum(octet_length(entries)) / 16, 0) / 1024 FROM badged.dedup_blocks_pNN)
  + (SELECT count(*) FROM badged.dedup_runs WHERE state <> 'live')
  + (SELECT count(*) / `+fmt.Sprint(runs)+` FROM badged.dedup_runs)`)) == 0
	}

	published := 0
	for _, at := range []struct{ what, table, trigger string }{
		{"a run of blocks", "badged.dedup_filters", fmt.Sprintf(`BEFORE INSERT ON badged.dedup_filters FOR EACH ROW WHEN (NEW.entries < %d)`, many)},
		{"a segment of a merge", "badged.dedup_filters", fmt.Sprintf(`BEFORE INSERT ON badged.dedup_filters FOR EACH ROW WHEN (NEW.entries > %d)`, many)},
		{"the end of a merge", "badged.dedup_runs", fmt.Sprintf(`BEFORE UPDATE ON badged.dedup_runs FOR EACH ROW WHEN (OLD.state = 'building' AND NEW.state = 'live' AND NEW.entries > %d)`, many)},
		{"deleting pages", "badged.dedup_pages_pNN", `BEFORE DELETE ON badged.dedup_pages_pNN FOR EACH ROW`},
	} {
		exec(fmt.Sprintf(`SELECT pg_advisory_lock(%d)`, mergingLock))
		exec(inPartition(`CREATE TRIGGER stop ` + at.trigger + ` EXECUTE FUNCTION stop()`))
		p := serve(t, database, "--cache-mib=1")
		if published > 0 {
			publishMany(t, conn, 1, published, 20)
		}
		for stopped := false; !stopped; {
			for range polls(t, "the server to merge all keys, or to stop at "+at.what) {
				stopped = count(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`) > 0
				if stopped || idle() {
					break
				}
			}
			if !stopped {
				publishMany(t, conn, published+1, published+some, 1)
				published += some
			}
		}
		p.kill()
		exec(fmt.Sprintf(`SELECT pg_advisory_unlock(%d)`, mergingLock)) // then the waiting session detects that the server is gone
		exec(inPartition(`DROP TRIGGER stop ON ` + at.table))
	}

	p := serve(t, database, "--cache-mib=1")
	wantTotal(t, p, "ann", publishMany(t, conn, 1, published, 3), int64(published))
	await(t, "what was interrupted to be deleted", idle)
	if n := count(inPartition(`SELECT count(*) FROM badged.dedup_pages_pNN LEFT JOIN badged.dedup_runs AS r USING (run) WHERE r.run IS NULL`)); n != 0 {
		t.Errorf("%d pages belong to no run", n)
	}
	if n := count(fmt.Sprintf(`SELECT count(*) FROM badged.dedup_runs WHERE entries > %d`, many)); n != 1 {
		t.Errorf("%d runs of more than %d keys, want one", n, many)
	}
	must(t, "verify", "--database-url="+database)
}
