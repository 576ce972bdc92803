package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/progress"
	"github.com/badged/badged/internal/bridge/importing"
	"github.com/badged/badged/internal/bridge/traffic"
	"github.com/badged/badged/internal/cli/connect"
	"github.com/badged/badged/internal/cli/terminal"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/log/tombstones"
	"github.com/badged/badged/internal/operations"
	"github.com/badged/badged/internal/server/config"
	"github.com/badged/badged/internal/user/logview"
)

type loadCmd struct {
	File         string   `arg:"" optional:"" help:"File with traffic: lines 'SRC DST UNIXTS', or CloudEvents as NDJSON. .gz and .zst are decompressed; - is standard input."`
	Rooms        int      `help:"Generate traffic of N rooms instead of reading a file." placeholder:"N" env:"-"`
	Members      int      `help:"With --rooms: the number of members of the largest room. The n-th room has an n-th of this number." default:"1000" env:"-"`
	Messages     int      `help:"With --rooms: the number of messages to all rooms together." default:"10000" env:"-"`
	Seed         uint64   `help:"With --rooms: the seed of the random traffic. The same settings with the same seed give the same events." default:"1" env:"-"`
	URL          string   `name:"url" help:"URL of a running server to which the events are published." placeholder:"URL"`
	PublisherKey string   `help:"Secret of a publisher's key, for --url." placeholder:"SECRET"`
	DatabaseURL  string   `help:"The database of badged, to append events directly, instead of --url. A projector must be running." placeholder:"URL"`
	Shards       []string `name:"shard" env:"BADGED_SHARDS" sep:"\n" help:"One of several databases of badged, to append events directly, with the same name and URL as for migrate up. Repeat the flag for each database." placeholder:"NAME=URL"`
	BatchSize    int      `help:"Number of events in a batch, 1 to 5000." default:"1000"`
	InFlight     int      `help:"Number of batches that are published at the same time, 1 to 64." default:"4"`
	JSON         bool     `name:"json" help:"Print the summary as JSON." env:"-"`
	Quiet        bool     `short:"q" help:"Show no progress." env:"-"`
}

// Validate implements kong's validation.
func (c *loadCmd) Validate() error {
	switch {
	case c.File == "" && c.Rooms == 0:
		return errors.New("a file of traffic is required, or --rooms")
	case c.File != "" && c.Rooms != 0:
		return errors.New("--rooms generates traffic: it takes no file")
	case c.URL == "" && c.DatabaseURL == "" && len(c.Shards) == 0:
		return errors.New("a target is required: --url (BADGED_URL) with --publisher-key, or --database-url (BADGED_DATABASE_URL)")
	case c.URL != "" && c.PublisherKey == "":
		return errors.New("--url requires --publisher-key (BADGED_PUBLISHER_KEY)")
	case c.URL == "":
		return config.Database{DatabaseURL: c.DatabaseURL, Shards: c.Shards}.Validate()
	}
	return nil
}

// Run loads the file and prints the summary.
func (c *loadCmd) Run(ctx context.Context, streams Streams) error {
	target, closeTarget, err := c.target(ctx, streams.Err)
	if err != nil {
		return err
	}
	defer closeTarget()
	cfg := traffic.Config{
		File: c.File, Stdin: streams.In, Target: target,
		BatchSize: c.BatchSize, InFlight: c.InFlight,
	}
	if c.Rooms != 0 {
		cfg.Rooms = &traffic.RoomTraffic{Rooms: c.Rooms, Members: c.Members, Messages: c.Messages, Seed: c.Seed}
	}
	if !c.Quiet {
		cfg.Progress = streams.Err
	}
	summary, err := traffic.Load(ctx, cfg)
	if err != nil && summary.Events == 0 {
		return err
	}
	var printErr error
	if c.JSON {
		printErr = terminal.PrintJSON(streams.Out, summary)
	} else {
		printErr = summary.Print(streams.Out)
	}
	return errors.Join(err, printErr)
}

func (c *loadCmd) target(ctx context.Context, warnings io.Writer) (traffic.Target, func(), error) {
	if c.URL != "" {
		t, err := traffic.NewHTTPTarget(c.URL, c.PublisherKey)
		if err != nil {
			return nil, nil, err
		}
		return t, t.Close, nil
	}
	dbs, closeCluster, err := connect.Follow(ctx, config.Database{DatabaseURL: c.DatabaseURL, Shards: c.Shards}, warnings)
	if err != nil {
		return nil, nil, err
	}
	return traffic.NewClusterTarget(dbs), closeCluster, nil
}

