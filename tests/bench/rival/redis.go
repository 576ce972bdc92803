// Package rival implements other common ways to keep unread counts, each as its
// proponents would write it. All remember applied events, apply each event once,
// and update a user's total together with the conversation.
//
// A conversation is its last message and the read position, and the difference is
// the count. This is right in any order of events if messages are numbered without
// gaps. Unlike badged, the rivals keep no sets of messages, recalls, mentions,
// categories, levels or versions.
//
// Every rival has
//
//	Apply(ctx, events) error      // safe for concurrent use
//	Settle(ctx) error             // returns once all applied events count
//	Totals(ctx, users) ([]int64, error)
//	Close(ctx) error
package rival

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/badged/badged/tests/bench/stream"
)

// Connections is the number of concurrent clients of a Redis rival.
const Connections = 64

// window is how long an event is remembered, the same as in badged.
const window = 14 * 24 * time.Hour

// inRedis is the common part of the rivals in Redis: one hash per user, with the
// total in field t, and a field each for the last message and the read position
// of every conversation.
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
	seen, user string
	last, read string
}

func namesOf(e stream.Event) names {
	user := e.UserID()
	conversation := e.ConversationID()
	return names{
		seen: "seen:" + e.ID(), user: "user:" + user,
		last: "l:" + conversation, read: "r:" + conversation,
	}
}

// Settle returns at once: applied events count immediately.
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

// unread returns the unread count.
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
