package projector

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/events"
)

// The keys of the events that were folded are remembered in generations: a
// table each, of which the youngest takes the new keys and those that are
// probed make a duplicate. A generation begins at a position of the log, in
// the transaction of the batch that follows it; so whoever folds the log again
// decides on every duplicate as it was decided then, whatever the clocks and
// the settings say by now.

// probedGenerations is how many generations make a duplicate, the present one
// included. The migration that drops the others counts on it.
const probedGenerations = 3

// windowSpans is how many spans of a generation a key is remembered for at
// least: the one that it came in may be about to end.
const windowSpans = probedGenerations - 1

// generation is where in the log a generation of keys begins.
type generation struct {
	number int
	// after is the position behind which its events are, up to where the next
	// generation begins.
	after events.Position
}

// loadGenerations returns the generations of a partition that there have ever
// been, in order: how every duplicate in its log was decided.
func loadGenerations(ctx context.Context, q events.Querier, partition int) ([]generation, error) {
	rows, err := q.Query(ctx, `SELECT generation, transaction_id::text::bigint, "offset"
FROM badged.dedup_generations
WHERE partition_id = $1
ORDER BY generation`, partition)
	if err != nil {
		return nil, fmt.Errorf("read the generations of keys of partition %d: %w", partition, err)
	}
	generations, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (g generation, err error) {
		err = row.Scan(&g.number, &g.after.TransactionID, &g.after.Offset)
		return g, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the generations of keys of partition %d: %w", partition, err)
	}
	return generations, nil
}

const beginGenerationSQL = `INSERT INTO badged.dedup_generations (partition_id, generation, transaction_id, "offset")
VALUES ($1, $2, $3::bigint::text::xid8, $4)`

// rememberKeysSQL remembers the keys $1 in a generation, and returns those that
// neither it nor an older one had. A key that comes again stays where it is:
// its window is counted from the event that was folded. Each older generation
// costs a lookup in its index per key.
func rememberKeysSQL(partition, generation int) string {
	return rememberNewKeysSQL(partition, generation) + `
ON CONFLICT DO NOTHING
RETURNING key`
}

// rememberNewKeysSQL does the same for keys that are taken to be new: it fails
// where the generation has one of them, and passes over those that an older one
// has, so that it affects fewer rows than there are keys. Not to ask first, nor
// to be ready for a no, saves a third of what a key costs.
func rememberNewKeysSQL(partition, generation int) string {
	older := ""
	for g := generation - 1; g >= max(1, generation-windowSpans); g-- {
		and := "  AND"
		if older == "" {
			and = "WHERE"
		}
		older += fmt.Sprintf("\n%s NOT EXISTS (SELECT FROM %s AS g WHERE g.key = k.key)", and, keysTable(partition, g))
	}
	return `INSERT INTO ` + keysTable(partition, generation) + ` (key)
SELECT k.key FROM (SELECT unnest($1::uuid[]) AS key) AS k` + older
}

// keysTable is the table of a generation of keys.
func keysTable(partition, generation int) string {
	return fmt.Sprintf("badged.dedup_keys_p%02d_g%d", partition, generation)
}

// scanKeys reads the result of rememberKeysSQL into fresh.
func scanKeys(rows pgx.Rows, fresh map[uuid.UUID]struct{}) error {
	var key [16]byte
	_, err := pgx.ForEachRow(rows, []any{&key}, func() error {
		fresh[key] = struct{}{}
		return nil
	})
	return err
}

// expectNewKeys returns errRepeated unless rememberNewKeysSQL has remembered so
// many keys.
func expectNewKeys(keys int) func(pgconn.CommandTag) error {
	return func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() != int64(keys) {
			return errRepeated
		}
		return nil
	}
}

// repeated returns errRepeated in the place of an error which says that a table
// of keys had one already.
func repeated(err error) error {
	const uniqueViolation = "23505"
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.Code == uniqueViolation && strings.HasPrefix(pgErr.TableName, "dedup_keys_") {
		return errRepeated
	}
	return err
}
