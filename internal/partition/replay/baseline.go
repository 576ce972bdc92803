package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/badge"
	"github.com/badged/badged/internal/fold/store"
	"github.com/badged/badged/internal/partition/archive"
	"github.com/badged/badged/internal/pg/query"
)

// Baseline describes the point up to which the events of a partition were archived. The tables
// with the suffix "_baseline" have the state at this point, with which a replay of the log starts.
// The zero Baseline means that no events were ever removed from the log.
type Baseline struct {
	Position events.Position
	// Generation is the latest generation of event keys that begins before Position.
	Generation int
	// Events is the number of archived events; Until is when the latest of them was appended.
	Events int64
	Until  time.Time
}

// LoadBaseline reads the baseline of a partition. It is zero if no events were ever removed.
func LoadBaseline(ctx context.Context, q events.Querier, partition int) (Baseline, error) {
	var b Baseline
	err := q.QueryRow(ctx, statements.Get("read the baseline"), partition).Scan(&b.Position.TransactionID, &b.Position.Offset, &b.Generation, &b.Events, &b.Until)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return Baseline{}, fmt.Errorf("read the baseline of partition %d: %w", partition, err)
	}
	return b, nil
}

// newKeys returns a DedupReplay for a replay that starts at the baseline, or at the start of the
// archive if there is one. The DedupReplay has no keys yet: visitAll and eachOf add the keys of
// the baseline.
func (snapshot *Snapshot) newKeys() *store.DedupReplay {
	if snapshot.archive != nil {
		return store.NewDedupReplay(nil)
	}
	keys := store.NewDedupReplay(snapshot.laterGenerations())
	keys.Present = snapshot.Baseline.Generation
	return keys
}

// laterGenerations returns the generations that begin after the baseline.
func (snapshot *Snapshot) laterGenerations() []store.Generation {
	return slices.DeleteFunc(slices.Clone(snapshot.Generations), func(g store.Generation) bool { return g.Number <= snapshot.Baseline.Generation })
}

// restoreKeys adds the event keys of the baseline to `keys`. If `generations` is not nil, it is a
// list of event keys, and restoreKeys adds only these keys. It does nothing if `keys` is nil, if
// there is no baseline, or if the replay starts with an archive.
func (snapshot *Snapshot) restoreKeys(ctx context.Context, keys *store.DedupReplay, generations [][16]byte) error {
	if keys == nil || snapshot.Baseline.Events == 0 || snapshot.archive != nil {
		return nil
	}
	where, args := "true", []any(nil)
	if generations != nil {
		where, args = "key = ANY ($1::uuid[])", []any{generations}
	}
	var key [16]byte
	var generation int
	var users []byte
	sql := statements.Of(snapshot.Partition, "read the keys of the baseline") + " " + where
	return query.Each(ctx, snapshot.Tx, "read the keys of the baseline", sql, args, []any{&key, &generation, &users}, func() error {
		keys.Restore(uuid.UUID(key), store.UserSet(users), generation)
		return nil
	})
}

// weighKeys returns the approximate memory in bytes that a replay of `records` records needs for
// event keys, including the keys of the baseline.
func (snapshot *Snapshot) weighKeys(ctx context.Context, records int64) (weight int64, err error) {
	// Estimate the size of the users of a key by the size of the payload: an id of a user in a
	// payload takes more bytes than a user in a UserSet, unless Postgres has compressed the
	// payload. rest is the assumed size in bytes of a payload without the ids of users.
	const rest = 300
	weight, err = query.One[int64](ctx, snapshot.Tx, fmt.Sprintf("weigh the keys of partition %d", snapshot.Partition), statements.Of(snapshot.Partition, "weigh the payloads"), rest)
	weight += records * keyWeight
	if err != nil || snapshot.Baseline.Events == 0 || snapshot.archive != nil {
		return weight, err
	}
	ofBase, err := query.One[int64](ctx, snapshot.Tx, "weigh the keys of the baseline", statements.Of(snapshot.Partition, "weigh the keys of the baseline"), keyWeight)
	return weight + ofBase, err
}

// restoreUsers adds to r all rooms of the baseline, and the users of the baseline for which r.Wants
// is true. If `named` is not nil, it adds only users in `named`. It calls `added` after each row of
// a user or conversation; `added` may remove users from r. restoreUsers does nothing if there is no
// baseline, or if the replay starts with an archive.
func (snapshot *Snapshot) restoreUsers(ctx context.Context, r *Replay, named []string, added func()) error {
	if snapshot.Baseline.Events == 0 || snapshot.archive != nil {
		return nil
	}
	if err := snapshot.loadUsers(ctx, r, "_baseline", named, added); err != nil {
		return err
	}
	return snapshot.restoreRooms(ctx, r)
}

