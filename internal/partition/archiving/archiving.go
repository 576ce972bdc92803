// Package archiving removes old events from the log. It writes complete ranges of the log to an
// archive, folds their events into the baseline of the partition (the state at the end of the
// archive), and drops the ranges. After the loss of a database it restores the log from the
// archive.
//
// It does not know the projector's loop. ADR 26 explains the removal, ADR 133 who may write to
// an archive, ADR 64 restoring.
package archiving

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/logread"
	"github.com/badged/badged/internal/fold/store"
	"github.com/badged/badged/internal/log/eventbatch"
	"github.com/badged/badged/internal/partition"
	"github.com/badged/badged/internal/partition/archive"
	"github.com/badged/badged/internal/partition/claims"
	"github.com/badged/badged/internal/partition/rebuild"
	"github.com/badged/badged/internal/partition/replay"
	"github.com/badged/badged/internal/pg/pgsession"
	"github.com/badged/badged/internal/pg/query"
	"github.com/badged/badged/internal/pg/sqlfile"
)

//go:embed archiving.sql
var statementsText string

var statements = sqlfile.Parse(statementsText)

// Config configures Run. Pool, Log, Store and Before are required.
type Config struct {
	Pool *pgxpool.Pool
	Log  *events.Log
	// Store contains the archive. Run creates an archive if the store has none and the database
	// lists no archived files.
	Store archive.Store
	// Before is a time: a range is archived only if all its events were appended before it.
	Before time.Time
	// Memory is the same limit as in [rebuild.Config].
	Memory int64

	// MaxWait limits the wait for another transaction's locks on the tables; see
	// [pgsession.Blocking].
	MaxWait time.Duration

	// Progress, if not nil, receives the progress of each partition. Its method Blocked is called
	// with each transaction that delays Run, because the transaction uses the log or the baseline
	// of the partition.
	Progress replay.Progress
	// Archived, if not nil, is called with the result for each finished partition.
	Archived func(Result)
}

// Result is the result for one partition.
type Result struct {
	Partition int `json:"partition"`
	// Files and Events count the written files and their events. Bytes is the size of the
	// files.
	Files  int   `json:"files"`
	Events int64 `json:"events"`
	Bytes  int64 `json:"bytes"`
	// Dropped is the number of ranges that were dropped, including ranges that an interrupted
	// run had archived.
	Dropped int `json:"dropped"`
	// Kept is the reason why the events after the archived events are still in the log.
	Kept string `json:"kept"`
	// Held is true if the next range is old enough, but an open transaction may still append to
	// it.
	Held bool `json:"held,omitempty"`
}

// Run writes the events of complete ranges of the log to files, folds them into the baseline of
// the partition, and drops the ranges. It handles one partition after the other, while the
// server runs.
//
// A range is complete when no transaction can append to it any more and every consumer group
// has read it. Run archives a complete range if all its events were appended before cfg.Before
// and all earlier ranges are archived.
//
// Run drops a range only after the range's file is synced, read back and listed in the manifest,
// and after the new baseline is committed. After an interruption the next call resumes. Run fails
// with a [*rebuild.RunningError] while another job, such as a rebuild, runs in this database, and
// with [archive.ErrInUse] while another process writes to the archive.
func Run(ctx context.Context, cfg Config) (err error) {
	if cfg.Archived == nil {
		cfg.Archived = func(Result) {}
	}
	if err := checkRights(ctx, cfg.Pool); err != nil {
		return err
	}
	job, err := rebuild.NewJob(ctx, rebuild.Config{
		Pool: cfg.Pool, Log: cfg.Log, Memory: cfg.Memory, Progress: cfg.Progress,
	}, "badged archive")
	if err != nil {
		return err
	}
	defer job.Close(ctx)
	a := &archiving{cfg: cfg, job: job}
	defer func() {
		if a.archive != nil {
			_ = a.archive.Close()
		}
	}()
	if err := a.open(ctx); err != nil {
		return err
	}
	for _, p := range job.Held {
		done, err := a.partition(ctx, p)
		if err != nil {
			return fmt.Errorf("archive partition %d: %w", p, err)
		}
		cfg.Archived(done)
	}
	return a.archive.RemoveStale(ctx)
}

// checkRights fails if the role may not drop ranges of the log. It is called before any work is
// done. The owner of the schema can grant this right to any role.
func checkRights(ctx context.Context, pool *pgxpool.Pool) error {
	may, err := query.One[bool](ctx, pool, "read what the role may do", `SELECT has_function_privilege('badged.drop_log_ranges(integer)', 'EXECUTE')`)
	if err != nil || may {
		return err
	}
	return pgsession.CheckOwner(ctx, pool, "archive")
}

// archiving is one call of Run.
type archiving struct {
	cfg Config
	// job has the lock that excludes other jobs in the database. All writes use its connection.
	job     *rebuild.Job
	archive *archive.Archive
}

