package topics_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/badged/badged/events"
	"github.com/badged/badged/events/topics"
	"github.com/badged/badged/internal/devtest/pgtest"
)

// The log is a watermill-sql topic per partition: watermill's own publisher
// and subscriber run on it unchanged, with this package's schema, and with the
// stock schema if given the table names.
var schemas = []struct {
	name   string
	schema watermillsql.SchemaAdapter
}{
	{"our schema", topics.NewSchema(0)},
	{"our schema, one by one", topics.NewSchema(1)},
	{"stock schema", watermillsql.DefaultPostgreSQLSchema{
		GenerateMessagesTableName: func(topic string) string { return fmt.Sprintf("badged.%q", topic) },
	}},
}

func eachSchema(t *testing.T, test func(t *testing.T, log *events.Log, pool *pgxpool.Pool, schema watermillsql.SchemaAdapter)) {
	for _, s := range schemas {
		t.Run(s.name, func(t *testing.T) {
			log, pool := newLog(t)
			test(t, log, pool, s.schema)
		})
	}
}

func openSQL(t *testing.T, pool *pgxpool.Pool) *sql.DB {
	t.Helper()
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func newPublisher(t *testing.T, db watermillsql.ContextExecutor, schema watermillsql.SchemaAdapter) *watermillsql.Publisher {
	t.Helper()
	publisher, err := watermillsql.NewPublisher(db, watermillsql.PublisherConfig{SchemaAdapter: schema}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = publisher.Close() })
	return publisher
}

// subscription is a stock subscriber to partition 0.
type subscription struct {
	subscriber *watermillsql.Subscriber
	messages   <-chan *message.Message
}

