package renumber_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/devtest/replaytest"
	"github.com/badged/badged/internal/partition/renumber"
)

var (
	journeys    = flag.Int("journeys", 1, "how many databases TestRepairKeepsTheOrder restores, several times each")
	journeySeed = flag.Uint64("journey-seed", 0, "the seed of the first of them, 0 for a random one")
)

// journey is a database that is repeatedly dumped and restored, and a reference database that gets
// the same events and is never restored.
type journey struct {
	*rand.Rand

	servers   []*pgtest.Server
	server    *pgtest.Server
	url       string
	reference *projectortest.Database
	// settled is true while the log is in order.
	settled bool
	events  int
	// order are the ids of each partition's events, in the order in which they
	// were published.
	order [foldtest.Partitions][]string
	// heard is how many events of partition 0 the audit has got.
	heard int
}

// publish publishes up to 20 events in each transaction, in SQL, which works even before the log is
// repaired.
func (j *journey) publish(t *testing.T, transactions int) {
	t.Helper()
	for range transactions {
		var evs []events.Event
		for range 1 + j.IntN(20) {
			evs = append(evs, j.event())
		}
		batch, err := json.Marshal(evs)
		if err != nil {
			t.Fatal(err)
		}
		for _, url := range []string{j.url, j.reference.URL} {
			exec(t, url, `SELECT badged.publish_batch('`+string(batch)+`')`)
		}
		for _, e := range evs {
			for p := range j.order {
				if slices.ContainsFunc(e.Data.UserIDs, func(u string) bool { return events.PartitionOf(u, foldtest.Partitions) == p }) {
					j.order[p] = append(j.order[p], e.ID)
				}
			}
		}
		if j.IntN(3) == 0 {
			advance(t, j.url, j.IntN(30))
		}
	}
}

// event returns an event whose place in the order usually matters.
func (j *journey) event() events.Event {
	j.events++
	var users []string
	for range 1 + j.IntN(3) {
		if u := foldtest.User(j.IntN(foldtest.Partitions), j.IntN(2)); !slices.Contains(users, u) {
			users = append(users, u)
		}
	}
	e := foldtest.Event(fmt.Sprint(j.events), events.ConversationMarkedUnread, fmt.Sprint("c", j.IntN(3)), nil, users...)
	switch j.IntN(5) {
	case 0:
		e.Type, e.Data.Level = events.ConversationLevelSet, []events.Level{events.LevelAll, events.LevelMentions, events.LevelDirectMentions, events.LevelNone}[j.IntN(4)]
	case 1:
		e.Type, e.Data.UpToSeq = events.ConversationRead, 1+j.Int64N(int64(j.events))
	case 2:
		e.Type = events.ConversationLeft
	case 3:
		e.Type, e.Data.Seq = events.MessageDelivered, int64(j.events)
	}
	return e
}

// listen puts the audit behind some row of partition 0.
func (j *journey) listen(t *testing.T) {
	t.Helper()
	if len(j.order[0]) == 0 {
		return
	}
	d := projectortest.Open(t, j.url)
	all := d.Records(t, 0)
	last := all[j.IntN(len(all))].Position
	d.Exec(t, `INSERT INTO badged.events_p00_offsets (consumer_group, offset_acked, last_processed_transaction_id) VALUES ($1, $2, $3::bigint::text::xid8)
ON CONFLICT (consumer_group) DO UPDATE SET offset_acked = excluded.offset_acked, last_processed_transaction_id = excluded.last_processed_transaction_id`,
		audited, last.Offset, last.TransactionID)
	j.heard = auditedUpTo(t, d)
}

// ids returns the ids of a partition's events in order.
func ids(t testing.TB, d *projectortest.Database, partition int) []string {
	t.Helper()
	var all []string
	for _, r := range d.Records(t, partition) {
		e, err := events.Decode(r.Payload)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e.ID)
	}
	return all
}

