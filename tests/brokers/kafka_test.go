package brokers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// kafka is a cluster of Kafka in this process.
type kafka struct {
	*kfake.Cluster
	client *kgo.Client
}

// startKafka starts three brokers with a topic of four partitions and the user ann.
func startKafka(t *testing.T, topic string) *kafka {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.SeedTopics(4, topic), kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "ann", "hunter2"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	k := &kafka{Cluster: c}
	k.client = k.connect(t)
	return k
}

func (k *kafka) connect(t *testing.T, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append(options, kgo.SeedBrokers(k.ListenAddrs()...), kgo.SASL(annsLogin()), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// from returns the URL for --from.
func (k *kafka) from(topics string) string {
	return "kafka://ann:hunter2@" + strings.Join(k.ListenAddrs(), ",") + "/" + topics + "?sasl=scram-sha-256"
}

func (k *kafka) publish(t *testing.T, records ...*kgo.Record) {
	t.Helper()
	if err := k.client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// Records in the structured and the binary mode become events. A record that is no event becomes a dead
// letter with its topic, partition and offset. Another process continues at the position of the last.
func TestKafka(t *testing.T) {
	t.Parallel()
	d, k := newDatabase(t), startKafka(t, "chat")
	p := run(t, d, k.from("chat"))
	k.publish(t,
		&kgo.Record{Topic: "chat", Partition: 3, Value: event(1)},
		&kgo.Record{Topic: "chat", Partition: 3, Value: []byte("hello")},
		&kgo.Record{Topic: "chat", Partition: 3}, // a tombstone
		&kgo.Record{Topic: "chat", Partition: 1, Value: []byte(`{"conversation_id":"c","user_ids":["ann"],"seq":1}`), Headers: []kgo.RecordHeader{
			{Key: "ce_specversion", Value: []byte("1.0")},
			{Key: "ce_source", Value: []byte("chat")},
			{Key: "ce_type", Value: []byte("message.delivered")},
			{Key: "content-type", Value: []byte("application/json")},
		}},
	)
	await(t, "four records", func() bool { return d.read(t) == 4 })
	if n := d.appended(t); n != 2 {
		t.Errorf("the log has %d events", n)
	}
	got := d.letters(t)
	if len(got) != 2 || !strings.HasPrefix(got[0], "kafka/chat/3/1: invalid event: is not valid JSON") || !strings.HasPrefix(got[1], "kafka/chat/3/2: ") || !strings.Contains(got[1], "it is empty") {
		t.Errorf("dead letters: %q", got)
	}
	await(t, "no backlog", func() bool {
		return strings.Contains(p.get("/metrics"), `badged_ingest_backlog{broker="kafka",partition="3",stream="chat"} 0`)
	})
	p.kill()
	k.publish(t, &kgo.Record{Topic: "chat", Partition: 3, Value: event(2)})
	run(t, d, k.from("chat"))
	await(t, "the fifth", func() bool { return d.read(t) == 5 })
	if n := d.appended(t); n != 3 {
		t.Errorf("the log has %d events", n)
	}
}

// Only records of committed transactions are read. The control records at the ends of transactions do
// not count as backlog.
func TestKafkaTransactions(t *testing.T) {
	t.Parallel()
	d, k := newDatabase(t), startKafka(t, "chat")
	client := k.connect(t, kgo.TransactionalID("ann"))
	for i, commit := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit} {
		if err := client.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "chat", Value: event(i)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := client.EndTransaction(t.Context(), commit); err != nil {
			t.Fatal(err)
		}
	}
	p := run(t, d, k.from("chat"))
	await(t, "the committed record", func() bool { return d.read(t) == 1 })
	await(t, "no backlog", func() bool {
		return strings.Contains(p.get("/metrics"), `badged_ingest_backlog{broker="kafka",partition="0",stream="chat"} 0`)
	})
	if n := d.appended(t); n != 1 {
		t.Errorf("the log has %d events", n)
	}
}

// If Kafka deletes records before they are read, badged reports it and reads the rest. A topic that was
// deleted and created again is read from its first record.
func TestKafkaLosesRecords(t *testing.T) {
	t.Parallel()
	d, k := newDatabase(t), startKafka(t, "chat")
	k.publish(t, &kgo.Record{Topic: "chat", Value: event(0)})
	p := run(t, d, k.from("chat"))
	await(t, "the first", func() bool { return d.read(t) == 1 })
	p.kill()
	for i := range 8 {
		k.publish(t, &kgo.Record{Topic: "chat", Value: event(i + 1)})
	}
	if err := k.DeleteRecords("chat", 0, 6); err != nil {
		t.Fatal(err)
	}
	p = run(t, d, k.from("chat"))
	await(t, "what is left", func() bool { return d.read(t) == 4 })
	if got := d.letters(t); len(got) != 1 || !strings.HasPrefix(got[0], "kafka/chat/0/lost: the broker deleted up to 5 messages") {
		t.Errorf("dead letters: %q", got)
	}
	p.kill()
	if err := k.DeleteTopic("chat"); err != nil {
		t.Fatal(err)
	}
	if err := k.CreateTopic("chat", 4, nil); err != nil {
		t.Fatal(err)
	}
	client := k.connect(t) // a new client, which does not know the former topic
	if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "chat", Value: event(20)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	p = run(t, d, k.from("chat"))
	await(t, "the record of the new topic", func() bool { return d.read(t) == 5 })
	if !strings.Contains(p.out.String(), "was deleted and created again") {
		t.Error("it does not say so")
	}
}

// Topics and settings that cannot work are refused, and the error says what to do.
func TestKafkaRefusals(t *testing.T) {
	t.Parallel()
	d, k := newDatabase(t), startKafka(t, "chat")
	for from, want := range map[string]string{
		k.from("none"): "there is no topic none; create it",
		strings.Replace(k.from("chat"), "hunter2", "wrong", 1):          "are user, password, sasl and tls right?",
		"kafka://ann:hunter2@127.0.0.1:1/chat":                          "connect to Kafka at 127.0.0.1:1",
		"kafka://ann:hunter2@127.0.0.1:1/chat?sasl=scram-sha-512&x=yes": `there is no parameter "x"`,
	} {
		if said := fails(t, d, from); !strings.Contains(said, want) || strings.Contains(said, "hunter2") || strings.Contains(said, "wrong") {
			t.Errorf("%s: %s", from, said)
		}
	}
}

// Two processes ingest while records are produced. In turn a process is killed, partitions move to other
// brokers, and Postgres is killed. Every record is in the log once.
func TestKafkaOverKills(t *testing.T) {
	d, postgres := newServer(t)
	k := startKafka(t, "chat")
	processes := []*process{run(t, d, k.from("chat")), run(t, d, k.from("chat"))}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	produced := make(chan int, 1)
	go func() { produced <- k.produceAll(ctx) }()
	for kill := range *kills {
		before := d.read(t)
		await(t, "progress after a kill", func() bool { return d.read(t) > before+200 })
		time.Sleep(rand.N(20 * time.Millisecond)) // the moment is random
		switch kill % 3 {
		case 0:
			i := kill / 3 % 2
			processes[i].kill()
			processes[i] = run(t, d, k.from("chat"))
		case 1:
			k.ShufflePartitionLeaders()
		case 2:
			restart(t, postgres)
		}
	}
	stop()
	n := <-produced
	await(t, fmt.Sprintf("%d records", n), func() bool { return d.read(t) >= n })
	if read, appended := d.read(t), d.appended(t); read != n || appended != n || n < 0 {
		t.Errorf("of %d records %d were read, and the log has %d events", n, read, appended)
	}
	if got := d.letters(t); len(got) > 0 {
		t.Errorf("dead letters: %q", got)
	}
}

// produceAll produces records until ctx is done and returns their number, or -1 after an error.
func (k *kafka) produceAll(ctx context.Context) (n int) {
	rate := time.NewTicker(10 * time.Millisecond)
	defer rate.Stop()
	for ctx.Err() == nil {
		<-rate.C
		var records []*kgo.Record
		for range 100 {
			records = append(records, &kgo.Record{Topic: "chat", Partition: int32(n % 4), Value: event(n)})
			n++
		}
		if k.client.ProduceSync(context.WithoutCancel(ctx), records...).FirstErr() != nil {
			return -1
		}
	}
	return n
}

func annsLogin() sasl.Mechanism { return scram.Auth{User: "ann", Pass: "hunter2"}.AsSha256Mechanism() }
