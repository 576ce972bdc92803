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
	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/internal/progress"
	"github.com/badged/badged/projector"
)

// userExplainCmd is `badged user explain`.
type userExplainCmd struct {
	config.Database `embed:""`
	User            string    `arg:"" help:"Id of the user."`
	At              time.Time `help:"Explain the badge as of when the log had what was appended until then, such as 2026-01-31T23:59:59Z." placeholder:"TIME" env:"-"`
	archived        `embed:""`
	JSON            bool `name:"json" help:"Print JSON." env:"-"`
}

// Run prints why the badge of a user is what it is. It fails where the tables
// are not what the log says.
func (c *userExplainCmd) Run(ctx context.Context, streams Streams) error {
	if reason := events.CheckID(c.User); reason != "" {
		return fmt.Errorf("user id %s", reason)
	}
	pool, log, err := openDatabase(ctx, c.Database)
	if err != nil {
		return err
	}
	defer pool.Close()
	archive, err := c.open()
	if err != nil {
		return err
	}
	e, err := projector.NewExplainer(pool, log).From(archive).Explain(ctx, c.User, c.At)
	if err != nil {
		return err
	}
	if c.JSON {
		err = printJSON(streams.Out, e)
	} else {
		err = printExplanation(streams.Out, e)
	}
	if err == nil && !e.Agrees {
		t := e.Table
		err = fmt.Errorf("the tables are not what the log says, but total %d, mentions %d, version %d: run `badged verify --user %s`",
			t.Total, t.Mentions, t.Version, c.User)
	}
	return err
}

// explanationPrinter prints an explanation and keeps the first error.
type explanationPrinter struct {
	w   io.Writer
	err error
}

func (p *explanationPrinter) line(format string, args ...any) {
	_, err := fmt.Fprintf(p.w, format+"\n", args...)
	p.err = errors.Join(p.err, err)
}

// table prints rows, of which the cells are set apart by tabs.
func (p *explanationPrinter) table(rows ...string) {
	t := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(t, r)
	}
	p.err = errors.Join(p.err, t.Flush())
}

func printExplanation(w io.Writer, e projector.Explanation) error {
	p := &explanationPrinter{w: w}
	rows := []string{
		"user\t" + e.UserID,
		fmt.Sprintf("total\t%d", e.Total),
		fmt.Sprintf("mentions\t%d", e.Mentions),
	}
	for _, category := range slices.Sorted(maps.Keys(e.Categories)) {
		rows = append(rows, fmt.Sprintf("  %s\t%d", category, e.Categories[category]))
	}
	rows = append(rows, fmt.Sprintf("version\t%d", e.Version))
	if e.At != nil {
		rows = append(rows, "as of\t"+stamp(*e.At))
	}
	p.table(append(rows, fmt.Sprintf("log\tpartition %d up to %s", e.Partition, e.Position))...)
	if e.ArchivedUntil != nil {
		p.line("\nWhat was appended until %s is archived: it is counted, and only --archive DIR can name it.", stamp(*e.ArchivedUntil))
	}
	if len(e.Conversations) == 0 {
		p.line("\nNothing is unread.")
	}
	for _, c := range e.Conversations {
		p.conversation(c)
	}
	if e.MoreConversations > 0 {
		p.line("\n… and %s more, which add %d", counted(int64(e.MoreConversations), "conversation"), e.MoreAdds)
	}
	p.uncounted(e)
	return p.err
}

// conversation prints what a conversation adds, and why.
func (p *explanationPrinter) conversation(c projector.ExplainedConversation) {
	marked := ""
	if c.MarkedUnread {
		marked = ", marked unread"
	}
	p.line("\n%s adds %d: %d unread, %s%s; level %s, category %s", c.ConversationID, c.Adds, c.Unread,
		counted(c.Mentions, "mention"), marked, c.Level, c.Category)
	if c.LastRead != nil {
		p.line("  read up to %d by %s", c.LastRead.UpToSeq, told(c.LastRead.LoggedEvent))
	}
	if c.MarkedBy != nil {
		p.line("  marked unread by %s", told(*c.MarkedBy))
	}
	if c.LevelBy != nil {
		p.line("  level set by %s", told(*c.LevelBy))
	}
	if len(c.Messages) > 0 {
		rows := []string{"  SEQ\tMENTIONS\tAPPENDED\tPOSITION\tEVENT\tSOURCE"}
		for _, m := range c.Messages {
			mentions := ""
			if m.Mentioned {
				mentions = "yes"
			}
			rows = append(rows, fmt.Sprintf("  %d\t%s\t%s\t%s\t%s\t%s", m.Seq, mentions, stamp(m.AppendedAt), m.Position, m.ID, m.Source))
		}
		p.table(rows...)
	}
	if c.MoreMessages > 0 {
		p.line("  … and %s before", counted(c.MoreMessages, "message"))
	}
}

// uncounted prints the events that changed nothing.
func (p *explanationPrinter) uncounted(e projector.Explanation) {
	if len(e.Uncounted) == 0 {
		return
	}
	p.line("\nChanged nothing that is counted:")
	rows := []string{"  APPENDED\tPOSITION\tTYPE\tCONVERSATION\tSEQ\tEVENT\tSOURCE\tBECAUSE"}
	for _, u := range e.Uncounted {
		seq := ""
		if u.Seq > 0 {
			seq = fmt.Sprint(u.Seq)
		}
		rows = append(rows, fmt.Sprintf("  %s\t%s\t%s\t%s\t%s\t%s\t%s\t%s",
			stamp(u.AppendedAt), u.Position, u.Type, u.ConversationID, seq, u.ID, u.Source, u.Detail))
	}
	p.table(rows...)
	if e.MoreUncounted > 0 {
		p.line("  … and %s events before", progress.Count(e.MoreUncounted))
	}
}

// told names an event within a sentence.
func told(e projector.LoggedEvent) string {
	return fmt.Sprintf("%s %s of %s, appended %s at %s", e.Type, e.ID, e.Source, stamp(e.AppendedAt), e.Position)
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