// restore moves the database to one of the servers, also the one that it is on.
func (j *journey) restore(t *testing.T) (how string) {
	t.Helper()
	to := j.servers[j.IntN(len(j.servers))]
	url := to.NewDB(t, pgtest.Template{})
	advance(t, url, j.IntN(400))
	switch how = []string{"plain", "inserts", "custom", "directory"}[j.IntN(4)]; how {
	case "plain":
		to.Run(t, j.server.Run(t, nil, "pg_dump", j.url), "psql", "--quiet", "--set=ON_ERROR_STOP=1", "--file=-", url)
	case "inserts":
		to.Run(t, j.server.Run(t, nil, "pg_dump", "--inserts", j.url), "psql", "--quiet", "--set=ON_ERROR_STOP=1", "--file=-", url)
	case "custom":
		to.Run(t, j.server.Run(t, nil, "pg_dump", "--format=custom", j.url), "pg_restore", "--exit-on-error", "--dbname="+url)
	case "directory":
		dir := filepath.Join(t.TempDir(), "dump")
		j.server.Run(t, nil, "pg_dump", "--format=directory", "--jobs=2", "--file="+dir, j.url)
		to.Run(t, nil, "pg_restore", "--exit-on-error", "--jobs=2", "--dbname="+url, dir)
	}
	j.server, j.url, j.settled = to, url, false
	return how
}

// repair puts the log in order, and checks that it is.
func (j *journey) repair(t *testing.T) {
	t.Helper()
	wantRestored(t, j.url)
	if _, needed, err := repaired(t, j.url, nil); err != nil || !needed {
		t.Fatalf("repairing: %v, %v", needed, err)
	}
	j.settled = true
	d := projectortest.Open(t, j.url)
	for p := range foldtest.Partitions {
		if diff := cmp.Diff(j.order[p], ids(t, d, p)); diff != "" {
			t.Fatalf("order in partition %d (-want +got):\n%s", p, diff)
		}
	}
	if j.heard > 0 {
		if n := auditedUpTo(t, d); n != j.heard {
			t.Fatalf("the audit is behind %d events, want %d", n, j.heard)
		}
	}
}

// A log preserves its order through dumps and restores of every kind: into clusters with higher,
// lower or equal transaction ids, with events published between a restore and its repair, and
// with dumps before the repair. Verify finds no difference, and every badge equals that of a log
// that never moved.
func TestRepairKeepsTheOrder(t *testing.T) {
	seed := *journeySeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	servers := []*pgtest.Server{pgtest.Borrow(t), pgtest.Borrow(t)}
	for i := range uint64(*journeys) {
		t.Run(fmt.Sprintf("seed=%d", seed+i), func(t *testing.T) {
			j := &journey{
				Rand: rand.New(rand.NewPCG(seed+i, 0)), servers: servers, server: servers[0],
				url: servers[0].NewDB(t, projectortest.Migrated()), reference: projectortest.New(t), settled: true,
			}
			for range 1 + j.IntN(3) {
				j.publish(t, 5+j.IntN(15))
				if j.settled && j.IntN(2) == 0 {
					projectortest.Open(t, j.url).Fold(t)
					j.publish(t, j.IntN(5)) // not folded before the restore
				}
				if j.settled && j.IntN(2) == 0 {
					j.listen(t)
				}
				t.Log("restore:", j.restore(t))
				if j.IntN(2) == 0 {
					j.publish(t, 1+j.IntN(10))
				}
				if j.IntN(3) > 0 {
					j.repair(t)
				}
			}
			if !j.settled {
				j.repair(t)
			}
			j.publish(t, 3)
			j.arrive(t)
		})
	}
}

// arrive checks the badges at the end.
func (j *journey) arrive(t *testing.T) {
	t.Helper()
	d := projectortest.Open(t, j.url)
	d.Fold(t)
	j.reference.Fold(t)
	if diff := cmp.Diff(j.reference.Dump(t), d.Dump(t)); diff != "" {
		t.Errorf("badges (-never moved +restored):\n%s", diff)
	}
	replaytest.Verify(t, d.Pool, d.Log)
}

