package operators

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/badged/badged/internal/admin"
	"github.com/badged/badged/internal/eventlog"
	"github.com/badged/badged/internal/shards"
	"github.com/badged/badged/projector/deadletters"
	"github.com/badged/badged/projector/lag"
)

// Lag returns how far each partition is behind, counted in up to limit rows. If shards
// are away it returns the others, and the error says which.
func Lag(ctx context.Context, c *shards.Cluster, limit int) (admin.Lag, error) {
	all := make([]admin.Lag, len(c.Shards()))
	err := atOnce(c, func(i int, s *shards.Shard) error {
		held, err := eventlog.Held(ctx, s.Pool)
		if err != nil {
			return err
		}
		lags, err := lag.Measure(ctx, s.Pool, held, limit)
		all[i] = admin.NewLag(lags)
		for j := range all[i].Partitions {
			all[i].Partitions[j].Shard = s.Name
		}
		if err == nil {
			all[i].Open, err = admin.OpenTransactions(ctx, s.Pool, s.Name)
		}
		return err
	})
	sum := admin.Lag{Partitions: []admin.PartitionLag{}}
	for i, s := range c.Shards() {
		sum.Partitions = append(sum.Partitions, all[i].Partitions...)
		sum.Open = append(sum.Open, all[i].Open...)
		var gone *AwayError
		if errors.As(cmp.Or(s.Err(), lost(s)), &gone) {
			sum.Away = append(sum.Away, admin.AwayShard{Shard: s.Name, Partitions: gone.Partitions, Error: gone.Err.Error()})
		}
	}
	for _, gone := range shards.AwayIn(c.Unknown()) {
		sum.Away = append(sum.Away, admin.AwayShard{Shard: gone.Shard, Partitions: gone.Partitions, Error: gone.Err.Error()})
	}
	waiting, waitErr := c.Backlogs(ctx)
	for _, w := range waiting {
		sum.Waiting = append(sum.Waiting, admin.Waiting{For: w.For, On: w.On, Messages: w.Messages, Seconds: w.Age.Seconds()})
	}
	err = errors.Join(err, waitErr)
	slices.SortStableFunc(sum.Partitions, func(a, b admin.PartitionLag) int { return cmp.Compare(a.Partition, b.Partition) })
	return sum, err
}

// list is one of several that are merged: it reads a page behind an element, nil for the
// first, and returns none behind the last.
type list[T any] func(ctx context.Context, after *T) ([]T, error)

// merged returns up to limit elements of lists, in order. It returns fewer if they exceed
// deadletters.MaxPageBytes together, but none only if there are no more.
func merged[T any](ctx context.Context, limit int, order func(a, b T) int, size func(T) int, lists []list[T]) ([]T, error) {
	pages := make([][]T, len(lists))
	ended := make([]bool, len(lists))
	last := make([]*T, len(lists))
	var all []T
	for bytes := 0; len(all) < limit && bytes < deadletters.MaxPageBytes; bytes += size(all[len(all)-1]) {
		next := -1
		for i := range lists {
			if len(pages[i]) == 0 && !ended[i] {
				var err error
				if pages[i], err = lists[i](ctx, last[i]); err != nil {
					return nil, err
				}
				ended[i] = len(pages[i]) == 0
			}
			if !ended[i] && (next < 0 || order(pages[i][0], pages[next][0]) < 0) {
				next = i
			}
		}
		if next < 0 {
			break
		}
		one := pages[next][0]
		pages[next], last[next] = pages[next][1:], &one
		all = append(all, one)
	}
	return all, nil
}

// reachable returns the shards that are not away, and the errors of the others, also of those
// that the settings lack.
func reachable(c *shards.Cluster) (present []*shards.Shard, err error) {
	var errs []error
	for _, s := range c.Shards() {
		if err := s.Err(); err != nil {
			errs = append(errs, err)
		} else {
			present = append(present, s)
		}
	}
	return present, errors.Join(append(errs, c.Unknown())...)
}

// DeadLetters returns up to limit dead letters with an id above after, in order of id.
// Those of shards that are away are missing.
func DeadLetters(ctx context.Context, c *shards.Cluster, after int64, limit int) ([]admin.DeadLetter, error) {
	present, _ := reachable(c)
	var lists []list[admin.DeadLetter]
	for _, s := range present {
		letters := deadletters.New(s.Pool, s.Log)
		lists = append(lists, func(ctx context.Context, last *admin.DeadLetter) ([]admin.DeadLetter, error) {
			from := after
			if last != nil {
				from = last.ID
			}
			page, err := letters.List(ctx, from, limit)
			shown := make([]admin.DeadLetter, len(page))
			for i, l := range page {
				shown[i] = admin.NewDeadLetter(l)
				shown[i].Shard = s.Name
			}
			return shown, inShard(s, err)
		})
	}
	return merged(ctx, limit, func(a, b admin.DeadLetter) int { return cmp.Compare(a.ID, b.ID) },
		func(l admin.DeadLetter) int { return len(l.Payload) + len(l.Raw) + len(l.Reason) }, lists)
}

// LetterHolder returns the shard that has a dead letter. If none has it, it returns
// [deadletters.ErrNotFound], with the shards that are away, which may have it.
func LetterHolder(ctx context.Context, c *shards.Cluster, id int64) (*shards.Shard, error) {
	present, gone := reachable(c)
	for _, s := range present {
		_, err := deadletters.New(s.Pool, s.Log).Find(ctx, id)
		if err == nil {
			return s, nil
		}
		if !errors.Is(err, deadletters.ErrNotFound) {
			return nil, inShard(s, err)
		}
	}
	if gone == nil && len(present) > 0 {
		return present[0], nil // which says that it has none
	}
	return nil, gone
}

// Audit returns up to limit actions, newest first: those before the action of an id, or
// the newest if it is 0. Those of shards that are away are missing.
func Audit(ctx context.Context, c *shards.Cluster, before int64, limit int) ([]admin.Entry, error) {
	present, _ := reachable(c)
	var from admin.Moment
	if before != 0 {
		from = admin.Moment{ID: before}
		for _, s := range present {
			at, err := admin.WhenAudited(ctx, s.Pool, before)
			if err != nil {
				return nil, inShard(s, err)
			}
			if at != nil {
				from.At = at
			}
		}
	}
	var lists []list[admin.Entry]
	for _, s := range present {
		lists = append(lists, func(ctx context.Context, last *admin.Entry) ([]admin.Entry, error) {
			from := from
			if last != nil {
				from = admin.Moment{At: &last.At, ID: last.ID}
			}
			page, err := admin.Audit(ctx, s.Pool, from, limit)
			for i := range page {
				page[i].Shard = s.Name
			}
			return page, inShard(s, err)
		})
	}
	return merged(ctx, limit, func(a, b admin.Entry) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(b.ID, a.ID)) },
		func(e admin.Entry) int { return len(e.Arguments) + len(e.Result) + lengthOf(e.Error) }, lists)
}

// lengthOf returns the length of a text that may be missing.
func lengthOf(text *string) int {
	if text == nil {
		return 0
	}
	return len(*text)
}

// Gone returns the errors of the shards that are away.
func Gone(c *shards.Cluster) error {
	_, err := reachable(c)
	return err
}
