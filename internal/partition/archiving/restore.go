package archiving

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/log/eventbatch"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/partition/archive"
	"github.com/badged/badged/internal/partition/rebuild"
	"github.com/badged/badged/internal/partition/replay"
	"github.com/badged/badged/internal/partition/splitting"
	"github.com/badged/badged/internal/pg/pgsession"
	"github.com/badged/badged/internal/pg/query"
)

// RestoreConfig configures a restore. Into and From are required.
type RestoreConfig struct {
	// Into are all databases of the cluster, or the only database.
	Into []Empty
	// From are the archives of all former shards, in any order.
	From []archive.Store

	// Progress, if not nil, receives the progress. Filled, if not nil, is called with each
	// partition after its rows were sent to the database, and before they are committed.
	Progress replay.Progress
	Filled   func(partition int)
}

// Empty is a database to restore into.
type Empty struct {
	// Name is the name of the shard, "" for a single database.
	Name string
	Pool *pgxpool.Pool
	Log  *events.Log
}

// Restored counts what Restore has appended to a database.
type Restored struct {
	Partitions int   `json:"partitions"`
	Files      int   `json:"files"`
	Events     int64 `json:"events"`
	// GivenUp is the number of lost events: archived events whose files were declared lost.
	GivenUp int64 `json:"given_up,omitempty"`
	// Without lists the partitions without files in any archive. It is empty if one archive was
	// restored into one database.
	Without []int `json:"without,omitempty"`
}

// Restore appends all events of archives to an empty log. It appends the rows of each partition
// to the same partition, in the same order, on the shard that holds the partition now. So folding
// the rows produces the same badges as the archived log.
//
// Restore first splits the partitions that were split when the log was archived. Then it opens
// one transaction in each database, and commits all transactions at the end. So the fold never
// sees a message to a room before all members of the room. An interrupted restore appends nothing,
// unless a commit fails after another database has committed: then the error names both
// databases. Publishers are blocked until the transactions end.
//
// Restore fails if a log has ever had an event, if the databases have another initial number of
// partitions than the archives, or if a file of the archives is missing or damaged. It skips files
// that were given up. The results are in the order of cfg.Into.
func Restore(ctx context.Context, cfg RestoreConfig) ([]Restored, error) {
	if cfg.Filled == nil {
		cfg.Filled = func(int) {}
	}
	r := &restore{cfg: cfg, done: make([]Restored, len(cfg.Into))}
	for _, store := range cfg.From {
		a, err := openComplete(ctx, store, cfg.Into[0].Log.Partitions())
		if err != nil {
			return nil, err
		}
		r.archives = append(r.archives, a)
	}
	for _, d := range cfg.Into {
		if err := d.named(pgsession.CheckOwner(ctx, d.Pool, "restore the log")); err != nil {
			return nil, err
		}
		if err := d.named(r.splitAs(ctx, d)); err != nil {
			return nil, err
		}
	}
	for _, d := range cfg.Into {
		job, err := rebuild.NewJob(ctx, rebuild.Config{Pool: d.Pool, Log: d.Log, Progress: cfg.Progress}, "badged restore")
		if err != nil {
			return nil, d.named(err)
		}
		defer job.Close(ctx)
		r.jobs = append(r.jobs, job)
		r.held = append(r.held, job.Held...)
	}
	for _, a := range r.archives {
		for _, p := range a.Numbers() {
			if !covers(r.held, p, a.Partitions()) {
				return nil, fmt.Errorf("the archive has partition %d, which no database holds: `badged partition list` says why", p)
			}
		}
	}
	if err := r.loadInto(ctx, 0); err != nil {
		return nil, err
	}
	return r.done, nil
}

// restore is one call of Restore.
type restore struct {
	cfg      RestoreConfig
	archives []*archive.Archive
	jobs     []*rebuild.Job
	// held are the partitions that the databases hold.
	held []int
	// committed is the name of the database whose transaction was committed last, nil before
	// the first commit.
	committed *string
	done      []Restored
}

// named adds the name of the shard to an error, if the database has such a name.
func (d *Empty) named(err error) error {
	if err == nil || d.Name == "" {
		return err
	}
	return fmt.Errorf("shard %s: %w", d.Name, err)
}

