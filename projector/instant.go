package projector

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/archive"
)

// instant is one partition at one instant: its tables, how far they are folded,
// and the log up to there, which begins at a base, or with what is archived.
type instant struct {
	tx                    pgx.Tx
	partition, partitions int
	position              events.Position
	// buried are the records that wait as dead letters: also those that this
	// release would understand are not in the tables.
	buried map[events.Position]struct{}
	// generations are where those of the keys begin.
	generations []generation
	base        base
	// archive, where not nil, is folded instead of what the base says.
	archive *archive.Archive
	files   []archive.File
}

// atInstant calls f with a partition as it is now, in a transaction that only
// reads: one that had written would hide new events from every reader of the
// log until it ends.
func atInstant(ctx context.Context, pool *pgxpool.Pool, partition, partitions int, f func(*instant) error) error {
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	return pgx.BeginTxFunc(ctx, pool, options, func(tx pgx.Tx) error {
		// Nobody waits for it, however long f works between its queries.
		if _, err := tx.Exec(ctx, `SET LOCAL idle_in_transaction_session_timeout = 0`); err != nil {
			return fmt.Errorf("set up the transaction: %w", err)
		}
		// Before the first look, which is what all others see: tables that a
		// rebuild swaps later would have been filled at another position.
		if _, err := tx.Exec(ctx, fmt.Sprintf(`LOCK TABLE badged.users_p%02[1]d, badged.conversations_p%02[1]d IN ACCESS SHARE MODE`, partition)); err != nil {
			return fmt.Errorf("keep the tables of partition %d: %w", partition, err)
		}
		in := &instant{tx: tx, partition: partition, partitions: partitions}
		if err := in.open(ctx, ""); err != nil {
			return err
		}
		return f(in)
	})
}

// open reads what identifies the instant. lock is how the row of the position
// is locked, "" for not at all.
func (in *instant) open(ctx context.Context, lock string) error {
	if err := keepLog(ctx, in.tx, in.partition); err != nil {
		return err
	}
	// Unlike the projector's own, these queries are not all lookups by key. No
	// parallel workers: nobody waits for these as they wait for appends.
	if _, err := in.tx.Exec(ctx, `SET LOCAL enable_hashjoin = on; SET LOCAL plan_cache_mode = auto;
SET LOCAL max_parallel_workers_per_gather = 0; SET LOCAL jit = off`); err != nil {
		return fmt.Errorf("set up the transaction: %w", err)
	}
	err := in.tx.QueryRow(ctx, `SELECT last_processed_transaction_id::text::bigint, offset_acked
FROM badged.`+events.Topic(in.partition)+`_offsets WHERE consumer_group = $1 `+lock, ConsumerGroup).
		Scan(&in.position.TransactionID, &in.position.Offset)
	if err != nil {
		return fmt.Errorf("read the position of partition %d: %w", in.partition, err)
	}
	rows, err := in.tx.Query(ctx, `SELECT transaction_id::text::bigint, "offset" FROM badged.dead_letters WHERE partition_id = $1`, in.partition)
	if err != nil {
		return fmt.Errorf("read the dead letters: %w", err)
	}
	var p events.Position
	in.buried = map[events.Position]struct{}{}
	if _, err = pgx.ForEachRow(rows, []any{&p.TransactionID, &p.Offset}, func() error {
		in.buried[p] = struct{}{}
		return nil
	}); err != nil {
		return fmt.Errorf("read the dead letters: %w", err)
	}
	if in.generations, err = loadGenerations(ctx, in.tx, in.partition); err != nil {
		return err
	}
	in.base, err = loadBase(ctx, in.tx, in.partition)
	return err
}

// keepLog sees to it that nothing is cut off the log of a partition until the
// transaction ends. Without it the database lets nobody write what the log says
// where it has been cut: a build from before there were archives does not know
// that it begins behind a base.
func keepLog(ctx context.Context, tx pgx.Tx, partition int) error {
	if _, err := tx.Exec(ctx, fmt.Sprintf(`LOCK TABLE badged.events_p%02[1]d, badged.users_p%02[1]d_base, badged.conversations_p%02[1]d_base, badged.keys_p%02[1]d_base IN ACCESS SHARE MODE`, partition)); err != nil {
		return fmt.Errorf("keep the log of partition %d: %w", partition, err)
	}
	return nil
}

// scanTables says whether what follows goes through whole tables, which beats
// an index only where the order of rows does not matter.
func (in *instant) scanTables(ctx context.Context, on bool) error {
	if _, err := in.tx.Exec(ctx, fmt.Sprintf(`SET LOCAL enable_seqscan = %t`, on)); err != nil {
		return fmt.Errorf("set up the transaction: %w", err)
	}
	return nil
}

// errBuried is why a record that waits as a dead letter is not folded.
var errBuried = errors.New("it was put aside as a dead letter")

// item decodes a record as a batch does, or says why it is not folded.
func (in *instant) item(r *events.Record) (item, error) {
	it, err := newItem(r, in.partition, in.partitions)
	if _, buried := in.buried[r.Position]; buried && err == nil {
		return item{}, errBuried
	}
	return it, err
}

// length returns how many records are folded: of the log up to the position, and
// of the archive.
func (in *instant) length(ctx context.Context) (int64, error) {
	var n int64
	err := in.tx.QueryRow(ctx, `SELECT count(*) FROM badged.`+events.Topic(in.partition)+`
WHERE (transaction_id, "offset") <= ($1::bigint::text::xid8, $2) AND (transaction_id, "offset") > ($3::bigint::text::xid8, $4)`,
		in.position.TransactionID, in.position.Offset, in.base.position.TransactionID, in.base.position.Offset).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count the events of partition %d: %w", in.partition, err)
	}
	if in.archive != nil {
		n += in.base.events
	}
	return n, nil
}

// upTo returns those of records, which are in order, that are not behind the
// position.
func (in *instant) upTo(records []events.Record) []events.Record {
	for i := range records {
		if in.position.Before(records[i].Position) {
			return records[:i]
		}
	}
	return records
}
