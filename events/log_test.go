package events_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
)

func TestOpenADatabaseWithoutALog(t *testing.T) {
	pool := newPool(t, pgtest.NewDB(t, pgtest.Template{}))
	log, err := events.Open(t.Context(), pool)
	if !errors.Is(err, events.ErrNotMigrated) {
		t.Errorf("opened %v, error %v", log, err)
	}
}

func TestLogThatGoesAway(t *testing.T) {
	log, pool := newLog(t)
	if _, err := pool.Exec(t.Context(), `DROP SCHEMA badged CASCADE`); err != nil {
		t.Fatal(err)
	}
	_, appendErr := log.Append(t.Context(), delivered("1", "ann"))
	_, positionErr := events.PositionOf(t.Context(), pool, 0, "projector")
	for _, err := range []error{appendErr, positionErr} {
		if !errors.Is(err, events.ErrNotMigrated) {
			t.Errorf("error %v", err)
		}
	}
}

func TestLogKnowsItsPartitions(t *testing.T) {
	log, _ := newLog(t)
	if n := log.Partitions(); n != partitions {
		t.Errorf("the log has %d partitions, want %d", n, partitions)
	}
	for p := range partitions {
		if got := log.PartitionOf(userIn(p, 0)); got != p {
			t.Errorf("%s is in partition %d, want %d", userIn(p, 0), got, p)
		}
	}
}

// Events are read as they were appended; an event without a time has got one.
func TestAppend(t *testing.T) {
	log, pool := newLog(t)
	ann := userIn(1, 0)
	timed := delivered("timed", ann)
	timed.Time = time.Date(2026, 1, 31, 23, 59, 59, 5, time.UTC)
	timed.Data.Category, timed.Data.MentionedUserIDs = "likes", []string{ann}
	untimed := delivered("untimed", ann)
	traced := delivered("traced", ann)
	traced.Time, traced.TraceParent, traced.TraceState = timed.Time, "00-a-b-01", "v=1"
	evs := []events.Event{timed, untimed, traced}

	start := time.Now()
	receipt := mustAppend(t, log, evs...)
	if !evs[1].Time.IsZero() {
		t.Error("the caller's event was given a time")
	}
	records := readAll(t, pool, 1, events.Position{})
	got := decodeAll(t, records)
	if len(got) != 3 {
		t.Fatalf("%d of 3 events were stored", len(got))
	}
	if at := got[1].Time; at.Before(start.Truncate(time.Microsecond)) || at.After(time.Now()) {
		t.Errorf("an event without a time was accepted at %v, between %v and now", at, start)
	}
	got[1].Time = time.Time{}
	if diff := cmp.Diff(evs, got); diff != "" {
		t.Errorf("events (-appended +read):\n%s", diff)
	}
	for i, r := range records {
		if r.TransactionID != receipt.TransactionID {
			t.Errorf("event %d is of transaction %d, the receipt has %d", i, r.TransactionID, receipt.TransactionID)
		}
		if r.Position != records[0].Position || r.Index != i {
			t.Errorf("event %d is at %v, want index %[1]d of one row", i, r.Place)
		}
		if r.AppendedAt.IsZero() {
			t.Errorf("event %d was never appended", i)
		}
	}
	if diff := cmp.Diff([]int{1}, receipt.Partitions); diff != "" {
		t.Errorf("partitions of the receipt (-want +got):\n%s", diff)
	}
}

// An append refuses what only badged may write, and names it.
func TestAppendRefusesReserved(t *testing.T) {
	log, pool := newLog(t)
	expired := delivered("2", "ann")
	expired.Type, expired.Data.UpToSeq, expired.Data.Seq = events.ConversationExpired, 1, 0
	named := delivered("3", "ann")
	named.PublishedBy = "crm"
	_, err := log.Append(t.Context(), delivered("1", "ann"), expired, named)
	bad, ok := errors.AsType[*events.BatchError](err)
	if !ok || len(bad.Events) != 2 || bad.Events[0].Index != 1 || bad.Events[1].Index != 2 {
		t.Errorf("the append failed with %v", err)
	}
	for p := range log.Partitions() {
		if got := readAll(t, pool, p, events.Position{}); len(got) > 0 {
			t.Errorf("partition %d has %d events", p, len(got))
		}
	}
}

