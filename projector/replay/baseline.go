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
	"github.com/badged/badged/projector/archive"
	"github.com/badged/badged/projector/internal/badge"
	"github.com/badged/badged/projector/internal/store"
)

// Baseline is where the log of a partition begins. The sum of the events
// before it is in separate tables, from which a replay starts. The zero
// Baseline belongs to a log that was never cut.
type Baseline struct {
	Position events.Position
	// Generation is the generation of event keys at that position.
	Generation int
	// Events is how many events are archived; Until is when the latest of them
	// was appended.
	Events int64
	Until  time.Time
}

// LoadBaseline reads the baseline of a partition, zero if its log was never
// cut.
func LoadBaseline(ctx context.Context, q events.Querier, partition int) (Baseline, error) {
	var b Baseline
	err := q.QueryRow(ctx, statements.Get("read the baseline"), partition).Scan(&b.Position.TransactionID, &b.Position.Offset, &b.Generation, &b.Events, &b.Until)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return Baseline{}, fmt.Errorf("read the baseline of partition %d: %w", partition, err)
	}
	return b, nil
}

// newKeys returns a DedupReplay for the log from the baseline, or with an
// archive from the beginning. each or eachOf fills it before use.
func (in *Snapshot) newKeys() *store.DedupReplay {
	if in.archive != nil {
		return store.NewDedupReplay(nil)
	}
	keys := store.NewDedupReplay(in.laterGenerations())
	keys.Present = in.Baseline.Generation
	return keys
}

// laterGenerations returns the generations that begin after the baseline.
func (in *Snapshot) laterGenerations() []store.Generation {
	return slices.DeleteFunc(slices.Clone(in.Generations), func(g store.Generation) bool { return g.Number <= in.Baseline.Generation })
}

// restoreKeys adds to keys those stored with the baseline: all, or some. It
// does nothing without keys, without a baseline, or with an archive.
func (in *Snapshot) restoreKeys(ctx context.Context, keys *store.DedupReplay, of [][16]byte) error {
	if keys == nil || in.Baseline.Events == 0 || in.archive != nil {
		return nil
	}
	where, args := "true", []any(nil)
	if of != nil {
		where, args = "key = ANY ($1::uuid[])", []any{of}
	}
	rows, _ := in.Tx.Query(ctx, statements.Of(in.Partition, "read the keys of the baseline")+" "+where, args...)
	var key [16]byte
	var generation int
	var users []byte
	if _, err := pgx.ForEachRow(rows, []any{&key, &generation, &users}, func() error {
		keys.Restore(uuid.UUID(key), store.UserSet(users), generation)
		return nil
	}); err != nil {
		return fmt.Errorf("read the keys of the baseline: %w", err)
	}
	return nil
}

// weighKeys returns roughly how many bytes the keys of so many records and of
// the baseline take in memory.
func (in *Snapshot) weighKeys(ctx context.Context, records int64) (weight int64, err error) {
	// An id takes more space in a payload than a user in a UserSet, unless
	// Postgres has compressed the payload. rest is the payload without its users.
	const rest = 300
	if err := in.Tx.QueryRow(ctx, statements.Of(in.Partition, "weigh the payloads"), rest).Scan(&weight); err != nil {
		return 0, fmt.Errorf("weigh the keys of partition %d: %w", in.Partition, err)
	}
	weight += records * keyWeight
	if in.Baseline.Events == 0 || in.archive != nil {
		return weight, nil
	}
	var ofBase int64
	if err := in.Tx.QueryRow(ctx, statements.Of(in.Partition, "weigh the keys of the baseline"), keyWeight).Scan(&ofBase); err != nil {
		return 0, fmt.Errorf("weigh the keys of the baseline: %w", err)
	}
	return weight + ofBase, nil
}

// restoreUsers adds the users of the baseline that r wants: all, or some that
// are named, and all rooms. It calls added after each row, which may remove users. It does
// nothing without a baseline or with an archive.
func (in *Snapshot) restoreUsers(ctx context.Context, r *Replay, named []string, added func()) error {
	if in.Baseline.Events == 0 || in.archive != nil {
		return nil
	}
	if err := in.ScanTables(ctx, named == nil); err != nil {
		return err
	}
	tables := store.TablesNamed(in.Partition, "_baseline")
	users, conversations, args := tables.Users.Read, tables.Conversations.Read, []any(nil)
	if named != nil {
		users, conversations, args = tables.Users.ReadUsers, tables.Conversations.ReadUsers, []any{named}
	}
	rows, err := in.Tx.Query(ctx, users, args...)
	if err == nil {
		err = store.ScanUsersInto(rows, r.restoredUser, func(*badge.User) { added() })
	}
	if err != nil {
		return fmt.Errorf("read the users of the baseline: %w", err)
	}
	rows, err = in.Tx.Query(ctx, conversations, args...)
	if err == nil {
		err = store.ScanConversationsInto(rows, r.restoredUser, func(u *badge.User, c *badge.Conversation) {
			// As if just folded: the row is not in the target tables.
			c.Stored, c.Touched = false, true
			u.Changed = append(u.Changed, c)
			added()
		})
	}
	if err != nil {
		return fmt.Errorf("read the conversations of the baseline: %w", err)
	}
	for _, u := range r.Users {
		u.CountConversations() // a baseline of an earlier release lacks them
	}
	return in.restoreRooms(ctx, r)
}