// open opens or creates the archive and claims it. It checks that the archive is complete and
// belongs to this log, and deletes the files of interrupted runs.
func (a *archiving) open(ctx context.Context) error {
	id, archived, err := identity(ctx, a.job.Conn)
	if err != nil {
		return err
	}
	a.archive, err = archive.Continue(ctx, a.cfg.Store)
	if errors.Is(err, archive.ErrNone) && archived == 0 {
		a.archive, err = archive.Create(ctx, a.cfg.Store, id, a.cfg.Log.Partitions())
	}
	if err != nil {
		return WithoutArchive(ctx, a.job.Conn, err)
	}
	if err := claims.Check(ctx, a.job.Conn, a.archive); err != nil {
		return err
	}
	if err := claims.WantErased(ctx, a.job.Conn, a.archive); err != nil {
		return err
	}
	without := map[int][]archive.File{} // all files of each partition whose given-up files lack an entry in the manifest
	var tails []archive.Tail            // leftovers of interrupted runs
	for _, p := range a.job.Held {
		files, err := replay.ArchivedFiles(ctx, a.job.Conn, a.archive, p)
		if err != nil {
			return err
		}
		if len(a.archive.Files(p)) < len(files) {
			without[p] = files
		}
		if err := a.archive.CheckAll(ctx, files); err != nil {
			return err
		}
		t := archive.Tail{Partition: p, Known: len(files), Lacking: replay.Lacking(a.job.Conn, p)}
		if err := a.archive.CheckCut(ctx, t); err != nil {
			return err
		}
		tails = append(tails, t)
	}
	if err := claims.Claim(ctx, a.job.Conn, a.archive); err != nil {
		return err
	}
	for p, files := range without {
		if err := a.archive.GiveUp(ctx, p, files); err != nil {
			return err
		}
	}
	return a.archive.Cut(ctx, tails...)
}

// identity reads the id of the log, and the number of archived files that the database lists for
// the partitions that it holds.
func identity(ctx context.Context, q events.Querier) (id uuid.UUID, archived int64, err error) {
	if err := q.QueryRow(ctx, statements.Get("read the identity of the log")).Scan((*[16]byte)(&id), &archived); err != nil {
		return id, 0, fmt.Errorf("read the list of archived files: %w", err)
	}
	return id, archived, nil
}

// HasArchives reports whether the database lists archived files of the partitions that it holds.
func HasArchives(ctx context.Context, q events.Querier) (bool, error) {
	_, archived, err := identity(ctx, q)
	return archived > 0, err
}

// logRange is a range of the log: the rows whose transaction id is at least `starts` and less than
// `ends`. `events` is the number of its events after the baseline, and `until` is when the latest
// of these events was appended.
type logRange struct {
	number int
	starts int64
	// ends is 0 for the last range, which has no end yet.
	ends   int64
	events int64
	until  time.Time
}

// within replaces RANGE in a statement by the name of the log and a WHERE clause that selects the
// range, which must have an end. It also replaces PAYLOAD by the expression for a row's payload.
// The statement does not name the range's own table, since the role may have no right to read it;
// Postgres uses the WHERE clause to skip the tables of other ranges.
func (r *logRange) within(partition int, sql string) string {
	return strings.NewReplacer("PAYLOAD", eventbatch.PayloadSQL, "RANGE",
		fmt.Sprintf("badged.%s AS log WHERE log.transaction_id >= '%d' AND log.transaction_id < '%d'", events.Topic(partition), r.starts, r.ends)).Replace(sql)
}

