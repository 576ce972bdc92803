package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Present returns the databases that are available. err joins a [*Fault] for each database that is
// unavailable, and for each database that the map names but the configuration does not.
func (c *Cluster) Present() (present []*Database, err error) {
	var errs []error
	for _, s := range c.databases {
		if err := s.Err(); err != nil {
			errs = append(errs, err)
		} else {
			present = append(present, s)
		}
	}
	return present, errors.Join(append(errs, c.Unknown())...)
}

// Available is like Present, but fails only if all databases are unavailable. It is for callers
// that skip the databases that are unavailable.
func (c *Cluster) Available() ([]*Database, error) {
	present, err := c.Present()
	if len(present) > 0 {
		err = nil
	}
	return present, err
}

// Incomplete returns a [*Fault] for each database that has lost partitions, and for each database
// that is missing in the configuration: a call for all databases does not reach the data of these
// partitions. It returns nil if there is no such database.
func (c *Cluster) Incomplete() error {
	var errs []error
	for _, s := range c.databases {
		errs = append(errs, s.lost())
	}
	return errors.Join(append(errs, c.Unknown())...)
}

// Complete is like Incomplete, and also returns a [*Fault] for each database that is unavailable.
func (c *Cluster) Complete() error {
	_, err := c.Present()
	for _, s := range c.databases {
		err = errors.Join(err, s.lost())
	}
	return err
}

// Each calls the function do with one database after the other. It continues after an error, but
// stops when ctx is done. The error names the databases on which do failed, the databases that are
// unavailable, and the databases of [Cluster.Incomplete]. It is a [*PartialFailure] if do succeeded
// on at least one database.
func (c *Cluster) Each(ctx context.Context, do func(s *Database) error) error {
	done, err := oneByOne(ctx, c.databases, do)
	return partial(done, errors.Join(err, c.Incomplete()))
}

// EachOf is like Each for the given databases, but the error does not name the databases of
// [Cluster.Incomplete]. If databases is nil, EachOf does the same as Each.
func (c *Cluster) EachOf(ctx context.Context, databases []*Database, do func(s *Database) error) error {
	if databases == nil {
		return c.Each(ctx, do)
	}
	return partial(oneByOne(ctx, databases, do))
}

// oneByOne calls the function do with the given databases, in order. done reports whether do
// succeeded on at least one of them.
func oneByOne(ctx context.Context, databases []*Database, do func(s *Database) error) (done bool, err error) {
	var errs []error
	for _, s := range databases {
		err := s.Err()
		if err == nil {
			err = s.Wrap(do(s))
			done = done || err == nil
		}
		if errs = append(errs, err); ctx.Err() != nil {
			break
		}
	}
	return done, errors.Join(errs...)
}

// AtOnce is like Each, but calls the function do for all databases in parallel. i is the index of
// the database. The error joins the errors in the order of the databases.
func (c *Cluster) AtOnce(do func(i int, s *Database) error) error {
	errs := make([]error, len(c.databases))
	var g sync.WaitGroup
	for i, s := range c.databases {
		if errs[i] = s.Err(); errs[i] == nil {
			g.Go(func() { errs[i] = s.Wrap(do(i, s)) })
		}
	}
	g.Wait()
	return partial(slices.Contains(errs, nil), errors.Join(append(errs, c.Incomplete())...))
}

// partial wraps err in a [*PartialFailure] if done is true, which means that the call succeeded on
// at least one database.
func partial(done bool, err error) error {
	if err == nil || !done {
		return err
	}
	return &PartialFailure{Err: err}
}

// HomeOf returns the database of a user. It fails with the errors of [Cluster.Holder].
func (c *Cluster) HomeOf(userID string) (*Database, error) {
	return c.Holder(c.PartitionOf(userID))
}

// Holder returns the database to which the map assigns a partition. It fails with a [*Fault] if the
// database is unavailable or does not hold the partition, and with another error if the database is
// not configured.
func (c *Cluster) Holder(partition int) (*Database, error) {
	s, err := c.Holding(partition)
	if s != nil && s.Err() != nil {
		return s, s.Err()
	}
	return s, err
}

// Holding is like Holder, but does not fail if the database is unavailable.
func (c *Cluster) Holding(partition int) (*Database, error) {
	s := c.DatabaseOf(partition)
	if s == nil {
		return nil, fmt.Errorf("no shard of the configuration holds partition %d, but shard %s does: name it with --shard", partition, c.Map()[partition].Database)
	}
	if lost := s.Lost(); slices.Contains(lost, partition) {
		return s, &Fault{Kind: Lost, Database: s.Name, Partitions: []int{partition}, Err: ErrLost}
	}
	return s, nil
}
