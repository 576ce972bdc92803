package operators

import (
	"errors"
	"slices"

	"github.com/badged/badged/internal/admin"
	"github.com/badged/badged/internal/shards"
)

// errPartition is returned for a partition that no shard of the configuration holds.
var errPartition = errors.New("no shard of the configuration holds the partition")

// Verification is what is verified on one shard.
type Verification struct {
	Shard   *shards.Shard
	Options admin.VerifyOptions
}

// Verifications splits a verification over the shards.
func Verifications(c *shards.Cluster, o admin.VerifyOptions) ([]Verification, error) {
	all := c.Shards()
	if o.Partition != nil {
		s := c.ShardOf(*o.Partition)
		if s == nil {
			return nil, errPartition
		}
		return []Verification{{s, o}}, nil
	}
	var split []Verification
	for i, s := range all {
		part := o
		switch {
		case len(o.Users) > 0:
			part.Users = slices.DeleteFunc(slices.Clone(o.Users), func(user string) bool { return c.ShardOf(c.PartitionOf(user)) != s })
			if len(part.Users) == 0 {
				continue
			}
		case o.Sample > 0:
			part.Sample = (o.Sample + i) / len(all) // adds up to the whole
			if part.Sample == 0 {
				continue
			}
		}
		split = append(split, Verification{s, part})
	}
	return split, nil
}

// Rebuilt returns the shards that a rebuild concerns.
func Rebuilt(c *shards.Cluster, o admin.RebuildOptions) ([]*shards.Shard, error) {
	partition := o.Partition
	if o.User != "" {
		of := c.PartitionOf(o.User)
		partition = &of
	}
	if partition == nil {
		return c.Shards(), nil
	}
	s := c.ShardOf(*partition)
	if s == nil {
		return nil, errPartition
	}
	return []*shards.Shard{s}, nil
}
