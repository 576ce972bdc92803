package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/badged/badged/events"
)

// Identify checks that databases are the configured ones. It fails with [ErrMisnamed],
// [ErrForeign], [ErrEmpty] or [ErrNotACluster] if a database has another name than configured or
// is not in the same cluster as the other databases. Use it for commands that work on each
// database separately, even if some databases are away or the order of a log cannot be trusted.
//
// Identify queries all databases whose Err is nil in parallel. If a database cannot be read, it
// sets the Err of this database. If joining is set, a database may have no schema or belong to no
// cluster, because [Form] will add it.
func Identify(ctx context.Context, databases []Candidate, joining bool) error {
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
		return nil // no cluster yet, or none of its databases can be read
	}
	known := views
	if joining {
		known = slices.DeleteFunc(slices.Clone(views), func(v view) bool { return v.err == nil && v.cluster == "" })
	}
	merged, err := merge(known, false)
	err = among(err, ErrForeign, ErrMisnamed, ErrEmpty) // callers that need all databases check for the other errors
	if err == nil && joining {
		err = merged.emptied(views)
	}
	return err
}

// among returns those errors of a failed merge that match one of whys.
func among(err error, whys ...error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	return errors.Join(slices.DeleteFunc(slices.Clone(joined.Unwrap()), func(e error) bool {
		return !slices.ContainsFunc(whys, func(why error) bool { return errors.Is(e, why) })
	})...)
}

// emptied returns [ErrEmpty] if the map of a completed cluster assigns partitions to a database
// that is not in the cluster.
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
