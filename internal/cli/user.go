package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/progress"
	"github.com/badged/badged/internal/cli/archives"
	"github.com/badged/badged/internal/cli/connect"
	"github.com/badged/badged/internal/cli/terminal"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/fold/lag"
	"github.com/badged/badged/internal/operations"
	"github.com/badged/badged/internal/partition/archive"
	"github.com/badged/badged/internal/partition/replay"
	"github.com/badged/badged/internal/server/config"
	"github.com/badged/badged/internal/user/erasure"
	"github.com/badged/badged/internal/user/merging"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
)

type userCmd struct {
	Show    userShowCmd    `cmd:"" help:"Show the badge of a user and its unread conversations."`
	Explain userExplainCmd `cmd:"" help:"Explain the badge of a user: list each message that counts, and the events that changed no count."`
	Export  userExportCmd  `cmd:"" help:"Print all data of a user, one line of JSON for each record."`
	Erase   userEraseCmd   `cmd:"" help:"Delete all data of a user, while the service runs."`
	Merge   userMergeCmd   `cmd:"" help:"Move the unread messages of a guest to an account."`
}

type userShowCmd struct {
	config.Database `embed:""`
	User            string `arg:"" help:"The id of the user."`
	JSON            bool   `name:"json" help:"Print JSON." env:"-"`
}

// Run prints the badge of a user from the tables. It fails if the tables differ from the log.
func (c *userShowCmd) Run(ctx context.Context, streams Streams) error {
	if reason := events.CheckID(c.User); reason != "" {
		return config.Mistake("user id %s", reason)
	}
	dbs, err := connect.Databases(ctx, c.Database, streams.Err)
	if err != nil {
		return err
	}
	defer dbs.Close()
	shard, err := dbs.HomeOf(c.User)
	if err != nil {
		return err
	}
	s, err := badges.NewReader(shard.Pool, dbs).Snapshot(ctx, c.User)
	if err != nil {
		return err
	}
	if err := recordRead(ctx, shard.Pool, streams, operations.ReadUser, c.User, s.Version > 0); err != nil {
		return err
	}
	partition := dbs.PartitionOf(c.User)
	folded, err := warnIfBehind(ctx, shard.Pool, partition, streams)
	if err != nil {
		return err
	}
	if c.JSON {
		err = terminal.PrintJSON(streams.Out, s)
	} else {
		err = printSnapshot(streams, s, partition, shard.Name, folded)
	}
	if err != nil {
		return err
	}
	var differences []replay.Difference
	if _, err := replay.NewVerifier(shard.Pool, shard.Log).Verify(ctx, partition, replay.VerifyOptions{
		Users: []string{c.User}, Found: func(d replay.Difference) { differences = append(differences, d) },
	}); err != nil {
		return fmt.Errorf("compare what is shown with the log: %w", err)
	}
	if s.Version == 0 && folded && len(differences) == 0 {
		return errUnknown
	}
	return damaged(differences, 0)
}

// warnIfBehind prints a warning if events of the partition are not folded yet. It returns whether
// all are folded.
func warnIfBehind(ctx context.Context, pool *pgxpool.Pool, partition int, streams Streams) (folded bool, err error) {
	behind, err := lag.Measure(ctx, pool, []int{partition}, behindRows)
	if err != nil || len(behind) == 0 || behind[0].Events == 0 {
		return err == nil, err
	}
	fmt.Fprintf(streams.Err, "partition %d is behind: %s not folded yet, the first %s ago; some may be for this user\n",
		partition, terminal.Counted(behind[0].Events, "event"), behind[0].Age.Round(time.Millisecond))
	return false, nil
}

// ofUser has the arguments that the audit trail records for a read of a user's data.
type ofUser struct {
	User string `json:"user"`
}

// recordRead records in the audit trail that a command will show data of a user. known is true if
// badged has data of this user. If it has none, the record does not contain the user's id: after an
// erasure, the trail must not store the id again.
func recordRead(ctx context.Context, pool *pgxpool.Pool, streams Streams, action, user string, known bool) error {
	var arguments any = operations.NoUser{}
	if known {
		arguments = ofUser{user}
	}
	recorded, err := operations.RecordRead(ctx, pool, action, arguments)
	if err == nil && !recorded {
		_, err = fmt.Fprintln(streams.Err, "not recorded in the audit trail: the role of the database may only read")
	}
	return err
}

// behindRows limits the count of the events of a partition that are not folded yet: after this
// number of rows of the log, the events in further rows are not counted.
const behindRows = 10_000

