package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/progress"
	"github.com/badged/badged/internal/cli/archives"
	"github.com/badged/badged/internal/cli/connect"
	"github.com/badged/badged/internal/cli/terminal"
	"github.com/badged/badged/internal/operations"
	"github.com/badged/badged/internal/partition/replay"
	"github.com/badged/badged/internal/server/config"
)

type userExplainCmd struct {
	config.Database `embed:""`
	User            string    `arg:"" help:"The id of the user."`
	At              time.Time `help:"Explain the badge as it was at this time, such as 2026-01-31T23:59:59Z." placeholder:"TIME" env:"-"`
	Conversation    string    `help:"Explain only this conversation, even if it has no unread messages." placeholder:"ID" env:"-"`
	History         bool      `help:"Show each event that changed the total, and the total after it." env:"-"`
	Delivered       int       `help:"Show the last N delivered messages and the fate of each; at most 1,000." placeholder:"N" env:"-"`
	Before          string    `help:"With --delivered: show only messages that were delivered before this position in the log, such as 1234/56, or 1234/56/7 in a row with several events." placeholder:"POSITION" env:"-"`
	archives.Given  `embed:""`
	JSON            bool `name:"json" help:"Print JSON." env:"-"`
}

// Run explains the badge of a user. It fails if the tables differ from the log.
func (c *userExplainCmd) Run(ctx context.Context, streams Streams) error {
	if reason := events.CheckID(c.User); reason != "" {
		return config.Mistake("user id %s", reason)
	}
	question, err := c.question()
	if err != nil {
		return err
	}
	cluster, err := connect.Databases(ctx, c.Database, streams.Err)
	if err != nil {
		return err
	}
	defer cluster.Close()
	db, err := cluster.HomeOf(c.User)
	if err != nil {
		return err
	}
	archive, err := c.Open(ctx, cluster, db)
	if err != nil {
		return err
	}
	c.Warn(ctx, streams.Err, db, archive)
	e, err := replay.NewExplainer(db.Pool, db.Log).WithArchive(archive).Explain(ctx, c.User, question)
	if err != nil {
		return err
	}
	if err := recordRead(ctx, db.Pool, streams, operations.ReadExplanation, c.User, e.Known()); err != nil {
		return err
	}
	folded, err := warnIfBehind(ctx, db.Pool, cluster.PartitionOf(c.User), streams)
	if err != nil {
		return err
	}
	if c.JSON {
		err = terminal.PrintJSON(streams.Out, e)
	} else {
		err = printExplanation(streams.Out, e)
	}
	if err != nil {
		return err
	}
	if c.At.IsZero() && folded && !e.Known() && len(e.Differences) == 0 {
		fmt.Fprintln(streams.Err, "Nothing has ever happened to this user.")
		return errUnknown
	}
	return damaged(e.Differences, e.MoreDifferences)
}

// question makes the query from the flags.
func (c *userExplainCmd) question() (replay.Question, error) {
	q := replay.Question{At: c.At, Conversation: c.Conversation, History: c.History, Delivered: c.Delivered}
	if c.Delivered < 0 || c.Delivered > replay.MaxDelivered {
		return q, config.Mistake("--delivered must be a number from 0 to %d", replay.MaxDelivered)
	}
	if c.Conversation != "" {
		if reason := events.CheckID(c.Conversation); reason != "" {
			return q, config.Mistake("--conversation %s", reason)
		}
	}
	if c.Before != "" {
		var err error
		if q.Before, err = events.ParsePlace(c.Before); err != nil {
			return q, config.Mistake("--before: %w", err)
		}
		if c.Delivered == 0 {
			return q, config.Mistake("--before needs --delivered")
		}
	}
	return q, nil
}

// explanationPrinter prints an explanation as text. err joins all errors of writing.
type explanationPrinter struct {
	w   io.Writer
	err error
	// levels has, for each category, the event that set the level of the category.
	levels map[string]replay.LoggedEvent
}

func (p *explanationPrinter) line(format string, args ...any) {
	_, err := fmt.Fprintf(p.w, format+"\n", args...)
	p.err = errors.Join(p.err, err)
}

// table prints rows. The cells of a row are separated by tabs.
func (p *explanationPrinter) table(rows ...string) {
	t := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(t, r)
	}
	p.err = errors.Join(p.err, t.Flush())
}