// An append of many events cuts rows at 1,000 events, at 1 MiB, and where events
// begin that badged itself writes. Events keep their order.
func TestAppendCutsRows(t *testing.T) {
	log, pool := newLog(t)
	ann := userIn(0, 0)
	var evs []events.Event
	for i := range 1300 {
		evs = append(evs, delivered(fmt.Sprint(i), ann))
	}
	for i := 1100; i < 1110; i++ {
		evs[i].Type, evs[i].Data.UpToSeq, evs[i].Data.Seq = events.ConversationExpired, 1, 0
	}
	var large []string
	for i := 0; len(large) < 5000; i++ {
		if id := fmt.Sprintf("%060d", i); log.PartitionOf(id) == 0 {
			large = append(large, id)
		}
	}
	for i := range 5 {
		evs = append(evs, delivered(fmt.Sprint("large ", i), large...))
	}
	mustAppend(t, log, evs...)
	records := readAll(t, pool, 0, events.Position{})
	got := decodeAll(t, records)
	for i := range got {
		got[i].Time = time.Time{}
	}
	if diff := cmp.Diff(evs, got); diff != "" {
		t.Fatalf("events (-appended +read):\n%s", diff)
	}
	var rows []string
	for _, r := range records {
		if r.Index > 0 {
			rows = rows[:len(rows)-1]
		}
		rows = append(rows, fmt.Sprintf("%d, own %v", r.Index+1, r.Own))
	}
	if diff := cmp.Diff([]string{"1000, own false", "303, own true", "2, own false"}, rows); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	counts, _ := pool.Query(t.Context(), `SELECT events FROM badged.events_p00 ORDER BY "offset"`)
	counted, err := pgx.CollectRows(counts, pgx.RowTo[int])
	if diff := cmp.Diff([]int{1000, 303, 2}, counted); diff != "" || err != nil {
		t.Errorf("numbers of events in the rows, error %v (-want +got):\n%s", err, diff)
	}
}

