package tail

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/badged/badged/internal/bridge/broker"
)

// parseRedis parses a go-redis URL with a parameter that names the Redis Stream.
func parseRedis(a broker.Address) (Target, error) {
	streams, text := a.List("stream"), a.Take("maxlen")
	if len(streams) != 1 {
		return Target{}, errors.New("the URL must name one stream")
	}
	limit := int64(0)
	if text != "" {
		var err error
		if limit, err = strconv.ParseInt(text, 10, 64); err != nil || limit < 1 {
			return Target{}, fmt.Errorf("maxlen must be a number of entries, is %q", text)
		}
	}
	open, err := broker.Redis(&a, 1)
	if err != nil {
		return Target{}, err
	}
	return Target{Stream: streams[0], open: func() (writer, error) { return &redisWriter{open(), streams[0], limit}, nil }}, nil
}

// redisWriter writes to a Redis Stream.
type redisWriter struct {
	client redis.UniversalClient
	stream string
	// maxLength is the approximate maximum length of the stream; 0 means unlimited.
	maxLength int64
}

func (w *redisWriter) close() { _ = w.client.Close() } // nothing is under way

func (w *redisWriter) check(ctx context.Context) error {
	kind, err := w.client.Type(ctx, w.stream).Result()
	switch {
	case err != nil:
		return fmt.Errorf("connect to Redis: %w", err)
	case kind != "stream" && kind != "none":
		return fmt.Errorf("the key %s has the type %s, not stream", w.stream, kind)
	}
	return nil
}

// write adds all records in one transaction, so that no record is stored without the records before
// it.
func (w *redisWriter) write(ctx context.Context, records []record) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if _, err := w.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		for i := range records {
			r := &records[i]
			values := []any{headerType, structuredType, headerPartition, r.partition, "payload", r.payload}
			if r.place != "" {
				values = append(values, headerPlace, r.place)
			}
			p.XAdd(ctx, &redis.XAddArgs{Stream: w.stream, MaxLen: w.maxLength, Approx: w.maxLength > 0, Values: values})
		}
		return nil
	}); err != nil {
		return fmt.Errorf("write to the stream %s of Redis: %w", w.stream, err)
	}
	return nil
}