// printSnapshot prints the state of a user. folded is true if all events of the partition are
// folded.
func printSnapshot(streams Streams, s pubsub.Snapshot, partition int, shard string, folded bool) error {
	table := tabwriter.NewWriter(streams.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "user\t%s\ntotal\t%d\nmentions\t%d\n", s.UserID, s.Total, s.Mentions)
	for _, c := range slices.Sorted(maps.Keys(s.Categories)) {
		fmt.Fprintf(table, "  %s\t%s\n", c, numbersOf(s.Categories[c]))
	}
	fmt.Fprintf(table, "unread in\t%s\nversion\t%d\nepoch\t%s\npartition\t%d\n", terminal.Counted(s.UnreadConversations, "conversation"), s.Version, s.Epoch, partition)
	if shard != "" {
		fmt.Fprintf(table, "shard\t%s\n", shard)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	switch {
	case s.Version == 0 && folded:
		fmt.Fprintln(streams.Out, "\nNothing has ever happened to this user.")
		return nil
	case s.Version == 0:
		fmt.Fprintln(streams.Out, "\nNothing has been folded for this user yet.")
		return nil
	}
	if len(s.Conversations) == 0 {
		fmt.Fprintln(streams.Out, "\nNothing is unread.")
		return nil
	}
	fmt.Fprintln(streams.Out)
	table = tabwriter.NewWriter(streams.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CONVERSATION\tUNREAD\tMENTIONS\tFIRST UNREAD\tREAD\tLAST\tLEVEL\tCATEGORY\tMARKED\tVERSION")
	for _, c := range s.Conversations {
		marked := ""
		if c.MarkedUnread {
			marked = "unread"
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%d\n", c.ConversationID, c.Unread, c.Mentions,
			c.FirstUnreadSeq, c.ReadSeq, c.LastSeq, levelOf(&c), c.Category, marked, c.Version)
	}
	if s.More {
		fmt.Fprintf(table, "… and more; these are the first %d\n", len(s.Conversations))
	}
	return table.Flush()
}

// levelOf returns the level of a conversation and, if the level ends, its end.
func levelOf(c *pubsub.Conversation) string {
	if c.LevelUntil.IsZero() {
		return c.Level
	}
	return c.Level + " until " + stamp(c.LevelUntil)
}

type userEraseCmd struct {
	config.Database `embed:""`
	User            string `arg:"" help:"The id of the user."`
	Archive         string `help:"The archive, a directory or s3://bucket/prefix. It is required if a part of the log is archived." placeholder:"DIR" env:"-"`
	archives.Keys   `embed:""`
	JSON            bool `name:"json" help:"Print JSON." env:"-"`

	terminal.Confirmation `embed:""`
}

// Run erases a user from all databases, and prints how much was erased.
func (c *userEraseCmd) Run(ctx context.Context, streams Streams) error {
	if reason := events.CheckID(c.User); reason != "" {
		return config.Mistake("user id %s", reason)
	}
	if err := c.Ask(streams, fmt.Sprintf("Erase everything that badged holds of the user %q?", c.User)); err != nil {
		return err
	}
	dbs, err := connect.Databases(ctx, c.Database, streams.Err)
	if err != nil {
		return err
	}
	defer dbs.Close()
	done, err := operations.New(operations.Config{Cluster: dbs}).Erase(ctx, operations.OSUser(), c.User, func(s *cluster.Database) (*archive.Archive, error) {
		if err := archives.WarnLost(ctx, streams.Err, s, "if a copy of them turns up, it may name the user: delete it"); err != nil {
			return nil, err
		}
		return c.Opened(ctx, dbs, s, c.Archive, archive.Continue)
	})
	if errors.Is(err, erasure.ErrArchived) {
		err = fmt.Errorf("%w: --archive DIR", err)
	}
	if err != nil && !isPartial(ctx, err) {
		return err
	}
	if err != nil {
		err = fmt.Errorf("%w; not everything was erased: run it again", err)
	}
	if c.JSON {
		return errors.Join(err, terminal.PrintJSON(streams.Out, done))
	}
	return errors.Join(err, printErasure(streams.Out, done, err == nil))
}

// printErasure prints how much was erased. whole is true if the erasure is complete in all
// databases.
func printErasure(w io.Writer, r erasure.Erased, whole bool) error {
	if nothing := r == (erasure.Erased{Partition: r.Partition, Counts: erasure.Counts{Kept: r.Kept}, Archived: erasure.Counts{Kept: r.Archived.Kept}, Waiting: erasure.Counts{Kept: r.Waiting.Kept}}); nothing && whole {
		fmt.Fprintln(w, "badged had no data of this user")
	} else if !nothing {
		fmt.Fprintf(w, "erased %s, %s and %s; in the log, erased %s and removed the user from %s more; in the audit trail, redacted the id in %s\n",
			terminal.Counted(r.Conversations, "conversation"), terminal.Counted(r.Devices, "device"), terminal.Counted(r.DeadLetters, "dead letter"),
			terminal.Counted(r.Erased, "event"), progress.Count(r.Changed), terminal.Counted(r.Actions, "record"))
	}
	if n := r.Archived.Erased + r.Archived.Changed; n > 0 {
		fmt.Fprintf(w, "in the archive, erased %s and removed the user from %s more\n", terminal.Counted(r.Archived.Erased, "event"), progress.Count(r.Archived.Changed))
	}
	if n := r.Waiting.Erased + r.Waiting.Changed; n > 0 {
		fmt.Fprintf(w, "removed the user from %s stored for other shards\n", terminal.Counted(n, "message"))
	}
	if r.Kept += r.Archived.Kept + r.Waiting.Kept; r.Kept > 0 {
		fmt.Fprintf(w, "the id stays in %s of other users, where it names something else, such as a conversation\n", terminal.Counted(r.Kept, "event"))
	}
	return nil
}

type userExportCmd struct {
	config.Database `embed:""`
	User            string `arg:"" help:"The id of the user."`
	archives.Keys   `embed:""`
	Archive         string `help:"The archive, a directory or s3://bucket/prefix, to export archived events too." placeholder:"DIR" env:"-"`
}

// exportArguments has the arguments that the audit trail records for an export.
type exportArguments struct {
	User    string `json:"user"`
	Archive string `json:"archive,omitempty"`
}

// Run prints all data of a user. It fails if any part of the data could not be read.
func (c *userExportCmd) Run(ctx context.Context, streams Streams) error {
	if reason := events.CheckID(c.User); reason != "" {
		return config.Mistake("user id %s", reason)
	}
	from := archives.Given{Archive: c.Archive, Keys: c.Keys}
	dbs, err := connect.Databases(ctx, c.Database, streams.Err)
	if err != nil {
		return err
	}
	defer dbs.Close()
	home, err := dbs.HomeOf(c.User)
	if err != nil {
		return err
	}
	opened := func(s *cluster.Database) (*archive.Archive, error) {
		a, err := from.Open(ctx, dbs, s)
		if err == nil {
			from.Warn(ctx, streams.Err, s, a)
		}
		return a, err
	}
	out := bufio.NewWriter(streams.Out)
	var done erasure.Exported
	err = operations.AuditedExport(ctx, home.Pool, operations.OSUser(), c.User, exportArguments{c.User, c.Archive}, func(ctx context.Context, found func(context.Context) error) (any, error) {
		done, err = operations.New(operations.Config{Cluster: dbs}).Export(ctx, c.User, opened, out, found)
		return done, errors.Join(err, out.Flush())
	})
	if err == nil && len(done.Lacks) > 0 {
		err = fmt.Errorf("the export is incomplete: it does not include %s", strings.Join(done.Lacks, "; "))
		if c.Archive == "" {
			err = fmt.Errorf("%w: --archive DIR", err)
		}
	}
	return err
}

type userMergeCmd struct {
	config.Database `embed:""`
	Guest           string `arg:"" help:"The id of the guest."`
	Account         string `arg:"" help:"The id of the account with which the guest has signed in."`
	JSON            bool   `name:"json" help:"Print JSON." env:"-"`

	terminal.Confirmation `embed:""`
}

// Run moves the unread messages of a guest to an account, and prints how many were moved.
func (c *userMergeCmd) Run(ctx context.Context, streams Streams) error {
	if reason := events.CheckID(c.Guest); reason != "" {
		return config.Mistake("id of the guest %s", reason)
	}
	if reason := events.CheckID(c.Account); reason != "" {
		return config.Mistake("id of the account %s", reason)
	}
	if c.Guest == c.Account {
		return &config.MistakeError{Err: merging.ErrSame}
	}
	if err := c.Ask(streams, fmt.Sprintf("Move what is unread for %q to %q, and read it for %[1]q?", c.Guest, c.Account)); err != nil {
		return err
	}
	dbs, err := connect.Databases(ctx, c.Database, streams.Err)
	if err != nil {
		return err
	}
	defer dbs.Close()
	r, err := operations.New(operations.Config{Cluster: dbs}).Merge(ctx, operations.OSUser(), c.Guest, c.Account)
	if err != nil {
		return err
	}
	if c.JSON {
		return terminal.PrintJSON(streams.Out, r)
	}
	fmt.Fprintf(streams.Out, "moved %s with %s\n", terminal.Counted(int64(r.Conversations), "conversation"), terminal.Counted(r.Messages, "unread message"))
	if r.Left > 0 {
		fmt.Fprintf(streams.Out, "%s of them were not moved: too many are unread\n", progress.Count(r.Left))
	}
	if r.Rooms > 0 {
		fmt.Fprintf(streams.Out, "the guest stays a member of %s: publish room.joined for the account, with up_to_seq\n", terminal.Counted(int64(r.Rooms), "room"))
	}
	return nil
}

// numbersOf returns the numbers of a category as text: the total, the number of unseen messages if
// it is less than the total, and the number of muted messages if there are any.
func numbersOf(n pubsub.Numbers) string {
	text := strconv.FormatInt(n.Total, 10)
	if n.Unseen < n.Total {
		text += fmt.Sprintf(", %d unseen", n.Unseen)
	}
	if n.Muted.Total > 0 {
		text += fmt.Sprintf(", %d muted", n.Muted.Total)
	}
	return text
}