// partition archives the complete ranges of a partition.
func (a *archiving) partition(ctx context.Context, partition int) (done Result, err error) {
	done.Partition = partition
	if err := query.Exec(ctx, a.job.Conn, "drop the tables that an earlier run left", `SELECT badged.drop_baseline_tables($1)`, partition); err != nil {
		return done, err
	}
	if done.Dropped, err = a.drop(ctx, partition); err != nil {
		return done, err
	}
	from, err := replay.LoadBaseline(ctx, a.job.Conn, partition)
	if err != nil {
		return done, err
	}
	ranges, err := a.complete(ctx, partition, from, &done)
	if err != nil || len(ranges) == 0 {
		return done, err
	}
	// Read the snapshot only after complete has returned: then the snapshot has the dead letters
	// and the generations of event keys of all events in the ranges.
	in, err := replay.Now(ctx, a.cfg.Pool, partition, a.cfg.Log.Partitions())
	if err != nil {
		return done, err
	}
	known, err := replay.ArchivedFiles(ctx, a.job.Conn, a.archive, partition)
	if err != nil {
		return done, err
	}
	var files []archive.File
	present := in.Baseline.Generation
	for _, r := range ranges {
		a.job.Config.Progress.Planned(partition, r.events)
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
	if err := a.archive.CheckAll(ctx, files); err != nil {
		return done, err
	}
	dropped, err := a.drop(ctx, partition)
	done.Dropped += dropped
	return done, err
}

// complete returns the ranges that can be archived and have events after the baseline `from`. If
// the range after them cannot be archived, complete sets done.Kept to the reason. It also sets
// done.Held if the only reason is an open transaction.
func (a *archiving) complete(ctx context.Context, partition int, from replay.Baseline, done *Result) (ranges []logRange, err error) {
	conn := a.job.Conn
	rows, _ := conn.Query(ctx, statements.Get("list the ranges"), partition)
	settled := map[int]bool{}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r logRange, err error) {
		var passed *bool
		err = row.Scan(&r.number, &r.starts, &r.ends, &r.events, &r.until, &passed)
		settled[r.number] = passed != nil && *passed
		return r, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the ranges of the log: %w", err)
	}
	for _, r := range all {
		if !settled[r.number] && r.ends == 0 {
			done.Kept = notComplete(r)
			return ranges, nil
		}
		var latest *time.Time
		err := conn.QueryRow(ctx, r.within(partition, statements.Get("measure a range")),
			from.Position.TransactionID, from.Position.Offset).Scan(&r.events, &latest)
		if err != nil {
			return nil, fmt.Errorf("measure range %d of the log: %w", r.number, err)
		}
		if !settled[r.number] {
			due := latest != nil && latest.Before(a.cfg.Before)
			done.Kept, done.Held, err = a.keptOpen(ctx, r, due)
			return ranges, err
		}
		if latest == nil {
			continue // drop also drops empty ranges
		}
		if r.until = *latest; !r.until.Before(a.cfg.Before) {
			done.Kept = fmt.Sprintf("its range from transaction %d on has an event of %s", r.starts, r.until.UTC().Format(time.RFC3339))
			return ranges, nil
		}
		var group string
		err = conn.QueryRow(ctx, r.within(partition, statements.Of(partition, "find a consumer group that has not read a range"))).Scan(&group)
		if err == nil {
			done.Kept = fmt.Sprintf("the consumer group %q has not read its range from transaction %d on", group, r.starts)
			return ranges, nil
		} else if !errors.Is(err, pgx.ErrNoRows) {
			return nil, fmt.Errorf("read the positions of consumers: %w", err)
		}
		ranges = append(ranges, r)
	}
	return ranges, nil
}

func notComplete(r logRange) string {
	return fmt.Sprintf("its range from transaction %d on is not complete yet: a range covers about a week, and at least %d transactions of the server", r.starts, 1<<20)
}

// keptOpen returns the reason why a range that has an end is not complete: a transaction is open
// that may still append to the range. `due` says whether the range is old enough to be archived;
// held is true if the range is old enough and such a transaction is open.
func (a *archiving) keptOpen(ctx context.Context, r logRange, due bool) (kept string, held bool, err error) {
	open, err := pgsession.OpenTransactions(ctx, a.job.Conn, 0)
	if err != nil || len(open) == 0 { // the transaction has ended meanwhile
		return notComplete(r), false, err
	}
	return fmt.Sprintf("its range from transaction %d on waits for the end of %s, %s; %s", r.starts, open[0], open[0].Open(), open[0].Remedy()), due, nil
}

// write writes the file of a range and adds its entry to the manifest. `number` is the number of
// the file. `present` is the number of the latest generation of event keys that begins before the
// range. write also returns the number of the latest generation that begins before the range's
// end.
func (a *archiving) write(ctx context.Context, snapshot *replay.Snapshot, r logRange, number, present int) (archive.File, int, error) {
	letters, err := store.LoadLetters(ctx, a.cfg.Pool, snapshot.Partition, events.Position{TransactionID: r.starts}, events.Position{TransactionID: r.ends})
	if err != nil {
		return archive.File{}, present, err
	}
	var last events.Place
	var dead []string
	f, err := a.archive.Write(ctx, snapshot.Partition, number, func(visit func(*archive.Record) error) error {
		return a.records(ctx, snapshot, r, func(record *archive.Record) error {
			last = record.Place
			if letters.Buried(last) {
				dead = append(dead, last.String())
			}
			return visit(record)
		})
	})
	if err != nil {
		return f, present, err
	}
	f.DeadLetters = dead
	for _, g := range snapshot.Generations {
		if g.Number > present && g.After.Before(last.Position) {
			present = g.Number
			f.Generations = append(f.Generations, archive.Generation{Number: g.Number, After: g.After.String()})
		}
	}
	return f, present, a.archive.Add(ctx, f)
}

// archivePage is the number of rows of the log that one query of records reads.
const archivePage = 2000

