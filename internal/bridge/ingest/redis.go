package ingest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/badged/badged/internal/bridge/broker"
)

// parseRedis parses a go-redis URL with a parameter that names Redis Streams.
func parseRedis(a broker.Address) (Source, error) {
	streams := a.List("stream")
	if len(streams) == 0 {
		return Source{}, errors.New("the URL names no stream")
	}
	open, err := broker.Redis(&a, len(streams))
	if err != nil {
		return Source{}, err
	}
	return Source{Streams: streams, open: func() (Broker, error) { return &redisBroker{open(), streams}, nil }}, nil
}

// redisBroker reads Redis Streams. Each stream is one partition.
type redisBroker struct {
	client  redis.UniversalClient
	streams []string
}

// Partitions implements Broker. It returns all streams, even streams that do not exist yet, because
// the first XADD creates a stream.
func (b *redisBroker) Partitions(ctx context.Context) ([]Partition, error) {
	var all []Partition
	for _, stream := range b.streams {
		kind, err := b.client.Type(ctx, stream).Result()
		switch {
		case err != nil:
			return nil, fmt.Errorf("connect to Redis: %w", err)
		case kind != "stream" && kind != "none":
			return nil, fmt.Errorf("the key %s has the type %s, not stream", stream, kind)
		}
		all = append(all, Partition{Stream: stream})
	}
	return all, nil
}

// Close implements Broker.
func (b *redisBroker) Close() { _ = b.client.Close() } // nothing is under way

// Open implements Broker.
func (b *redisBroker) Open(_ context.Context, p Partition, after string) (Reader, error) {
	at, err := parseRedisPosition(after)
	if err != nil {
		return nil, err
	}
	return &redisReader{client: b.client, stream: p.Stream, position: at}, nil
}

// redisPosition is the position after an entry. id is the id of the entry. added is the number of
// entries that have been added to the stream up to this entry. If Redis counts more added entries
// (entries-added) than were read, entries were deleted before they were read.
type redisPosition struct {
	id    string
	added int64
}

func (p redisPosition) String() string { return fmt.Sprintf("%s@%d", p.id, p.added) }

func parseRedisPosition(text string) (redisPosition, error) {
	if text == "" {
		return redisPosition{id: "0-0"}, nil
	}
	id, number, _ := strings.Cut(text, "@")
	added, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return redisPosition{}, fmt.Errorf("the stored position %q is not a position of Redis", text)
	}
	return redisPosition{id, added}, nil
}

// redisReader reads one stream.
type redisReader struct {
	client   redis.UniversalClient
	stream   string
	position redisPosition
	// measuredAt is when the state of the stream was last read. backlog is the number of unread
	// entries at that time, minus the entries that were read after it.
	measuredAt time.Time
	backlog    int64
	note       string
}

// askInterval is how often the state of the stream is read while entries arrive.
const askInterval = time.Second

// Next implements Reader.
func (r *redisReader) Next(ctx context.Context) (Batch, error) {
	if r.position == (redisPosition{id: "0-0"}) {
		if err := r.begin(ctx); err != nil {
			return Batch{}, err
		}
	}
	streams, err := r.client.XRead(ctx, &redis.XReadArgs{Streams: []string{r.stream, r.position.id}, Count: maxMessages, Block: patience}).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return Batch{}, fmt.Errorf("read the stream %s of Redis: %w", r.stream, err)
	}
	var b Batch
	defer func() { r.note = "" }()
	for _, stream := range streams {
		for i := range stream.Messages {
			r.position.id = stream.Messages[i].ID
			r.position.added++
			m := redisMessage(&stream.Messages[i])
			m.Position = r.position.String()
			b.Messages = append(b.Messages, m)
		}
	}
	r.backlog = max(0, r.backlog-int64(len(b.Messages)))
	if len(b.Messages) == 0 || time.Since(r.measuredAt) > askInterval {
		if b.Lost, err = r.ask(ctx); err != nil {
			return Batch{}, err
		}
	}
	if len(b.Messages) > 0 || b.Lost > 0 {
		b.Position = r.position.String()
	}
	b.Backlog, b.Note = r.backlog, r.note
	return b, nil
}

// begin is called for a stream of which no entry was read yet. It sets r.position.added to the
// number of entries that are already deleted, so that these entries do not count as lost.
func (r *redisReader) begin(ctx context.Context) error {
	info, err := r.info(ctx)
	if err == nil && info != nil {
		r.position.added = max(0, info.EntriesAdded-info.Length)
	}
	return err
}

// ask reads the state of the stream, and sets the number of unread entries. lost is the number of
// entries that were deleted before they were read. This number is known only when all other entries
// have been read; until then, lost is 0.
func (r *redisReader) ask(ctx context.Context) (lost int64, err error) {
	info, err := r.info(ctx)
	if err != nil || info == nil || info.EntriesAdded == 0 { // Redis counts entries since version 7
		return 0, err
	}
	r.measuredAt = time.Now()
	switch {
	case isBefore(info.LastGeneratedID, r.position.id):
		r.note = fmt.Sprintf("the last entry of the stream went back from %s to %s: the stream was created again, or Redis lost entries; reading it again from its first entry; repeated events count once", r.position.id, info.LastGeneratedID)
		r.position, r.backlog = redisPosition{"0-0", max(0, info.EntriesAdded-info.Length)}, info.Length
		return 0, nil
	case info.Length > 0 && isBefore(r.position.id, info.LastEntry.ID):
		r.backlog = min(max(0, info.EntriesAdded-r.position.added), info.Length)
		return 0, nil
	}
	lost = max(0, info.EntriesAdded-r.position.added)
	r.position, r.backlog = redisPosition{info.LastGeneratedID, info.EntriesAdded}, 0
	return lost, nil
}

// isBefore reports whether the entry with id a comes before the entry with id b.
func isBefore(a, b string) bool {
	ams, aseq := splitEntryID(a)
	bms, bseq := splitEntryID(b)
	return ams < bms || ams == bms && aseq < bseq
}

func splitEntryID(id string) (ms, seq uint64) {
	left, right, _ := strings.Cut(id, "-")
	ms, _ = strconv.ParseUint(left, 10, 64) // Redis writes a number
	seq, _ = strconv.ParseUint(right, 10, 64)
	return ms, seq
}

// info returns the state of the stream in Redis, nil if the stream does not exist.
func (r *redisReader) info(ctx context.Context) (*redis.XInfoStream, error) {
	info, err := r.client.XInfoStream(ctx, r.stream).Result()
	switch {
	case err != nil && strings.Contains(err.Error(), "no such key"):
		return nil, nil //nolint:nilnil // nil means no stream
	case err != nil:
		return nil, fmt.Errorf("ask for the length of the stream %s of Redis: %w", r.stream, err)
	}
	return info, nil
}

// Close implements Reader.
func (r *redisReader) Close() {}

// redisPayload is the field of an entry that contains the event or its data; watermill-redisstream
// uses the same name.
const redisPayload = "payload"

func redisMessage(entry *redis.XMessage) Message {
	m := Message{Place: entry.ID}
	ms, _, _ := strings.Cut(entry.ID, "-")
	if at, err := strconv.ParseInt(ms, 10, 64); err == nil {
		m.Time = time.UnixMilli(at)
	}
	for field, value := range entry.Values {
		text, _ := value.(string)
		if field == redisPayload {
			m.Body = []byte(text)
		} else {
			m.addAttribute(field, text)
		}
	}
	return m
}