// restoredUser returns the user of a row of the baseline, nil if r does not
// want it.
func (r *Replay) restoredUser(id string) *badge.User {
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

// UseArchive makes the replay start with the events of an archive instead of
// the baseline. It first checks that the archive has everything that was cut
// off this log. A nil archive changes nothing.
func (in *Snapshot) UseArchive(ctx context.Context, a *archive.Archive) error {
	if a == nil {
		return nil
	}
	files, err := ArchivedFiles(ctx, in.Tx, a, in.Partition)
	if err != nil {
		return err
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
			in.Letters.Bury(place)
		}
	}
	in.archive, in.files = a, files
	return nil
}

// archivedPages sends every record of the archive in order. The first page of
// each file, and of the log after it, has the key generations that begin
// there.
func (in *Snapshot) archivedPages(ctx context.Context, to chan<- page) error {
	if in.archive == nil {
		return nil
	}
	send := func(p page) error {
		select {
		case to <- p:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for _, f := range in.files {
		first := page{begins: true}
		for _, g := range f.Generations {
			after, err := events.ParsePosition(g.After)
			if err != nil {
				return fmt.Errorf("read the manifest of the archive: generation %d: %w", g.Number, err)
			}
			first.generations = append(first.generations, store.Generation{Number: g.Number, After: after})
		}
		if err := send(first); err != nil {
			return err
		}
		if err := in.archive.Read(ctx, f, func(archived []archive.Record) error {
			records := make([]events.Record, len(archived))
			for i := range archived {
				records[i] = archived[i].Record
			}
			return send(page{records: records})
		}); err != nil {
			return err
		}
	}
	return send(page{begins: true, generations: in.laterGenerations()})
}

// ArchivedFiles returns the files of an archive that hold what was cut off a
// partition of this database's log. Any other files in the archive are from an
// interrupted run.
func ArchivedFiles(ctx context.Context, q events.Querier, a *archive.Archive, partition int) ([]archive.File, error) {
	return archivedFiles(ctx, q, a, partition, false)
}

// MovedFiles is ArchivedFiles for the archive of another shard, from which the partition
// has moved.
func MovedFiles(ctx context.Context, q events.Querier, a *archive.Archive, partition int) ([]archive.File, error) {
	return archivedFiles(ctx, q, a, partition, true)
}

func archivedFiles(ctx context.Context, q events.Querier, a *archive.Archive, partition int, moved bool) ([]archive.File, error) {
	var id uuid.UUID
	var sums, next []string // next are those of files that are being replaced
	var partitions int
	if err := q.QueryRow(ctx, statements.Get("read the archived files"), partition).Scan((*[16]byte)(&id), &partitions, &sums, &next); err != nil {
		return nil, fmt.Errorf("read what is archived: %w", err)
	}
	if moved {
		id = a.LogID()
	}
	if err := a.WantLog(id, partitions); err != nil {
		return nil, err
	}
	if split := a.Split(partition); len(split) > 0 {
		return nil, &archive.SplitError{Partitions: split}
	}
	files := a.Files(partition)
	if len(files) < len(sums) {
		return nil, fmt.Errorf("the archive of partition %d is incomplete: it has %d of %d files", partition, len(files), len(sums))
	}
	for i, sum := range sums {
		if files[i].SHA256 == sum || files[i].SHA256 == next[i] {
			continue
		}
		is, err := succeeds(ctx, q, &files[i])
		if err != nil {
			return nil, err
		}
		if !is {
			return nil, fmt.Errorf("the archive of partition %d does not match the log: file %s has changed since it was written; replace it by an intact copy", partition, files[i].Name)
		}
	}
	return files[:len(sums)], nil
}

// succeeds reports whether a file was written anew, for an erasure of which the database does
// not know, from the one that it lists.
func succeeds(ctx context.Context, q events.Querier, f *archive.File) (bool, error) {
	if f.Revision == 0 {
		return false, nil
	}
	var origin string
	var revision int
	if err := q.QueryRow(ctx, statements.Get("read the revision of an archived file"), f.Partition, f.Number).Scan(&origin, &revision); err != nil {
		return false, fmt.Errorf("read what is archived: %w", err)
	}
	if f.Origin != origin || f.Revision <= revision {
		return false, nil // an older copy of the file, or another
	}
	var proven bool
	if err := q.QueryRow(ctx, statements.Get("does a proof hold"), f.Proof, f.Successor()).Scan(&proven); err != nil {
		return false, fmt.Errorf("check the proof of archive file %s: %w", f.Name, err)
	}
	return proven, nil
}

// Lacking returns which rows of a partition the log lacks. Rows of the same time are the
// same if their UUIDs are; their places may differ.
func Lacking(q events.Querier, partition int) archive.Lacking {
	return func(ctx context.Context, rows []archive.Row) ([]archive.Row, error) {
		uuids, times := make([][16]byte, len(rows)), make([]time.Time, len(rows))
		for i, r := range rows {
			uuids[i], times[i] = r.UUID, r.AppendedAt
		}
		found, _ := q.Query(ctx, statements.Of(partition, "find rows that the log lacks"), uuids, times)
		missing, err := pgx.CollectRows(found, func(row pgx.CollectableRow) (archive.Row, error) {
			var number int
			if err := row.Scan(&number); err != nil {
				return archive.Row{}, err
			}
			return rows[number], nil
		})
		if err != nil {
			return nil, fmt.Errorf("compare archived files with the log of partition %d: %w", partition, err)
		}
		return missing, nil
	}
}
