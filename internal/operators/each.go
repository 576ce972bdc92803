// Package operators has the operations of operators over a cluster, for the HTTP API, the
// command line and the assistant. A database by itself is a cluster of one shard without a
// name.
//
// It does not know HTTP or the command line. ADR 82 has the reasons.
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
type AwayError = shards.AwayError

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

// Lost returns an [*AwayError] for each shard that does not hold what it should, or that the
// settings lack: what is done with all data leaves that out.
func Lost(c *shards.Cluster) error {
	var errs []error
	for _, s := range c.Shards() {
		errs = append(errs, lost(s))
	}
	return errors.Join(append(errs, c.Unknown())...)
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
		if err := s.Err(); err != nil {
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
		if errs[i] = s.Err(); errs[i] == nil {
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
	if err := s.Err(); err != nil {
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
