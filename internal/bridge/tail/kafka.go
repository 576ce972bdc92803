package tail

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/badged/badged/internal/bridge/broker"
)

// parseKafka parses a URL that names a topic of Kafka.
func parseKafka(a broker.Address) (Target, error) {
	if a.Path == "" || strings.Contains(a.Path, ",") {
		return Target{}, errors.New("the URL must name one topic")
	}
	options, err := broker.Kafka(&a)
	if err != nil {
		return Target{}, err
	}
	topic, hosts := a.Path, a.Hosts
	return Target{Stream: topic, open: func() (writer, error) {
		// The producer does not retry, because the worker does. By default the producer is
		// idempotent, and all in-sync replicas must acknowledge a record.
		client, err := kgo.NewClient(append(options,
			kgo.DefaultProduceTopic(topic), kgo.RecordDeliveryTimeout(writeTimeout), kgo.ProducerLinger(0), kgo.ProducerBatchMaxBytes(maxBatchBytes), kgo.UnknownTopicRetries(0))...)
		if err != nil {
			return nil, fmt.Errorf("kafka: %w", err)
		}
		return &kafkaWriter{client, hosts, topic}, nil
	}}, nil
}

// maxBatchBytes is larger than any event. So only the limits of the Kafka brokers apply.
const maxBatchBytes = 8 << 20

// writeTimeout bounds the write of one page.
const writeTimeout = 20 * time.Second

// kafkaWriter writes to a topic of Kafka.
type kafkaWriter struct {
	client *kgo.Client
	hosts  []string
	topic  string
}

func (w *kafkaWriter) check(ctx context.Context) error {
	_, err := broker.KafkaTopics(ctx, w.client, w.hosts, w.topic)
	return err
}

// write writes records. The Kafka client derives the partition of a record from its key.
func (w *kafkaWriter) write(ctx context.Context, records []record) error {
	all := make([]*kgo.Record, len(records))
	for i := range records {
		r := &records[i]
		all[i] = &kgo.Record{Key: []byte(r.key), Value: r.payload, Headers: []kgo.RecordHeader{{Key: headerType, Value: []byte(structuredType)}, {Key: headerPartition, Value: []byte(r.partition)}}}
		if r.place != "" {
			all[i].Headers = append(all[i].Headers, kgo.RecordHeader{Key: headerPlace, Value: []byte(r.place)})
		}
	}
	err := w.client.ProduceSync(ctx, all...).FirstErr()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed):
		return fmt.Errorf("the user may not write to the topic %s of Kafka; grant it WRITE and DESCRIBE: %w", w.topic, err)
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return fmt.Errorf("there is no topic %s; create it: %w", w.topic, err)
	}
	return fmt.Errorf("write to the topic %s of Kafka: %w", w.topic, err)
}

func (w *kafkaWriter) close() { w.client.Close() }
