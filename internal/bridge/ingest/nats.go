package ingest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/badged/badged/internal/bridge/broker"
)

// parseNATS parses a URL that names streams of JetStream.
func parseNATS(a broker.Address) (Source, error) {
	streams, subjects := broker.SplitList(a.Path), a.List("subject")
	if len(streams) == 0 {
		return Source{}, errors.New("the URL names no stream")
	}
	if len(subjects) > 0 && len(streams) > 1 {
		return Source{}, errors.New("subject needs one stream; give a URL for each")
	}
	servers, options, err := broker.NATS(&a, "badged ingest")
	if err != nil {
		return Source{}, err
	}
	return Source{Streams: streams, open: func() (Broker, error) {
		return &natsBroker{broker.NewNATSConn(servers, options), streams, subjects}, nil
	}}, nil
}

// natsBroker reads streams of JetStream. Each stream is one partition.
type natsBroker struct {
	*broker.NATSConn
	streams, subjects []string
}

// Partitions implements Broker.
func (b *natsBroker) Partitions(ctx context.Context) ([]Partition, error) {
	js, err := b.Connect()
	if err != nil {
		return nil, err
	}
	var all []Partition
	for _, name := range b.streams {
		info, err := broker.NATSStream(ctx, js, name)
		if err != nil {
			return nil, err
		}
		if kept := info.Config.Retention; kept != jetstream.LimitsPolicy {
			return nil, fmt.Errorf("the stream %s has the retention %s, which deletes messages that were not stored yet; "+
				"let badged read a stream with the retention limits, such as one that has %s as its source", name, strings.ToLower(kept.String()), name)
		}
		all = append(all, Partition{Stream: name, Incarnation: strconv.FormatInt(info.Created.UnixNano(), 36)})
	}
	return all, nil
}

// Open implements Broker. It creates a consumer that exists only in the memory of one NATS server.
// If this server restarts, reading fails, and the worker opens a new consumer at the position that
// Postgres stores.
func (b *natsBroker) Open(ctx context.Context, p Partition, after string) (Reader, error) {
	seq := uint64(0)
	if after != "" {
		var err error
		if seq, err = strconv.ParseUint(after, 10, 64); err != nil {
			return nil, fmt.Errorf("the stored position %q is not a position of NATS", after)
		}
	}
	js, err := b.Connect()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, broker.NATSTimeout)
	defer cancel()
	consumer, err := js.CreateConsumer(ctx, p.Stream, jetstream.ConsumerConfig{
		Description: "badged ingest", AckPolicy: jetstream.AckNonePolicy,
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: seq + 1,
		FilterSubjects: b.subjects, MemoryStorage: true, Replicas: 1, InactiveThreshold: natsIdle,
	})
	if err != nil {
		return nil, fmt.Errorf("create a consumer of the stream %s of NATS: %w", p.Stream, err)
	}
	return &natsReader{
		js: js, consumer: consumer, stream: p.Stream, seq: seq, first: seq == 0,
		backlog: int64(consumer.CachedInfo().NumPending), size: maxMessages, everything: len(b.subjects) == 0, //nolint:gosec // far below
	}, nil
}

// natsIdle is the time without requests after which a server deletes the consumer.
const natsIdle = time.Minute

// natsReader reads one stream.
type natsReader struct {
	js       jetstream.JetStream
	consumer jetstream.Consumer
	stream   string
	// seq is the stream sequence of the last message that was read. delivered is the number of
	// messages that this process has received from the consumer.
	seq, delivered uint64
	// If the reader began without a stored position, first is true until it has read a message.
	// Messages that were deleted before this first message do not count as lost.
	first bool
	// everything is true if the consumer reads all subjects of the stream. Then a gap in the stream
	// sequences means that messages were deleted.
	everything bool
	backlog    int64
	// size is the maximum number of messages in one fetch.
	size int
}

// Next implements Reader.
func (r *natsReader) Next(ctx context.Context) (Batch, error) {
	b := Batch{}
	fetched, err := r.consumer.FetchNoWait(r.size)
	if err := r.add(&b, fetched, err); err != nil {
		return Batch{}, err
	}
	if len(b.Messages) > 0 {
		return b, nil
	}
	fetched, err = r.consumer.Fetch(1, jetstream.FetchMaxWait(patience))
	if err := r.add(&b, fetched, err); err != nil {
		return Batch{}, err
	}
	if len(b.Messages) > 0 {
		return b, nil
	}
	return b, r.check(ctx, &b)
}

// check is called when no messages arrive. It reads the backlog, and returns an error if the server
// has delivered messages that this process did not receive.
func (r *natsReader) check(ctx context.Context, b *Batch) error {
	ctx, cancel := context.WithTimeout(ctx, broker.NATSTimeout)
	defer cancel()
	info, err := r.consumer.Info(ctx)
	if err != nil {
		return fmt.Errorf("ask for the consumer of the stream %s of NATS: %w", r.stream, err)
	}
	if info.Delivered.Consumer != r.delivered {
		return fmt.Errorf("%d messages of the stream %s of NATS were lost in transit; reading them again", info.Delivered.Consumer-r.delivered, r.stream)
	}
	b.Backlog = int64(info.NumPending) //nolint:gosec // far below
	return nil
}

func (r *natsReader) add(b *Batch, fetched jetstream.MessageBatch, err error) error {
	if err != nil {
		return fmt.Errorf("read the stream %s of NATS: %w", r.stream, err)
	}
	bytes := 0
	for msg := range fetched.Messages() {
		meta, err := msg.Metadata()
		if err != nil {
			return fmt.Errorf("read the stream %s of NATS: %w", r.stream, err)
		}
		if meta.Sequence.Consumer != r.delivered+1 {
			return fmt.Errorf("messages of the stream %s of NATS were lost in transit; reading them again", r.stream)
		}
		r.delivered++
		if gap := meta.Sequence.Stream - r.seq - 1; r.everything && !r.first && gap > 0 {
			b.Lost += int64(gap) //nolint:gosec // far below
		}
		r.seq, r.first = meta.Sequence.Stream, false
		m := natsMessage(msg, meta)
		bytes += len(m.Body)
		b.Messages = append(b.Messages, m)
		b.Backlog = int64(meta.NumPending) //nolint:gosec // far below
	}
	if err := fetched.Error(); err != nil && !errors.Is(err, nats.ErrTimeout) {
		return fmt.Errorf("read the stream %s of NATS: %w", r.stream, err)
	}
	if n := len(b.Messages); n > 0 {
		b.Position = b.Messages[n-1].Position
		r.size = max(1, min(maxMessages, maxBytes/(bytes/n+1)))
	}
	return nil
}

// Close implements Reader.
func (r *natsReader) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = r.js.DeleteConsumer(ctx, r.stream, r.consumer.CachedInfo().Name) // ignore an error: the server deletes an idle consumer anyway
}

func natsMessage(msg jetstream.Msg, meta *jetstream.MsgMetadata) Message {
	place := strconv.FormatUint(meta.Sequence.Stream, 10)
	m := Message{Position: place, Place: place, Time: meta.Timestamp, Body: msg.Data()}
	for header, values := range msg.Headers() {
		if !m.addAttribute(header, unescaped(values[0])) && strings.EqualFold(header, "content-type") {
			m.ContentType = values[0]
		}
	}
	return m
}

// unescaped decodes an attribute value, which the CloudEvents binding for NATS percent-encodes.
func unescaped(value string) string {
	if text, err := url.PathUnescape(value); err == nil {
		return text
	}
	return value
}