func printExplanation(w io.Writer, e replay.Explanation) error {
	p := &explanationPrinter{w: w, levels: e.Levels}
	rows := []string{
		"user\t" + e.UserID,
		fmt.Sprintf("total\t%d", e.Total),
		fmt.Sprintf("mentions\t%d", e.Mentions),
	}
	for _, category := range slices.Sorted(maps.Keys(e.Categories)) {
		rows = append(rows, fmt.Sprintf("  %s\t%s", category, numbersOf(e.Categories[category])))
	}
	rows = append(rows, "unread in\t"+terminal.Counted(e.UnreadConversations, "conversation"), fmt.Sprintf("version\t%d", e.Version))
	if e.At != nil {
		rows = append(rows, "as of\t"+stamp(*e.At))
	}
	p.table(append(rows, fmt.Sprintf("log\tpartition %d up to %s", e.Partition, e.Position))...)
	if e.ArchivedUntil != nil && e.GivenUpEvents > 0 {
		p.line("\nEvents appended until %s are archived: they are counted. They cannot be listed, since files with %s of the partition were given up.", stamp(*e.ArchivedUntil), terminal.Counted(e.GivenUpEvents, "event"))
	} else if e.ArchivedUntil != nil {
		p.line("\nEvents appended until %s are archived: they are counted, but only --archive DIR can list them.", stamp(*e.ArchivedUntil))
	}
	if len(e.Conversations) == 0 {
		p.line("\nNothing is unread.")
	}
	for _, c := range e.Conversations {
		p.conversation(c)
	}
	if e.MoreConversations > 0 {
		p.line("\n… and %s more, which add %d", terminal.Counted(int64(e.MoreConversations), "conversation"), e.MoreAdds)
	}
	p.history(e.History)
	p.delivered(e.Delivered)
	p.uncounted(e)
	p.differences(e.Differences, e.MoreDifferences)
	return p.err
}

// conversation prints the numbers of a conversation and the events that they come from.
func (p *explanationPrinter) conversation(c replay.ExplainedConversation) {
	marked := ""
	if c.MarkedUnread {
		marked = ", marked unread"
	}
	room := ""
	if c.Members > 0 {
		room = ", a room of " + terminal.Counted(c.Members, "member")
	}
	p.line("\n%s adds %d: %d unread, %s%s; level %s, category %s%s", c.ConversationID, c.Adds, c.Unread,
		terminal.Counted(c.Mentions, "mention"), marked, levelOf(&c.Conversation), c.Category, room)
	if c.LevelOf != "" {
		p.line("  level %s of category %s applies, set by %s", c.Applies, c.LevelOf, eventName(p.levels[c.LevelOf]))
	}
	if c.LastRead != nil {
		p.line("  read up to %d by %s", c.LastRead.UpToSeq, eventName(c.LastRead.LoggedEvent))
	}
	if c.MarkedBy != nil {
		p.line("  marked unread by %s", eventName(*c.MarkedBy))
	}
	if c.LevelBy != nil {
		p.line("  level set by %s", eventName(*c.LevelBy))
	}
	if len(c.Messages) > 0 {
		rows := []string{"  SEQ\tMENTIONS\tAPPENDED\tPOSITION\tEVENT\tSOURCE"}
		for _, m := range c.Messages {
			mentions := ""
			if m.Mentioned {
				mentions = "yes"
			}
			rows = append(rows, fmt.Sprintf("  %d\t%s\t%s\t%s\t%s\t%s", m.Seq, mentions, formatTime(m.LoggedEvent), m.Position, m.ID, m.Source))
		}
		p.table(rows...)
	}
	if c.MoreMessages > 0 {
		p.line("  … and %s before", terminal.Counted(c.MoreMessages, "message"))
	}
}

