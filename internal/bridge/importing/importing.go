package importing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/progress"
	"github.com/badged/badged/internal/bridge/traffic"
	"github.com/badged/badged/projector/badges"
)

const (
	// An import reads its rows in chunks, and plans the events of one chunk at a time. A chunk has
	// at most chunkRows rows, and ends when its rows have at least chunkSeqs unread messages. These
	// limits bound the memory, and the number of users of an event.
	chunkRows = 5000
	chunkSeqs = 50_000
	// batchEvents and batchBytes bound the events of one append.
	batchEvents = 1000
	batchBytes  = 4 << 20
	// maxMilestones is the maximum number of positions for which settle waits, one after another.
	maxMilestones = 64
)

// Config configures an import.
type Config struct {
	// Files are the paths of the files, in a format that [Reader] reads. Files ending in .gz
	// or .zst are decompressed. "-" stands for Stdin. Required.
	Files []string
	// Format is the format of all files; "" is States.
	Format Format
	// Stdin is read for the path "-".
	Stdin io.Reader
	// Target receives the events. Badges reads the tables of the same database. Both are required.
	Target traffic.Target
	Badges Tables
	// Partitions is the number of partitions of the database.
	Partitions int
	// DryRun compares the files with the current tables and publishes nothing.
	DryRun bool
	// EmptyUnread says what an empty list of unread messages means; "" is EmptyIsAsked.
	EmptyUnread EmptyUnread
	// Undo reverts earlier imports of the files. It does not revert a row if the tables differ from
	// the row, or if events of other sources have changed the conversation for the user. Touched
	// finds these events, and is needed only for Undo. Round is the number of earlier undos. It is
	// part of the ids of the events, so that the events of an import after an undo are not ignored
	// as repeated.
	Undo    bool
	Touched Touched
	Round   int64
	// SkipBad skips bad lines. Without it, nothing is imported if any line is bad.
	SkipBad bool
	// Bad is called for each bad line.
	Bad func(*traffic.LineError)
	// Different is called for each difference between the files and the tables, after an import or
	// in a dry run. An undo calls it for the rows that it cannot revert.
	Different func(Difference) error
	// Progress is where progress is written; nil means that progress is not shown.
	Progress io.Writer
}

// Tables is the part of [badges.Reader] that an import uses.
type Tables interface {
	Stored(ctx context.Context, keys []badges.Key) ([]badges.Stored, error)
	Analyze(ctx context.Context) error
}

// Summary says what an import has done. In a dry run, it says what an import would do.
type Summary struct {
	DryRun bool `json:"dry_run"`
	// Rows counts the rows, without bad lines.
	Rows     int64 `json:"rows"`
	BadLines int64 `json:"bad_lines"`
	// LeftOut counts the rows that were skipped, by reason: for example, the channel is archived,
	// or the export does not say up to which message the user has read.
	LeftOut map[string]int64 `json:"left_out,omitempty"`
	// Users and Conversations are exact up to [MaxExact]; greater numbers are estimates.
	Users         int64 `json:"users"`
	Conversations int64 `json:"conversations"`
	// Events counts the published events of all types, or in a dry run, the events that an import
	// would publish. The next fields count the events of one type each.
	Events     int64 `json:"events"`
	Deliveries int64 `json:"deliveries"`
	Reads      int64 `json:"reads"`
	Levels     int64 `json:"levels"`
	Recalls    int64 `json:"recalls"`
	Marks      int64 `json:"marks"`
	Resets     int64 `json:"resets"`
	// Undone counts the rows that an undo has reverted. RowsDifferent counts the rows that it could
	// not revert.
	Undone int64 `json:"undone"`
	// Differences counts the fields that differ between the files and the tables. RowsDifferent
	// counts the rows with such fields. Both refer to the tables after the import, or in a dry run
	// to the current tables.
	Differences   int64 `json:"differences"`
	RowsDifferent int64 `json:"rows_different"`
	// PublishSeconds is the time from the start until all events were published, FoldSeconds the
	// time from the start until all events were folded.
	PublishSeconds float64 `json:"publish_seconds"`
	FoldSeconds    float64 `json:"fold_seconds"`
}

// ErrBadLines means that nothing was published, because files have bad lines.
var ErrBadLines = errors.New("nothing was published: correct the lines, or give --skip-bad to leave them out")

