package brokers

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/badged/badged/internal/devtest/privateredis"
)

// rateMessages is how many messages TestRate reads from each broker.
var rateMessages = flag.Int("rate-messages", 4000, "how many messages TestRate reads from each broker")

// TestRate prints how fast one process reads a backlog from each broker. The brokers run
// on the same machine, NATS and Kafka in the process of the tests.
func TestRate(t *testing.T) {
	n := *rateMessages
	for name, fill := range map[string]func(t *testing.T, n int) string{"kafka": fillKafka, "nats": fillNATS, "redis": fillRedis} {
		t.Run(name, func(t *testing.T) {
			d := newDatabase(t)
			from := fill(t, n)
			began := time.Now()
			run(t, d, from)
			await(t, "the backlog", func() bool { return d.read(t) == n })
			took := time.Since(began)
			if appended := d.appended(t); appended != n {
				t.Errorf("of %d messages the log has %d events", n, appended)
			}
			t.Logf("%s: %d messages in %.2f s, with the start of the process: %.0f a second", name, n, took.Seconds(), float64(n)/took.Seconds())
		})
	}
}

func fillKafka(t *testing.T, n int) string {
	t.Helper()
	k := startKafka(t, "chat")
	for i := 0; i < n; {
		var records []*kgo.Record
		for range min(1000, n-i) {
			records = append(records, &kgo.Record{Topic: "chat", Partition: int32(i % 4), Value: event(i)})
			i++
		}
		k.publish(t, records...)
	}
	return k.from("chat")
}

func fillNATS(t *testing.T, n int) string {
	t.Helper()
	c := startNATS(t, 1)
	js := c.connect(t)
	createStream(t, js, jetstream.StreamConfig{Name: "CHAT", Subjects: []string{"chat"}})
	for i := range n {
		if i%1000 == 0 {
			awaitAcks(t, js)
		}
		if _, err := js.PublishAsync("chat", event(i)); err != nil {
			t.Fatal(err)
		}
	}
	awaitAcks(t, js)
	return c.from("CHAT")
}

// awaitAcks waits until NATS has acknowledged all published messages.
func awaitAcks(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(time.Minute):
		t.Fatal("publishing to NATS takes long")
	}
}

func fillRedis(t *testing.T, n int) string {
	t.Helper()
	s, err := privateredis.Start(t.Context(), privateredis.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	client := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer client.Close()
	for i := 0; i < n; {
		if _, err := client.Pipelined(context.WithoutCancel(t.Context()), func(p redis.Pipeliner) error {
			for range min(1000, n-i) {
				p.XAdd(t.Context(), &redis.XAddArgs{Stream: "chat", Values: []string{"payload", string(event(i))}})
				i++
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return s.URL() + "?stream=chat"
}