// Two clusters use the same ids: the transactions that copy events have ids of events.
func TestRepairLogWhereIDsCoincide(t *testing.T) {
	const n = 1500
	from, to := pgtest.Borrow(t), pgtest.Borrow(t)
	original := projectortest.Open(t, from.NewDB(t, projectortest.Migrated()))
	users := make([]string, foldtest.Partitions)
	for p := range users {
		users[p] = foldtest.User(p, 0)
	}
	named, err := json.Marshal(users)
	if err != nil {
		t.Fatal(err)
	}
	url := to.NewDB(t, pgtest.Template{})
	reach(t, original.URL, currentID(t, url))
	first := currentID(t, original.URL)
	original.Exec(t, fmt.Sprintf(`DO $$
BEGIN
    FOR i IN 1..%d LOOP
        PERFORM badged.publish(jsonb_build_object('specversion', '1.0', 'id', i::text, 'source', 'test',
            'type', CASE i %% 3 WHEN 0 THEN 'message.delivered' WHEN 1 THEN 'conversation.marked_unread' ELSE 'conversation.left' END,
            'data', jsonb_build_object('conversation_id', 'c', 'user_ids', '%s'::jsonb) || CASE i %% 3 WHEN 0 THEN jsonb_build_object('seq', i) ELSE '{}' END));
        COMMIT;
    END LOOP;
END $$`, n, named))
	original.Fold(t)
	reach(t, url, first)
	to.Run(t, from.Run(t, nil, "pg_dump", "--format=custom", original.URL), "pg_restore", "--exit-on-error", "--dbname="+url)
	if id := currentID(t, url); id < first || id > first+n {
		t.Fatalf("the restore ends with id %d, which is none of the events': %d to %d", id, first, first+n)
	}
	reports, _, err := repaired(t, url, nil)
	if err != nil || len(reports) != foldtest.Partitions || reports[0] != (renumber.Result{Partition: 0, Copied: n}) {
		t.Fatalf("repairing: %v, %v", reports, err)
	}
	d := projectortest.Open(t, url)
	for p := range foldtest.Partitions {
		if diff := cmp.Diff(keys(t, original, p), keys(t, d, p)); diff != "" {
			t.Errorf("order in partition %d (-want +got):\n%s", p, diff)
		}
	}
	replaytest.Verify(t, d.Pool, d.Log)
}

func currentID(t testing.TB, url string) int64 {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var id int64
	if err := conn.QueryRow(t.Context(), `SELECT pg_current_xact_id()::text::bigint`).Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id
}

// Events of a transaction that was pending in the original go right after the position, where
// the projector would have moved them.
func TestRepairLogWithPendingTransactions(t *testing.T) {
	from, to := pgtest.Borrow(t), pgtest.Borrow(t)
	original := projectortest.Open(t, from.NewDB(t, projectortest.Migrated()))
	ann := foldtest.User(0, 0)
	original.Append(t, foldtest.Deliver("c", 1, ann))
	original.Fold(t)
	late := original.Begin(t)
	if _, err := events.Publish(t.Context(), late, foldtest.Deliver("late", 1, ann), foldtest.Event("left", events.ConversationLeft, "c", nil, ann)); err != nil {
		t.Fatal(err)
	}
	original.Append(t, foldtest.Deliver("c", 2, ann))
	original.Fold(t)
	original.StopFolding()
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	original.Append(t, foldtest.Deliver("c", 3, ann))

	url := to.NewDB(t, pgtest.Template{})
	to.Run(t, from.Run(t, nil, "pg_dump", "--format=custom", original.URL), "pg_restore", "--exit-on-error", "--dbname="+url)
	if _, needed, err := repaired(t, url, nil); err != nil || !needed {
		t.Fatalf("repairing: %v, %v", needed, err)
	}
	d := projectortest.Open(t, url)
	replaytest.Verify(t, d.Pool, d.Log, ann)
	if total := d.Badge(t, ann).Total; total != 2 {
		t.Errorf("the total is %d before the late events are folded, want 2", total)
	}
	for _, folded := range []*projectortest.Database{original, d} {
		folded.Fold(t)
		replaytest.Verify(t, folded.Pool, folded.Log, ann)
	}
	if diff := cmp.Diff(keys(t, original, 0), keys(t, d, 0)); diff != "" {
		t.Errorf("order (-as the projector has it +repaired):\n%s", diff)
	}
	if diff := cmp.Diff(original.Dump(t), d.Dump(t)); diff != "" {
		t.Errorf("badges (-original +repaired):\n%s", diff)
	}
}
