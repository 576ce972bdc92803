package cluster

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Backlog counts the messages to rooms in the hints that one database stores for another
// database.
type Backlog struct {
	// For is the name of the database that will get the messages. On is the name of the database
	// that stores the hints.
	For, On string
	// Messages is the number of messages in the hints, counted in only the first 100,000 hints.
	Messages int64
	// Age is the age of the oldest hint.
	Age time.Duration
}

// maxCountedHints is the maximum number of hints whose messages Backlogs counts, for each pair of
// For and On.
const maxCountedHints = 100_000

// Backlogs returns the backlogs on all databases that can be reached, ordered by For and On. The
// error names reachable databases whose hints cannot be read.
func (c *Cluster) Backlogs(ctx context.Context) ([]Backlog, error) {
	if !c.several {
		return nil, nil
	}
	var all []Backlog
	var errs []error
	for _, s := range c.databases {
		if s.Err() != nil {
			continue
		}
		rows, _ := s.Pool.Query(ctx, statements.Get("measure hints"), maxCountedHints)
		b := Backlog{On: s.Name}
		var seconds float64
		_, err := pgx.ForEachRow(rows, []any{&b.For, &b.Messages, &seconds}, func() error {
			b.Age = time.Duration(seconds * float64(time.Second))
			all = append(all, b)
			return nil
		})
		errs = append(errs, s.Wrap(err))
	}
	slices.SortStableFunc(all, func(a, b Backlog) int { return cmp.Or(cmp.Compare(a.For, b.For), cmp.Compare(a.On, b.On)) })
	return all, errors.Join(errs...)
}