type importCmd struct {
	config.Database `embed:""`
	Files           []string `arg:"" name:"file" help:"Files with the states of users, in the format of --format. .gz and .zst are decompressed; - is standard input."`
	Format          string   `help:"Format of the files: states (CSV or NDJSON), mattermost (a bulk export), rocketchat (the collection of subscriptions)." enum:"states,mattermost,rocketchat" default:"states" env:"-"`
	DryRun          bool     `help:"Publish nothing. Print what would be published, and what differs from the current badges." env:"-"`
	Undo            bool     `help:"Undo an import of the same files, before users read or get messages. Rows that other events have changed since the import are refused and printed." env:"-"`
	EmptyUnread     string   `help:"What an empty unread_seqs means if there are messages after read_seq: none of them is unread, all of them are unread, or ask, which makes the line a bad line." enum:"ask,none,all" default:"ask" env:"-"`
	SkipBad         bool     `help:"Skip bad lines. Without this flag, one bad line stops the import before anything is published." env:"-"`
	Report          string   `help:"Write every difference to this file, one line of JSON for each difference." placeholder:"FILE" env:"-"`
	JSON            bool     `name:"json" help:"Print the summary as JSON." env:"-"`
	Quiet           bool     `short:"q" help:"Show no progress." env:"-"`
}

// shownLines limits how many bad lines are printed, and how many differences.
const shownLines = 20

// Run imports the files and prints the summary. It fails if the badges differ from the files
// after the import.
func (c *importCmd) Run(ctx context.Context, streams Streams) error {
	dbs, closeCluster, err := connect.Follow(ctx, c.Database, streams.Err)
	if err != nil {
		return err
	}
	defer closeCluster()
	bad, different := 0, 0
	cfg := importing.Config{
		Files: c.Files, Format: importing.Format(c.Format), Stdin: streams.In, DryRun: c.DryRun, SkipBad: c.SkipBad, EmptyUnread: importing.EmptyUnread(c.EmptyUnread),
		Target: traffic.NewClusterTarget(dbs), Badges: cluster.NewReader(dbs), Partitions: dbs.Partitions(),
		Bad: func(line *traffic.LineError) {
			if bad++; bad <= shownLines {
				fmt.Fprintln(streams.Err, line)
			}
		},
	}
	if !c.Quiet {
		cfg.Progress = streams.Err
	}
	report, closeReport, err := c.report()
	if err != nil {
		return err
	}
	cfg.Different = func(d importing.Difference) error {
		if different++; different <= shownLines && !c.JSON {
			fmt.Fprintln(streams.Out, d)
		}
		return report(d)
	}
	summary, err := c.run(ctx, dbs, cfg)
	err = errors.Join(err, closeReport())
	if more := bad - shownLines; more > 0 {
		fmt.Fprintf(streams.Err, "and %s\n", terminal.Counted(int64(more), "more bad line"))
	}
	if more := different - shownLines; more > 0 && !c.JSON {
		fmt.Fprintf(streams.Out, "and %s\n", terminal.Counted(int64(more), "more difference"))
	}
	if err != nil && summary.Events == 0 {
		return err
	}
	return errors.Join(err, c.finish(streams.Out, summary, err == nil))
}

// run imports the files. With --undo it undoes an import instead, and records this in the audit
// trail.
func (c *importCmd) run(ctx context.Context, dbs *cluster.Cluster, cfg importing.Config) (summary importing.Summary, err error) {
	first := dbs.Databases()[0].Pool
	if err := first.QueryRow(ctx, `SELECT count(*) FROM badged.audit WHERE action = $1`, undoAction).Scan(&cfg.Round); err != nil {
		return summary, fmt.Errorf("count the imports that were undone: %w", err)
	}
	do := func(ctx context.Context) (any, error) {
		summary, err = importing.Import(ctx, cfg)
		return summary, err
	}
	if !c.Undo {
		_, err = do(ctx)
		return summary, err
	}
	cfg.Undo, cfg.Touched = true, notImported(dbs)
	if c.DryRun {
		_, err = do(ctx)
		return summary, err
	}
	err = operations.Audited(ctx, first, operations.OSUser(), undoAction, map[string]any{"files": c.Files}, do)
	return summary, err
}

// undoAction is the name of the action with which the audit trail records the undo of an import.
const undoAction = "import.undo"

