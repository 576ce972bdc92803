package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/log/eventlog"
)

// These are the reasons why this package refuses databases. The errors that wrap a reason name the
// database and say what to do.
var (
	// ErrNotACluster: no database belongs to a cluster.
	ErrNotACluster = errors.New("the databases are no cluster of shards yet")
	// ErrMember: the only configured database is a shard of a cluster.
	ErrMember = errors.New("the database is a shard of a cluster")
	// ErrMissing: the map names a database that is not configured.
	ErrMissing = errors.New("a shard is missing")
	// ErrEmpty: a database is not part of the cluster.
	ErrEmpty = errors.New("the database is empty or not part of the cluster")
	// ErrForeign: a database belongs to another cluster.
	ErrForeign = errors.New("the database belongs to another cluster")
	// ErrMisnamed: a database has another name in the cluster than in the configuration.
	ErrMisnamed = errors.New("the database is another shard")
	// ErrUnknown: a database is unavailable, and no map names it.
	ErrUnknown = errors.New("the shard cannot be reached, and no other shard knows it")
	// ErrTwoMaps: two databases name different owners of a partition at the same revision.
	ErrTwoMaps = errors.New("the maps of two shards contradict each other")
	// ErrClaims: a database holds a partition that the map assigns to another database.
	ErrClaims = errors.New("the shard holds a partition of another shard")
	// ErrLost: a database does not hold a partition that the map assigns to it.
	ErrLost = errors.New("the shard has lost a partition")
	// ErrPartitions: databases have different numbers of partitions.
	ErrPartitions = errors.New("the numbers of partitions differ")
	// ErrEncodings: databases store text in different encodings.
	ErrEncodings = errors.New("the encodings of the databases differ")
	// ErrAway: a database is unavailable.
	ErrAway = errors.New("the shard is unavailable")
)

// noPart is the format of the error for a database that belongs to no cluster although the map
// assigns partitions to it.
const noPart = "shard %s is not part of the cluster, but the map assigns it %s: check its URL, or restore the database from a backup"

// Place says where a partition is.
type Place struct {
	// Database names the database to which the map assigns the partition. It is "" if the
	// partition was split or does not exist.
	Database string
	// Revision starts at 1 and increases with each move of the partition and with its split.
	// It is 0 if the partition does not exist.
	Revision int64
}

// view is what one read of a database returned: its name, its partitions and its copy of the map.
type view struct {
	// name is the name in the configuration.
	name string
	// began is the time at which the read began.
	began time.Time
	// err is the reason why the database cannot be read; the fields below are then not valid.
	err        error
	partitions int
	// encoding is the database's encoding of text.
	encoding string
	// cluster and member are the names of the cluster and of the shard that the database stores.
	// Both are empty if the database belongs to no cluster.
	cluster, member string
	// formed is true after Form has completed the cluster.
	formed bool
	places map[int]Place
	// held are the partitions that the database holds, in ascending order.
	held []int
}

// placement is the merged map of all databases.
type placement struct {
	cluster string
	// first is the number of partitions before any was split.
	first    int
	encoding string
	// places has the place of each partition, indexed by partition. If a partition was split, its
	// place has a revision but no database.
	places []Place
}

func (m *placement) place(partition int) Place {
	if partition < len(m.places) {
		return m.places[partition]
	}
	return Place{}
}

func (m *placement) put(partition int, place Place) {
	for partition >= len(m.places) {
		m.places = append(m.places, Place{})
	}
	m.places[partition] = place
}

// layout returns the layout, which maps users to partitions.
func (m *placement) layout() *events.Layout {
	var living []int
	for p, place := range m.places {
		if place.Database != "" {
			living = append(living, p)
		}
	}
	return events.NewLayout(m.first, living)
}

// merge merges the maps of views. If the databases are not one cluster, the error joins all reasons
// for this. starting is true while a process starts: then merge also refuses a database that cannot
// be reached, unless the map of another database names it.
func merge(views []view, starting bool) (placement, error) {
	var errs []error
	refuse := func(cause error, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: %s", cause, fmt.Sprintf(format, args...)))
	}
	first := slices.IndexFunc(views, func(v view) bool { return v.cluster != "" })
	if first < 0 {
		for _, v := range views {
			if v.err != nil {
				errs = append(errs, fmt.Errorf("shard %s: %w", v.name, v.err))
			}
		}
		if len(errs) == 0 {
			refuse(ErrNotACluster, "run `badged migrate up` with the same --shard settings")
		}
		return placement{}, errors.Join(errs...)
	}
	all := placement{cluster: views[first].cluster, first: views[first].partitions, encoding: views[first].encoding, places: make([]Place, views[first].partitions)}
	for _, v := range views {
		switch {
		case v.err != nil:
			continue
		case v.cluster == "":
			continue // all.check refuses it, once the map is known
		case v.cluster != all.cluster:
			refuse(ErrForeign, "shard %s belongs to the cluster %s, and shard %s to the cluster %s: check the URLs", v.name, v.cluster, views[first].name, all.cluster)
			continue
		case v.member != v.name:
			refuse(ErrMisnamed, "the database of --shard %s says that it is shard %s: check the names", v.name, v.member)
			continue
		case v.partitions != all.first:
			refuse(ErrPartitions, "shard %s began with %d partitions, and shard %s with %d", v.name, v.partitions, views[first].name, all.first)
			continue
		}
		if err := sameEncoding(v.name, v.encoding, "shard "+views[first].name+" has", all.encoding); err != nil {
			errs = append(errs, err)
		}
		for p, place := range v.places {
			if p < 0 || p >= eventlog.PartitionNumbers {
				continue
			}
			known := all.place(p)
			switch {
			case place.Revision > known.Revision:
				all.put(p, place)
			case place.Revision == known.Revision && place.Database != known.Database:
				refuse(ErrTwoMaps, "shard %s assigns partition %d to %s, and another shard assigns it to %s, both at revision %d: one of these shards was restored or created separately; replace it with the right database",
					v.name, p, place.Database, known.Database, place.Revision)
			}
		}
	}
	all.check(views, starting, refuse)
	return all, errors.Join(errs...)
}

