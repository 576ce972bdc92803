package traffic

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/badged/badged/internal/base/progress"
)

// Summary says what a load has published, and has the sums of the badges after the load.
type Summary struct {
	// File is the path of the file, "standard input" or "generated rooms".
	File string `json:"file"`

	// Events, Messages and Reads count events that the target has accepted; if Load succeeded,
	// these are all events. Events counts events of all types, Messages counts deliveries and
	// messages to rooms, and Reads counts reads.
	Events   int64 `json:"events"`
	Messages int64 `json:"messages"`
	Reads    int64 `json:"reads"`

	// PublishSeconds is the time from the start until the last event was durable. FoldSeconds is
	// the time from the start until the last event was folded. 0 means that the load failed
	// earlier.
	PublishSeconds float64 `json:"publish_seconds"`
	FoldSeconds    float64 `json:"fold_seconds"`
	// PublishedPerSecond and FoldedPerSecond are Events divided by PublishSeconds and
	// FoldSeconds.
	PublishedPerSecond float64 `json:"published_per_second"`
	FoldedPerSecond    float64 `json:"folded_per_second"`

	// Users is the number of users in the events, including senders. The other fields are sums over
	// the badges of these users; the badges also include earlier traffic. All four are 0 if the
	// load failed.
	Users           int64 `json:"users"`
	UsersWithUnread int64 `json:"users_with_unread"`
	TotalUnread     int64 `json:"total_unread"`
	Mentions        int64 `json:"mentions"`
}

// Print writes s as text.
func (s Summary) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { // ignore errors of writing: Flush of the tabwriter returns them again
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

// perSecond returns n divided by d in seconds, or 0 if d is 0.
func perSecond(n int64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

func formatSeconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond).String()
}
