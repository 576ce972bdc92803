package projector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/archive"
)

// ArchiveConfig says what to archive and where to. Pool, Log, Dir and Before are
// required.
type ArchiveConfig struct {
	Pool *pgxpool.Pool
	Log  *events.Log
	// Dir is the archive, which goes on where it ends. It is made where it is not
	// there and nothing was archived yet.
	Dir string
	// Before is the time before which everything in a range must have been
	// appended.
	Before time.Time
	// Memory is as in RebuildConfig.
	Memory int64

	// Planned, Done and Blocked, where not nil, are as in RebuildConfig; Blocked is
	// about the log, or the base of a partition.
	Planned func(partition int, work int64)
	Done    func(work, events int)
	Blocked func(partition, pid int, application string)
	// Archived, where not nil, is called with each partition that is done.
	Archived func(ArchivedPartition)
}

// ArchivedPartition is what was archived of a partition.
type ArchivedPartition struct {
	Partition int `json:"partition"`
	// Files and Events are how many were written, Bytes how large the files are.
	Files  int   `json:"files"`
	Events int64 `json:"events"`
	Bytes  int64 `json:"bytes"`
	// Dropped is how many tables were cut off the log: also those that an
	// interrupted run had left.
	Dropped int `json:"dropped"`
	// Kept is why the log goes on where it does.
	Kept string `json:"kept"`
}

// Archive writes the events of complete ranges of the log to files, makes what
// they add up to the base of the partition, and drops the ranges; one partition
// after the other, while everything serves.
//
// A range is complete when no transaction can append to it any more, and every
// consumer group has read it. It is archived where all of it was appended before
// a time, and those before it are.
//
// Nothing is dropped before its events are in a file that is synced, read back
// and in the manifest, and the base is committed. Interrupted anywhere, called
// again, it goes on. It does not run beside a rebuild, or another of its kind:
// the second fails with a [*RebuildRunningError]; nor beside that of another
// database into the same directory: the second fails with [archive.ErrInUse].
func Archive(ctx context.Context, cfg ArchiveConfig) (err error) {
	if cfg.Archived == nil {
		cfg.Archived = func(ArchivedPartition) {}
	}
	host := RebuildConfig{Pool: cfg.Pool, Log: cfg.Log, Memory: cfg.Memory, Planned: cfg.Planned, Done: cfg.Done, Blocked: cfg.Blocked}
	host.setDefaults()
	a := &archiving{cfg: cfg, host: &rebuild{cfg: host, partitions: cfg.Log.Partitions()}}
	if err := a.host.connect(ctx, "badged archive"); err != nil {
		return err
	}
	defer a.host.disconnect(ctx)
	defer func() {
		if a.archive != nil {
			_ = a.archive.Close() // what is written is synced
		}
	}()
	if err := a.open(ctx); err != nil {
		return err
	}
	for p := range cfg.Log.Partitions() {
		a.host.rested = time.Now()
		done, err := a.partition(ctx, p)
		if err != nil {
			return fmt.Errorf("archive partition %d: %w", p, err)
		}
		cfg.Archived(done)
	}
	return nil
}

// archiving is one run of Archive.
type archiving struct {
	cfg ArchiveConfig
	// host holds the lock, and alone writes to the database.
	host    *rebuild
	archive *archive.Archive
}

