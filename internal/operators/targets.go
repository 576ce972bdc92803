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
		s, err := holding(c, *o.Partition)
		if err != nil {
			return nil, err
		}
		return []Verification{{s, o}}, nil
	}
	for _, user := range o.Users {
		if _, err := holding(c, c.PartitionOf(user)); err != nil {
			return nil, err
		}
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
	s, err := holding(c, *partition)
	if err != nil {
		return nil, err
	}
	return []*shards.Shard{s}, nil
}

// holding returns the shard of a partition, which may be away. It fails if the shard has
// lost the partition.
func holding(c *shards.Cluster, partition int) (*shards.Shard, error) {
	s := c.ShardOf(partition)
	if s == nil {
		return nil, errPartition
	}
	return s, lost(s, partition)
}