// The trace context of a single event is stored as message metadata, where
// watermill looks for it.
func TestAppendKeepsTheTraceContextInMetadata(t *testing.T) {
	log, pool := newLog(t)
	ann := userIn(0, 0)
	plain, traced, full := delivered("1", ann), delivered("2", ann), delivered("3", ann)
	traced.TraceParent = "00-a-b-01"
	full.TraceParent, full.TraceState = "00-a-b-01", `v="1"`
	for _, e := range []events.Event{plain, traced, full} {
		if r := mustAppend(t, log, e); readAll(t, pool, 0, events.Position{TransactionID: r.TransactionID})[0].UUID != e.Key() {
			t.Errorf("the message id of event %s is not its key", e.ID)
		}
	}
	rows, err := pool.Query(t.Context(), `SELECT coalesce(metadata::jsonb::text, 'none') FROM badged.events_p00 ORDER BY "offset"`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"none", `{"traceparent": "00-a-b-01"}`, `{"tracestate": "v=\"1\"", "traceparent": "00-a-b-01"}`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
}

// A message to a group is one row in each partition of its users, with only
// the users and mentions of that partition.
func TestAppendStoresAGroupMessageOncePerPartition(t *testing.T) {
	log, pool := newLog(t)
	message := delivered("1")
	want := map[int]events.Data{}
	for i, p := range []int{3, 1, 3, 1, 3} {
		user := userIn(p, i)
		message.Data.UserIDs = append(message.Data.UserIDs, user)
		d := want[p]
		d.ConversationID, d.Seq = message.Data.ConversationID, message.Data.Seq
		d.UserIDs = append(d.UserIDs, user)
		if p == 3 && i > 0 {
			message.Data.MentionedUserIDs = append(message.Data.MentionedUserIDs, user)
			d.MentionedUserIDs = append(d.MentionedUserIDs, user)
		}
		want[p] = d
	}
	receipt := mustAppend(t, log, message)
	if diff := cmp.Diff([]int{1, 3}, receipt.Partitions); diff != "" {
		t.Errorf("partitions of the receipt (-want +got):\n%s", diff)
	}
	for p := range partitions {
		records := readAll(t, pool, p, events.Position{})
		if _, touched := want[p]; !touched {
			if len(records) > 0 {
				t.Errorf("partition %d has %d rows, want none", p, len(records))
			}
			continue
		}
		if len(records) != 1 {
			t.Fatalf("partition %d has %d rows, want 1", p, len(records))
		}
		if diff := cmp.Diff(want[p], decodeAll(t, records)[0].Data); diff != "" {
			t.Errorf("partition %d (-want +got):\n%s", p, diff)
		}
		if records[0].UUID != message.Key() {
			t.Errorf("partition %d has the uuid %s, want the key of the event in each", p, records[0].UUID)
		}
		if records[0].TransactionID != receipt.TransactionID {
			t.Errorf("partition %d has transaction %d, the receipt has %d", p, records[0].TransactionID, receipt.TransactionID)
		}
	}
}

func TestAppendTheLargestGroup(t *testing.T) {
	log, pool := newLog(t)
	message := delivered("1")
	for i := range events.MaxUsers {
		message.Data.UserIDs = append(message.Data.UserIDs, fmt.Sprintf("member-%d", i))
	}
	mustAppend(t, log, message)
	var users []string
	for p := range partitions {
		records := readAll(t, pool, p, events.Position{})
		if len(records) != 1 {
			t.Fatalf("partition %d has %d rows, want 1", p, len(records))
		}
		for _, u := range decodeAll(t, records)[0].Data.UserIDs {
			if log.PartitionOf(u) != p {
				t.Errorf("%s is in partition %d, want %d", u, p, log.PartitionOf(u))
			}
			users = append(users, u)
		}
	}
	slices.Sort(users)
	slices.Sort(message.Data.UserIDs)
	if !slices.Equal(message.Data.UserIDs, users) {
		t.Errorf("%d users were stored, want the %d of the message", len(users), len(message.Data.UserIDs))
	}
}

// With one bad event nothing is stored, and every bad event is named.
func TestAppendIsAllOrNothing(t *testing.T) {
	log, pool := newLog(t)
	noSeq := delivered("2", userIn(1, 0))
	noSeq.Data.Seq = 0
	noUsers := delivered("4")
	for _, tc := range []struct {
		evs     []events.Event
		indexes []int
		want    string
	}{
		{
			[]events.Event{delivered("1", userIn(0, 0)), noSeq, delivered("3", userIn(2, 0))},
			[]int{1},
			"event 1: invalid event: data.seq: must be at least 1, is 0",
		},
		{
			[]events.Event{noUsers, delivered("1", userIn(0, 0)), noSeq},
			[]int{0, 2},
			"2 events are invalid; event 0: invalid event: data.user_ids: must name at least one user",
		},
	} {
		receipt, err := log.Append(t.Context(), tc.evs...)
		var bad *events.BatchError
		if !errors.As(err, &bad) || err.Error() != tc.want {
			t.Fatalf("appended as %+v, error %v; want %s", receipt, err, tc.want)
		}
		var indexes []int
		for _, e := range bad.Events {
			indexes = append(indexes, e.Index)
		}
		if diff := cmp.Diff(tc.indexes, indexes); diff != "" {
			t.Errorf("bad events (-want +got):\n%s", diff)
		}
	}
	if diff := cmp.Diff([partitions][]string{}, stored(t, pool)); diff != "" {
		t.Errorf("stored all the same (-want +got):\n%s", diff)
	}
}

// An append to several partitions is one transaction: if one insert fails, the
// others have no effect.
func TestAppendIsAllOrNothingAcrossPartitions(t *testing.T) {
	log, pool := newLog(t)
	_, err := pool.Exec(t.Context(), `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN RAISE 'disk full'; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON badged.events_p02 FOR EACH ROW EXECUTE FUNCTION refuse()`)
	if err != nil {
		t.Fatal(err)
	}
	var evs []events.Event
	for p := range partitions {
		evs = append(evs, delivered(fmt.Sprint(p), userIn(p, 0)))
	}
	if _, err := log.Append(t.Context(), evs...); err == nil || !strings.Contains(err.Error(), "append 4 events: ERROR: disk full") {
		t.Errorf("error %v", err)
	}
	if diff := cmp.Diff([partitions][]string{}, stored(t, pool)); diff != "" {
		t.Errorf("stored all the same (-want +got):\n%s", diff)
	}
}

func TestAppendNothing(t *testing.T) {
	log, _ := newLog(t)
	if diff := cmp.Diff(events.Receipt{}, mustAppend(t, log)); diff != "" {
		t.Errorf("receipt (-want +got):\n%s", diff)
	}
}

// Appended events survive a crash of the server.
func TestAppendIsDurable(t *testing.T) {
	server := pgtest.NewServer(t)
	url := server.NewDB(t, migrated)
	log, _ := openLog(t, url)
	receipt := mustAppend(t, log, delivered("1", userIn(0, 0)), delivered("2", userIn(1, 0)))
	server.Kill()
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	log, pool := openLog(t, url)
	if diff := cmp.Diff([partitions][]string{{"1"}, {"2"}}, stored(t, pool)); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
	if after := mustAppend(t, log, delivered("3", userIn(0, 0))); after.TransactionID <= receipt.TransactionID {
		t.Errorf("transaction %d comes after %d", after.TransactionID, receipt.TransactionID)
	}
	if diff := cmp.Diff([partitions][]string{{"1", "3"}, {"2"}}, stored(t, pool)); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
}
