package archiving

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/eventbatch"
	"github.com/badged/badged/internal/eventlog"
	"github.com/badged/badged/internal/remains"
	"github.com/badged/badged/projector/archive"
	"github.com/badged/badged/projector/rebuild"
	"github.com/badged/badged/projector/replay"
	"github.com/badged/badged/projector/splitting"
)

// RestoreConfig configures a restore. Pool, Log and Store are required.
type RestoreConfig struct {
	Pool *pgxpool.Pool
	Log  *events.Log
	// Store has the archive.
	Store archive.Store

	// Progress, if not nil, receives the progress, and Filled is called with each
	// partition whose rows have been sent. Nothing is stored until Restore returns.
	Progress replay.Progress
	Filled   func(partition int)
}

// Restored is what Restore has appended.
type Restored struct {
	Partitions int   `json:"partitions"`
	Files      int   `json:"files"`
	Events     int64 `json:"events"`
}

// Restore appends all events of an archive to an empty log: the rows of each
// partition to the same partition, in the same order, with everything the archive
// has of them. So folding gives the numbers that the archived log gave. The
// directory of rooms gets the partitions that the archived joins had added to it.
//
// It is one transaction, so that no message to a room finds only a part of the
// room's members, and an interrupted restore leaves nothing. Publishers wait until
// it ends. It fails if the log has ever had an event, if the database has another
// number of partitions, or if a file of the archive is missing or damaged. Partitions
// that were split when the log was archived it splits first.
func Restore(ctx context.Context, cfg RestoreConfig) (Restored, error) {
	a, err := openComplete(ctx, cfg.Store, cfg.Log.Partitions())
	if err != nil {
		return Restored{}, err
	}
	if err := splitAs(ctx, cfg, a); err != nil {
		return Restored{}, err
	}
	job, err := rebuild.NewJob(ctx, rebuild.Config{Pool: cfg.Pool, Log: cfg.Log, Progress: cfg.Progress}, "badged restore")
	if err != nil {
		return Restored{}, err
	}
	defer job.Close(ctx)
	if cfg.Filled == nil {
		cfg.Filled = func(int) {}
	}
	for _, p := range a.Numbers() {
		if !covers(job.Held, p, a.Partitions()) {
			return Restored{}, fmt.Errorf("the archive has partition %d, which this shard does not hold: restore into a cluster whose shards hold what they held when the log was archived (`badged partition split` and `badged partition move` arrange that), and move partitions afterwards", p)
		}
	}
	done := Restored{Partitions: len(job.Held)}
	err = pgx.BeginFunc(ctx, job.Conn, func(tx pgx.Tx) error {
		if err := claimLog(ctx, tx, job.Held); err != nil {
			return err
		}
		for _, p := range job.Held {
			r := restoring{tx: tx, partition: p, rooms: map[string]struct{}{}, progress: job.Config.Progress}
			if err := r.fill(ctx, a); err != nil {
				return fmt.Errorf("restore partition %d: %w", p, err)
			}
			done.Files += len(a.Files(p))
			done.Events += r.events
			cfg.Filled(p)
		}
		return nil
	})
	if err != nil {
		return Restored{}, err
	}
	return done, nil
}

// openComplete opens the archive of a log with so many partitions, and checks all
// its files.
func openComplete(ctx context.Context, store archive.Store, partitions int) (*archive.Archive, error) {
	a, err := archive.OpenStore(ctx, store)
	if err != nil {
		return nil, err
	}
	if a.Partitions() != partitions {
		return nil, fmt.Errorf("the archive has %d partitions and the database %d: create another database with `badged migrate up --partitions %[1]d`",
			a.Partitions(), partitions)
	}
	for _, p := range a.Numbers() {
		for _, f := range a.Files(p) {
			if err := a.Check(ctx, f); err != nil {
				return nil, err
			}
		}
	}
	return a, nil
}

// splitAs splits the partitions of an empty log that were split in that of the archive.
func splitAs(ctx context.Context, cfg RestoreConfig, a *archive.Archive) error {
	for {
		held, err := eventlog.Held(ctx, cfg.Pool)
		if err != nil {
			return err
		}
		whole := -1
		for _, p := range a.Numbers() {
			for parent, ok := eventlog.Parent(p, a.Partitions()); ok; parent, ok = eventlog.Parent(parent, a.Partitions()) {
				if slices.Contains(held, parent) {
					whole = parent
				}
			}
		}
		if whole < 0 {
			return nil
		}
		if err := wantUnused(ctx, cfg.Pool, whole); err != nil {
			return err
		}
		blocked := func(pid int, application string) {
			if cfg.Progress != nil {
				cfg.Progress.Blocked(whole, pid, application)
			}
		}
		if _, err := splitting.Split(ctx, splitting.Config{Pool: cfg.Pool, Log: cfg.Log, Partition: whole, Blocked: blocked}); err != nil {
			return fmt.Errorf("split the partition as it is in the archive: %w", err)
		}
		if err := cfg.Log.Refresh(ctx); err != nil {
			return err
		}
	}
}

// covers reports whether held partitions have all users of one, in a log that began with n.
func covers(held []int, partition, n int) bool {
	if slices.Contains(held, partition) {
		return true
	}
	a, b, ok := eventlog.Children(partition, n)
	return ok && covers(held, a, n) && covers(held, b, n)
}

