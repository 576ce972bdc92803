package erasure

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/badge"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/partition/archive"
	"github.com/badged/badged/internal/partition/replay"
	"github.com/badged/badged/internal/pg/query"
)

// Holding is a record of data about a user.
type Holding struct {
	// Kind is the kind of the record; the documentation has a table of all kinds.
	Kind string `json:"kind"`
	// Shard is the name of the database, "" if there is only one.
	Shard string `json:"shard,omitempty"`
	// Record is a row of a table, or an event with its place.
	Record json.RawMessage `json:"record"`
}

// The kinds of holdings that are events.
const (
	kindEvent         = "event"
	kindArchivedEvent = "archived_event"
	kindWaitingEvent  = "waiting_event"
)

// ExportConfig configures an export. Pool, Log and UserID are required.
type ExportConfig struct {
	Pool *pgxpool.Pool
	Log  *events.Log
	// UserID is a valid id. The user need not exist.
	UserID string
	// Archive, if not nil, is the archive of the log, whose events are exported too.
	Archive *archive.Archive
	// Shard is the name of the database, "" for a single database.
	Shard string
}

// Export calls visit with all records about a user, read in one snapshot: first rows of
// tables, then hints, archived events, and events of the log, by partition and in the order of
// the log. It removes all other users from events, except the sender. It searches all
// partitions, because messages that the user has sent are in the partitions of the recipients.
//
// lacks describes data that Export could not read, such as archived events if cfg.Archive is nil.
// Export returns errors of visit unwrapped.
func Export(ctx context.Context, cfg ExportConfig, visit func(Holding) error) (lacks []string, err error) {
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, cfg.Pool, options, func(tx pgx.Tx) error {
		// Disable the idle timeout, since visit may be slow: it may write to a client. Permit
		// plans that use indexes.
		if _, err := tx.Exec(ctx, `SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL enable_bitmapscan = on; SET LOCAL plan_cache_mode = auto`); err != nil {
			return fmt.Errorf("set up the transaction: %w", err)
		}
		held, err := eventlog.Held(ctx, tx)
		if err != nil {
			return err
		}
		x := exporter{cfg: cfg, tx: tx, visit: visit, partition: cfg.Log.PartitionOf(cfg.UserID)}
		if err := x.tables(ctx, held); err != nil {
			return err
		}
		if err := x.hints(ctx); err != nil {
			return err
		}
		if err := x.archives(ctx, held); err != nil {
			return err
		}
		lacks = x.lacks
		for _, p := range held {
			if err := x.events(ctx, p); err != nil {
				return err
			}
		}
		return nil
	})
	return lacks, err
}

// exporter is one call of Export.
type exporter struct {
	cfg       ExportConfig
	tx        pgx.Tx
	visit     func(Holding) error
	partition int // the partition of the user
	// lacks describes data that could not be read.
	lacks []string
}

// tables exports the rows of tables.
func (x *exporter) tables(ctx context.Context, held []int) error {
	var holdings []Holding
	collect := func(ofOthersToo bool) func(pgx.Rows) error {
		return func(rows pgx.Rows) error {
			var kind string
			var row []byte
			_, err := pgx.ForEachRow(rows, []any{&kind, &row}, func() error {
				record, err := readable(kind, row)
				if err != nil || ofOthersToo && !namedIn(record, x.cfg.UserID) {
					return err
				}
				if ofOthersToo {
					record = keepUser(record, x.cfg.UserID)
				}
				encoded, err := encode(record)
				holdings = append(holdings, Holding{Kind: kind, Record: encoded})
				return err
			})
			return err
		}
	}
	var reads pgx.Batch
	if slices.Contains(held, x.partition) { // else the database may not have the tables of the partition
		reads.Queue(statements.Of(x.partition, "read the tables of the partition"), x.cfg.UserID).Query(collect(false))
	}
	reads.Queue(statements.Get("read the other tables"), x.cfg.UserID).Query(collect(false))
	reads.Queue(statements.Get("read the texts"), x.cfg.UserID).Query(collect(true))
	if err := x.tx.SendBatch(ctx, &reads).Close(); err != nil {
		return fmt.Errorf("read the tables: %w", err)
	}
	for _, h := range holdings {
		if err := x.visit(h); err != nil {
			return err
		}
	}
	return nil
}

// readable decodes a row of a table for people: it replaces binary sets of message numbers by
// text, and binary payloads by events.
func readable(kind string, row []byte) (any, error) {
	var record map[string]any
	decoder := json.NewDecoder(bytes.NewReader(row))
	decoder.UseNumber() // seqs do not fit into floats
	if err := decoder.Decode(&record); err != nil {
		return nil, fmt.Errorf("a row of the kind %s: %w", kind, err)
	}
	for name, value := range record {
		text, ok := value.(string)
		if !ok || !strings.HasPrefix(text, `\x`) {
			continue
		}
		stored, err := hex.DecodeString(text[2:])
		switch {
		case err != nil:
		case name == "payload":
			record[name] = payloadOf(stored)
		case strings.HasSuffix(name, "_set"):
			if set, err := badge.DecodeSet(stored); err == nil {
				record[name] = set.String()
			}
		}
	}
	return record, nil
}

