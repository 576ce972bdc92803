package shards

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/badged/badged/events"
)

// Identify fails if one of several databases is not the shard that its name says, or not of
// the cluster of the others: with [ErrMisnamed], [ErrForeign], [ErrEmpty] or
// [ErrNotACluster]. It is for what works on each database by itself, and needs neither all
// shards nor logs that can be trusted.
//
// It asks all at the same time, but those that have an Err, and sets the Err of those that
// cannot be read. With joining, databases may be new to the cluster, or without a schema, as
// before [Form].
func Identify(ctx context.Context, databases []Database, joining bool) error {
	views := readAll(ctx, databases, openPatience)
	if err := ctx.Err(); err != nil {
		return err
	}
	member, bare := false, false
	for i, v := range views {
		if joining && errors.Is(v.err, events.ErrNotMigrated) {
			views[i] = view{name: v.name}
			v = views[i]
		}
		databases[i].Err = v.err
		member = member || v.cluster != ""
		bare = bare || v.err == nil && v.cluster == ""
	}
	switch {
	case !member && bare && !joining:
		return fmt.Errorf("%w: run `badged migrate up` with the same --shard settings", ErrNotACluster)
	case !member:
		return nil // there is no cluster yet, or no shard of it can be read
	}
	known := views
	if joining {
		known = slices.DeleteFunc(slices.Clone(views), func(v view) bool { return v.err == nil && v.cluster == "" })
	}
	merged, err := merge(known, false)
	err = among(err, ErrForeign, ErrMisnamed, ErrEmpty) // the rest concerns those who need all shards
	if err == nil && joining {
		err = merged.emptied(views)
	}
	return err
}

// among returns the reasons of a merge that failed that are among some.
func among(err error, whys ...error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	return errors.Join(slices.DeleteFunc(slices.Clone(joined.Unwrap()), func(e error) bool {
		return !slices.ContainsFunc(whys, func(why error) bool { return errors.Is(e, why) })
	})...)
}

// emptied returns [ErrEmpty] if a database is not part of the cluster, although the map of
// a cluster that was complete gives it partitions.
func (m *placement) emptied(views []view) error {
	if !slices.ContainsFunc(views, func(v view) bool { return v.formed }) {
		return nil
	}
	for _, v := range views {
		if owned := m.of(v.name); v.err == nil && v.cluster == "" && len(owned) > 0 {
			return fmt.Errorf("%w: "+noPart, ErrEmpty, v.name, Named(owned))
		}
	}
	return nil
}