// loadUsers reads users from the tables whose names end with suffix, and adds to r the users for
// which r.Wants is true. It marks these users as changed, as if they had just been folded. If
// `named` is not nil, it reads only users in `named`. It calls `added` after each row of a user or
// conversation; `added` may remove users from r.
func (snapshot *Snapshot) loadUsers(ctx context.Context, r *Replay, suffix string, named []string, added func()) error {
	if err := snapshot.ScanTables(ctx, named == nil); err != nil {
		return err
	}
	tables := store.TablesNamed(snapshot.Partition, suffix)
	users, conversations, paths, args := tables.Users.Read, tables.Conversations.Read, tables.Paths.Read, []any(nil)
	if named != nil {
		users, conversations, paths, args = tables.Users.ReadUsers, tables.Conversations.ReadUsers, tables.Paths.ReadUsers, []any{named}
	}
	rows, _ := snapshot.Tx.Query(ctx, users, args...)
	if err := store.ScanUsersInto(rows, r.loadedUser, func(*badge.User) { added() }); err != nil {
		return fmt.Errorf("read users%s: %w", suffix, err)
	}
	rows, _ = snapshot.Tx.Query(ctx, paths, args...)
	if err := store.ScanPaths(rows, func(id string) *badge.User { return r.Users[id] }); err != nil {
		return fmt.Errorf("read paths%s: %w", suffix, err)
	}
	for _, u := range r.Users {
		if u.Paths.HasRows() {
			u.Paths.Whole()
		}
	}
	rows, _ = snapshot.Tx.Query(ctx, conversations, args...)
	if err := store.ScanConversationsInto(rows, r.loadedUser, func(u *badge.User, c *badge.Conversation) {
		c.Stored, c.Touched = false, true
		u.Changed = append(u.Changed, c)
		added()
	}); err != nil {
		return fmt.Errorf("read conversations%s: %w", suffix, err)
	}
	return nil
}

// loadedUser returns the user with the id of a row, and adds the user to r if necessary. It returns
// nil if r.Wants is false for the user.
func (r *Replay) loadedUser(id string) *badge.User {
	if !r.Wants(id) {
		return nil
	}
	u, ok := r.Users[id]
	if !ok {
		u = badge.NewUser(id)
		r.Users[id] = u
	}
	return u
}

// UseArchive makes a replay start with the events of an archive instead of the baseline. It first
// checks that the archive has all events that were removed from the log of the partition. If a is
// nil, or if files of the partition were declared lost, UseArchive changes nothing, and the replay
// starts at the baseline.
func (snapshot *Snapshot) UseArchive(ctx context.Context, a *archive.Archive) error {
	if a == nil {
		return nil
	}
	files, err := ArchivedFiles(ctx, snapshot.Tx, a, snapshot.Partition)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(files, func(f archive.File) bool { return f.GivenUp != nil }) {
		return nil // only the baseline includes the events of files that were given up
	}
	for _, f := range files {
		if err := a.Check(ctx, f); err != nil {
			return err
		}
		for _, text := range f.DeadLetters {
			place, err := events.ParsePlace(text)
			if err != nil {
				return fmt.Errorf("read the manifest of the archive: dead letter: %w", err)
			}
			snapshot.archived.Bury(place)
		}
	}
	snapshot.archive, snapshot.files = a, files
	return nil
}

// archivedPages sends the records of the archive to a channel, in order. Before the records of each
// file it sends a page without records, with the generations of event keys that begin in the file.
// After all files it sends such a page with the generations that begin in the log. Without an
// archive it sends nothing.
func (snapshot *Snapshot) archivedPages(ctx context.Context, to chan<- page) error {
	if snapshot.archive == nil {
		return nil
	}
	for _, f := range snapshot.files {
		first := page{begins: true}
		for _, g := range f.Generations {
			after, err := events.ParsePosition(g.After)
			if err != nil {
				return fmt.Errorf("read the manifest of the archive: generation %d: %w", g.Number, err)
			}
			first.generations = append(first.generations, store.Generation{Number: g.Number, After: after})
		}
		if err := send(ctx, to, first); err != nil {
			return err
		}
		if err := snapshot.archive.Read(ctx, f, func(archived []archive.Record) error {
			records := make([]events.Record, len(archived))
			for i := range archived {
				records[i] = archived[i].Record
			}
			letters, err := snapshot.LettersOf(ctx, records)
			if err != nil {
				return err
			}
			return send(ctx, to, page{records: records, letters: letters})
		}); err != nil {
			return err
		}
	}
	return send(ctx, to, page{begins: true, generations: snapshot.laterGenerations()})
}
