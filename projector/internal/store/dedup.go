package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/pgwire"
)

// The key of each folded event is stored with the users who have had it, so that
// an event counts once for each user, however often it comes and with whatever
// other users. Keys are in generations, a table each. The youngest takes the new
// keys; all probed generations detect duplicates. A generation begins at a
// position of the log, in the transaction of the batch that follows it, so a
// replay decides on every duplicate as the projector did, whatever the clocks
// and settings are now.

// ErrRepeated: an event that was assumed to be new has come before. The batch
// was rolled back.
var ErrRepeated = errors.New("an event that was assumed to be new has come before; the batch is folded again")

// ProbedGenerations is how many generations are probed for duplicates, the
// present one included. The migration that drops the others relies on it.
const ProbedGenerations = 3

// WindowSpans is the least number of generation spans for which a key is
// remembered: the generation that took it may be about to end.
const WindowSpans = ProbedGenerations - 1

// Generation is the place in the log where a generation of keys begins.
type Generation struct {
	Number int
	// After is the position before its first event.
	After events.Position
}

// LoadGenerations returns every generation that a partition ever had, in
// order: they tell how each duplicate in its log was decided.
func LoadGenerations(ctx context.Context, q events.Querier, partition int) ([]Generation, error) {
	rows, err := q.Query(ctx, statements.Get("read the generations"), partition)
	if err != nil {
		return nil, fmt.Errorf("read the generations of keys of partition %d: %w", partition, err)
	}
	generations, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (g Generation, err error) {
		err = row.Scan(&g.Number, &g.After.TransactionID, &g.After.Offset)
		return g, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the generations of keys of partition %d: %w", partition, err)
	}
	return generations, nil
}

// RememberNewKeysSQL inserts the keys $1 with the users $2 into a generation.
// It fails if one of them is not new: with a unique violation if the generation
// has it, with codeRepeated if an older one does. Skipping the conflict check
// saves a third of the cost of a key. Each older generation costs an index
// lookup per key.
func RememberNewKeysSQL(partition, generation int) string {
	insert := `INSERT INTO ` + KeysTable(partition, generation) + ` (key, users)
SELECT k.key, k.users FROM (SELECT unnest($1::uuid[]) AS key, unnest($2::bytea[]) AS users) AS k`
	older := ""
	for g := generation - 1; g >= oldestProbed(generation); g-- {
		and := "  AND"
		if older == "" {
			and = "WHERE"
		}
		older += fmt.Sprintf("\n%s NOT EXISTS (SELECT FROM %s AS g WHERE g.key = k.key)", and, KeysTable(partition, g))
	}
	if older == "" {
		return insert
	}
	return `WITH added AS (` + insert + older + ` RETURNING 1)
SELECT CASE WHEN (SELECT count(*) FROM added) <> cardinality($1) THEN badged.refuse_batch('` + codeRepeated + `') END`
}

// FindKeysSQL finds which of the keys $1 a generation or an older probed one
// has, with their users.
func FindKeysSQL(partition, generation int) string {
	sql := ""
	for g := generation; g >= oldestProbed(generation); g-- {
		if sql != "" {
			sql += "\nUNION ALL "
		}
		sql += `SELECT key, users FROM ` + KeysTable(partition, g) + ` WHERE key = ANY ($1::uuid[])`
	}
	return sql
}

// rememberKeysSQL records in a generation that the users $2 have had the
// events of the keys $1 too. A key of an older generation stays there: the
// window of each user counts from the event that was folded for that user.
func rememberKeysSQL(partition, generation int) string {
	return `INSERT INTO ` + KeysTable(partition, generation) + ` AS k (key, users)
SELECT r.key, r.users FROM (SELECT unnest($1::uuid[]) AS key, unnest($2::bytea[]) AS users) AS r
ON CONFLICT (key) DO UPDATE SET users = k.users || excluded.users`
}

// keyRow is a row of a key table.
type keyRow struct {
	key   uuid.UUID
	users UserSet
}

// keyRows are rows to be written to a key table.
type keyRows []keyRow

// Arrays returns the rows as the arrays that the statements take, in ascending
// order of keys: neighbours in an index share pages, which saves a third of
// the cost of an entry.
func (r keyRows) Arrays() (keys [][16]byte, users pgwire.Bytes) {
	slices.SortFunc(r, func(a, b keyRow) int { return bytes.Compare(a.key[:], b.key[:]) })
	keys, users = make([][16]byte, len(r)), make(pgwire.Bytes, len(r))
	for i := range r {
		keys[i], users[i] = r[i].key, string(r[i].users)
	}
	return keys, users
}

// repeats are the keys of the suspects of a batch.
type repeats struct {
	// had are the users who have had the event of each key, empty for none.
	had map[uuid.UUID]UserSet
	// added are the users to be stored with the batch.
	added map[uuid.UUID]UserSet
}

// add adds the key of a suspect.
func (r *repeats) add(key uuid.UUID) {
	if r.had == nil {
		r.had, r.added = map[uuid.UUID]UserSet{}, map[uuid.UUID]UserSet{}
	}
	r.had[key] = ""
}

// Keys returns the keys of the suspects in ascending order.
func (r *repeats) Keys() [][16]byte {
	rows := make(keyRows, 0, len(r.had))
	for key := range r.had {
		rows = append(rows, keyRow{key: key})
	}
	keys, _ := rows.Arrays()
	return keys
}

// scan reads the result of FindKeysSQL.
func (r *repeats) scan(rows pgx.Rows) error {
	var key [16]byte
	var users []byte
	_, err := pgx.ForEachRow(rows, []any{&key, &users}, func() error {
		r.had[key] += UserSet(users)
		return nil
	})
	return err
}

// first leaves an event only the users who have not had it, and reports
// whether there are any. They have had it from then on.
func (r *repeats) first(it *Item) bool {
	had, suspect := r.had[it.Key]
	if !suspect {
		return true
	}
	if !it.Without(had) {
		return false
	}
	r.had[it.Key] = had + it.Users
	if it.Suspect { // the keys of other events were inserted already
		r.added[it.Key] += it.Users
	}
	return true
}

// queue adds to batch the statement that stores what was added, and returns
// roughly how many bytes it takes on the wire.
func (r *repeats) queue(batch *pgx.Batch, partition, generation int) int {
	if len(r.added) == 0 {
		return 0
	}
	rows := make(keyRows, 0, len(r.added))
	for key, users := range r.added {
		rows = append(rows, keyRow{key, users})
	}
	keys, users := rows.Arrays()
	batch.Queue(rememberKeysSQL(partition, generation), keys, users)
	return 20*len(keys) + pgwire.ArrayBytes(users)
}

// oldestProbed returns the oldest generation that is probed in a generation.
func oldestProbed(generation int) int { return max(1, generation-WindowSpans) }

// KeysTable returns the name of the table of a generation of keys.
func KeysTable(partition, generation int) string {
	return fmt.Sprintf("badged.dedup_keys_p%02d_g%d", partition, generation)
}