// notImported returns a function that the undo of an import calls to learn which conversations
// other publishers have changed: the function reads from the logs all events that no import has
// published. It fails if a part of a log is archived.
func notImported(dbs *cluster.Cluster) importing.Touched {
	return func(ctx context.Context, visit func(users []string, conversation string)) error {
		return dbs.Each(ctx, func(s *cluster.Database) error {
			var archived bool
			if err := s.Pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM badged.baselines)`).Scan(&archived); err != nil {
				return fmt.Errorf("read what is archived: %w", err)
			}
			if archived {
				return errors.New("a part of the log is archived, so it is not known what else changed these conversations: reset them with conversation.reset instead")
			}
			view := logview.New(s.Pool, s.Log, logview.Filter{Partitions: s.Held()})
			return view.Next(ctx, func(_ int, r *events.Record) error {
				e, err := events.Decode(tombstones.EventIn(r.Payload))
				if err == nil && e.Source != importing.Source {
					visit(e.Data.UserIDs, e.Data.ConversationID)
				}
				return nil // an event that cannot be decoded was not folded, so it has changed nothing
			})
		})
	}
}

// report creates the file of --report. Without --report, the returned functions do nothing.
func (c *importCmd) report() (write func(importing.Difference) error, closeReport func() error, err error) {
	if c.Report == "" {
		return func(importing.Difference) error { return nil }, func() error { return nil }, nil
	}
	file, err := os.Create(c.Report)
	if err != nil {
		return nil, nil, fmt.Errorf("write the report: %w", err)
	}
	buffer := bufio.NewWriter(file)
	return importing.WriteReport(buffer), func() error {
		if err := errors.Join(buffer.Flush(), file.Close()); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
		return nil
	}, nil
}

// finish prints the summary. It fails if the import is complete, but the badges still differ from
// the files.
func (c *importCmd) finish(w io.Writer, s importing.Summary, completed bool) error {
	var err error
	if c.JSON {
		err = terminal.PrintJSON(w, s)
	} else {
		err = printImport(w, s, completed, c.Undo)
	}
	if err == nil && completed && s.Differences > 0 && c.Undo && !s.DryRun {
		err = fmt.Errorf("%s cannot be undone: something else has changed them; --report FILE writes them all", terminal.Counted(s.RowsDifferent, "row"))
	} else if err == nil && completed && s.Differences > 0 && !s.DryRun {
		err = fmt.Errorf("the badges differ from the files: %s in %s; --report FILE writes them all",
			differences(s.Differences), terminal.Counted(s.RowsDifferent, "row"))
	}
	return err
}

func printImport(w io.Writer, s importing.Summary, completed, undo bool) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { // ignore errors of writing: Flush of the tabwriter returns them again
		_, _ = fmt.Fprintf(t, name+"\t"+format+"\n", args...)
	}
	distinct := func(n int64) string {
		if n > importing.MaxExact {
			return "about " + progress.Count(n)
		}
		return progress.Count(n)
	}
	row("rows", "%s", progress.Count(s.Rows))
	if s.BadLines > 0 {
		row("bad lines", "%s, left out", progress.Count(s.BadLines))
	}
	for _, reason := range slices.Sorted(maps.Keys(s.LeftOut)) {
		row("left out", "%s %s", progress.Count(s.LeftOut[reason]), reason)
	}
	row("users", "%s", distinct(s.Users))
	row("conversations", "%s", distinct(s.Conversations))
	published := "events"
	if s.DryRun {
		published = "would publish"
	}
	text := fmt.Sprintf("%s: deliveries %s, reads %s, levels %s, recalls %s, marks %s", progress.Count(s.Events),
		progress.Count(s.Deliveries), progress.Count(s.Reads), progress.Count(s.Levels), progress.Count(s.Recalls), progress.Count(s.Marks))
	if undo {
		text = fmt.Sprintf("%s: resets %s, reads %s, levels %s", progress.Count(s.Events), progress.Count(s.Resets), progress.Count(s.Reads), progress.Count(s.Levels))
	}
	row(published, "%s", text)
	if s.FoldSeconds > 0 {
		row("published", "in %s", duration(s.PublishSeconds))
		row("folded", "in %s", duration(s.FoldSeconds))
	}
	if completed && s.Rows == 0 {
		row("compared", "nothing: there are no rows to import")
	} else if undo {
		row("undone", "%s, refused %s", terminal.Counted(s.Undone, "row"), progress.Count(s.RowsDifferent))
	} else if completed {
		text := differences(s.Differences)
		if s.Differences > 0 {
			text += " in " + terminal.Counted(s.RowsDifferent, "row")
		}
		row("compared", "%s", text)
	}
	return t.Flush()
}

func duration(seconds float64) time.Duration {
	return time.Duration(seconds * float64(time.Second)).Round(time.Millisecond)
}