// loggedEvent is an event of the log or the archive.
type loggedEvent struct {
	Partition  int    `json:"partition"`
	Position   string `json:"position"`
	AppendedAt string `json:"appended_at"`
	Event      any    `json:"event"`
}

// waitingEvent is an event of a hint for another shard.
type waitingEvent struct {
	For    string    `json:"for"`
	KeptAt time.Time `json:"kept_at"`
	Event  any       `json:"event"`
}

// hints exports the events of hints for other shards.
func (x *exporter) hints(ctx context.Context) error {
	var w waitingEvent
	var text string
	return query.Each(ctx, x.tx, "read hints", statements.Get("read hints"), []any{x.cfg.UserID}, []any{&w.For, &w.KeptAt, &text}, func() error {
		var messages []json.RawMessage
		if err := json.Unmarshal([]byte(text), &messages); err != nil {
			return fmt.Errorf("hint for shard %s: %w", w.For, err)
		}
		for _, m := range messages {
			share, is := shareOf(&events.Record{Payload: m}, x.cfg.UserID)
			if !is {
				continue
			}
			w.Event = share
			record, err := encode(w)
			if err == nil {
				err = x.visit(Holding{Kind: kindWaitingEvent, Record: record})
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// events exports the events of a partition of the log.
func (x *exporter) events(ctx context.Context, partition int) error {
	return eachRow(ctx, x.tx, partition, x.cfg.UserID, events.Position{}, func(records []events.Record) error {
		return x.records(kindEvent, partition, records)
	})
}

// archives exports the archived events of partitions.
func (x *exporter) archives(ctx context.Context, held []int) error {
	if x.cfg.Archive == nil {
		n, err := query.One[int64](ctx, x.tx, "read what is archived", statements.Get("count the archived events"))
		if n > 0 {
			x.lacks = append(x.lacks, fmt.Sprintf("%d archived events, of which some may name the user: no archive was given", n))
		}
		return err
	}
	for _, p := range held {
		if err := x.archived(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// archived exports the archived events of a partition.
func (x *exporter) archived(ctx context.Context, partition int) error {
	files, err := replay.ArchivedFiles(ctx, x.tx, x.cfg.Archive, partition)
	if err != nil {
		return err
	}
	for _, f := range files {
		if f.GivenUp != nil {
			x.lacks = append(x.lacks, fmt.Sprintf("%d events of file %s, which was given up", f.Events, f.Name))
			continue
		}
		if err := x.cfg.Archive.Check(ctx, f); err != nil {
			return err
		}
		if err := x.cfg.Archive.Read(ctx, f, func(archived []archive.Record) error {
			records := make([]events.Record, len(archived))
			for i := range archived {
				records[i] = archived[i].Record
			}
			return x.records(kindArchivedEvent, partition, records)
		}); err != nil {
			return err
		}
	}
	return nil
}

// records exports the records that name the user.
func (x *exporter) records(kind string, partition int, records []events.Record) error {
	for i := range records {
		r := &records[i]
		event, ok := shareOf(r, x.cfg.UserID)
		if !ok {
			continue
		}
		encoded, err := encode(loggedEvent{partition, r.String(), r.AppendedAt.UTC().Format("2006-01-02T15:04:05.999999Z07:00"), event})
		if err != nil {
			return err
		}
		if err := x.visit(Holding{Kind: kind, Record: encoded}); err != nil {
			return err
		}
	}
	return nil
}

// kindEnd is the kind of the last line of Write.
const kindEnd = "end"

// Exported is the result of Write, and the record of the last line.
type Exported struct {
	// Holdings is the number of the other lines.
	Holdings int `json:"holdings"`
	// Lacks describes data that could not be read, such as archived events. It is empty if the
	// export is complete.
	Lacks []string `json:"lacks,omitempty"`
}

// Write exports a user from several databases as lines of JSON. The last line has the kind "end".
// It has the number of the other lines, so that a reader can detect a truncated export, and it
// describes data that could not be read. If found is not nil and the user has a record, Write
// calls found before it writes the first record. If found fails, Write writes nothing.
func Write(ctx context.Context, w io.Writer, found func(ctx context.Context) error, databases ...ExportConfig) (done Exported, err error) {
	lines := json.NewEncoder(w)
	lines.SetEscapeHTML(false)
	for _, cfg := range databases {
		lacks, err := Export(ctx, cfg, func(h Holding) error {
			if done.Holdings++; done.Holdings == 1 && found != nil {
				if err := found(ctx); err != nil {
					return err
				}
			}
			h.Shard = cfg.Shard
			return lines.Encode(h)
		})
		if err != nil {
			return done, fmt.Errorf("export user %q: %w", cfg.UserID, err)
		}
		for _, what := range lacks {
			if cfg.Shard != "" {
				what = fmt.Sprintf("of shard %s, %s", cfg.Shard, what)
			}
			done.Lacks = append(done.Lacks, what)
		}
	}
	end, err := encode(done)
	if err != nil {
		return done, err
	}
	return done, lines.Encode(Holding{Kind: kindEnd, Record: end})
}
