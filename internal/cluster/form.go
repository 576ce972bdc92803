package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/wait"
)

// ErrUsed means that a database that is to join the cluster already has events or users.
var ErrUsed = errors.New("the database has data of its own")

// ErrTwice means that the URLs of two shards lead to the same database.
var ErrTwice = errors.New("the same database is given twice")

// Formed is the result of Form.
type Formed struct {
	// Cluster names the cluster.
	Cluster string
	// Joined names the databases that Form has added to the cluster.
	Joined []string
	// Adopted names the database that already had data and therefore gets all partitions of a new
	// cluster. It is "" if all databases were empty or if the cluster already existed.
	Adopted string
	// Places is the map of the cluster, indexed by partition.
	Places []Place
	// first is the number of partitions before any was split.
	first int
}

// Form makes a new cluster of the databases or, if some of them already are a cluster, adds the
// other databases to that cluster. All databases must be reachable and migrated, and must have the
// same number of partitions.
//
// If all databases are empty, each gets an equal number of consecutive partitions, in the order
// of the databases. If one database has data, this database gets all partitions. A database that
// joins an existing cluster gets no partitions: move partitions to it afterwards. If Form is
// interrupted, the next call completes the cluster. Concurrent calls run one after the other.
// Form fails with the errors of [Open], and with [ErrUsed] or [ErrTwice].
func Form(ctx context.Context, databases []Candidate) (made Formed, err error) {
	unlock, err := lockForming(ctx, databases)
	if err != nil {
		return Formed{}, err
	}
	defer unlock()
	return form(ctx, databases)
}

// formingLock is the key of the advisory lock of Form in each database.
const formingLock = 0x62616466 // "badf"

// formingInterval is the pause before Form tries again to lock a database.
const formingInterval = 200 * time.Millisecond

// lockForming acquires the advisory lock of Form in every database. Without the locks, two
// concurrent calls could make two clusters, each with a part of the databases. The lock of each
// database belongs to a new session, because the pool may be limited to one connection.
func lockForming(ctx context.Context, databases []Candidate) (unlock func(), err error) {
	seen := map[string]string{} // names of shards by the identity of their database
	encodings := make([]string, len(databases))
	// Calls that lock all databases in the same order cannot deadlock.
	ordered := slices.SortedFunc(slices.Values(databases), func(a, b Candidate) int { return cmp.Compare(a.Name, b.Name) })
	for {
		clear(seen)
		var sessions []*pgx.Conn
		release := func() {
			for _, s := range sessions {
				_ = s.Close(context.WithoutCancel(ctx)) // the lock ends with the session
			}
		}
		locked := true
		for i, d := range ordered {
			session, err := pgx.ConnectConfig(ctx, d.Pool.Config().ConnConfig)
			if err != nil {
				release()
				return nil, fmt.Errorf("shard %s: %w", d.Name, err)
			}
			sessions = append(sessions, session)
			var database string
			if err := session.QueryRow(ctx, statements.Get("lock forming"), formingLock).Scan(&database, &encodings[i], &locked); err != nil {
				release()
				return nil, fmt.Errorf("shard %s: acquire the lock for making a cluster: %w", d.Name, err)
			}
			if err := sameEncoding(d.Name, encodings[i], "shard "+ordered[0].Name+" has", encodings[0]); err != nil {
				release()
				return nil, err
			}
			if other, ok := seen[database]; ok {
				release()
				return nil, fmt.Errorf("%w: --shard %s and --shard %s lead to it: check the URLs", ErrTwice, other, d.Name)
			}
			seen[database] = d.Name
			if !locked {
				break
			}
		}
		if locked {
			return release, nil
		}
		release()
		if err := wait.For(ctx, formingInterval); err != nil {
			return nil, err
		}
	}
}

