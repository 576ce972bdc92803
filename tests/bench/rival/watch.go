package rival

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/badged/badged/tests/bench/stream"
)

// Watch applies an event in an optimistic transaction, WATCH … MULTI … EXEC,
// and retries on a conflict.
type Watch struct{ inRedis }

// NewWatch connects to Redis.
func NewWatch(url string) (*Watch, error) {
	r, err := dial(url)
	return &Watch{r}, err
}

// Apply applies events one by one.
func (w *Watch) Apply(ctx context.Context, events []stream.Event) error {
	for _, e := range events {
		n := namesOf(e)
		for {
			err := w.client.Watch(ctx, func(tx *redis.Tx) error { return w.attempt(ctx, tx, e, n) }, n.seen, n.user)
			if err == nil {
				break
			}
			if !errors.Is(err, redis.TxFailedErr) {
				return fmt.Errorf("apply an event: %w", err)
			}
		}
	}
	return nil
}

func (w *Watch) attempt(ctx context.Context, tx *redis.Tx, e stream.Event, n names) error {
	seen, was, err := look(ctx, tx, n)
	if err != nil || seen {
		return err
	}
	_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
		write(ctx, p, e, n, was)
		return nil
	})
	return err
}

// reader is the part of a connection that look needs.
type reader interface {
	Pipelined(ctx context.Context, fn func(redis.Pipeliner) error) ([]redis.Cmder, error)
}

// look reads in one round trip whether an event is a duplicate, and the state of
// its conversation.
func look(ctx context.Context, r reader, n names) (seen bool, was state, err error) {
	var exists *redis.IntCmd
	var values *redis.SliceCmd
	_, err = r.Pipelined(ctx, func(p redis.Pipeliner) error {
		exists = p.Exists(ctx, n.seen)
		values = p.HMGet(ctx, n.user, n.last, n.read)
		return nil
	})
	if err != nil {
		return false, state{}, err
	}
	was, err = stateOf(values.Val())
	return exists.Val() > 0, was, err
}

// write queues the commands that apply an event to the conversation's state.
func write(ctx context.Context, p redis.Pipeliner, e stream.Event, n names, was state) {
	p.Set(ctx, n.seen, "", window)
	now := was.after(e)
	if now == was {
		return
	}
	p.HSet(ctx, n.user, n.last, now.last, n.read, now.read)
	if delta := now.unread() - was.unread(); delta != 0 {
		p.HIncrBy(ctx, n.user, "t", delta)
	}
}
