package shards

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Backlog counts the messages to rooms in the hints that one shard stores for another.
type Backlog struct {
	// For is the name of the shard that lacks the messages, On the one of the shard that stores
	// the hints.
	For, On string
	// Messages counts them, in up to 100,000 hints.
	Messages int64
	// Age is how long the oldest hint has waited.
	Age time.Duration
}

// hintCount is in how many hints for one shard messages are counted.
const hintCount = 100_000

// Backlogs returns the backlogs of the hints on all shards that can be reached, ordered by For
// and On. If some cannot be read, the error says why; a shard that is away is no error.
func (c *Cluster) Backlogs(ctx context.Context) ([]Backlog, error) {
	if !c.sharded {
		return nil, nil
	}
	var all []Backlog
	var errs []error
	for _, s := range c.shards {
		if s.Err() != nil {
			continue
		}
		rows, _ := s.Pool.Query(ctx, statements.Get("measure hints"), hintCount)
		b := Backlog{On: s.Name}
		var seconds float64
		_, err := pgx.ForEachRow(rows, []any{&b.For, &b.Messages, &seconds}, func() error {
			b.Age = time.Duration(seconds * float64(time.Second))
			all = append(all, b)
			return nil
		})
		errs = append(errs, s.named(err))
	}
	slices.SortStableFunc(all, func(a, b Backlog) int { return cmp.Or(cmp.Compare(a.For, b.For), cmp.Compare(a.On, b.On)) })
	return all, errors.Join(errs...)
}
