package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/badged/badged/events"
)

// Identify checks the name and the cluster that each database stores. It fails with [ErrMisnamed],
// [ErrForeign], [ErrEmpty] or [ErrNotACluster] if a database has another name than configured or is
// not in the same cluster as the other databases. Use Identify instead of [Open] for commands that
// work on each database separately, since such commands also work while databases are unavailable
// or while a copied log is not renumbered yet.
//
// Identify queries in parallel all databases whose Err is nil. If a database cannot be read,
// Identify sets the Err of this database. If joining is true, a database may have no schema or
// belong to no cluster, because [Form] will add the database to the cluster.
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
		return nil // there is no cluster yet, or no database of the cluster can be read
	}
	known := views
	if joining {
		known = slices.DeleteFunc(slices.Clone(views), func(v view) bool { return v.err == nil && v.cluster == "" })
	}
	merged, err := merge(known, false)
	err = among(err, ErrForeign, ErrMisnamed, ErrEmpty) // callers that need all databases check for the other errors themselves
	if err == nil && joining {
		err = merged.emptied(views)
	}
	return err
}

// among returns the errors joined in err that match one of the errors in `whys`. err is the error
// of a merge.
func among(err error, whys ...error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	return errors.Join(slices.DeleteFunc(slices.Clone(joined.Unwrap()), func(e error) bool {
		return !slices.ContainsFunc(whys, func(cause error) bool { return errors.Is(e, cause) })
	})...)
}

// emptied returns [ErrEmpty] if a database stores no cluster although the map assigns partitions
// to it. Until [Form] has completed the cluster, emptied returns nil.
func (m *placement) emptied(views []view) error {
	if !slices.ContainsFunc(views, func(v view) bool { return v.formed }) {
		return nil
	}
	for _, v := range views {
		if owned := m.partitionsOf(v.name); v.err == nil && v.cluster == "" && len(owned) > 0 {
			return fmt.Errorf("%w: "+noPart, ErrEmpty, v.name, Named(owned))
		}
	}
	return nil
}