func subscribe(t *testing.T, pool *pgxpool.Pool, schema watermillsql.SchemaAdapter, group string) subscription {
	t.Helper()
	subscriber, err := watermillsql.NewSubscriber(openSQL(t, pool), watermillsql.SubscriberConfig{
		ConsumerGroup:  group,
		PollInterval:   5 * time.Millisecond,
		ResendInterval: time.Millisecond,
		SchemaAdapter:  schema,
		OffsetsAdapter: topics.NewOffsets(),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	messages, err := subscriber.Subscribe(t.Context(), events.Topic(0))
	if err != nil {
		t.Fatal(err)
	}
	s := subscription{subscriber, messages}
	t.Cleanup(s.close)
	return s
}

func (s subscription) close() { _ = s.subscriber.Close() }

// receive returns the next n messages and acknowledges them.
func (s subscription) receive(t *testing.T, n int) []*message.Message {
	t.Helper()
	var msgs []*message.Message
	for range n {
		msg, ok := <-s.messages
		if !ok {
			t.Fatal("the subscriber has ended")
		}
		msg.Ack()
		msgs = append(msgs, msg)
	}
	return msgs
}

func payloads(msgs []*message.Message) []string {
	var s []string
	for _, m := range msgs {
		s = append(s, string(m.Payload))
	}
	return s
}

// Another consumer group gets every event that was appended, in order, with
// its key as UUID and its trace context as metadata.
func TestStockSubscriberReadsTheLog(t *testing.T) {
	eachSchema(t, func(t *testing.T, log *events.Log, pool *pgxpool.Pool, schema watermillsql.SchemaAdapter) {
		ann := userIn(0, 0)
		traced := delivered("2", ann)
		traced.TraceParent = "00-a-b-01"
		mustAppend(t, log, delivered("1", ann))
		mustAppend(t, log, traced)
		mustAppend(t, log, delivered("3", ann, userIn(1, 0)))

		msgs := subscribe(t, pool, schema, "audit").receive(t, 3)
		for i, id := range []string{"1", "2", "3"} {
			e, err := events.Decode(msgs[i].Payload)
			if err != nil {
				t.Fatal(err)
			}
			if e.ID != id || msgs[i].UUID != e.Key().String() {
				t.Errorf("message %d is event %s with uuid %s, want event %s and its key %s", i, e.ID, msgs[i].UUID, id, e.Key())
			}
		}
		want := []message.Metadata{{}, {"traceparent": "00-a-b-01"}, {}}
		for i, msg := range msgs {
			if diff := cmp.Diff(want[i], msg.Metadata); diff != "" {
				t.Errorf("metadata of message %d (-want +got):\n%s", i, diff)
			}
		}
	})
}

// A row with several events is one message, decompressed, whose metadata has the
// content type. A damaged row and one that is too large do not stop the subscriber.
func TestStockSubscriberReadsBatches(t *testing.T) {
	log, pool := openLog(t, pgtest.Borrow(t).NewDB(t, migrated))
	var evs []events.Event
	for i := range 50 {
		evs = append(evs, delivered(fmt.Sprint(i), userIn(0, 0)))
	}
	mustAppend(t, log, evs...)
	for _, payload := range []string{`'\x28b52ffd00'`, `convert_to(repeat('x', 9 << 20), 'UTF8')`, `'{}'`} {
		if _, err := pool.Exec(t.Context(), `INSERT INTO badged.events_p00 (uuid, payload, metadata) VALUES (gen_random_uuid(), `+payload+`, 'null')`); err != nil {
			t.Fatal(err)
		}
	}
	msgs := subscribe(t, pool, topics.NewSchema(0), "audit").receive(t, 4)
	var batch []json.RawMessage
	if err := json.Unmarshal(msgs[0].Payload, &batch); err != nil || len(batch) != len(evs) {
		t.Fatalf("%d events, error %v, in %.100s", len(batch), err, msgs[0].Payload)
	}
	for i := range evs {
		if e, err := events.Decode(batch[i]); err != nil || e.ID != evs[i].ID {
			t.Errorf("event %d is %s, error %v", i, e.ID, err)
		}
	}
	for i, want := range []string{"application/cloudevents-batch+json", "application/octet-stream", "", ""} {
		if got := msgs[i].Metadata.Get("content-type"); got != want {
			t.Errorf("message %d has content type %q, want %q", i, got, want)
		}
	}
	if diff := cmp.Diff([]string{"\x28\xb5\x2f\xfd\x00", "", "{}"}, payloads(msgs[1:])); diff != "" {
		t.Errorf("other messages (-want +got):\n%s", diff)
	}
}

// A subscriber continues where its consumer group stopped; each group gets all
// events.
func TestStockSubscribersResumeByGroup(t *testing.T) {
	eachSchema(t, func(t *testing.T, log *events.Log, pool *pgxpool.Pool, schema watermillsql.SchemaAdapter) {
		ann := userIn(0, 0)
		mustAppend(t, log, delivered("1", ann))
		mustAppend(t, log, delivered("2", ann))
		all := readAll(t, pool, 0)

		first := subscribe(t, pool, schema, "audit")
		first.receive(t, 2)
		mustAppend(t, log, delivered("3", ann))
		// The third message arrives only after the acknowledgements of the
		// first two are stored.
		third := string((<-first.messages).Payload)
		if p, err := events.PositionOf(t.Context(), pool, 0, "audit"); err != nil || p != all[1].Position {
			t.Errorf("the group stands at %v, error %v; want %v", p, err, all[1].Position)
		}
		first.close()
		if diff := cmp.Diff([]string{third}, payloads(subscribe(t, pool, schema, "audit").receive(t, 1))); diff != "" {
			t.Errorf("the group got (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{string(all[0].Payload), string(all[1].Payload), third},
			payloads(subscribe(t, pool, schema, "webhooks").receive(t, 3))); diff != "" {
			t.Errorf("another group got (-want +got):\n%s", diff)
		}
		if p, err := events.PositionOf(t.Context(), pool, 0, "projector"); err != nil || p != (events.Position{}) {
			t.Errorf("the projector was moved to %v, error %v", p, err)
		}
	})
}

// Stock subscribers, which have one position, wait for open transactions that
// may still append before what others have.
func TestStockSubscribersWait(t *testing.T) {
	log, pool := openLog(t, pgtest.Borrow(t).NewDB(t, migrated))
	older := begin(t, pool)
	if _, err := events.Publish(t.Context(), older, delivered("1", userIn(0, 0))); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, log, delivered("2", userIn(0, 0)))
	query := topics.NewSchema(0).SelectQuery(events.Topic(0), events.ProjectorGroup, topics.NewOffsets())
	selected := func() (n int64) {
		t.Helper()
		tag, err := pool.Exec(t.Context(), query.Query, query.Args...)
		if err != nil {
			t.Fatal(err)
		}
		return tag.RowsAffected()
	}
	if n := selected(); n != 0 {
		t.Errorf("%d messages are selected while an older transaction is open", n)
	}
	if err := older.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for selected() != 2 { // the server's own transactions may be open
	}
}

// A message that a subscriber does not acknowledge comes again.
func TestStockSubscriberRedelivers(t *testing.T) {
	eachSchema(t, func(t *testing.T, log *events.Log, pool *pgxpool.Pool, schema watermillsql.SchemaAdapter) {
		mustAppend(t, log, delivered("1", userIn(0, 0)))
		s := subscribe(t, pool, schema, "audit")
		msg := <-s.messages
		msg.Nack()
		again := s.receive(t, 1)[0]
		if again.UUID != msg.UUID {
			t.Errorf("after %s came %s", msg.UUID, again.UUID)
		}
	})
}

// A message of a stock publisher is a record like any other: Read and stock
// subscribers get it, valid or not.
func TestStockPublisherWritesToTheLog(t *testing.T) {
	eachSchema(t, func(t *testing.T, log *events.Log, pool *pgxpool.Pool, schema watermillsql.SchemaAdapter) {
		e := delivered("1", userIn(0, 0))
		payload, err := e.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		plain := message.NewMessage(e.Key().String(), payload)
		garbage := message.NewMessage("6c1d7a34-5b0f-5d5e-9f0c-000000000000", message.Payload(`{"a": "\\ \" {}"}`))
		garbage.Metadata.Set("note", `"quoted", {braced} \ and NULL`)
		if err := newPublisher(t, openSQL(t, pool), schema).Publish(events.Topic(0), plain, garbage); err != nil {
			t.Fatal(err)
		}
		mustAppend(t, log, delivered("2", userIn(0, 0)))

		records := readAll(t, pool, 0)
		if len(records) != 3 {
			t.Fatalf("read %d records, want 3", len(records))
		}
		got, err := events.Decode(records[0].Payload)
		if diff := cmp.Diff(e, got); diff != "" || err != nil {
			t.Errorf("error %v, event (-published +read):\n%s", err, diff)
		}
		for i, msg := range []*message.Message{plain, garbage} {
			if records[i].UUID.String() != msg.UUID || string(records[i].Payload) != string(msg.Payload) {
				t.Errorf("record %d is %s %s, want %s %s", i, records[i].UUID, records[i].Payload, msg.UUID, msg.Payload)
			}
		}
		received := subscribe(t, pool, schema, "audit").receive(t, 3)
		if !received[0].Equals(plain) || !received[1].Equals(garbage) {
			t.Errorf("received %v and %v, want %v and %v", received[0], received[1], plain, garbage)
		}
	})
}

// A stock publisher can publish in a transaction.
func TestStockPublisherWithinATransaction(t *testing.T) {
	eachSchema(t, func(t *testing.T, _ *events.Log, pool *pgxpool.Pool, schema watermillsql.SchemaAdapter) {
		db := openSQL(t, pool)
		for id, end := range map[string]func(*sql.Tx) error{"kept": (*sql.Tx).Commit, "lost": (*sql.Tx).Rollback} {
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			e := delivered(id, userIn(0, 0))
			payload, err := e.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			if err := newPublisher(t, tx, schema).Publish(events.Topic(0), message.NewMessage(e.Key().String(), payload)); err != nil {
				t.Fatal(err)
			}
			if err := end(tx); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff([]string{"kept"}, ids(t, readAll(t, pool, 0))); diff != "" {
			t.Errorf("read (-want +got):\n%s", diff)
		}
	})
}

func TestInsertQueryOfNoMessages(t *testing.T) {
	if q, err := topics.NewSchema(0).InsertQuery(events.Topic(0), nil); err == nil {
		t.Errorf("got %q", q.Query)
	}
}

// A message id that is not a UUID cannot be the key of an event: InsertQuery
// refuses it before anything is sent.
func TestInsertQueryRefusesOtherIDs(t *testing.T) {
	_, err := topics.NewSchema(0).InsertQuery(events.Topic(0), message.Messages{message.NewMessage("order-7", nil)})
	if err == nil || !strings.Contains(err.Error(), `"order-7"`) {
		t.Errorf("got %v, want an error about the UUID", err)
	}
}