// wantUnused fails if a partition has had events.
func wantUnused(ctx context.Context, q events.Querier, partition int) error {
	var used bool
	if err := q.QueryRow(ctx, statements.Of(partition, "has a partition had events"), partition).Scan(&used); err != nil {
		return fmt.Errorf("look for events in partition %d: %w", partition, err)
	}
	if used {
		return fmt.Errorf("partition %d of the database has events already, of an earlier restore or of publishers: restore into a new database, before anything publishes to it", partition)
	}
	return nil
}

// claimLog keeps all others from appending to some partitions until tx ends. It fails
// unless their log is empty and was never cut.
func claimLog(ctx context.Context, tx pgx.Tx, partitions []int) error {
	if len(partitions) == 0 {
		return nil
	}
	logs := make([]string, len(partitions))
	for i, p := range partitions {
		logs[i] = "badged." + events.Topic(p)
	}
	// In the order in which appends lock them. The directory is not to be read either:
	// a message to a room that has no partitions yet would be dropped.
	for _, lock := range []string{
		`LOCK TABLE badged.room_partitions IN ACCESS EXCLUSIVE MODE`,
		`LOCK TABLE ` + strings.Join(logs, ", ") + ` IN SHARE ROW EXCLUSIVE MODE`,
	} {
		if _, err := tx.Exec(ctx, lock); err != nil {
			return fmt.Errorf("lock the log: %w", err)
		}
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
	tx        pgx.Tx
	partition int
	progress  replay.Progress
	events    int64
	// rooms are those of which the partition has a join.
	rooms map[string]struct{}
}

// fill appends the rows in the files of the partition.
func (r *restoring) fill(ctx context.Context, a *archive.Archive) error {
	files := a.Files(r.partition)
	for _, f := range files {
		r.progress.Planned(r.partition, f.Events)
	}
	for _, f := range files {
		var open []archive.Record // of a row that may go on in the next page
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
	return r.addRooms(ctx)
}

// restoredColumns are the columns of a row of the log that rowOf returns.
var restoredColumns = []string{"uuid", "created_at", "own", "events", "payload", "metadata"}

// add appends the rows that whole rows of records were. Of shares, it leaves out rows of
// which nothing is left.
func (r *restoring) add(ctx context.Context, records []archive.Record, shares bool) error {
	var rows [][]any
	added := 0
	for begin, end := 0, 0; begin < len(records); begin = end {
		for end = begin; end < len(records) && records[end].Position == records[begin].Position; end++ {
			r.enter(records[end].Payload)
		}
		if row := records[begin:end]; !shares || slices.ContainsFunc(row, isLeft) {
			rows = append(rows, rowOf(row))
			added += len(row)
		}
	}
	if _, err := r.tx.CopyFrom(ctx, pgx.Identifier{"badged", events.Topic(r.partition)}, restoredColumns, pgx.CopyFromRows(rows)); err != nil {
		return fmt.Errorf("append %d rows: %w", len(rows), err)
	}
	r.events += int64(added)
	r.progress.Done(len(records), len(records))
	return nil
}

// enter notes the room that an event is a join of, also if its users were erased since or
// are in another partition.
func (r *restoring) enter(payload []byte) {
	rest, ok := remains.Parse(payload)
	if !ok {
		rest.Event = payload
	}
	if m := rest.Members; m != nil && m.Type == events.RoomJoined {
		r.rooms[m.ConversationID] = struct{}{}
	}
	// An event that cannot be decoded becomes a dead letter.
	if e, err := events.Decode(rest.Event); err == nil && e.Type == events.RoomJoined {
		r.rooms[e.Data.ConversationID] = struct{}{}
	}
}

// isLeft reports whether a record has anything.
func isLeft(r archive.Record) bool {
	rest, ok := remains.Parse(r.Payload)
	return !ok || rest.Event != nil || rest.Members != nil
}

// rowOf returns the row that records were.
func rowOf(records []archive.Record) []any {
	first := &records[0]
	payload := first.Payload
	if len(records) > 1 || !standsAlone(payload) {
		texts := make([]string, len(records))
		for i := range records {
			texts[i] = string(records[i].Payload)
		}
		payload = eventbatch.Pack(texts)
	}
	var metadata any
	if first.Metadata != nil {
		metadata = string(first.Metadata)
	}
	return []any{[16]byte(first.UUID), first.AppendedAt, first.Own, len(records), payload, metadata}
}

// standsAlone reports whether a row with nothing but the payload of a record is read
// as that record, or as a damaged row. Other payloads are invalid events which,
// alone in a row, would be read as other events.
func standsAlone(payload []byte) bool {
	all, err := eventbatch.Unpack(payload)
	return err != nil || len(all) == 1 && bytes.Equal(all[0], payload)
}

// addRooms adds the partition to its rooms.
func (r *restoring) addRooms(ctx context.Context) error {
	const atOnce = 10_000
	for rooms := range slices.Chunk(slices.Sorted(maps.Keys(r.rooms)), atOnce) {
		if _, err := r.tx.Exec(ctx, statements.Get("add a partition to rooms"), rooms, r.partition); err != nil {
			return fmt.Errorf("add the partition to %d rooms: %w", len(rooms), err)
		}
	}
	return nil
}
