// Package rival has the ways in which unread counts are kept elsewhere, each as
// who favours it would write it. All remember which events they have applied
// and take each once, and keep the total of a user with the conversation it
// changes.
//
// They keep a conversation as its last message and the read position, and count
// the difference, which is right in any order of events as long as messages are
// numbered without gaps. Sets of messages, recalls, mentions, categories,
// levels and versions, which badged keeps, they do not.
//
// Every rival has
//
//	Apply(ctx, events) error      // takes some events; safe for concurrent use
//	Settle(ctx) error             // returns once all that was applied counts
//	Totals(ctx, users) ([]int64, error)
//	Close(ctx) error
package rival

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/badged/badged/tests/bench/stream"
)

// Connections is how many clients each Redis rival has at work.
const Connections = 64

// window is how long an event is remembered, as long as badged does.
const window = 14 * 24 * time.Hour

// inRedis is what all ways that keep their counts in Redis have in common: one
// hash for each user, with the total in field t, and the last message and the
// read position of each conversation in fields of their own.
type inRedis struct {
	client *redis.Client
}

func dial(url string) (inRedis, error) {
	opt, err := redis.ParseURL(url)
	if err != nil {
		return inRedis{}, fmt.Errorf("redis URL: %w", err)
	}
	opt.PoolSize = Connections
	return inRedis{redis.NewClient(opt)}, nil
}

// names are the keys and fields of an event.
type names struct {
	seen, user         string
	last, read, lockOf string
}

func namesOf(e stream.Event) names {
	user := e.UserID()
	conversation := e.ConversationID()
	return names{
		seen: "seen:" + e.ID(), user: "user:" + user, lockOf: "lock:" + user,
		last: "l:" + conversation, read: "r:" + conversation,
	}
}

// Settle returns at once: what was applied counts.
func (inRedis) Settle(context.Context) error { return nil }

// Totals returns the totals of users.
func (r inRedis) Totals(ctx context.Context, users []string) ([]int64, error) {
	var totals []int64
	for some := range slices.Chunk(users, 1000) {
		var answers []*redis.StringCmd
		_, err := r.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, u := range some {
				answers = append(answers, p.HGet(ctx, "user:"+u, "t"))
			}
			return nil
		})
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, fmt.Errorf("read totals: %w", err)
		}
		for _, a := range answers {
			n, err := a.Int64()
			if err != nil && !errors.Is(err, redis.Nil) {
				return nil, fmt.Errorf("read totals: %w", err)
			}
			totals = append(totals, n)
		}
	}
	return totals, nil
}

// Close closes the connections.
func (r inRedis) Close(context.Context) error { return r.client.Close() }

// state is a conversation.
type state struct{ last, read int64 }

// stateOf reads the answer to HMGET last read.
func stateOf(values []any) (s state, err error) {
	for i, into := range []*int64{&s.last, &s.read} {
		if text, ok := values[i].(string); ok {
			if *into, err = strconv.ParseInt(text, 10, 64); err != nil {
				return s, err
			}
		}
	}
	return s, nil
}

// unread returns how many messages count.
func (s state) unread() int64 { return max(0, s.last-s.read) }

// after returns the state after e.
func (s state) after(e stream.Event) state {
	if e.Read {
		s.read = max(s.read, e.Seq)
	} else {
		s.last = max(s.last, e.Seq)
	}
	return s
}
