package ingest_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	io_prometheus_client "github.com/prometheus/client_model/go"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/bridge/backpressure"
	"github.com/badged/badged/internal/bridge/ingest"
	"github.com/badged/badged/internal/devtest/projectortest"
)

type dto = io_prometheus_client.MetricFamily

// fakeBroker has one partition with fixed messages.
type fakeBroker struct {
	messages []string
	// lost messages were deleted before the first.
	lost int64
	// size is the maximum number of messages of a batch, 0 for all.
	size int
	// opened counts readers.
	opened atomic.Int64
}

func (b *fakeBroker) Partitions(context.Context) ([]ingest.Partition, error) {
	return []ingest.Partition{{Stream: "chat", Numbered: true, Number: 3}}, nil
}

func (b *fakeBroker) Open(_ context.Context, _ ingest.Partition, behind string) (ingest.Reader, error) {
	b.opened.Add(1)
	at := 0
	if behind != "" {
		if _, err := fmt.Sscan(behind, &at); err != nil {
			return nil, err
		}
	}
	return &fakeReader{b, at}, nil
}

func (b *fakeBroker) Close() {}

type fakeReader struct {
	broker *fakeBroker
	at     int
}

func (r *fakeReader) Next(ctx context.Context) (ingest.Batch, error) {
	var b ingest.Batch
	if r.at == 0 {
		b.Lost = r.broker.lost
	}
	for ; r.at < len(r.broker.messages) && (r.broker.size == 0 || len(b.Messages) < r.broker.size); r.at++ {
		b.Messages = append(b.Messages, ingest.Message{
			Position: fmt.Sprint(r.at + 1), Place: fmt.Sprint(r.at), Time: time.Now(), Body: []byte(r.broker.messages[r.at]),
		})
		b.Position = fmt.Sprint(r.at + 1)
	}
	if len(b.Messages) > 0 {
		return b, nil
	}
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Millisecond):
	}
	return b, nil
}

func (r *fakeReader) Close() {}

// A message that Postgres refuses is buried alone; those around it are stored, and so is
// that the broker deleted some before.
func TestMessageThatPostgresRefuses(t *testing.T) {
	t.Parallel()
	db := projectortest.New(t)
	home := events.Topic(db.Log.PartitionOf("ada"))
	db.Exec(t, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF position('chat-poison' IN convert_from(NEW.payload, 'UTF8')) > 0 THEN RAISE EXCEPTION 'poison' USING ERRCODE = '22023'; END IF;
    RETURN NEW; END $$`)
	db.Exec(t, `CREATE TRIGGER refuse BEFORE INSERT ON badged.`+home+` FOR EACH ROW EXECUTE FUNCTION refuse()`)
	b := &fakeBroker{lost: 9}
	for i := range 7 {
		b.messages = append(b.messages, event(i+1))
	}
	b.messages[4] = strings.Replace(b.messages[4], `"source":"chat"`, `"source":"chat-poison"`, 1)
	run(t, db, []ingest.Source{ingest.SourceOf("fake", b)})
	projectortest.Until(t, "all", func() bool { return read(t, db) == 7 })
	if got := letters(t, db); len(got) != 2 || !strings.HasPrefix(got[0], "fake/chat/3/lost: ") || !strings.HasPrefix(got[1], "fake/chat/3/4: ") || !strings.Contains(got[1], "poison") {
		t.Errorf("dead letters: %q", got)
	}
	if n := appended(t, db); n != 6 {
		t.Errorf("the log has %d events", n)
	}
}

// A reader whose position was moved by another process stores nothing and reads on from
// there: what both have read counts once.
func TestFence(t *testing.T) {
	t.Parallel()
	db := projectortest.New(t)
	b := &fakeBroker{}
	for i := range 4 {
		b.messages = append(b.messages, event(i+1))
	}
	var once atomic.Bool
	r := run(t, db, []ingest.Source{ingest.SourceOf("fake", b)}, func(cfg *ingest.Config) {
		cfg.OwnershipInterval = 5 * time.Second // another reader is opened if a busy machine loses the session
		cfg.Admit = func(ctx context.Context, _ []events.Event) error {
			if once.CompareAndSwap(false, true) { // another process reads two messages meanwhile
				_, err := db.Pool.Exec(ctx, `UPDATE badged.ingest_positions SET position = '2', messages = 2`)
				return err
			}
			return nil
		}
	})
	projectortest.Until(t, "the rest", func() bool { return read(t, db) == 4 })
	if n := appended(t, db); n != 2 {
		t.Errorf("the log has %d events instead of the two that the other process has not read", n)
	}
	if !strings.Contains(r.logs.String(), "another process has read further, or") || b.opened.Load() != 2 {
		t.Errorf("readers opened: %d", b.opened.Load())
	}
}

// While folding is behind, messages wait in the broker.
func TestMessagesWaitForFolding(t *testing.T) {
	t.Parallel()
	db := projectortest.New(t)
	b := &fakeBroker{messages: []string{event(1)}}
	var asked atomic.Int64
	run(t, db, []ingest.Source{ingest.SourceOf("fake", b)}, func(cfg *ingest.Config) {
		cfg.OwnershipInterval = 5 * time.Second // another reader is opened if a busy machine loses the session
		cfg.Admit = func(ctx context.Context, _ []events.Event) error {
			if asked.Add(1) < 3 {
				return &backpressure.BehindError{Lag: time.Minute, RetryAfter: time.Millisecond}
			}
			var position string
			if err := db.Pool.QueryRow(ctx, `SELECT position FROM badged.ingest_positions`).Scan(&position); err != nil || position != "" {
				t.Errorf("the position is %q: %v", position, err)
			}
			return nil
		}
	})
	projectortest.Until(t, "the event", func() bool { return read(t, db) == 1 })
	if asked.Load() != 3 || b.opened.Load() != 1 {
		t.Errorf("asked %d times, opened %d readers", asked.Load(), b.opened.Load())
	}
}

// What a broker has under a name that it had before is read from the first message.
func TestNewIncarnation(t *testing.T) {
	t.Parallel()
	db := projectortest.New(t)
	if _, err := ingest.New(ingest.Config{}); err == nil {
		t.Error("an ingester without anything is made")
	}
	db.Exec(t, `INSERT INTO badged.ingest_positions (broker, stream, partition, incarnation, position) VALUES ('fake', 'chat', 3, 'earlier', '99')`)
	r := run(t, db, []ingest.Source{ingest.SourceOf("fake", &fakeBroker{messages: []string{event(1)}})})
	projectortest.Until(t, "the event", func() bool { return read(t, db) == 1 })
	if !strings.Contains(r.logs.String(), "was deleted and created again") {
		t.Error("it does not say that the stream is another")
	}
}
