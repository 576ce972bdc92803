package projector

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
)

// base is where the log of a partition begins. What the events up to there add
// up to is in tables of its own: whoever folds the log again begins with that.
// The zero base is that of a log which was never cut.
type base struct {
	position events.Position
	// generation is the one of event keys that was the present one there.
	generation int
	// events is how many are archived, until when the latest was appended.
	events int64
	until  time.Time
}

func loadBase(ctx context.Context, q events.Querier, partition int) (base, error) {
	var b base
	err := q.QueryRow(ctx, `SELECT transaction_id::text::bigint, "offset", generation, events, appended_until
FROM badged.bases WHERE partition_id = $1`, partition).Scan(&b.position.TransactionID, &b.position.Offset, &b.generation, &b.events, &b.until)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return base{}, fmt.Errorf("read where the log of partition %d begins: %w", partition, err)
	}
	return b, nil
}

// newKeys returns what decides on duplicates behind the base, or, with an archive,
// from the beginning: before anything is asked of it, each or eachOf fills it.
func (in *instant) newKeys() *keyMemory {
	if in.archive != nil {
		return newKeyMemory(nil)
	}
	keys := newKeyMemory(in.behindBase())
	keys.present = in.base.generation
	return keys
}

// behindBase returns the generations that begin behind the base.
func (in *instant) behindBase() []generation {
	return slices.DeleteFunc(slices.Clone(in.generations), func(g generation) bool { return g.number <= in.base.generation })
}

// restoreKeys adds to keys what was remembered at the base: of all events, or of
// some. Without keys, without a base and with an archive there is nothing to do.
func (in *instant) restoreKeys(ctx context.Context, keys *keyMemory, of [][16]byte) error {
	if keys == nil || in.base.events == 0 || in.archive != nil {
		return nil
	}
	where, args := "true", []any(nil)
	if of != nil {
		where, args = "key = ANY ($1::uuid[])", []any{of}
	}
	rows, err := in.tx.Query(ctx, fmt.Sprintf(`SELECT key, generation FROM badged.keys_p%02d_base WHERE %s`, in.partition, where), args...)
	if err != nil {
		return fmt.Errorf("read the keys of the base: %w", err)
	}
	var key [16]byte
	var generation int
	if _, err := pgx.ForEachRow(rows, []any{&key, &generation}, func() error {
		keys.restore(uuid.UUID(key), generation)
		return nil
	}); err != nil {
		return fmt.Errorf("read the keys of the base: %w", err)
	}
	return nil
}

// countKeys returns how many keys restoreKeys would add.
func (in *instant) countKeys(ctx context.Context) (n int64, err error) {
	if in.base.events == 0 || in.archive != nil {
		return 0, nil
	}
	if err := in.tx.QueryRow(ctx, fmt.Sprintf(`SELECT count(*) FROM badged.keys_p%02d_base`, in.partition)).Scan(&n); err != nil {
		return 0, fmt.Errorf("count the keys of the base: %w", err)
	}
	return n, nil
}

// restoreUsers adds to r what it wants of the users of the base: of all, or of
// some that are named. added is called after each row, and may take users away.
// Without a base and with an archive there is nothing to do.
func (in *instant) restoreUsers(ctx context.Context, r *refold, named []string, added func()) error {
	if in.base.events == 0 || in.archive != nil {
		return nil
	}
	if err := in.scanTables(ctx, named == nil); err != nil {
		return err
	}
	where, args := "true", []any(nil)
	if named != nil {
		where, args = "user_id = ANY ($1::text[])", []any{named}
	}
	rows, err := in.tx.Query(ctx, fmt.Sprintf(`SELECT user_id, version, total, mentions, categories::text
FROM badged.users_p%02d_base WHERE %s`, in.partition, where), args...)
	if err == nil {
		err = scanUsersInto(rows, r.restored, func(*user) { added() })
	}
	if err != nil {
		return fmt.Errorf("read the users of the base: %w", err)
	}
	rows, err = in.tx.Query(ctx, fmt.Sprintf(`SELECT %s FROM badged.conversations_p%02d_base AS c WHERE %s`, conversationColumns, in.partition, where), args...)
	if err == nil {
		err = scanConversationsInto(rows, r.restored, func(u *user, c *conversation) {
			// As if it had just been folded: it is in no other table.
			c.stored, c.touched = false, true
			u.changed = append(u.changed, c)
			added()
		})
	}
	if err != nil {
		return fmt.Errorf("read the conversations of the base: %w", err)
	}
	return nil
}

// restored returns the user to whom a row of the base belongs, nil where it is
// not wanted.
func (r *refold) restored(id string) *user {
	if !r.wants(id) {
		return nil
	}
	u, ok := r.users[id]
	if !ok {
		u = newUser(id)
		r.users[id] = u
	}
	return u
}

// from makes in begin with the events in an archive, rather than with the base,
// once it has made sure that they are all there, and what was cut off this log.
func (in *instant) from(ctx context.Context, a *archive.Archive) error {
	if a == nil {
		return nil
	}
	files, err := archivedFiles(ctx, in.tx, a, in.partition)
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := a.Check(ctx, f); err != nil {
			return err
		}
		for _, text := range f.DeadLetters {
			position, err := archive.ParsePosition(text)
			if err != nil {
				return fmt.Errorf("read the manifest of the archive: dead letter: %w", err)
			}
			in.buried[position] = struct{}{}
		}
	}
	in.archive, in.files = a, files
	return nil
}

// archivedPages sends every record of the archive, in order, and with the first
// of a file, and of what follows, the generations of keys that begin there.
func (in *instant) archivedPages(ctx context.Context, to chan<- page) error {
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
		first := page{}
		for _, g := range f.Generations {
			after, err := archive.ParsePosition(g.After)
			if err != nil {
				return fmt.Errorf("read the manifest of the archive: generation %d: %w", g.Number, err)
			}
			first.generations = append(first.generations, generation{number: g.Number, after: after})
		}
		if err := send(first); err != nil {
			return err
		}
		if err := in.archive.Read(ctx, f, func(records []events.Record) error { return send(page{records: records}) }); err != nil {
			return err
		}
	}
	return send(page{generations: in.behindBase()})
}

// archivedFiles returns the files of an archive that hold what was cut off a
// partition of the log of this database. Others that the archive has, an
// interrupted run has left.
func archivedFiles(ctx context.Context, q events.Querier, a *archive.Archive, partition int) ([]archive.File, error) {
	var id uuid.UUID
	var sums []string
	var partitions int
	if err := q.QueryRow(ctx, `SELECT log_id, (SELECT partitions FROM badged.settings),
    ARRAY(SELECT sha256 FROM badged.archived_files WHERE partition_id = $1 ORDER BY number)
FROM badged.log_identity`, partition).Scan((*[16]byte)(&id), &partitions, &sums); err != nil {
		return nil, fmt.Errorf("read what is archived: %w", err)
	}
	if a.LogID() != id || a.Partitions() != partitions {
		return nil, fmt.Errorf("the archive is of another log: of %s with %d partitions, and this is %s with %d", a.LogID(), a.Partitions(), id, partitions)
	}
	files := a.Files(partition)
	if len(files) < len(sums) {
		return nil, fmt.Errorf("the archive is not all that was cut off partition %d of the log: it has %d of %d files", partition, len(files), len(sums))
	}
	for i, sum := range sums {
		if files[i].SHA256 != sum {
			return nil, fmt.Errorf("the archive is not what was cut off partition %d of the log: file %s is another than then", partition, files[i].Name)
		}
	}
	return files[:len(sums)], nil
}