// loadInto opens a transaction in database i, and calls itself for the database i+1. The innermost
// call, after the last database, fills all databases. Then the calls return and commit their
// transactions in reverse order.
func (r *restore) loadInto(ctx context.Context, i int) error {
	if i == len(r.jobs) {
		for n := range r.jobs {
			for _, p := range r.jobs[n].Held {
				if err := r.fill(ctx, n, p); err != nil {
					return r.cfg.Into[n].named(fmt.Errorf("restore partition %d: %w", p, err))
				}
			}
		}
		return nil
	}
	job, d := r.jobs[i], r.cfg.Into[i]
	filled := false
	err := pgx.BeginFunc(ctx, job.Conn, func(tx pgx.Tx) error {
		if err := claimLog(ctx, tx, job.Held); err != nil {
			return d.named(err)
		}
		err := r.loadInto(ctx, i+1)
		filled = err == nil
		return err
	})
	switch {
	case err == nil:
		r.committed = &d.Name
	case filled && r.committed != nil:
		return fmt.Errorf("shard %s could not store its log: %w; the log of shard %s is stored: create new databases, and restore again", d.Name, err, *r.committed)
	case filled:
		return d.named(err)
	}
	return err
}

// fill fills a partition of database n, in its open transaction.
func (r *restore) fill(ctx context.Context, n, partition int) error {
	done := &r.done[n]
	done.Partitions++
	a := r.archiveOf(partition)
	switch {
	case a != nil:
		f := restoring{Restored: done, conn: r.jobs[n].Conn, partition: partition, progress: r.jobs[n].Config.Progress}
		if err := f.fill(ctx, a); err != nil {
			return err
		}
	case len(r.archives) > 1 || len(r.jobs) > 1: // a single archive cannot be incomplete
		done.Without = append(done.Without, partition)
	}
	r.cfg.Filled(partition)
	return nil
}

// archiveOf returns the archive with the most events of a partition, or nil if no archive has
// events of the partition. Two archives have files of the same partition if Gather was killed while
// it moved the files from one archive to the other.
func (r *restore) archiveOf(partition int) (found *archive.Archive) {
	limit := int64(0)
	for _, a := range r.archives {
		n := int64(0)
		for _, f := range a.Files(partition) {
			n += f.Events
		}
		if n > limit {
			found, limit = a, n
		}
	}
	return found
}

