package rival

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/badged/badged/tests/bench/stream"
)

// Lock applies an event while it holds a lock on its user: SET NX with a token,
// and a script that releases the lock only if it still has the token.
type Lock struct{ inRedis }

const (
	// lockTTL releases the locks of crashed holders.
	lockTTL = 5 * time.Second
	// lockWait is the average wait before a retry.
	lockWait = 500 * time.Microsecond

	unlockLua = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`
)

// NewLock connects to Redis.
func NewLock(url string) (*Lock, error) {
	r, err := dial(url)
	return &Lock{r}, err
}

// Apply applies events one by one.
func (l *Lock) Apply(ctx context.Context, events []stream.Event) error {
	for _, e := range events {
		if err := l.apply(ctx, e); err != nil {
			return fmt.Errorf("apply an event: %w", err)
		}
	}
	return nil
}

func (l *Lock) apply(ctx context.Context, e stream.Event) error {
	n := namesOf(e)
	token := strconv.FormatUint(rand.Uint64(), 36) //nolint:gosec // only to tell two holders apart
	for {
		err := l.client.SetArgs(ctx, n.lockOf, token, redis.SetArgs{Mode: "NX", TTL: lockTTL}).Err()
		if err == nil {
			break
		}
		if !errors.Is(err, redis.Nil) {
			return err
		}
		select {
		case <-time.After(rand.N(2 * lockWait)): //nolint:gosec // any will do
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	seen, was, err := look(ctx, l.client, n)
	if err != nil {
		return err
	}
	// Writing and releasing the lock share one round trip.
	_, err = l.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		if !seen {
			write(ctx, p, e, n, was)
		}
		p.Eval(ctx, unlockLua, []string{n.lockOf}, token)
		return nil
	})
	return err
}
