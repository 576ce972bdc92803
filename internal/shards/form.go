package shards

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
	"github.com/badged/badged/internal/wait"
)

// ErrUsed: a database that is to join has events or users of its own.
var ErrUsed = errors.New("the database has data of its own")

// ErrTwice: a database is given under two names.
var ErrTwice = errors.New("the same database is given twice")

// Formed says what Form did.
type Formed struct {
	// Cluster names the cluster.
	Cluster string
	// Joined are the shards that were none before, by name.
	Joined []string
	// Adopted is the shard whose database had served by itself, "" if there was none.
	Adopted string
	// Places is the map.
	Places []Place
	// first is with how many partitions the log began.
	first int
}

// Form makes databases a cluster, or has new ones join the one that they are. All must
// be reachable and migrated, with the same number of partitions.
//
// Databases without data get partitions in equal parts, in their order. If one has data,
// it is the first shard, and keeps all partitions. Databases that join a cluster get
// none: moving partitions comes afterwards. An interrupted call is completed by the
// next one, and calls at the same time wait for each other. Its errors are those of [Open],
// [ErrUsed] and [ErrTwice].
func Form(ctx context.Context, databases []Database) (made Formed, err error) {
	unlock, err := lockForming(ctx, databases)
	if err != nil {
		return Formed{}, err
	}
	defer unlock()
	return form(ctx, databases)
}

// formingLock is the key of the advisory lock of Form in each database.
const formingLock = 0x62616466 // "badf"

// formingInterval is how often a call of Form that waits for another looks.
const formingInterval = 200 * time.Millisecond

// lockForming waits until no other call of Form has one of the databases, and keeps others
// from it. Two calls could otherwise make two clusters, each of some of the databases. The
// sessions are none of the pools', which may have a single connection.
func lockForming(ctx context.Context, databases []Database) (unlock func(), err error) {
	seen := map[string]string{} // names by database
	encodings := make([]string, len(databases))
	// In one order: of two calls, the one that gets the first database goes on.
	ordered := slices.SortedFunc(slices.Values(databases), func(a, b Database) int { return cmp.Compare(a.Name, b.Name) })
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
				return nil, fmt.Errorf("shard %s: keep others from making a cluster: %w", d.Name, err)
			}
			if err := sameEncoding(d.Name, encodings[i], "shard "+ordered[0].Name, encodings[0]); err != nil {
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

// CheckForm returns why [Form] would refuse databases, as far as they tell before they are
// migrated: before anything is written to the wrong one. One without a schema is taken for
// one that is to join.
func CheckForm(ctx context.Context, databases []Database) error {
	unlock, err := lockForming(ctx, databases)
	if err != nil {
		return err
	}
	defer unlock()
	_, err = survey(ctx, databases, true)
	return err
}

// survey says what to make of databases. Unless fresh is set, all must have a schema.
func survey(ctx context.Context, databases []Database, fresh bool) (Formed, error) {
	views := readAll(ctx, databases, openPatience)
	var errs []error
	partitions := -1 // index of a database that has some
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
				continue // its schema is older than shards, and does not tell
			}
			return Formed{}, fmt.Errorf("shard %s: look for data: %w", d.Name, err)
		}
		if is {
			used = append(used, d.Name)
		}
	}
	return plan(views, used)
}

func form(ctx context.Context, databases []Database) (Formed, error) {
	made, err := survey(ctx, databases, false)
	if err != nil {
		return Formed{}, err
	}
	// The database with data first: without its row, the map would have no data.
	slices.SortStableFunc(databases, func(a, b Database) int { return -cmpBool(a.Name == made.Adopted, b.Name == made.Adopted) })
	block, err := lastBlock(ctx, databases)
	if err != nil {
		return Formed{}, err
	}
	if len(made.Joined) == len(databases) {
		block = -1 // the first one's ids stay as they are
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

// plan says what to make of databases, used are those with data that are not part of a
// cluster.
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
			made.Places[p] = Place{Shard: views[p*len(views)/len(made.Places)].name, Revision: 1}
		}
		return made, nil
	}
	merged, err := merge(members, true)
	// A shard that the map names and that has not joined yet is not merged.
	if err != nil && !only(err, ErrMissing) {
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
		if place.Shard != "" && !slices.ContainsFunc(views, func(v view) bool { return v.name == place.Shard }) {
			return Formed{}, fmt.Errorf("%w: the map gives %s to shard %s: add --shard %s=URL", ErrMissing, Named(merged.of(place.Shard)), place.Shard, place.Shard)
		}
	}
	return made, nil
}

// adopt returns the map of a cluster in which one database has all partitions, some of
// which may have been split.
func adopt(v view) []Place {
	m := placement{first: v.partitions}
	for p := range v.partitions {
		m.put(p, Place{Revision: 1})
	}
	for _, p := range v.held {
		m.put(p, Place{Shard: v.name, Revision: 1})
	}
	layout := m.layout()
	for p := range m.places {
		if layout.Split(p) != "" {
			m.put(p, Place{Revision: 1})
		}
	}
	return m.places
}

// join makes a database a shard with its copy of the map.
func join(ctx context.Context, d Database, made Formed, block int64) error {
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
			if p < made.first && place.Shard != d.Name {
				sql = statements.Get("leave a partition to another shard")
			}
			if _, err := tx.Exec(ctx, sql, p, place.Shard, place.Revision); err != nil {
				return err
			}
		}
		return nil
	})
}

// lastBlock returns the greatest block of ids that the databases have.
func lastBlock(ctx context.Context, databases []Database) (last int64, err error) {
	for _, d := range databases {
		var block int64
		if err := d.Pool.QueryRow(ctx, statements.Get("read the block of ids")).Scan(&block); err != nil {
			return 0, fmt.Errorf("shard %s: read its ids: %w", d.Name, err)
		}
		last = max(last, block)
	}
	return last, nil
}

// copyWebhooks gives shards that have joined the webhooks of the others: every shard
// calls them.
func copyWebhooks(ctx context.Context, databases []Database, joined []string) error {
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