// open opens the archive, or makes it, and makes sure that it is whole, and of
// this log.
func (a *archiving) open(ctx context.Context) error {
	var id uuid.UUID
	var archived int64
	err := a.host.conn.QueryRow(ctx, `SELECT log_id, (SELECT count(*) FROM badged.archived_files) FROM badged.log_identity`).Scan((*[16]byte)(&id), &archived)
	if err != nil {
		return fmt.Errorf("read what is archived: %w", err)
	}
	a.archive, err = archive.Continue(a.cfg.Dir)
	if errors.Is(err, archive.ErrNone) && archived == 0 {
		a.archive, err = archive.Create(a.cfg.Dir, id, a.cfg.Log.Partitions())
	}
	if err != nil {
		return err
	}
	for p := range a.cfg.Log.Partitions() {
		files, err := archivedFiles(ctx, a.host.conn, a.archive, p)
		if err != nil {
			return err
		}
		for _, f := range files {
			if err := a.archive.Check(ctx, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// logRange is a range of the log and what is in it behind the base.
type logRange struct {
	number int
	starts int64
	// ends is 0 for the last.
	ends   int64
	events int64
	until  time.Time
}

// of returns the FROM of a query of what is in the range, which has an end. It
// names the whole log, for which there are rights, and bounds that leave only the
// table of the range to be looked at.
func (r *logRange) of(partition int) string {
	return fmt.Sprintf("badged.%s AS log WHERE log.transaction_id >= '%d' AND log.transaction_id < '%d'", events.Topic(partition), r.starts, r.ends)
}

// partition archives what it can of a partition.
func (a *archiving) partition(ctx context.Context, partition int) (done ArchivedPartition, err error) {
	done.Partition = partition
	if _, err := a.host.conn.Exec(ctx, `SELECT badged.drop_base_tables($1)`, partition); err != nil {
		return done, fmt.Errorf("drop what an earlier run has left: %w", err)
	}
	if done.Dropped, err = a.drop(ctx, partition); err != nil {
		return done, err
	}
	from, err := loadBase(ctx, a.host.conn, partition)
	if err != nil {
		return done, err
	}
	ranges, kept, err := a.complete(ctx, partition, from)
	if done.Kept = kept; err != nil || len(ranges) == 0 {
		return done, err
	}
	// Afterwards, so that it knows the dead letters and the generations of all that
	// is folded in the ranges.
	var in instant
	if err := atInstant(ctx, a.cfg.Pool, partition, a.cfg.Log.Partitions(), func(now *instant) error {
		in = *now
		return nil
	}); err != nil {
		return done, err
	}
	known, err := archivedFiles(ctx, a.host.conn, a.archive, partition)
	if err != nil {
		return done, err
	}
	var files []archive.File
	present := in.base.generation
	for _, r := range ranges {
		a.host.cfg.Planned(partition, r.events)
		var f archive.File
		if f, present, err = a.write(ctx, &in, r, len(known)+len(files)+1, present); err != nil {
			return done, err
		}
		files = append(files, f)
		done.Files++
		done.Events += f.Events
		done.Bytes += f.Bytes
	}
	if err := a.rebase(ctx, &in, files, ranges, present); err != nil {
		return done, err
	}
	for _, f := range files {
		if err := a.archive.Check(ctx, f); err != nil {
			return done, err
		}
	}
	dropped, err := a.drop(ctx, partition)
	done.Dropped += dropped
	return done, err
}

// complete returns the ranges behind a base that can be archived and have events,
// and why those that follow cannot.
func (a *archiving) complete(ctx context.Context, partition int, from base) (ranges []logRange, kept string, err error) {
	conn := a.host.conn
	rows, err := conn.Query(ctx, `SELECT number, starts::text::bigint, coalesce(ends::text::bigint, 0), 0, now(),
    ends <= pg_snapshot_xmin(pg_current_snapshot())::text::xid8
FROM badged.log_ranges WHERE partition_id = $1 ORDER BY number`, partition)
	if err != nil {
		return nil, "", fmt.Errorf("read the ranges of the log: %w", err)
	}
	settled := map[int]bool{}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r logRange, err error) {
		var passed *bool
		err = row.Scan(&r.number, &r.starts, &r.ends, &r.events, &r.until, &passed)
		settled[r.number] = passed != nil && *passed
		return r, err
	})
	if err != nil {
		return nil, "", fmt.Errorf("read the ranges of the log: %w", err)
	}
	for _, r := range all {
		if !settled[r.number] {
			return ranges, fmt.Sprintf("its range from transaction %d on is not complete yet", r.starts), nil
		}
		var latest *time.Time
		err := conn.QueryRow(ctx, `SELECT count(*), max(created_at) FROM `+r.of(partition)+` AND (transaction_id, "offset") > ($1::bigint::text::xid8, $2)`,
			from.position.TransactionID, from.position.Offset).Scan(&r.events, &latest)
		if err != nil {
			return nil, "", fmt.Errorf("measure range %d of the log: %w", r.number, err)
		}
		if latest == nil {
			continue // there is nothing in it, and it goes with others
		}
		if r.until = *latest; !r.until.Before(a.cfg.Before) {
			return ranges, fmt.Sprintf("its range from transaction %d on has an event of %s", r.starts, r.until.UTC().Format(time.RFC3339)), nil
		}
		var group string
		err = conn.QueryRow(ctx, `SELECT consumer_group FROM badged.`+events.Topic(partition)+`_offsets AS o
WHERE EXISTS (SELECT FROM `+r.of(partition)+` AND (transaction_id, "offset") > (o.last_processed_transaction_id, coalesce(o.offset_acked, 0)))
ORDER BY consumer_group LIMIT 1`).Scan(&group)
		if err == nil {
			return ranges, fmt.Sprintf("the consumer group %q has not read its range from transaction %d on", group, r.starts), nil
		} else if !errors.Is(err, pgx.ErrNoRows) {
			return nil, "", fmt.Errorf("read where consumers stand: %w", err)
		}
		ranges = append(ranges, r)
	}
	return ranges, "", nil
}

// write writes the file of a range, the next after those that the database knows
// and so many others, and adds it to the manifest. present is the generation of
// keys before it; the one after it is returned.
func (a *archiving) write(ctx context.Context, in *instant, r logRange, number, present int) (archive.File, int, error) {
	var last events.Position
	var dead []string
	f, err := a.archive.Write(ctx, in.partition, number, func(visit func(*archive.Record) error) error {
		return a.records(ctx, in, r, func(record *archive.Record) error {
			last = record.Position
			if _, buried := in.buried[last]; buried {
				dead = append(dead, last.String())
			}
			return visit(record)
		})
	})
	if err != nil {
		return f, present, err
	}
	f.DeadLetters = dead
	for _, g := range in.generations {
		if g.number > present && g.after.Before(last) {
			present = g.number
			f.Generations = append(f.Generations, archive.Generation{Number: g.number, After: g.after.String()})
		}
	}
	return f, present, a.archive.Add(f)
}

// archivePage is how many records are read at once.
const archivePage = 2000

// records visits the records of a range behind the base, in order.
func (a *archiving) records(ctx context.Context, in *instant, r logRange, visit func(*archive.Record) error) error {
	at := in.base.position
	for {
		rows, err := a.cfg.Pool.Query(ctx, fmt.Sprintf(`SELECT transaction_id::text::bigint, "offset", uuid::text, payload::text, metadata::text, created_at
FROM %s AND (transaction_id, "offset") > ($1::bigint::text::xid8, $2)
ORDER BY log.transaction_id, log."offset"
LIMIT $3`, r.of(in.partition)), at.TransactionID, at.Offset, archivePage)
		if err != nil {
			return fmt.Errorf("read range %d of the log: %w", r.number, err)
		}
		n := 0
		var record archive.Record
		if _, err := pgx.ForEachRow(rows, []any{
			&record.Position.TransactionID, &record.Position.Offset, &record.UUID, &record.Payload, &record.Metadata, &record.AppendedAt,
		}, func() error {
			n++
			at = record.Position
			return visit(&record)
		}); err != nil {
			return fmt.Errorf("read range %d of the log: %w", r.number, err)
		}
		if n == 0 {
			return nil
		}
		a.host.cfg.Done(n, n)
	}
}

// rebase makes what the events in files, which are those of ranges, and the base
// add up to the base, in one transaction behind everything that takes long.
func (a *archiving) rebase(ctx context.Context, in *instant, files []archive.File, ranges []logRange, present int) error {
	last := files[len(files)-1]
	var err error
	if in.position, err = archive.ParsePosition(last.Last); err != nil {
		return fmt.Errorf("fold what is archived: %w", err)
	}
	if _, err := a.host.conn.Exec(ctx, `SELECT badged.create_base_tables($1)`, in.partition); err != nil {
		return fmt.Errorf("create tables: %w", err)
	}
	s := newShadow(a.host, in.partition)
	s.suffix = "base_next"
	if err := s.fillUpTo(ctx, in); err != nil {
		return err
	}
	if err := a.copyKeys(ctx, in.partition, s.keys); err != nil {
		return err
	}
	next := base{position: in.position, generation: present, events: in.base.events, until: in.base.until}
	for _, f := range files {
		next.events += f.Events
		if f.AppendedUntil.After(next.until) {
			next.until = f.AppendedUntil
		}
	}
	nn := fmt.Sprintf("%02d", in.partition)
	blocked := blocking{conn: a.host.conn, tell: a.host.cfg.Blocked, partition: in.partition, tables: []string{
		"badged.users_p" + nn + "_base", "badged.conversations_p" + nn + "_base", "badged.keys_p" + nn + "_base",
	}}
	for {
		err := pgx.BeginFunc(ctx, a.host.conn, func(tx pgx.Tx) error {
			var batch pgx.Batch
			batch.Queue(setSwapPatienceSQL)
			batch.Queue(`SELECT badged.swap_base_tables($1)`, in.partition)
			batch.Queue(`INSERT INTO badged.bases (partition_id, transaction_id, "offset", generation, events, appended_until)
VALUES ($1, $2::bigint::text::xid8, $3, $4, $5, $6)
ON CONFLICT (partition_id) DO UPDATE
SET transaction_id = excluded.transaction_id, "offset" = excluded."offset", generation = excluded.generation,
    events = excluded.events, appended_until = excluded.appended_until`,
				in.partition, next.position.TransactionID, next.position.Offset, next.generation, next.events, next.until)
			for i, f := range files {
				batch.Queue(`INSERT INTO badged.archived_files (partition_id, number, range, events, sha256) VALUES ($1, $2, $3, $4, $5)`,
					f.Partition, f.Number, ranges[i].number, f.Events, f.SHA256)
			}
			return tx.SendBatch(ctx, &batch).Close()
		})
		if !isLocked(err) {
			if err != nil {
				return fmt.Errorf("make it the base: %w", err)
			}
			return nil
		}
		if err := blocked.wait(ctx); err != nil {
			return err
		}
	}
}

// copyKeys writes the keys that are remembered, a short transaction after the
// other.
func (a *archiving) copyKeys(ctx context.Context, partition int, keys *keyMemory) error {
	for age, remembered := range keys.keys {
		ids := slices.SortedFunc(maps.Keys(remembered), func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
		for chunk := range slices.Chunk(ids, copyRows) {
			var lines bytes.Buffer
			for _, id := range chunk {
				fmt.Fprintf(&lines, "%s\t%d\n", id, keys.present-age)
			}
			if _, err := a.host.conn.PgConn().CopyFrom(ctx, &lines, fmt.Sprintf(`COPY badged.keys_p%02d_base_next (key, generation) FROM STDIN`, partition)); err != nil {
				return fmt.Errorf("copy %d keys: %w", len(chunk), err)
			}
		}
	}
	return nil
}

// drop drops the ranges that the base has made needless, and returns how many.
func (a *archiving) drop(ctx context.Context, partition int) (dropped int, err error) {
	blocked := blocking{conn: a.host.conn, tell: a.host.cfg.Blocked, partition: partition, tables: []string{"badged." + events.Topic(partition)}}
	for {
		err := pgx.BeginFunc(ctx, a.host.conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, setSwapPatienceSQL); err != nil {
				return err
			}
			return tx.QueryRow(ctx, `SELECT badged.drop_log_ranges($1)`, partition).Scan(&dropped)
		})
		if !isLocked(err) {
			if err != nil {
				return 0, fmt.Errorf("drop what is archived: %w", err)
			}
			return dropped, nil
		}
		if err := blocked.wait(ctx); err != nil {
			return 0, err
		}
	}
}
