package importing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/progress"
	"github.com/badged/badged/internal/traffic"
	"github.com/badged/badged/projector/badges"
)

const (
	// chunkRows and chunkSeqs bound how many rows and unread messages are planned
	// together, and so the memory and the users of an event.
	chunkRows = 5000
	chunkSeqs = 50_000
	// batchEvents and batchBytes bound one append.
	batchEvents = 1000
	batchBytes  = 4 << 20
	// maxMilestones bounds how many positions are waited for.
	maxMilestones = 64
)

// Config configures an import.
type Config struct {
	// Files are the paths of the files, in a format that [Reader] reads. Files ending in
	// .gz or .zst are decompressed; "-" is Stdin. Required.
	Files []string
	// Format is the format of all files; "" is States.
	Format Format
	// Stdin is what "-" reads.
	Stdin io.Reader
	// Target is where the events go, and Badges reads the same database. Required.
	Target traffic.Target
	Badges Tables
	// Partitions is the number of partitions of the database.
	Partitions int
	// DryRun publishes nothing, and compares the files with the tables as they are.
	DryRun bool
	// EmptyUnread says what an empty list of unread messages means; "" is EmptyIsAsked.
	EmptyUnread EmptyUnread
	// Undo takes back what imports of the files published, and Touched reads what else
	// changed badges. Round counts the undos before.
	Undo    bool
	Touched Touched
	Round   int64
	// SkipBad leaves out bad lines. Otherwise nothing is published if there is one.
	SkipBad bool
	// Bad is called with each bad line.
	Bad func(*traffic.LineError)
	// Different is called with each difference between the files and the tables, after
	// the import or for a dry run.
	Different func(Difference) error
	// Progress is where progress is shown. Nil shows none.
	Progress io.Writer
}

// Tables is the part of [badges.Reader] that an import uses.
type Tables interface {
	Stored(ctx context.Context, keys []badges.Key) ([]badges.Stored, error)
	Analyze(ctx context.Context) error
}

// Summary is what an import did, or would do.
type Summary struct {
	DryRun bool `json:"dry_run"`
	// Rows counts the rows, without bad lines.
	Rows     int64 `json:"rows"`
	BadLines int64 `json:"bad_lines"`
	// LeftOut counts rows that the other system would not count, by the reason.
	LeftOut map[string]int64 `json:"left_out,omitempty"`
	// Users and Conversations are estimates if they are above [MaxExact], and exact
	// otherwise.
	Users         int64 `json:"users"`
	Conversations int64 `json:"conversations"`
	// Events counts all types, those of a dry run as they would be published.
	Events     int64 `json:"events"`
	Deliveries int64 `json:"deliveries"`
	Reads      int64 `json:"reads"`
	Levels     int64 `json:"levels"`
	Recalls    int64 `json:"recalls"`
	Marks      int64 `json:"marks"`
	Resets     int64 `json:"resets"`
	// Undone counts the rows that were taken back. Those that could not be are in
	// RowsDifferent.
	Undone int64 `json:"undone"`
	// Differences counts fields of rows that differ from the tables, and RowsDifferent
	// the rows: after the import, or for a dry run without it.
	Differences   int64 `json:"differences"`
	RowsDifferent int64 `json:"rows_different"`
	// PublishSeconds is the time until everything was published, FoldSeconds until it was
	// folded.
	PublishSeconds float64 `json:"publish_seconds"`
	FoldSeconds    float64 `json:"fold_seconds"`
}

// ErrBadLines means that files have bad lines, and nothing was published.
var ErrBadLines = errors.New("nothing was published: correct the lines, or give --skip-bad to leave them out")

// Import checks the files, publishes what the tables lack of them, waits until that is
// folded, and compares the tables with the files. Importing them again publishes
// nothing, unless something changed meanwhile.
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

// importer does one import.
type importer struct {
	cfg     Config
	inputs  []input
	size    int64
	meter   *progress.Meter
	retrier *traffic.Retrier
	began   time.Time
	summary Summary

	// positions are the transactions that appended, and sample has a user of each
	// partition that they touched.
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

// check reads the files to their end and counts what is in them.
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

// chunks calls f with rows and what the tables have of them.
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
	err := each(ctx, im.inputs, func(in *input, row *Row, done int64) error {
		rows = append(rows, located{*row, in.name})
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

// publish appends what plan makes of rows and of what the tables have of them, or counts it
// for a dry run.
func (im *importer) publish(ctx context.Context, of func(p *plan, rows []located, now []badges.Stored) error) error {
	im.sample = map[int]string{}
	im.meter.Begin("publish", im.size, true)
	err := im.chunks(ctx, func(rows []located, now []badges.Stored, done int64) error {
		p := newPlan(im.cfg.Round)
		if err := of(p, rows, now); err != nil {
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

// batchSize returns how many of the events are appended at once, at least one.
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

// settle waits until everything that was published is folded, and analyzes the tables: with
// the statistics of empty tables, reads take many times as long until autovacuum comes.
func (im *importer) settle(ctx context.Context) error {
	if len(im.positions) == 0 {
		return nil
	}
	var users []string
	for _, u := range im.sample {
		users = append(users, u)
	}
	// Waiting for one position after another tells a busy projector from one that does
	// not run.
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

// compare reports what differs.
func (im *importer) compare(rows []located, now []badges.Stored) error {
	for i := range rows {
		if err := im.report(rows[i].differences(rows[i].file, &now[i])); err != nil {
			return err
		}
	}
	return nil
}

// report reports the differences of a row.
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

// WriteReport returns a function for [Config] that writes each difference as a line of
// JSON.
func WriteReport(w io.Writer) func(Difference) error {
	enc := json.NewEncoder(w)
	return func(d Difference) error { return enc.Encode(d) }
}