// sameEncoding fails if two databases store text in different encodings: text of one database could
// then be invalid, or have another length, in the other. Collations may differ, since all columns
// with ids have the collation "C". `others` is the encoding of the other database. `other` is text
// for the error, such as "shard a has".
func sameEncoding(name, encoding, other, others string) error {
	if encoding == others {
		return nil
	}
	return fmt.Errorf("%w: shard %s has %s, and %s %s: create one of the databases again, with the encoding of the other", ErrEncodings, name, encoding, other, others)
}

// wasSplit reports whether a partition was split: the map has an entry for a partition into which
// it was split.
func (m *placement) wasSplit(partition int) bool {
	a, b, ok := eventlog.Children(partition, m.first)
	return ok && (m.place(a).Revision > 0 || m.place(b).Revision > 0 || m.wasSplit(a) || m.wasSplit(b))
}

// check calls refuse for each way in which a view disagrees with the map.
func (m *placement) check(views []view, starting bool, refuse func(cause error, format string, args ...any)) {
	given := map[string]bool{}
	for _, v := range views {
		given[v.name] = true
		owned := m.partitionsOf(v.name)
		if errors.Is(v.err, events.ErrNotMigrated) {
			v.err, v.cluster = nil, ""
		}
		switch {
		case v.err != nil && len(owned) == 0 && starting:
			refuse(ErrUnknown, "%s: %v", v.name, v.err)
		case v.err != nil || v.cluster != "" && v.cluster != m.cluster:
		case v.cluster != "" && (v.member != v.name || v.partitions != m.first):
			// merge has refused this view already.
		case v.cluster == "" && len(owned) > 0:
			refuse(ErrEmpty, noPart, v.name, Named(owned))
		case v.cluster == "":
			refuse(ErrEmpty, "shard %s has not joined the cluster: run `badged migrate up` with the same --shard settings", v.name)
		default:
			for _, p := range v.held {
				switch place := m.place(p); {
				case starting && slices.Contains(m.staleClaims(views), claim{v.name, p, place}):
					// Servers make the database release the partition: see stale.go.
				case place.Database == "" && place.Revision > 0:
					refuse(ErrClaims, "shard %s holds partition %d, which was split at revision %d of the map: the database was restored to a time before the split; restore it to a later time",
						v.name, p, place.Revision)
				case m.wasSplit(p):
					a, b, _ := eventlog.Children(p, m.first)
					refuse(ErrClaims, "shard %s holds partition %d, which was split into %d and %d, according to other shards: the database was restored to a time before the split; restore it to a later time",
						v.name, p, a, b)
				case place.Database != v.name:
					refuse(ErrClaims, "shard %s holds partition %d, which the map assigns to shard %s since revision %d: the database was restored to a time before a move; once %[3]s holds it and can be reached, servers make %[1]s release it",
						v.name, p, place.Database, place.Revision)
				}
			}
		}
	}
	var missing []string
	for _, place := range m.places {
		if place.Database != "" && !given[place.Database] && !slices.Contains(missing, place.Database) {
			missing = append(missing, place.Database)
		}
	}
	for _, name := range missing {
		refuse(ErrMissing, "the map assigns %s to shard %s: add --shard %s=URL", Named(m.partitionsOf(name)), name, name)
	}
}

// lost returns an error for each partition that a database does not hold although the map assigns
// the partition to it. It omits databases that could not be read.
func (m *placement) lost(views []view) (errs []error) {
	for _, v := range views {
		if v.err != nil {
			continue
		}
		for _, p := range m.partitionsOf(v.name) {
			if !slices.Contains(v.held, p) {
				errs = append(errs, fmt.Errorf("%w: shard %s does not hold partition %d, which the map assigns to it since revision %d: the database was restored to a time before it got the partition; restore it to a later time",
					ErrLost, v.name, p, m.places[p].Revision))
			}
		}
	}
	return errs
}

// partitionsOf returns the partitions that the map assigns to a shard.
func (m *placement) partitionsOf(name string) (partitions []int) {
	for p, place := range m.places {
		if place.Database == name {
			partitions = append(partitions, p)
		}
	}
	return partitions
}

// List formats ascending partitions for people, as in "0-3, 7".
func List(partitions []int) string {
	var parts []string
	for i := 0; i < len(partitions); {
		j := i
		for j+1 < len(partitions) && partitions[j+1] == partitions[j]+1 {
			j++
		}
		if i == j {
			parts = append(parts, fmt.Sprint(partitions[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", partitions[i], partitions[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ", ")
}
