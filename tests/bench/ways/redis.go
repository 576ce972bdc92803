package ways

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/badged/badged/tests/bench/rig"
	"github.com/badged/badged/tests/bench/stream"
)

// OneAtATime is how single events are applied.
var OneAtATime = Driver{Workers: 64, Batch: 1}

// lua applies an event by one call of a script in a new Redis. Redis has one hash per user, with the
// total in the field t, and for every conversation a field for the last message and a field for the read
// position.
type lua struct {
	client *redis.Client
	hash   string // of the script
	stop   func()
}

// applyLua returns the new total, or nothing if the event changes nothing.
// KEYS are the event and the user. ARGV are the fields of the last message and
// of the read position, which of the two the event raises (1 or 2), its new
// value, and for how many seconds to remember the event.
const applyLua = `
if not redis.call('SET', KEYS[1], '', 'NX', 'EX', ARGV[5]) then return false end
local was = redis.call('HMGET', KEYS[2], ARGV[1], ARGV[2])
local now = {tonumber(was[1] or '0'), tonumber(was[2] or '0')}
local before = math.max(0, now[1] - now[2])
local raised, seq = tonumber(ARGV[3]), tonumber(ARGV[4])
if seq <= now[raised] then return false end
now[raised] = seq
redis.call('HSET', KEYS[2], ARGV[raised], ARGV[4])
return redis.call('HINCRBY', KEYS[2], 't', math.max(0, now[1] - now[2]) - before)
`

// remembered is how long an event is remembered, in seconds, the same as in badged.
const remembered = 14 * 24 * 60 * 60

// NewLua starts Redis and loads the script.
func NewLua(ctx context.Context) (Way, error) {
	server, err := rig.StartRedis(ctx)
	if err != nil {
		return nil, err
	}
	l := &lua{client: redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: OneAtATime.Workers}), stop: server.Stop}
	if l.hash, err = l.client.ScriptLoad(ctx, applyLua).Result(); err != nil {
		return nil, errors.Join(fmt.Errorf("load the script: %w", err), l.Close(ctx))
	}
	return l, nil
}

// Apply applies several events in one pipeline, or a single one directly.
func (l *lua) Apply(ctx context.Context, events []stream.Event) error {
	_, err := l.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, e := range events {
			raised := 1
			if e.Read {
				raised = 2
			}
			c := e.ConversationID()
			p.EvalSha(ctx, l.hash, []string{"seen:" + e.ID(), "user:" + e.UserID()}, "l:"+c, "r:"+c, raised, e.Seq, remembered)
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) { // Nil means no change
		return fmt.Errorf("apply %d events: %w", len(events), err)
	}
	return nil
}

// Settle returns at once: applied events count immediately.
func (*lua) Settle(context.Context) error { return nil }

// Totals returns the totals of users.
func (l *lua) Totals(ctx context.Context, users []string) (map[string]int64, error) {
	totals := map[string]int64{}
	for some := range slices.Chunk(users, 1000) {
		var answers []*redis.StringCmd
		_, _ = l.client.Pipelined(ctx, func(p redis.Pipeliner) error { // each answer has its error
			for _, u := range some {
				answers = append(answers, p.HGet(ctx, "user:"+u, "t"))
			}
			return nil
		})
		for i, u := range some {
			n, err := answers[i].Int64()
			if err != nil && !errors.Is(err, redis.Nil) { // Nil means no messages
				return nil, fmt.Errorf("read totals: %w", err)
			}
			totals[u] = n
		}
	}
	return totals, nil
}

// Close stops Redis.
func (l *lua) Close(context.Context) error {
	err := l.client.Close()
	l.stop()
	return err
}