// Import checks the files, publishes events for the rows that differ from the tables, waits until
// these events are folded, and compares the tables with the files. If it is called again, it
// publishes nothing, unless the tables have changed in the meantime.
func Import(ctx context.Context, cfg Config) (Summary, error) {
	inputs, err := openInputs(ctx, cfg.Files, cfg.Stdin)
	if err != nil {
		return Summary{}, err
	}
	im := &importer{cfg: cfg, inputs: inputs, meter: progress.New(cfg.Progress, "import", nil), began: time.Now()}
	defer im.meter.Close()
	im.retrier = traffic.NewRetrier(im.meter.Note)
	im.summary.DryRun = cfg.DryRun
	for i := range inputs {
		inputs[i].format, inputs[i].empty = cfg.Format, cfg.EmptyUnread
		im.size += inputs[i].size
	}
	err = im.run(ctx)
	if ctx.Err() != nil {
		err = fmt.Errorf("import: %w", context.Cause(ctx))
	}
	return im.summary, errors.Join(err, removeInputs(inputs))
}

// importer runs one import.
type importer struct {
	cfg     Config
	inputs  []input
	size    int64
	meter   *progress.Meter
	retrier *traffic.Retrier
	began   time.Time
	summary Summary

	// positions has the ids of the transactions that appended events. sample has one user of each
	// partition to which events were appended.
	positions []int64
	sample    map[int]string
}

func (im *importer) run(ctx context.Context) error {
	if im.cfg.Format == Mattermost {
		im.meter.Begin("read posts", im.size, false)
		if err := readChannels(ctx, im.inputs, func(done int64) { im.meter.Advance(done, 0) }); err != nil {
			return err
		}
	}
	if err := im.check(ctx); err != nil {
		return err
	}
	if im.summary.BadLines > 0 && !im.cfg.SkipBad {
		lines := "lines"
		if im.summary.BadLines == 1 {
			lines = "line"
		}
		return fmt.Errorf("%s bad %s: %w", progress.Count(im.summary.BadLines), lines, ErrBadLines)
	}
	if im.cfg.Undo {
		return im.undo(ctx)
	}
	err := im.publish(ctx, func(p *plan, rows []located, now []badges.Stored) error {
		for i := range rows {
			p.row(&rows[i].Row, &now[i])
		}
		if im.cfg.DryRun {
			return im.compare(rows, now)
		}
		return nil
	})
	if err != nil || im.cfg.DryRun {
		return err
	}
	if err := im.settle(ctx); err != nil {
		return err
	}
	im.meter.Begin("compare", im.size, false)
	return im.chunks(ctx, func(rows []located, now []badges.Stored, done int64) error {
		im.meter.Advance(done, 0)
		return im.compare(rows, now)
	})
}

// check reads all files completely, and counts their rows and bad lines.
func (im *importer) check(ctx context.Context) error {
	im.meter.Begin("check", im.size, false)
	users, conversations := newSketch(), newSketch()
	err := each(ctx, im.inputs, func(_ *input, row *Row, done int64) error {
		im.summary.Rows++
		users.add(row.UserID)
		conversations.add(row.ConversationID)
		if im.summary.Rows%chunkRows == 0 {
			im.meter.Advance(done, 0)
		}
		return nil
	}, func(line *traffic.LineError) {
		im.summary.BadLines++
		if im.cfg.Bad != nil {
			im.meter.Lines()
			im.cfg.Bad(line)
		}
	})
	im.summary.Users, im.summary.Conversations = users.count(), conversations.count()
	for i := range im.inputs {
		for reason, n := range im.inputs[i].leftOut {
			if im.summary.LeftOut == nil {
				im.summary.LeftOut = map[string]int64{}
			}
			im.summary.LeftOut[reason] += n
		}
	}
	return err
}

// located is a row and its file.
type located struct {
	Row
	file string
}

// chunks calls f with chunks of rows, and with the state of each row in the tables.
func (im *importer) chunks(ctx context.Context, f func(rows []located, now []badges.Stored, done int64) error) error {
	var rows []located
	seqs := 0
	flush := func(done int64) error {
		keys := make([]badges.Key, len(rows))
		for i := range rows {
			keys[i] = badges.Key{UserID: rows[i].UserID, ConversationID: rows[i].ConversationID}
		}
		now, err := im.cfg.Badges.Stored(ctx, keys)
		if err == nil {
			err = f(rows, now, done)
		}
		rows, seqs = rows[:0], 0
		return err
	}
	err := each(ctx, im.inputs, func(source *input, row *Row, done int64) error {
		rows = append(rows, located{*row, source.name})
		if seqs += len(row.Unread); len(rows) < chunkRows && seqs < chunkSeqs {
			return nil
		}
		return flush(done)
	}, func(*traffic.LineError) {})
	if err == nil && len(rows) > 0 {
		err = flush(im.size)
	}
	return err
}