// openComplete opens an archive, and checks its number of partitions and all its files.
func openComplete(ctx context.Context, store archive.Store, partitions int) (*archive.Archive, error) {
	a, err := archive.OpenStore(ctx, store)
	if err != nil {
		return nil, err
	}
	if a.Partitions() != partitions {
		return nil, fmt.Errorf("the number of partitions of the archive is %d, and that of the database %d: create another database with `badged migrate up --partitions %[1]d`",
			a.Partitions(), partitions)
	}
	for _, p := range a.Numbers() {
		if err := a.CheckAll(ctx, a.Files(p)); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// splitAs splits the partitions of an empty database that were split in the archived log.
func (r *restore) splitAs(ctx context.Context, d Empty) error {
	for {
		held, err := eventlog.Held(ctx, d.Pool)
		if err != nil {
			return err
		}
		whole := -1
		for _, a := range r.archives {
			for _, p := range held {
				if len(a.Split(p)) > 0 {
					whole = p
				}
			}
		}
		if whole < 0 {
			return nil
		}
		if err := wantUnused(ctx, d.Pool, whole); err != nil {
			return err
		}
		blocked := func(holder pgsession.Holder) {
			if r.cfg.Progress != nil {
				r.cfg.Progress.Blocked(whole, holder)
			}
		}
		if _, err := splitting.Split(ctx, splitting.Config{Pool: d.Pool, Log: d.Log, Partition: whole, Blocked: blocked}); err != nil {
			return fmt.Errorf("split the partition as it is in the archive: %w", err)
		}
		if err := d.Log.Refresh(ctx); err != nil {
			return err
		}
	}
}

// covers reports whether every user of a partition belongs to a partition in `held`: to the
// partition itself or to one of its descendants. n is the initial number of partitions of the log.
func covers(held []int, partition, n int) bool {
	if slices.Contains(held, partition) {
		return true
	}
	a, b, ok := eventlog.Children(partition, n)
	return ok && covers(held, a, n) && covers(held, b, n)
}

// wantUnused fails if a partition has ever had events.
func wantUnused(ctx context.Context, q events.Querier, partition int) error {
	used, err := query.One[bool](ctx, q, fmt.Sprintf("check partition %d for events", partition), statements.Of(partition, "has a partition had events"), partition)
	if used {
		return fmt.Errorf("partition %d of the database has events already, of an earlier restore or of publishers: restore into a new database, before anything publishes to it", partition)
	}
	return err
}

// claimLog blocks all other appends to partitions until tx ends. It fails if one of the
// partitions has or had events.
func claimLog(ctx context.Context, tx pgx.Tx, partitions []int) error {
	if len(partitions) == 0 {
		return nil
	}
	logs := make([]string, len(partitions))
	for i, p := range partitions {
		logs[i] = "badged." + events.Topic(p)
	}
	// Appends lock the logs in the same order, so there is no deadlock.
	if err := query.Exec(ctx, tx, "lock the log", `LOCK TABLE `+strings.Join(logs, ", ")+` IN SHARE ROW EXCLUSIVE MODE`); err != nil {
		return err
	}
	for _, p := range partitions {
		if err := wantUnused(ctx, tx, p); err != nil {
			return err
		}
	}
	return nil
}

// restoring fills the log of a partition.
type restoring struct {
	*Restored
	conn      *pgx.Conn // with an open transaction
	partition int
	progress  replay.Progress
}

// fill appends the rows of the partition's files.
func (r *restoring) fill(ctx context.Context, a *archive.Archive) error {
	var files []archive.File
	for _, f := range a.Files(r.partition) {
		if f.GivenUp != nil {
			r.GivenUp += f.Events
			continue
		}
		files = append(files, f)
		r.progress.Planned(r.partition, f.Events)
	}
	r.Files += len(files)
	for _, f := range files {
		var open []archive.Record // the records of a row that may continue in the next page
		if err := a.Read(ctx, f, func(page []archive.Record) error {
			page = append(open, page...)
			last := page[len(page)-1].Position
			end := slices.IndexFunc(page, func(record archive.Record) bool { return record.Position == last })
			open = page[end:]
			return r.add(ctx, page[:end], f.Shared())
		}); err != nil {
			return err
		}
		if err := r.add(ctx, open, f.Shared()); err != nil {
			return err
		}
	}
	// The planner needs statistics before autovacuum collects them.
	return query.Exec(ctx, r.conn, "analyze the log", `ANALYZE badged.`+events.Topic(r.partition))
}

// restoredColumns are the columns of the values that rowOf returns.
var restoredColumns = []string{"uuid", "created_at", "own", "events", "payload", "metadata"}

// add appends to the log the rows from which the records were archived. shares is true if several
// partitions share the file: then add omits rows without events of this partition.
func (r *restoring) add(ctx context.Context, records []archive.Record, shares bool) error {
	var rows [][]any
	added := 0
	for begin, end := 0, 0; begin < len(records); begin = end {
		for end = begin; end < len(records) && records[end].Position == records[begin].Position; end++ {
		}
		if shares && !slices.ContainsFunc(records[begin:end], isLeft) {
			continue
		}
		row, err := rowOf(records[begin:end])
		if err != nil {
			return fmt.Errorf("the row archived from %s: %w", records[begin].Position, err)
		}
		rows = append(rows, row)
		added += end - begin
	}
	if _, err := r.conn.CopyFrom(ctx, pgx.Identifier{"badged", events.Topic(r.partition)}, restoredColumns, pgx.CopyFromRows(rows)); err != nil {
		return fmt.Errorf("append %d rows: %w", len(rows), err)
	}
	r.Events += int64(added)
	r.progress.Done(len(records), len(records))
	return nil
}

func isLeft(r archive.Record) bool { return r.Left() }

// rowOf returns the row of the log from which the records were archived. The result has the values
// of restoredColumns.
func rowOf(records []archive.Record) ([]any, error) {
	first := &records[0]
	payload := first.Payload
	if len(records) > 1 || !standsAlone(payload) {
		texts := make([]string, len(records))
		for i := range records {
			texts[i] = string(records[i].Payload)
		}
		var err error
		if payload, err = eventbatch.Pack(texts); err != nil {
			return nil, err
		}
	}
	var metadata any
	if first.Metadata != nil {
		metadata = string(first.Metadata)
	}
	own := slices.ContainsFunc(records, func(r archive.Record) bool { return r.Own })
	return []any{[16]byte(first.UUID), first.AppendedAt, own, len(records), payload, metadata}, nil
}

// standsAlone reports whether the payload of a single event can be stored as a row without packing
// it: unpacking the row then returns the same payload, or fails. Otherwise the payload is an
// invalid event that looks like a batch of events, so rowOf packs it into a batch of one event.
func standsAlone(payload []byte) bool {
	all, err := eventbatch.Unpack(payload)
	return err != nil || len(all) == 1 && bytes.Equal(all[0], payload)
}
