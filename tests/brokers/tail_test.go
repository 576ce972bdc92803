package brokers

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/badged/badged/events"
)

// tailed is an event that a tail has published.
type tailed struct {
	key, Type, Subject string
	Data               struct {
		UserIDs        []string `json:"user_ids"`
		Version, Total int64
		Seq            int64
	}
}

// out is a broker to which a tail publishes.
type out interface {
	// disturb makes the broker change its leader.
	disturb(t *testing.T)
	// read reads events until so accepts them, and returns them in order.
	read(t *testing.T, so func(all []tailed) bool) []tailed
}

// kafkaOut is the topic chat.
type kafkaOut struct{ *kafka }

func (k kafkaOut) disturb(*testing.T) { k.ShufflePartitionLeaders() }

func (k kafkaOut) read(t *testing.T, so func(all []tailed) bool) (all []tailed) {
	t.Helper()
	client := k.connect(t, kgo.ConsumeTopics("chat"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	await(t, "what a tail publishes to Kafka", func() bool {
		fetches := client.PollFetches(t.Context())
		fetches.EachRecord(func(r *kgo.Record) { all = append(all, decodeTailed(t, string(r.Key), r.Value)) })
		return so(all)
	})
	return all
}

// natsOut is the stream CHAT.
type natsOut struct {
	*natsCluster
	js jetstream.JetStream
}

func (n natsOut) disturb(t *testing.T) { n.restartLeader(t, n.js) }

func (n natsOut) read(t *testing.T, so func(all []tailed) bool) (all []tailed) {
	t.Helper()
	var consumer jetstream.Consumer
	await(t, "a consumer", func() (ok bool) {
		var err error
		consumer, err = n.js.OrderedConsumer(t.Context(), "CHAT", jetstream.OrderedConsumerConfig{})
		return err == nil
	})
	await(t, "what a tail publishes to NATS", func() bool {
		batch, err := consumer.Fetch(500, jetstream.FetchMaxWait(200*time.Millisecond))
		if err != nil {
			return false
		}
		for msg := range batch.Messages() {
			all = append(all, decodeTailed(t, "", msg.Data()))
		}
		return so(all)
	})
	return all
}

func decodeTailed(t *testing.T, key string, payload []byte) tailed {
	t.Helper()
	e := tailed{key: key}
	if err := json.Unmarshal(payload, &e); err != nil {
		t.Fatal(err)
	}
	return e
}

// Tails, the broker's leader and Postgres are killed in turn while events are appended. No event is
// missing. Without repetitions, the events of each user are in order. The last badge of each user is
// right.
func TestTailsOverKills(t *testing.T) {
	t.Run("kafka", func(t *testing.T) {
		k := startKafka(t, "chat")
		tailOverKills(t, kafkaOut{k}, k.from("chat"))
	})
	t.Run("nats", func(t *testing.T) {
		c := startNATS(t, 3)
		js := c.connect(t)
		createStream(t, js, jetstream.StreamConfig{Name: "CHAT", Subjects: []string{"chat.>"}, Replicas: 3})
		tailOverKills(t, natsOut{c, js}, c.from("CHAT?subject=chat.badges"))
	})
}

func tailOverKills(t *testing.T, to out, url string) {
	d, postgres := newServer(t)
	launch(t, d, "serve", "--publisher-keys=chat=secret", "--jwt-keys=k1=HS256:0123456789abcdef0123456789abcdef")
	tails := []*process{launch(t, d, "tail", "--to="+url), launch(t, d, "tail", "--to="+url)}
	seqs := map[string]int64{}
	appendSome := func() {
		for range 100 {
			user := fmt.Sprintf("user-%d", rand.N(8))
			seqs[user]++
			e := events.Event{
				ID: fmt.Sprintf("%s/%d", user, seqs[user]), Source: "chat", Type: events.MessageDelivered,
				Data: events.Data{ConversationID: user, Seq: seqs[user], UserIDs: []string{user}},
			}
			await(t, "an append", func() bool { _, err := d.log.Append(t.Context(), e); return err == nil })
		}
	}
	for kill := range *kills {
		appendSome()
		time.Sleep(rand.N(20 * time.Millisecond)) // the moment is random
		switch kill % 3 {
		case 0:
			i := kill / 3 % 2
			tails[i].kill()
			tails[i] = launch(t, d, "tail", "--to="+url)
		case 1:
			to.disturb(t)
		case 2:
			restart(t, postgres)
		}
	}
	appendSome()
	all := to.read(t, func(all []tailed) bool {
		for user, n := range seqs {
			badge := func(e tailed) bool { return e.Type == "badge.changed" && e.Subject == user && e.Data.Total == n }
			message := func(e tailed) bool {
				return e.Type == "message.delivered" && e.Data.UserIDs[0] == user && e.Data.Seq == n
			}
			if !slices.ContainsFunc(all, badge) || !slices.ContainsFunc(all, message) {
				return false
			}
		}
		return true
	})
	seen, version := map[string]int64{}, map[string]int64{}
	for _, e := range all {
		switch e.Type {
		case "message.delivered":
			user := e.Data.UserIDs[0]
			if e.Data.Seq > seen[user]+1 {
				t.Fatalf("message %d of %s comes after %d", e.Data.Seq, user, seen[user])
			}
			seen[user] = max(seen[user], e.Data.Seq)
		case "badge.changed":
			if e.key != "" && e.key != e.Subject {
				t.Errorf("the badge of %s has the key %s", e.Subject, e.key)
			}
			if e.Data.Version != e.Data.Total { // each message raises both by one
				t.Errorf("%+v", e)
			}
			version[e.Subject] = max(version[e.Subject], e.Data.Version)
		}
	}
	for user, n := range seqs {
		if seen[user] != n || version[user] != n {
			t.Errorf("of %d messages of %s %d came; the greatest version is %d", n, user, seen[user], version[user])
		}
	}
}

// If JetStream refuses a message, later messages for the same user wait. Otherwise the repeated message
// would be behind them in the stream.
func TestTailKeepsTheOrderOfAUser(t *testing.T) {
	t.Parallel()
	d, c := newDatabase(t), startNATS(t, 1)
	js := c.connect(t)
	chat := jetstream.StreamConfig{Name: "CHAT", Subjects: []string{"chat.badges"}, MaxMsgSize: 1000}
	createStream(t, js, chat)
	launch(t, d, "serve", "--publisher-keys=chat=secret", "--jwt-keys=k1=HS256:0123456789abcdef0123456789abcdef")
	message := func(user string, seq int64, text string) events.Event {
		return events.Event{
			ID: fmt.Sprintf("%s/%d", user, seq), Source: "chat", Type: events.MessageDelivered,
			Data: events.Data{ConversationID: user, Seq: seq, UserIDs: []string{user}, Notification: events.Notification{Body: text}},
		}
	}
	if _, err := d.log.Append(t.Context(), message("ann", 1, "short"), message("ann", 2, strings.Repeat("long ", 200)), message("ann", 3, "short")); err != nil {
		t.Fatal(err)
	}
	tail := launch(t, d, "tail", "--to="+c.from("CHAT?send=events"))
	await(t, "the refusal", func() bool { return strings.Contains(tail.get("/readyz"), "message size exceeds maximum allowed") })
	chat.MaxMsgSize = -1
	createStream(t, js, chat)
	var order []int64
	natsOut{c, js}.read(t, func(all []tailed) bool {
		order = order[:0]
		for _, e := range all {
			order = append(order, e.Data.Seq)
		}
		return slices.Contains(order, 2) && slices.Contains(order, 3)
	})
	if !slices.Equal(order, []int64{1, 2, 3}) {
		t.Errorf("messages %d, want them in order", order)
	}
}

// Settings that cannot work are refused, and the error says what to do.
func TestTailRefusals(t *testing.T) {
	t.Parallel()
	d, k, c := newDatabase(t), startKafka(t, "chat"), startNATS(t, 1)
	js := c.connect(t)
	createStream(t, js, jetstream.StreamConfig{Name: "MANY", Subjects: []string{"a", "b.*"}})
	for to, want := range map[string]string{
		k.from("none"): "there is no topic none; create it",
		strings.Replace(k.from("chat"), "hunter2", "wrong", 1): "are user, password, sasl and tls right?",
		c.from("NONE"):                            "there is no stream NONE; create it",
		c.from("MANY"):                            "the stream MANY has the subjects a, b.*; choose where to write: ?subject=SUBJECT",
		c.from("MANY?subject=b.c.d"):              "the stream MANY does not accept the subject b.c.d, but only a, b.*",
		"nats://ann:wrong@" + c.hosts() + "/MANY": "Authorization Violation",
	} {
		if said := failsAs(t, d, "tail", "--to="+to); !strings.Contains(said, want) || strings.Contains(said, "hunter2") || strings.Contains(said, "wrong") {
			t.Errorf("%s: %s", to, said)
		}
	}
}