// publish plans events for all rows and appends them. It calls the function `addEvents` with a plan
// and a chunk of rows; the parameter `now` has the state of each row in the tables. addEvents adds
// the events for the rows to the plan. In a dry run, publish only counts the events.
func (im *importer) publish(ctx context.Context, addEvents func(p *plan, rows []located, now []badges.Stored) error) error {
	im.sample = map[int]string{}
	im.meter.Begin("publish", im.size, true)
	err := im.chunks(ctx, func(rows []located, now []badges.Stored, done int64) error {
		p := newPlan(im.cfg.Round)
		if err := addEvents(p, rows, now); err != nil {
			return err
		}
		evs := p.events()
		if im.cfg.DryRun {
			im.count(evs)
			im.meter.Advance(done, len(evs))
			return nil
		}
		for len(evs) > 0 {
			n := batchSize(evs)
			if err := im.append(ctx, evs[:n]); err != nil {
				return fmt.Errorf("publish %s, up to line %d: %w", rows[len(rows)-1].file, rows[len(rows)-1].Line, err)
			}
			im.meter.Advance(0, n)
			evs = evs[n:]
		}
		im.meter.Advance(done, 0)
		return nil
	})
	im.summary.PublishSeconds = time.Since(im.began).Seconds()
	return err
}

// batchSize returns how many of the events can be appended at once. It returns at least one.
func batchSize(evs []events.Event) int {
	const envelope = 300
	size := 0
	for i := range evs {
		size += envelope
		for _, u := range evs[i].Data.UserIDs {
			size += 2 * len(u) // a mention names the user twice
		}
		if i == batchEvents || i > 0 && size > batchBytes {
			return i
		}
	}
	return len(evs)
}

func (im *importer) append(ctx context.Context, evs []events.Event) error {
	var position int64
	err := im.retrier.Do(ctx, func(ctx context.Context) (err error) {
		position, err = im.cfg.Target.Append(ctx, evs)
		return err
	})
	if err != nil {
		return err
	}
	im.count(evs)
	im.positions = append(im.positions, position)
	for i := range evs {
		for _, u := range evs[i].Data.UserIDs {
			im.sample[events.PartitionOf(u, im.cfg.Partitions)] = u
		}
	}
	return nil
}

func (im *importer) count(evs []events.Event) {
	im.summary.Events += int64(len(evs))
	for i := range evs {
		switch evs[i].Type {
		case events.MessageDelivered:
			im.summary.Deliveries++
		case events.ConversationRead:
			im.summary.Reads++
		case events.ConversationLevelSet:
			im.summary.Levels++
		case events.MessageRecalled:
			im.summary.Recalls++
		case events.ConversationMarkedUnread:
			im.summary.Marks++
		case events.ConversationReset:
			im.summary.Resets++
		}
	}
}

// settle waits until all published events are folded, and then runs ANALYZE on the tables. Without
// ANALYZE, the planner would use the statistics of the empty tables until autovacuum runs, and
// reads would be many times slower.
func (im *importer) settle(ctx context.Context) error {
	if len(im.positions) == 0 {
		return nil
	}
	var users []string
	for _, u := range im.sample {
		users = append(users, u)
	}
	// Wait for the positions one after the other: each position that is reached counts as a
	// success. The retrier would give up if it waited only for the last position and had no success
	// for some time.
	milestones := traffic.Spread(im.positions, maxMilestones)
	im.meter.Begin("fold", int64(len(milestones)), false)
	for i, position := range milestones {
		err := im.retrier.Do(ctx, func(ctx context.Context) error {
			_, err := im.cfg.Target.Badges(ctx, users, position)
			return err
		})
		if err != nil {
			return fmt.Errorf("wait until the import is folded: %w", err)
		}
		im.meter.Advance(int64(i+1), 0)
	}
	im.summary.FoldSeconds = time.Since(im.began).Seconds()
	return im.retrier.Do(ctx, im.cfg.Badges.Analyze)
}

// compare reports the rows that differ from the tables.
func (im *importer) compare(rows []located, now []badges.Stored) error {
	for i := range rows {
		if err := im.report(rows[i].differences(rows[i].file, &now[i])); err != nil {
			return err
		}
	}
	return nil
}

func (im *importer) report(all []Difference) error {
	if len(all) == 0 {
		return nil
	}
	im.summary.RowsDifferent++
	im.summary.Differences += int64(len(all))
	if im.cfg.Different == nil {
		return nil
	}
	for _, d := range all {
		if err := im.cfg.Different(d); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	}
	return nil
}

// WriteReport returns a function for Config.Different. It writes each difference as a line of JSON.
func WriteReport(w io.Writer) func(Difference) error {
	enc := json.NewEncoder(w)
	return func(d Difference) error { return enc.Encode(d) }
}