// uncounted prints the events that changed no count, each with the reason.
func (p *explanationPrinter) uncounted(e replay.Explanation) {
	if len(e.Uncounted) == 0 {
		return
	}
	p.line("\nEvents that changed no count:")
	rows := []string{"  APPENDED\tPOSITION\tTYPE\tCONVERSATION\tSEQ\tEVENT\tSOURCE\tBECAUSE"}
	for _, u := range e.Uncounted {
		rows = append(rows, fmt.Sprintf("  %s\t%s\t%s\t%s\t%s\t%s\t%s\t%s",
			formatTime(u.LoggedEvent), u.Position, u.Type, u.ConversationID, seq(u.Seq), u.ID, u.Source, u.Detail))
	}
	p.table(rows...)
	if e.MoreUncounted == 0 {
		return
	}
	p.line("  … and %s more; in all", progress.Count(e.MoreUncounted))
	rows = rows[:0]
	for _, k := range e.UncountedKinds {
		rows = append(rows, fmt.Sprintf("  %s\t%s\t%s", progress.Count(k.Events), k.Type, k.Why))
	}
	p.table(rows...)
}

// differences prints the differences between the tables and the log.
func (p *explanationPrinter) differences(differences []replay.Difference, more int64) {
	if len(differences) == 0 {
		return
	}
	p.line("\nThe tables, and so the apps, differ from the log:")
	for _, d := range differences {
		p.line("  %s", d)
	}
	if more > 0 {
		p.line("  … and %s more", progress.Count(more))
	}
}

// damaged returns an error that names the first difference in a user's rows, and the command
// that corrects the differences. It returns nil if there are none.
func damaged(differences []replay.Difference, more int64) error {
	if len(differences) == 0 {
		return nil
	}
	whose := slices.IndexFunc(differences, func(d replay.Difference) bool { return d.UserID == "" })
	heal := fmt.Sprintf("--partition %d", differences[0].Partition) // if rows of a room differ, the partition must be rebuilt: healing a user does not correct these rows
	if whose < 0 {
		heal = "--user " + differences[0].UserID
	}
	return fmt.Errorf("the tables differ from the log in %s, such as %s: run `badged rebuild %s`",
		terminal.Counted(int64(len(differences))+more, "place"), differences[0], heal)
}

// history prints the total over time.
func (p *explanationPrinter) history(h *replay.History) {
	if h == nil {
		return
	}
	p.line("\nThe total over time, from %d:", h.Before)
	if h.LeftOut > 0 {
		p.line("  %s more steps are left out between these.", progress.Count(h.LeftOut))
	}
	rows := []string{"  TOTAL\tCHANGE\tAPPENDED\tPOSITION\tTYPE\tCONVERSATION\tSEQ\tEVENT\tSOURCE"}
	for _, s := range h.Steps {
		rows = append(rows, fmt.Sprintf("  %d\t%+d\t%s\t%s\t%s\t%s\t%s\t%s\t%s",
			s.Total, s.Change, formatTime(s.LoggedEvent), s.Position, s.Type, s.ConversationID, seq(s.Seq), s.ID, s.Source))
	}
	p.table(rows...)
}

// delivered prints the last messages that were delivered to the user. For each message it prints
// what became of it (its fate), such as read, and the event that caused this, if there is one.
func (p *explanationPrinter) delivered(d *replay.Delivered) {
	if d == nil {
		return
	}
	p.line("\nDelivered, newest first:")
	rows := []string{"  APPENDED\tPOSITION\tCONVERSATION\tSEQ\tEVENT\tFATE\tBY"}
	for _, m := range d.Messages {
		by := ""
		if m.By != nil {
			by = eventName(*m.By)
		}
		rows = append(rows, fmt.Sprintf("  %s\t%s\t%s\t%d\t%s\t%s\t%s",
			formatTime(m.LoggedEvent), m.Position, m.ConversationID, m.Seq, m.ID, m.Fate, by))
	}
	p.table(rows...)
	if d.More > 0 {
		p.line("  … and %s earlier: --before %s", progress.Count(d.More), d.Messages[len(d.Messages)-1].Position)
	}
}

// seq returns a seq as text, "" for 0.
func seq(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// eventName returns a phrase that identifies an event.
func eventName(e replay.LoggedEvent) string {
	return fmt.Sprintf("%s %s of %s, appended %s at %s", e.Type, e.ID, e.Source, formatTime(e), e.Position)
}

// formatTime returns the time at which an event was appended, as text. If the event was folded more
// than a second later, the text also has the time of the fold.
func formatTime(e replay.LoggedEvent) string {
	if e.FoldedAt.Sub(e.AppendedAt) <= time.Second {
		return stamp(e.AppendedAt)
	}
	return stamp(e.AppendedAt) + " (folded " + stamp(e.FoldedAt) + ")"
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
