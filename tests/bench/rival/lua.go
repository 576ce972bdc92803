package rival

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/badged/badged/tests/bench/stream"
)

// Lua applies an event in one call of a script.
type Lua struct {
	inRedis
	hash string // of the script
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

// NewLua loads the script.
func NewLua(ctx context.Context, url string) (*Lua, error) {
	r, err := dial(url)
	if err != nil {
		return nil, err
	}
	hash, err := r.client.ScriptLoad(ctx, applyLua).Result()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("load the script: %w", err), r.client.Close())
	}
	return &Lua{r, hash}, nil
}

// Apply applies several events in one pipeline, or a single one directly.
func (l *Lua) Apply(ctx context.Context, events []stream.Event) error {
	_, err := l.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, e := range events {
			n := namesOf(e)
			raised := 1
			if e.Read {
				raised = 2
			}
			p.EvalSha(ctx, l.hash, []string{n.seen, n.user}, n.last, n.read, raised, e.Seq, int64(window.Seconds()))
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) { // Nil means no change
		return fmt.Errorf("apply %d events: %w", len(events), err)
	}
	return nil
}
