package ingest

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/badged/badged/internal/bridge/broker"
)

// parseKafka parses a URL that names topics of Kafka.
func parseKafka(a broker.Address) (Source, error) {
	topics := broker.SplitList(a.Path)
	if len(topics) == 0 {
		return Source{}, errors.New("the URL names no topic")
	}
	options := []kgo.Opt{
		kgo.RetryTimeout(broker.KafkaTimeout), kgo.RequestRetries(2),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(patience),
		kgo.FetchMaxBytes(maxBytes), kgo.FetchMaxPartitionBytes(maxBytes),
		// The client returns control records besides messages, so that the position can move past
		// transaction markers. Without a reset offset, the client returns an error if the next
		// message was deleted; the worker then opens a new reader, which counts the deleted
		// messages.
		kgo.KeepControlRecords(), kgo.ConsumeResetOffset(kgo.NoResetOffset()),
	}
	connecting, err := broker.Kafka(&a)
	if err != nil {
		return Source{}, err
	}
	options = append(connecting, options...)
	return Source{Streams: topics, open: func() (Broker, error) {
		client, err := kgo.NewClient(options...)
		if err != nil {
			return nil, fmt.Errorf("kafka: %w", err)
		}
		return &kafkaBroker{client: client, options: options, hosts: a.Hosts, topics: topics}, nil
	}}, nil
}

// kafkaBroker reads topics of Kafka.
type kafkaBroker struct {
	// client requests the list of partitions. Each reader has its own client.
	client        *kgo.Client
	options       []kgo.Opt
	hosts, topics []string
}

// Partitions implements Broker.
func (b *kafkaBroker) Partitions(ctx context.Context) ([]Partition, error) {
	found, err := broker.KafkaTopics(ctx, b.client, b.hosts, b.topics...)
	if err != nil {
		return nil, err
	}
	var all []Partition
	for i := range found {
		t := &found[i]
		incarnation := ""
		if t.TopicID != [16]byte{} {
			incarnation = hex.EncodeToString(t.TopicID[:])
		}
		slices.SortFunc(t.Partitions, func(a, b kmsg.MetadataResponseTopicPartition) int { return int(a.Partition) - int(b.Partition) })
		for _, p := range t.Partitions {
			all = append(all, Partition{Stream: *t.Topic, Number: int(p.Partition), Numbered: true, Incarnation: incarnation})
		}
	}
	return all, nil
}

// Close implements Broker.
func (b *kafkaBroker) Close() { b.client.Close() }

// Open implements Broker.
func (b *kafkaBroker) Open(ctx context.Context, p Partition, after string) (Reader, error) {
	r := &kafkaReader{partition: p}
	var err error
	if after != "" {
		if r.nextOffset, err = strconv.ParseInt(after, 10, 64); err != nil {
			return nil, fmt.Errorf("the stored position %q is not a position of Kafka", after)
		}
	}
	if r.client, err = kgo.NewClient(b.options...); err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	first, err := r.offset(ctx, kafkaFirst)
	if err == nil {
		r.end, err = r.offset(ctx, kafkaEnd)
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	switch {
	case r.nextOffset < first:
		if after != "" {
			r.lost = first - r.nextOffset
		}
		r.nextOffset = first
	case r.nextOffset > r.end:
		r.note = fmt.Sprintf("the partition ends at offset %d and was read up to %d: Kafka lost messages; reading on from its end", r.end, r.nextOffset)
		r.nextOffset = r.end
	}
	r.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{p.Stream: {r.number(): kgo.NewOffset().At(r.nextOffset)}})
	return r, nil
}

// kafkaReader reads one partition of a topic.
type kafkaReader struct {
	client    *kgo.Client
	partition Partition
	// nextOffset is the offset of the next message to read. end is the offset after the last
	// message of the partition, from the last answer of Kafka.
	nextOffset, end int64
	lost            int64
	note            string
}

// Next implements Reader.
func (r *kafkaReader) Next(ctx context.Context) (Batch, error) {
	b := Batch{Lost: r.lost, Note: r.note}
	if r.lost > 0 || r.note != "" { // report the lost messages and the note at once, in a batch without messages
		r.lost, r.note = 0, ""
		b.Position, b.Backlog = strconv.FormatInt(r.nextOffset, 10), r.end-r.nextOffset
		return b, nil
	}
	pollCtx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	fetches := r.client.PollRecords(pollCtx, maxMessages)
	for _, e := range fetches.Errors() {
		if !errors.Is(e.Err, context.DeadlineExceeded) && !errors.Is(e.Err, context.Canceled) {
			return Batch{}, fmt.Errorf("read partition %d of the topic %s of Kafka: %w", r.number(), r.partition.Stream, e.Err)
		}
	}
	fetches.EachPartition(func(p kgo.FetchTopicPartition) { r.end = max(r.end, p.HighWatermark) })
	for records := fetches.RecordIter(); !records.Done(); {
		record := records.Next()
		r.nextOffset = record.Offset + 1
		if !record.Attrs.IsControl() {
			b.Messages = append(b.Messages, kafkaMessage(record))
		}
		b.Position = strconv.FormatInt(r.nextOffset, 10)
	}
	if b.Position == "" && ctx.Err() == nil {
		// If brokers cannot be reached, fetching retries without an error, but a request for the
		// offset returns an error.
		var err error
		if r.end, err = r.offset(ctx, kafkaEnd); err != nil {
			return Batch{}, err
		}
	}
	b.Backlog = max(0, r.end-r.nextOffset)
	return b, nil
}

// In requests for offsets, these timestamps stand for the first offset, and for the offset after
// the last message.
const (
	kafkaFirst = -2
	kafkaEnd   = -1
)

// offset requests the first or the end offset of the partition; timestamp is kafkaFirst or
// kafkaEnd.
func (r *kafkaReader) offset(ctx context.Context, timestamp int64) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, broker.KafkaTimeout)
	defer cancel()
	request := kmsg.NewPtrListOffsetsRequest()
	request.ReplicaID, request.IsolationLevel = -1, 1 // read committed
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = r.partition.Stream
	partition := kmsg.NewListOffsetsRequestTopicPartition()
	partition.Partition, partition.Timestamp = r.number(), timestamp
	topic.Partitions = append(topic.Partitions, partition)
	request.Topics = append(request.Topics, topic)
	answer, err := request.RequestWith(ctx, r.client)
	if err == nil && (len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) != 1) {
		err = errors.New("the answer is empty")
	}
	if err == nil {
		err = kerr.ErrorForCode(answer.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		return 0, fmt.Errorf("ask for the offsets of partition %d of the topic %s of Kafka: %w", r.number(), r.partition.Stream, err)
	}
	return answer.Topics[0].Partitions[0].Offset, nil
}

func (r *kafkaReader) number() int32 { return int32(r.partition.Number) } //nolint:gosec // Kafka gave it

// Close implements Reader.
func (r *kafkaReader) Close() { r.client.Close() }

func kafkaMessage(record *kgo.Record) Message {
	m := Message{
		Position: strconv.FormatInt(record.Offset+1, 10), Place: strconv.FormatInt(record.Offset, 10),
		Time: record.Timestamp, Body: record.Value,
	}
	for _, header := range record.Headers {
		if !m.addAttribute(header.Key, string(header.Value)) && strings.EqualFold(header.Key, "content-type") {
			m.ContentType = string(header.Value)
		}
	}
	return m
}