// records calls visit with the records of a range that come after the baseline, in order.
func (a *archiving) records(ctx context.Context, snapshot *replay.Snapshot, r logRange, visit func(*archive.Record) error) error {
	position := snapshot.Baseline.Position
	for {
		rows, _ := a.cfg.Pool.Query(ctx, r.within(snapshot.Partition, statements.Get("read a page of a range")), position.TransactionID, position.Offset, archivePage)
		n := 0
		var row archive.Record
		var size int
		if _, err := pgx.ForEachRow(rows, []any{
			&row.TransactionID, &row.Offset, &row.UUID, &row.Payload, &size, &row.Metadata, &row.AppendedAt, &row.Own,
		}, func() error {
			position = row.Position
			for _, record := range logread.Split(row.Record, size) {
				n++
				if err := visit(&archive.Record{Record: record, Metadata: row.Metadata}); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return fmt.Errorf("read range %d of the log: %w", r.number, err)
		}
		if n == 0 {
			return nil
		}
		a.job.Config.Progress.Done(n, n)
	}
}

// rebase folds the events of archived ranges into the baseline, the state at the end of the
// archive. It fills new tables with the new baseline, and then replaces the tables of the old
// baseline in one short transaction. present is the number of the current generation of event keys
// at the new baseline.
func (a *archiving) rebase(ctx context.Context, snapshot *replay.Snapshot, files []archive.File, ranges []logRange, present int) error {
	last := files[len(files)-1]
	place, err := events.ParsePlace(last.Last)
	if err != nil {
		return fmt.Errorf("read the last place of the archive: %w", err)
	}
	snapshot.Position = place.Position
	if err := query.Exec(ctx, a.job.Conn, "create the tables of the new baseline", `SELECT badged.create_baseline_tables($1)`, snapshot.Partition); err != nil {
		return err
	}
	s := rebuild.NewStaging(a.job, snapshot.Partition, "_baseline_next")
	if err := s.FillUpTo(ctx, snapshot); err != nil {
		return err
	}
	if err := a.copyKeys(ctx, snapshot.Partition, s.Keys); err != nil {
		return err
	}
	next := replay.Baseline{Position: snapshot.Position, Generation: present, Events: snapshot.Baseline.Events, Until: snapshot.Baseline.Until}
	for _, f := range files {
		next.Events += f.Events
		if f.AppendedUntil.After(next.Until) {
			next.Until = f.AppendedUntil
		}
	}
	blocked := pgsession.Blocking{Conn: a.job.Conn, Report: a.job.Config.Progress.Blocked, Partition: snapshot.Partition, MaxWait: a.cfg.MaxWait, Tables: partition.Baseline(snapshot.Partition)}
	if err := blocked.Retry(ctx, a.job.Conn, func(tx pgx.Tx) error {
		var batch pgx.Batch
		batch.Queue(`SELECT badged.swap_baseline_tables($1)`, snapshot.Partition)
		batch.Queue(statements.Get("store the baseline"),
			snapshot.Partition, next.Position.TransactionID, next.Position.Offset, next.Generation, next.Events, next.Until)
		for i, f := range files {
			batch.Queue(statements.Get("record an archived file"),
				f.Partition, f.Number, ranges[i].number, f.Events, f.SHA256)
		}
		return tx.SendBatch(ctx, &batch).Close()
	}); err != nil {
		return fmt.Errorf("swap in the new baseline: %w", err)
	}
	return nil
}

// copyKeys loads the event keys into the new baseline in short transactions.
func (a *archiving) copyKeys(ctx context.Context, partition int, keys *store.DedupReplay) error {
	for age, users := range keys.Keys {
		ids := slices.SortedFunc(maps.Keys(users), func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
		for chunk := range slices.Chunk(ids, rebuild.BulkRows) {
			var lines bytes.Buffer
			for _, id := range chunk {
				fmt.Fprintf(&lines, "%s\t%d\t\\\\x%x\n", id, keys.Present-age, users[id])
			}
			if _, err := a.job.Conn.PgConn().CopyFrom(ctx, &lines, statements.Of(partition, "load keys")); err != nil {
				return fmt.Errorf("load %d keys: %w", len(chunk), err)
			}
		}
	}
	return nil
}

// drop drops the ranges before the baseline, and returns their number.
func (a *archiving) drop(ctx context.Context, number int) (dropped int, err error) {
	blocked := pgsession.Blocking{Conn: a.job.Conn, Report: a.job.Config.Progress.Blocked, Partition: number, MaxWait: a.cfg.MaxWait, Tables: []string{partition.Log(number)}}
	if err := blocked.Retry(ctx, a.job.Conn, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, `SELECT badged.drop_log_ranges($1)`, number).Scan(&dropped)
	}); err != nil {
		return 0, fmt.Errorf("drop archived ranges: %w", err)
	}
	return dropped, nil
}
