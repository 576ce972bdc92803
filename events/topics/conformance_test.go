package topics_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/events/topics"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/schematest"
	"github.com/badged/badged/projector"
	"github.com/badged/badged/pubsub"
)

// conformancePartitions is at least the number of topics of the suite.
const conformancePartitions = 48

// manyPartitions has a partition for each topic of watermill's suite.
var manyPartitions = schematest.Migrated(conformancePartitions)

// fold runs a projector on a database until the test ends.
func fold(t testing.TB, url string) {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	projector.ConfigurePool(cfg)
	cfg.MaxConns = 10
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	log, err := events.Open(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	bus := pubsub.NewMemory()
	p, err := projector.New(projector.Config{Pool: pool, Log: log, Bus: bus, PollInterval: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the projector ended: %v", err)
		}
		_ = bus.Close()
		pool.Close()
	})
}

// The publisher and the subscriber pass watermill's suite, beside a projector.
//
// These features are off: ExactlyOnceDelivery, since a message comes again if its row
// was not acknowledged as a whole; NewSubscriberReceivesOldMessages, since a new
// subscriber goes on where its group stopped, so that the test of it runs below, with
// a group for each subscriber; ContextPreserved, since messages pass through a
// database. RestartServiceCommand is not set, since the server is shared with other
// tests: TestSubscriberOutlivesItsSession breaks the connection instead.
func TestWatermillConformance(t *testing.T) {
	url := pgtest.NewDB(t, manyPartitions)
	fold(t, url)
	log, pool := openLog(t, url)
	suite := &suiteTopics{log: log, partitions: map[string]int{}, users: map[int]string{}}
	end := t.Cleanup
	ofGroup := func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
		t.Helper()
		subscriber, err := topics.NewSubscriber(topics.SubscriberConfig{
			Pool: pool, Log: log, ConsumerGroup: group, PollInterval: 10 * time.Millisecond, ResendInterval: time.Millisecond,
			Logger: watermill.NewStdLogger(false, false),
		})
		if err != nil {
			t.Fatal(err)
		}
		end(func() { _ = subscriber.Close() }) // the suite leaves some open
		return &suitePublisher{topics.NewPublisher(log), suite}, &suiteSubscriber{Subscriber: subscriber, topics: suite}
	}
	tests.TestPubSub(t, tests.Features{
		ConsumerGroups: true, GuaranteedOrder: true, Persistent: true,
	}, func(t *testing.T) (message.Publisher, message.Subscriber) {
		t.Helper()
		return ofGroup(t, "suite")
	}, ofGroup)
	tests.TestNewSubscriberReceivesOldMessages(t, tests.TestContext{
		TestID: tests.NewTestID(), Features: tests.Features{NewSubscriberReceivesOldMessages: true},
	}, func(t *testing.T) (message.Publisher, message.Subscriber) {
		t.Helper()
		return ofGroup(t, watermill.NewUUID())
	})
}

// suiteTopics gives each topic of the suite a partition, and turns its messages into
// events.
type suiteTopics struct {
	log        *events.Log
	mu         sync.Mutex
	partitions map[string]int
	users      map[int]string
}

// partition returns the partition of a topic and one of its users.
func (s *suiteTopics) partition(topic string) (partition int, user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := 0; len(s.users) < conformancePartitions; i++ {
		user := fmt.Sprint("user-", i)
		s.users[s.log.PartitionOf(user)] = user
	}
	if _, known := s.partitions[topic]; !known {
		s.partitions[topic] = len(s.partitions) // the log refuses one too many
	}
	partition = s.partitions[topic]
	return partition, s.users[partition]
}

// suitePublisher publishes the id, the payload and the metadata "test" of each
// message as the id, the message id and the sender of an event.
type suitePublisher struct {
	*topics.Publisher
	topics *suiteTopics
}

func (p *suitePublisher) Publish(topic string, msgs ...*message.Message) error {
	partition, user := p.topics.partition(topic)
	wrapped := make([]*message.Message, len(msgs))
	for i, msg := range msgs {
		e := delivered(msg.UUID, user)
		e.Data.MessageID, e.Data.SenderID = string(msg.Payload), msg.Metadata.Get("test")
		payload, err := e.MarshalJSON()
		if err != nil {
			return err
		}
		wrapped[i] = message.NewMessage(msg.UUID, payload)
		wrapped[i].SetContext(msg.Context())
	}
	return p.Publisher.Publish(events.Topic(partition), wrapped...)
}

// suiteSubscriber turns events back into the messages of the suite.
type suiteSubscriber struct {
	*topics.Subscriber
	topics  *suiteTopics
	running sync.WaitGroup
}

func (s *suiteSubscriber) SubscribeInitialize(topic string) error {
	partition, _ := s.topics.partition(topic)
	return s.Subscriber.SubscribeInitialize(events.Topic(partition))
}

func (s *suiteSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	partition, _ := s.topics.partition(topic)
	in, err := s.Subscriber.Subscribe(ctx, events.Topic(partition))
	if err != nil {
		return nil, err
	}
	out := make(chan *message.Message)
	s.running.Go(func() {
		defer close(out)
		for msg := range in {
			e, err := events.Decode(msg.Payload)
			if err != nil {
				panic(err) // the suite publishes valid events only
			}
			msg.UUID, msg.Payload = e.ID, []byte(e.Data.MessageID)
			msg.Metadata.Set("test", e.Data.SenderID)
			select {
			case out <- msg:
			case <-msg.Context().Done():
			}
		}
	})
	return out, nil
}

func (s *suiteSubscriber) Close() error {
	defer s.running.Wait()
	return s.Subscriber.Close()
}