// CheckForm returns the error with which [Form] would refuse databases, if the error can be
// detected before the databases are migrated. Call it before the migration, so that nothing is
// written to a wrong database. A database without a schema counts as an empty database that will
// join.
func CheckForm(ctx context.Context, databases []Candidate) error {
	unlock, err := lockForming(ctx, databases)
	if err != nil {
		return err
	}
	defer unlock()
	_, err = survey(ctx, databases, true)
	return err
}

// survey reads the databases and plans the work of Form. fresh is true before the migration: then
// a database may have no schema.
func survey(ctx context.Context, databases []Candidate, fresh bool) (Formed, error) {
	views := readAll(ctx, databases, openPatience)
	var errs []error
	partitions := -1 // index of the first database that has a schema
	for i, d := range databases {
		switch {
		case fresh && errors.Is(views[i].err, events.ErrNotMigrated):
			views[i] = view{name: d.Name}
		case views[i].err != nil:
			errs = append(errs, fmt.Errorf("shard %s: %w", d.Name, views[i].err))
		case partitions < 0:
			partitions = i
		case views[i].partitions != views[partitions].partitions:
			errs = append(errs, fmt.Errorf("%w: shard %s has %d, and shard %s %d", ErrPartitions, d.Name, views[i].partitions, views[partitions].name, views[partitions].partitions))
		}
	}
	if len(errs) > 0 {
		return Formed{}, errors.Join(errs...)
	}
	var used []string
	for i, d := range databases {
		if views[i].cluster != "" || views[i].partitions == 0 {
			continue
		}
		var is bool
		if err := d.Pool.QueryRow(ctx, statements.Get("is it used")).Scan(&is); err != nil {
			if fresh && undefined(err) {
				continue // its schema is too old to have badged.is_used
			}
			return Formed{}, fmt.Errorf("shard %s: look for data: %w", d.Name, err)
		}
		if is {
			used = append(used, d.Name)
		}
	}
	return plan(views, used)
}

func form(ctx context.Context, databases []Candidate) (Formed, error) {
	made, err := survey(ctx, databases, false)
	if err != nil {
		return Formed{}, err
	}
	// Start with the database that has data: if Form is interrupted, the incomplete cluster must
	// include this database.
	slices.SortStableFunc(databases, func(a, b Candidate) int { return -cmpBool(a.Name == made.Adopted, b.Name == made.Adopted) })
	block, err := lastBlock(ctx, databases)
	if err != nil {
		return Formed{}, err
	}
	if len(made.Joined) == len(databases) {
		block = -1 // the first database then gets block 0: its present ids belong to this block
	}
	for _, d := range databases {
		if slices.Contains(made.Joined, d.Name) {
			block++
			if err := join(ctx, d, made, block); err != nil {
				return Formed{}, fmt.Errorf("shard %s: join the cluster: %w", d.Name, err)
			}
		}
	}
	if err := copyWebhooks(ctx, databases, made.Joined); err != nil {
		return Formed{}, err
	}
	for _, d := range databases {
		if _, err := d.Pool.Exec(ctx, statements.Get("note that the cluster is formed")); err != nil {
			return Formed{}, fmt.Errorf("shard %s: complete the cluster: %w", d.Name, err)
		}
	}
	return made, nil
}

func cmpBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// plan determines from views what Form has to do, or why it must fail. used names the databases
// that have data and belong to no cluster.
func plan(views []view, used []string) (Formed, error) {
	members := slices.DeleteFunc(slices.Clone(views), func(v view) bool { return v.cluster == "" })
	made := Formed{first: views[0].partitions}
	for _, v := range views {
		if v.cluster == "" {
			made.Joined = append(made.Joined, v.name)
		}
	}
	if len(members) == 0 {
		if len(used) > 1 {
			return Formed{}, fmt.Errorf("%w: %q: only one database with data can become a shard; move the users of the others by importing them", ErrUsed, used)
		}
		made.Cluster, made.Places = uuid.NewString(), make([]Place, views[0].partitions)
		if len(used) == 1 {
			made.Adopted = used[0]
		}
		if made.Adopted != "" {
			made.Places = adopt(views[slices.IndexFunc(views, func(v view) bool { return v.name == made.Adopted })])
			return made, nil
		}
		for p := range made.Places {
			made.Places[p] = Place{Database: views[p*len(views)/len(made.Places)].name, Revision: 1}
		}
		return made, nil
	}
	merged, err := merge(members, true)
	// The map may name a database that has not joined yet; merge then returns ErrMissing.
	if err != nil && !allMatch(err, ErrMissing) {
		return Formed{}, err
	}
	made.Cluster, made.Places = merged.cluster, merged.places
	if len(used) > 0 {
		return Formed{}, fmt.Errorf("%w: %q: only an empty database can join the cluster", ErrUsed, used)
	}
	if err := merged.emptied(views); err != nil {
		return Formed{}, err
	}
	for _, place := range merged.places {
		if place.Database != "" && !slices.ContainsFunc(views, func(v view) bool { return v.name == place.Database }) {
			return Formed{}, fmt.Errorf("%w: the map assigns %s to shard %s: add --shard %s=URL", ErrMissing, Named(merged.partitionsOf(place.Database)), place.Database, place.Database)
		}
	}
	return made, nil
}

// adopt returns the map of a new cluster in which one database, which already had data, has all
// partitions. v is the view of this database. Some of its partitions may have been split.
func adopt(v view) []Place {
	m := placement{first: v.partitions}
	for p := range v.partitions {
		m.put(p, Place{Revision: 1})
	}
	for _, p := range v.held {
		m.put(p, Place{Database: v.name, Revision: 1})
	}
	layout := m.layout()
	for p := range m.places {
		if layout.Split(p) != "" {
			m.put(p, Place{Revision: 1})
		}
	}
	return m.places
}

// join stores in a database its name, the cluster and the map. So that ids of dead letters, audit
// entries and jobs are unique in the cluster, each database draws them from its own block of
// numbers. The parameter block is the index of this block.
func join(ctx context.Context, d Candidate, made Formed, block int64) error {
	return pgx.BeginFunc(ctx, d.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, statements.Get("become a shard"), made.Cluster, d.Name); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, statements.Get("begin a block of ids"), block); err != nil {
			return err
		}
		for p, place := range made.Places {
			if place.Revision == 0 {
				continue
			}
			sql := statements.Get("map a partition")
			if p < made.first && place.Database != d.Name {
				sql = statements.Get("leave a partition to another shard")
			}
			if _, err := tx.Exec(ctx, sql, p, place.Database, place.Revision); err != nil {
				return err
			}
		}
		return nil
	})
}

// lastBlock returns the greatest number of a block of ids that a database uses: see join.
func lastBlock(ctx context.Context, databases []Candidate) (last int64, err error) {
	for _, d := range databases {
		var block int64
		if err := d.Pool.QueryRow(ctx, statements.Get("read the block of ids")).Scan(&block); err != nil {
			return 0, fmt.Errorf("shard %s: read its ids: %w", d.Name, err)
		}
		last = max(last, block)
	}
	return last, nil
}

// copyWebhooks copies the webhooks of all databases to the databases that have joined. Every
// database stores all webhooks, because it calls them for its own users.
func copyWebhooks(ctx context.Context, databases []Candidate, joined []string) error {
	for _, from := range databases {
		rows, _ := from.Pool.Query(ctx, statements.Get("read webhooks"))
		webhooks, err := pgx.CollectRows(rows, pgx.RowTo[map[string]any])
		if err != nil {
			return fmt.Errorf("shard %s: read its webhooks: %w", from.Name, err)
		}
		for _, to := range databases {
			if len(webhooks) == 0 || to.Name == from.Name || !slices.Contains(joined, to.Name) {
				continue
			}
			if _, err := to.Pool.Exec(ctx, statements.Get("copy webhooks"), webhooks); err != nil {
				return fmt.Errorf("shard %s: copy the webhooks of shard %s: %w", to.Name, from.Name, err)
			}
		}
	}
	return nil
}
