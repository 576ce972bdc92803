package traffic

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/badged/badged/internal/base/progress"
)

// Summary says what a load has published, and sums the badges after it.
type Summary struct {
	// File is the path of the file, "standard input" or "generated rooms".
	File string `json:"file"`

	// Numbers of events that the target accepted: all events of the file if Load succeeded.
	// Events counts events of all types, Messages counts deliveries and messages to rooms, and
	// Reads counts reads.
	Events   int64 `json:"events"`
	Messages int64 `json:"messages"`
	Reads    int64 `json:"reads"`

	// PublishSeconds is the time until the last event was durable, FoldSeconds the time until
	// the last event was folded; both from the start. 0 means that the load failed before.
	PublishSeconds float64 `json:"publish_seconds"`
	FoldSeconds    float64 `json:"fold_seconds"`
	// PublishedPerSecond and FoldedPerSecond are Events divided by PublishSeconds and
	// FoldSeconds.
	PublishedPerSecond float64 `json:"published_per_second"`
	FoldedPerSecond    float64 `json:"folded_per_second"`

	// Users is the number of users in the events, including senders. The other fields are sums
	// of the badges of these users, which include earlier traffic. All are 0 if the load did
	// not complete.
	Users           int64 `json:"users"`
	UsersWithUnread int64 `json:"users_with_unread"`
	TotalUnread     int64 `json:"total_unread"`
	Mentions        int64 `json:"mentions"`
}

// Print writes s as text.
func (s Summary) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { // tabwriter keeps errors for Flush
		_, _ = fmt.Fprintf(t, name+"\t"+format+"\n", args...)
	}
	row("file", "%s", s.File)
	row("messages", "%s", progress.Count(s.Messages))
	row("reads", "%s", progress.Count(s.Reads))
	row("events", "%s", progress.Count(s.Events))
	if s.PublishSeconds > 0 {
		row("published", "in %s, %s events/s", formatSeconds(s.PublishSeconds), progress.Count(int64(s.PublishedPerSecond)))
	}
	if s.FoldSeconds > 0 {
		row("folded", "in %s, %s events/s", formatSeconds(s.FoldSeconds), progress.Count(int64(s.FoldedPerSecond)))
		row("users", "%s, %s with unread", progress.Count(s.Users), progress.Count(s.UsersWithUnread))
		row("unread", "%s", progress.Count(s.TotalUnread))
		if s.Mentions > 0 {
			row("mentions", "%s", progress.Count(s.Mentions))
		}
	}
	return t.Flush()
}

// perSecond returns n over d, or 0 if no time has passed.
func perSecond(n int64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

func formatSeconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond).String()
}
