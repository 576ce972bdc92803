// Package operators does over all shards of a cluster what [admin] does with one
// database. A database by itself is a cluster of one shard without a name.
package operators

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/badged/badged/internal/shards"
)

// AwayError is returned for a shard that cannot be reached. What was asked of the
// others was done.
type AwayError struct {
	Shard string
	// Partitions are those that it held when it was reached last.
	Partitions []int
	Err        error
	// Lost is set if the shard can be reached, and does not hold the partitions.
	Lost bool
}

// Error implements error.
func (e *AwayError) Error() string {
	if e.Lost {
		return e.Which() + ": the database was restored from before it got them; restore it to a later time"
	}
	return fmt.Sprintf("%s: %v", e.Which(), e.Err)
}

// Which says which shard is away, without why: that may name hosts.
func (e *AwayError) Which() string {
	held := "no partitions"
	switch len(e.Partitions) {
	case 0:
	case 1:
		held = "partition " + shards.List(e.Partitions)
	default:
		held = "the partitions " + shards.List(e.Partitions)
	}
	if e.Lost {
		return fmt.Sprintf("shard %s does not hold %s, as it should by the map", e.Shard, held)
	}
	return fmt.Sprintf("shard %s, which has %s, is away", e.Shard, held)
}

// Unwrap returns [shards.ErrAway] and why the shard cannot be reached.
func (e *AwayError) Unwrap() []error { return []error{shards.ErrAway, e.Err} }

// Away returns an [*AwayError] if a shard was not reached.
func Away(c *shards.Cluster, s *shards.Shard) error {
	err := s.Err()
	if err == nil {
		return nil
	}
	var partitions []int
	for p, place := range c.Map() {
		if place.Shard == s.Name {
			partitions = append(partitions, p)
		}
	}
	// The shard is named already.
	if wrapped, ok := err.(interface{ Unwrap() []error }); ok {
		if all := wrapped.Unwrap(); len(all) > 1 {
			err = all[len(all)-1]
		}
	}
	return &AwayError{Shard: s.Name, Partitions: partitions, Err: err}
}

// lost returns an [*AwayError] if a shard does not hold partitions that it should: some of
// these, or any if none is given.
func lost(s *shards.Shard, of ...int) error {
	partitions := s.Lost()
	if len(of) > 0 {
		partitions = slices.DeleteFunc(partitions, func(p int) bool { return !slices.Contains(of, p) })
	}
	if len(partitions) == 0 {
		return nil
	}
	return &AwayError{Shard: s.Name, Partitions: partitions, Err: shards.ErrLost, Lost: true}
}

// Lost returns an [*AwayError] for each shard that does not hold what it should: what is
// done with all data leaves that out.
func Lost(c *shards.Cluster) error {
	var errs []error
	for _, s := range c.Shards() {
		errs = append(errs, lost(s))
	}
	return errors.Join(errs...)
}

// Each does something with one shard after the other. It goes on after an error, which
// names the shard, and with the other shards if one is away: see [AwayError].
func Each(ctx context.Context, c *shards.Cluster, do func(s *shards.Shard) error) error {
	return errors.Join(EachOf(ctx, c, c.Shards(), do), Lost(c))
}

// EachOf is Each for some shards.
func EachOf(ctx context.Context, c *shards.Cluster, some []*shards.Shard, do func(s *shards.Shard) error) error {
	var errs []error
	for _, s := range some {
		if err := Away(c, s); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, inShard(s, do(s)))
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// atOnce is Each for all shards at the same time. The errors are in the order of the
// shards.
func atOnce(c *shards.Cluster, do func(i int, s *shards.Shard) error) error {
	errs := make([]error, len(c.Shards()))
	var g sync.WaitGroup
	for i, s := range c.Shards() {
		if errs[i] = Away(c, s); errs[i] == nil {
			g.Go(func() { errs[i] = inShard(s, do(i, s)) })
		}
	}
	g.Wait()
	return errors.Join(append(errs, Lost(c))...)
}

// inShard says which shard an error is about, if there are several.
func inShard(s *shards.Shard, err error) error {
	if err == nil || s.Name == "" {
		return err
	}
	return fmt.Errorf("shard %s: %w", s.Name, err)
}

// Of returns the shard of a user. It fails with an [*AwayError] if that is away.
func Of(c *shards.Cluster, userID string) (*shards.Shard, error) {
	return Holder(c, c.PartitionOf(userID))
}

// Holder returns the shard of a partition. It fails with an [*AwayError] if that is away, or
// does not hold the partition.
func Holder(c *shards.Cluster, partition int) (*shards.Shard, error) {
	s := c.ShardOf(partition)
	if s == nil {
		return nil, fmt.Errorf("no shard of the configuration holds partition %d, but shard %s does: name it with --shard", partition, c.Map()[partition].Shard)
	}
	if err := Away(c, s); err != nil {
		return s, err
	}
	return s, lost(s, partition)
}

// ArchiveOf returns where the archive of a shard is, in that of the cluster: each shard
// has a log, and an archive, of its own.
func ArchiveOf(s *shards.Shard, location string) string {
	if s.Name == "" || location == "" {
		return location
	}
	return strings.TrimSuffix(location, "/") + "/" + s.Name
}
