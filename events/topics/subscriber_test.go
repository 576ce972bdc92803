package topics_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/events/topics"
	"github.com/badged/badged/internal/devtest/pgtest"
)

// newSubscriber returns a subscriber of the group "audit" that is closed with the
// test.
func newSubscriber(t testing.TB, pool *pgxpool.Pool, log *events.Log) *topics.Subscriber {
	t.Helper()
	s, err := topics.NewSubscriber(topics.SubscriberConfig{
		Pool: pool, Log: log, ConsumerGroup: "audit",
		PollInterval: 5 * time.Millisecond, ResendInterval: time.Millisecond, RetryInterval: 5 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// receiving is a subscription to partition 0.
func receiving(t testing.TB, s *topics.Subscriber) <-chan *message.Message {
	t.Helper()
	messages, err := s.Subscribe(t.Context(), events.Topic(0))
	if err != nil {
		t.Fatal(err)
	}
	return messages
}

// next returns the next message, which is not acknowledged.
func next(t testing.TB, messages <-chan *message.Message) *message.Message {
	t.Helper()
	select {
	case msg, open := <-messages:
		if !open {
			t.Fatal("the subscription has ended")
		}
		return msg
	case <-time.After(time.Minute):
		t.Fatal("no message came")
	}
	return nil
}

// eventIDs receives and acknowledges n messages, and returns the ids of their events.
func eventIDs(t testing.TB, messages <-chan *message.Message, n int) []string {
	t.Helper()
	var got []string
	for range n {
		msg := next(t, messages)
		e, err := events.Decode(msg.Payload)
		if err != nil {
			t.Fatalf("message %s: %v", msg.Payload, err)
		}
		got = append(got, e.ID)
		msg.Ack()
	}
	return got
}

// A message is an event, with its key, place, partition and trace context. The
// position moves behind a row once all its events are acknowledged, and another
// subscriber of the group goes on there.
func TestSubscriberUnpacksRows(t *testing.T) {
	url := pgtest.NewDB(t, migrated)
	log, pool := openLog(t, url)
	ann := userIn(0, 0)
	traced := delivered("2", ann)
	traced.TraceParent, traced.TraceState = "00-a-b-01", "v=1"
	all := []events.Event{delivered("1", ann), traced, delivered("3", ann)}
	mustAppend(t, log, all...)
	mustAppend(t, log, delivered("4", ann, userIn(1, 0)))
	records := readAll(t, pool, 0)
	fold(t, url)

	subscriber := newSubscriber(t, pool, log)
	messages := receiving(t, subscriber)
	for i, e := range all[:2] {
		msg := next(t, messages)
		want := message.Metadata{
			topics.MetadataContentType: events.ContentType, topics.MetadataPartition: "0",
			topics.MetadataPlace: records[i].String(),
		}
		if i == 1 {
			want["traceparent"], want["tracestate"] = "00-a-b-01", "v=1"
		}
		if diff := cmp.Diff(want, msg.Metadata); diff != "" {
			t.Errorf("metadata of message %d (-want +got):\n%s", i, diff)
		}
		if string(msg.Payload) != string(records[i].Payload) || msg.UUID != e.Key().String() {
			t.Errorf("message %d is %s %s, want %s %s", i, msg.UUID, msg.Payload, e.Key(), records[i].Payload)
		}
		msg.Ack()
	}
	next(t, messages).Nack()
	last := next(t, messages)
	if last.UUID != all[2].Key().String() {
		t.Errorf("after a negative acknowledgement came %s", last.Payload)
	}
	if p, err := events.PositionOf(t.Context(), pool, 0, "audit"); err != nil || p != (events.Position{}) {
		t.Errorf("within a row the position is %v, error %v", p, err)
	}
	if err := subscriber.Close(); err != nil {
		t.Fatal(err)
	}
	if _, open := <-messages; open || last.Context().Err() == nil {
		t.Errorf("after Close the channel is open: %v, and the context ends with %v", open, last.Context().Err())
	}
	if _, err := subscriber.Subscribe(t.Context(), events.Topic(0)); err == nil || !strings.Contains(err.Error(), "is closed") {
		t.Errorf("subscribed after Close, error %v", err)
	}

	subscriber = newSubscriber(t, pool, log)
	messages = receiving(t, subscriber)
	if diff := cmp.Diff([]string{"1", "2", "3"}, eventIDs(t, messages, 3)); diff != "" {
		t.Errorf("after a restart (-want +got):\n%s", diff)
	}
	next(t, messages)
	if p, err := events.PositionOf(t.Context(), pool, 0, "audit"); err != nil || p != records[0].Position {
		t.Errorf("behind a row the position is %v, error %v, want %v", p, err, records[0].Position)
	}
	_ = subscriber.Close()
	if diff := cmp.Diff([]string{"4"}, eventIDs(t, receiving(t, newSubscriber(t, pool, log)), 1)); diff != "" {
		t.Errorf("after another restart (-want +got):\n%s", diff)
	}
}

// Events that another transaction holds back delay no others, and come after them
// once it commits.
func TestSubscriberDoesNotWaitForOthers(t *testing.T) {
	url := pgtest.Borrow(t).NewDB(t, migrated)
	log, pool := openLog(t, url)
	ann := userIn(0, 0)
	late := begin(t, pool)
	if _, err := events.Publish(t.Context(), late, delivered("late 1", ann), delivered("late 2", ann)); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, log, delivered("1", ann))
	fold(t, url)
	messages := receiving(t, newSubscriber(t, pool, log))
	got := eventIDs(t, messages, 1)
	mustAppend(t, log, delivered("2", ann))
	got = append(got, eventIDs(t, messages, 1)...)
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	got = append(got, eventIDs(t, messages, 2)...)
	mustAppend(t, log, delivered("3", ann))
	got = append(got, eventIDs(t, messages, 1)...)
	if diff := cmp.Diff([]string{"1", "2", "late 1", "late 2", "3"}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	// All groups get the same order, whenever they read.
	if diff := cmp.Diff(got, ids(t, readAll(t, pool, 0))); diff != "" {
		t.Errorf("order of the log (-received +stored):\n%s", diff)
	}
}

// Events of pending transactions that have committed come once the projector has moved
// them, behind those that it folded before.
func TestSubscriberLeavesOutPendingEvents(t *testing.T) {
	log, pool := openLog(t, pgtest.Borrow(t).NewDB(t, migrated))
	ann := userIn(0, 0)
	late := begin(t, pool)
	receipt, err := events.Publish(t.Context(), late, delivered("late", ann))
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, log, delivered("1", ann))
	end := readAll(t, pool, 0)[0].Position
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	const moveSQL = `UPDATE badged.events_p00_offsets
SET last_processed_transaction_id = $1::bigint::text::xid8, offset_acked = $2, pending = $3::bigint[]::text[]::xid8[] WHERE consumer_group = 'projector'`
	exec(moveSQL, end.TransactionID, end.Offset, []int64{receipt.TransactionID})
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := readAll(t, pool, 0)[0]
	messages := receiving(t, newSubscriber(t, pool, log))
	got := eventIDs(t, messages, 1)
	exec(`SELECT badged.move_late(0, ARRAY[$1::bigint], ARRAY[$2::bigint], $3, $4)`, first.TransactionID, first.Offset, end.TransactionID, end.Offset)
	exec(moveSQL, end.TransactionID, end.Offset+1, []int64{})
	got = append(got, eventIDs(t, messages, 1)...)
	if diff := cmp.Diff([]string{"1", "late"}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// A role that can only read the log and move positions can subscribe.
func TestSubscriberNeedsFewRights(t *testing.T) {
	url := pgtest.NewServer(t).NewDB(t, migrated)
	log, pool := openLog(t, url)
	mustAppend(t, log, delivered("1", userIn(0, 0)))
	fold(t, url)
	for _, sql := range []string{
		`CREATE ROLE consumer LOGIN`,
		`GRANT USAGE ON SCHEMA badged TO consumer`,
		`GRANT SELECT ON badged.settings, badged.events_p00, badged.events_p00_offsets TO consumer`,
		`GRANT INSERT (consumer_group, offset_acked, last_processed_transaction_id), UPDATE (offset_acked, last_processed_transaction_id)
    ON badged.events_p00_offsets TO consumer`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	cfg := pool.Config()
	cfg.ConnConfig.User = "consumer"
	consuming, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(consuming.Close)
	if log, err = events.Open(t.Context(), consuming); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"1"}, eventIDs(t, receiving(t, newSubscriber(t, pool, log)), 1)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// What is no event comes with the reason, and does not stop the subscriber. Large
// rows are read all the same.
func TestSubscriberDeliversDamage(t *testing.T) {
	url := pgtest.NewDB(t, migrated)
	log, pool := openLog(t, url)
	for _, payload := range []string{`'\x28b52ffd00'`, `convert_to(repeat('x', 9 << 20), 'UTF8')`, `NULL`, `'[{},1]'`, `convert_to(repeat('x', 2 << 20), 'UTF8')`} {
		if _, err := pool.Exec(t.Context(), `INSERT INTO badged.events_p00 (uuid, payload) VALUES (gen_random_uuid(), `+payload+`)`); err != nil {
			t.Fatal(err)
		}
	}
	mustAppend(t, log, delivered("good", userIn(0, 0)))
	fold(t, url)
	messages := receiving(t, newSubscriber(t, pool, log))
	var got, uuids []string
	for range 6 {
		msg := next(t, messages)
		got = append(got, fmt.Sprintf("%.8q %s: %.40s", msg.Payload, msg.Metadata.Get(topics.MetadataContentType), msg.Metadata.Get(topics.MetadataDamage)))
		uuids = append(uuids, msg.UUID)
		msg.Ack()
	}
	const other = "application/octet-stream: "
	want := []string{
		`"(\xb5/\xfd\x00" ` + other + "the row cannot be decompressed: unexpect",
		`"" ` + other + "the row has 9437184 bytes; at most 83886",
		`"" ` + other + "invalid event: is not valid JSON: it is ",
		`"{}" ` + other + "invalid event: specversion: is required;",
		`"1" ` + other + "invalid event: must be a JSON object",
		`"xxxxxxxx" ` + other + "invalid event: is not valid JSON: invali",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	if slices.Sort(uuids); len(slices.Compact(uuids)) != 6 {
		t.Errorf("message ids are not unique: %v", uuids)
	}
	if diff := cmp.Diff([]string{"good"}, eventIDs(t, messages, 1)); diff != "" {
		t.Errorf("the events after them (-want +got):\n%s", diff)
	}
}

// Of two subscribers of a group, one delivers. When its session breaks, the topic goes
// on from the last row that was acknowledged, with either of them.
func TestSubscriberOutlivesItsSession(t *testing.T) {
	url := pgtest.NewDB(t, migrated)
	log, pool := openLog(t, url)
	ann := userIn(0, 0)
	mustAppend(t, log, delivered("1", ann))
	mustAppend(t, log, delivered("2", ann))
	fold(t, url)
	one, other := receiving(t, newSubscriber(t, pool, log)), receiving(t, newSubscriber(t, pool, log))
	either := func() *message.Message {
		t.Helper()
		select {
		case msg := <-one:
			return msg
		case msg := <-other:
			return msg
		case <-time.After(time.Minute):
			t.Fatal("no message came")
			return nil
		}
	}
	either().Ack()
	held := either()
	var holders int
	const holdersSQL = `FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
	if err := pool.QueryRow(t.Context(), `SELECT count(*) `+holdersSQL).Scan(&holders); err != nil || holders != 1 {
		t.Fatalf("%d sessions deliver, error %v", holders, err)
	}
	if _, err := pool.Exec(t.Context(), `SELECT pg_terminate_backend(pid) `+holdersSQL); err != nil {
		t.Fatal(err)
	}
	held.Ack() // cannot be stored any more
	again := either()
	if again.UUID != held.UUID {
		t.Errorf("after the session broke came %s, want %s", again.Payload, held.Payload)
	}
	again.Ack()
	mustAppend(t, log, delivered("3", ann))
	if e, err := events.Decode(either().Payload); err != nil || e.ID != "3" {
		t.Errorf("then came %s, error %v", e.ID, err)
	}
}

// A group has a position from SubscribeInitialize on, which keeps what it has not read
// from being archived.
func TestSubscribeInitialize(t *testing.T) {
	log, pool := newLog(t)
	if err := newSubscriber(t, pool, log).SubscribeInitialize(events.Topic(2)); err != nil {
		t.Fatal(err)
	}
	var groups []string
	if err := pool.QueryRow(t.Context(), `SELECT array_agg(consumer_group::text ORDER BY consumer_group) FROM badged.events_p02_offsets`).Scan(&groups); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"audit", events.NotifierGroup, events.ProjectorGroup}, groups); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
}

func TestSubscriberRefuses(t *testing.T) {
	log, pool := newLog(t)
	for group, want := range map[string]string{"": "needs a consumer group", events.ProjectorGroup: "is badged's own", events.NotifierGroup: "is badged's own"} {
		if _, err := topics.NewSubscriber(topics.SubscriberConfig{Pool: pool, Log: log, ConsumerGroup: group}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("group %q: error %v", group, err)
		}
	}
	if _, err := topics.NewSubscriber(topics.SubscriberConfig{ConsumerGroup: "audit"}); err == nil || !strings.Contains(err.Error(), "needs Pool and Log") {
		t.Errorf("without a log: error %v", err)
	}
	s := newSubscriber(t, pool, log)
	if _, err := s.Subscribe(t.Context(), "orders"); err == nil || !strings.Contains(err.Error(), `there is no topic "orders": the log has events_p00 to events_p03`) {
		t.Errorf("an unknown topic: error %v", err)
	}
	if _, err := pool.Exec(t.Context(), `DROP SCHEMA badged CASCADE`); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Subscribe(t.Context(), events.Topic(0)); err == nil || !strings.Contains(err.Error(), "store the position of consumer group audit") {
		t.Errorf("no log: error %v", err)
	}
}

// A subscription ends with its context, and others of the subscriber go on.
func TestSubscriptionEndsWithItsContext(t *testing.T) {
	url := pgtest.NewDB(t, migrated)
	log, pool := openLog(t, url)
	fold(t, url)
	mustAppend(t, log, delivered("1", userIn(0, 0)), delivered("2", userIn(1, 0)))
	s := newSubscriber(t, pool, log)
	ctx, cancel := context.WithCancel(t.Context())
	messages, err := s.Subscribe(ctx, events.Topic(1))
	if err != nil {
		t.Fatal(err)
	}
	msg := next(t, messages)
	cancel()
	if _, open := <-messages; open || msg.Context().Err() == nil {
		t.Errorf("the channel is open: %v; the context of the message: %v", open, msg.Context().Err())
	}
	eventIDs(t, receiving(t, s), 1)
}
