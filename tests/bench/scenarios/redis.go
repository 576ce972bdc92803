package scenarios

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/rig"
	"github.com/badged/badged/tests/bench/stream"
)

// lua applies an event by one call of a script in a new Redis. Redis has one hash per user, with the
// total in the field t, and for every conversation a field for the last message and a field for the read
// position.
type lua struct {
	client *redis.Client
	hash   string // of the script
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

// newLua starts Redis and loads the script.
func newLua(run *contest.Run) way {
	l := &lua{client: rig.NewRedis(run)}
	l.hash = contest.Must(l.client.ScriptLoad(run.Context(), applyLua).Result())
	return l
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
	return redisTotals(ctx, l.client, "t", users)
}

// redisTotals returns the totals of users, which are a field of their hashes.
func redisTotals(ctx context.Context, client *redis.Client, field string, users []string) (map[string]int64, error) {
	totals := map[string]int64{}
	for some := range slices.Chunk(users, 1000) {
		var answers []*redis.StringCmd
		_, _ = client.Pipelined(ctx, func(p redis.Pipeliner) error { // each answer has its error
			for _, u := range some {
				answers = append(answers, p.HGet(ctx, "user:"+u, field))
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
