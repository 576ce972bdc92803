package projector

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/internal/badge"
	"github.com/badged/badged/projector/internal/store"
)

// model is the fold, too simple to be wrong: it keeps every event and, asked
// for a user, goes through all of them with plain sets. Ranges, batches,
// versions and sums that are carried along are what it does without.
type model struct {
	events []events.Event
	// generations are those of the events; where there are none, all events
	// are of one.
	generations []int
}

// modelConversation is a conversation as the model sees it.
type modelConversation struct {
	unread, mentions map[int64]bool
	recalled         map[int64]bool
	read, last       int64
	// leftAt is up to where messages do not bring it back, or never.
	leftAt   int64
	marked   bool
	level    events.Level
	category string
}

// left reports whether the user is out.
func (c *modelConversation) left() bool { return c.last <= c.leftAt }

// ShowsLeft reports whether a client knows a conversation that the user left.
func (c *modelConversation) showsLeft() bool {
	return c.left() && (c.last > 0 || c.read > 0 || c.level != events.LevelAll)
}

// modelRead is a read by an app, which reaches a minute ahead.
type modelRead struct {
	conversation string
	upTo         int64
	at           time.Time
}

// foldedFor returns the events that are folded for a user: those that name it,
// but of those of one name only the first, until that is forgotten.
func (m *model) foldedFor(user string) (evs []events.Event) {
	folded := map[[2]string]int{} // in which generation
	for i, e := range m.events {
		generation := 0
		if m.generations != nil {
			generation = m.generations[i]
		}
		if !slices.Contains(e.Data.UserIDs, user) {
			continue
		}
		key := [2]string{e.Source, e.ID}
		if last, ok := folded[key]; ok && generation <= last+2 {
			continue
		}
		folded[key] = generation
		evs = append(evs, e)
	}
	return evs
}

// conversations works out the conversations of a user.
func (m *model) conversations(user string) map[string]*modelConversation {
	all := map[string]*modelConversation{}
	get := func(id string) *modelConversation {
		if all[id] == nil {
			all[id] = &modelConversation{
				unread: map[int64]bool{}, mentions: map[int64]bool{}, recalled: map[int64]bool{},
				level: events.LevelAll, category: "chat", leftAt: badge.Never,
			}
		}
		return all[id]
	}
	var reads []modelRead
	// since drops the reads that a minute had passed since.
	since := func(at time.Time) {
		reads = slices.DeleteFunc(reads, func(r modelRead) bool { return at.Sub(r.at) > time.Minute })
	}
	for _, e := range m.foldedFor(user) {
		d := e.Data
		switch e.Type {
		case events.MessageDelivered:
			if d.SenderID == user {
				continue
			}
			c := get(d.ConversationID)
			category := d.Category
			if category == "" {
				category = "chat"
			}
			if d.Seq > c.last {
				c.last, c.category = d.Seq, category
			} else if d.Seq == c.last && category > c.category {
				c.category = category
			}
			since(e.AppendedAt)
			c.readUpTo(min(d.Seq, c.leftAt))
			for _, r := range reads {
				if r.conversation == d.ConversationID {
					c.readUpTo(min(r.upTo, d.Seq))
				}
			}
			if d.Seq > c.read && !c.recalled[d.Seq] {
				c.unread[d.Seq] = true
				if slices.Contains(d.MentionedUserIDs, user) {
					c.mentions[d.Seq] = true
				}
			}
		case events.ConversationRead, events.ConversationExpired:
			c, upTo := get(d.ConversationID), d.UpToSeq
			if upTo >= c.read {
				c.marked = false
			}
			if d.ByApp {
				since(e.AppendedAt)
				reads = append(reads, modelRead{d.ConversationID, upTo, e.AppendedAt})
			}
			if d.ByApp || e.Type == events.ConversationExpired {
				upTo = min(upTo, c.last)
			}
			c.readUpTo(upTo)
		case events.MessageRecalled:
			c := get(d.ConversationID)
			c.recalled[d.Seq] = true
			delete(c.unread, d.Seq)
			delete(c.mentions, d.Seq)
		case events.ConversationMarkedUnread:
			if c := get(d.ConversationID); !c.left() {
				c.marked = true
			}
		case events.ConversationLevelSet:
			get(d.ConversationID).level = d.Level
		case events.ConversationLeft:
			c := get(d.ConversationID)
			c.leftAt = max(c.leftAt, c.last, d.UpToSeq)
			c.readUpTo(c.last)
			c.marked = false
		case events.UserReadAll:
			for _, c := range all {
				if d.Category == "" || d.Category == c.category {
					c.readUpTo(c.last)
					c.marked = false
				}
			}
		}
	}
	return all
}

func (c *modelConversation) readUpTo(seq int64) {
	c.read = max(c.read, seq)
	for s := range c.unread {
		if s <= seq {
			delete(c.unread, s)
			delete(c.mentions, s)
		}
	}
}

// adds is what the conversation adds to the total.
func (c *modelConversation) adds() int {
	switch {
	case c.left() || c.level == events.LevelNone:
		return 0
	case c.level == events.LevelMentions:
		return len(c.mentions)
	case c.marked && len(c.unread) == 0:
		return 1
	}
	return len(c.unread)
}

// describe says everything that a client can see of a user, but versions.
func (m *model) describe(user string) string {
	var lines []string
	total, mentions := 0, 0
	categories := map[string]int{}
	for id, c := range m.conversations(user) {
		total += c.adds()
		if n := c.adds(); n > 0 {
			categories[c.category] += n
		}
		if c.level != events.LevelNone {
			mentions += len(c.mentions)
		}
		first := int64(0)
		for s := range c.unread {
			if first == 0 || s < first {
				first = s
			}
		}
		lines = append(lines, conversationLine(id, len(c.unread), len(c.mentions), first, c.read, c.last, c.level, c.category, c.marked, c.showsLeft()))
	}
	return describe(total, mentions, fmt.Sprint(categories), lines)
}

// describeUser says the same of folded state.
func describeUser(u *badge.User) string {
	var lines []string
	for _, c := range u.Conversations {
		v := c.View()
		lines = append(lines, conversationLine(c.ID, int(v.Unread), int(v.Mentions), v.FirstUnread,
			v.ReadSeq, v.LastSeq, v.Level, v.Category, v.Marked, v.Left))
	}
	return describe(int(u.Total), int(u.Mentions), fmt.Sprint(u.Categories.ByName()), lines)
}

func describe(total, mentions int, categories string, lines []string) string {
	// A conversation that was looked at, but to which nothing ever happened,
	// is as good as none.
	untouched := func(l string) bool {
		return strings.HasSuffix(l, conversationLine("", 0, 0, 0, 0, 0, events.LevelAll, "chat", false, false))
	}
	lines = slices.DeleteFunc(lines, untouched)
	slices.Sort(lines)
	return fmt.Sprintf("total %d, mentions %d, categories %s\n%s", total, mentions, categories, strings.Join(lines, "\n"))
}

func conversationLine(id string, unread, mentions int, first, read, last int64, level events.Level, category string, marked, left bool) string {
	return fmt.Sprintf("%s: %d unread from %d, %d mentions, read up to %d of %d, level %s, category %s, marked %v, left %v",
		id, unread, first, mentions, read, last, level, category, marked, left)
}

// tell tells an event as a sentence.
func tell(e *events.Event) string {
	d := e.Data
	who := strings.Join(d.UserIDs, " and ")
	var what string
	switch e.Type {
	case events.MessageDelivered:
		what = fmt.Sprintf("%s get message %d of %s", who, d.Seq, d.ConversationID)
		if d.SenderID != "" {
			what += " from " + d.SenderID
		}
		if d.Category != "" {
			what += " in category " + d.Category
		}
		if len(d.MentionedUserIDs) > 0 {
			what += ", which mentions " + strings.Join(d.MentionedUserIDs, " and ")
		}
	case events.ConversationRead:
		what = fmt.Sprintf("%s read %s up to %d", who, d.ConversationID, d.UpToSeq)
		if d.ByApp {
			what += ", says an app"
		}
	case events.ConversationExpired:
		what = fmt.Sprintf("%s expires for %s up to %d", d.ConversationID, who, d.UpToSeq)
	case events.MessageRecalled:
		what = fmt.Sprintf("message %d of %s is recalled for %s", d.Seq, d.ConversationID, who)
	case events.ConversationMarkedUnread:
		what = fmt.Sprintf("%s mark %s unread", who, d.ConversationID)
	case events.ConversationLevelSet:
		what = fmt.Sprintf("%s set %s to %s", who, d.ConversationID, d.Level)
	case events.ConversationLeft:
		what = fmt.Sprintf("%s leave %s", who, d.ConversationID)
		if d.UpToSeq > 0 {
			what += fmt.Sprintf(" up to %d", d.UpToSeq)
		}
	case events.UserReadAll:
		what = fmt.Sprintf("%s read all of category %q", who, d.Category)
	}
	return fmt.Sprintf("%s at %s: %s", e.ID, e.AppendedAt.Format(time.TimeOnly), what)
}

// story tells events one a line.
func story(evs []events.Event) string {
	var b strings.Builder
	for i := range evs {
		b.WriteString("  " + tell(&evs[i]) + "\n")
	}
	return b.String()
}

var (
	commuting = []events.Type{events.MessageDelivered, events.MessageDelivered, events.ConversationRead, events.MessageRecalled}
	every     = append([]events.Type{
		events.ConversationMarkedUnread, events.ConversationLevelSet, events.ConversationLeft,
		events.UserReadAll, events.ConversationExpired,
	}, commuting...)
)

// drawHistory draws a history among few users, conversations and messages, so
// that everything that can meet does. Some events come more than once under
// one name, of which some name other users then or say something else, and some
// come again under another name.
func drawHistory(t *rapid.T, types []events.Type, users []string) []events.Event {
	n := rapid.IntRange(1, 40).Draw(t, "number of events")
	history := make([]events.Event, 0, n)
	for i := range n {
		if i > 0 && rapid.IntRange(0, 9).Draw(t, "again") == 0 {
			e := history[rapid.IntRange(0, i-1).Draw(t, "which")]
			how := []string{"the same", "for others", "another name"}
			if len(types) == len(every) { // of two events of one name the first counts
				how = append(how, "another event")
			}
			switch rapid.SampledFrom(how).Draw(t, "how") {
			case "for others":
				// The first attempt says whom the message mentions: a later one may
				// have lost a mention with the user.
				e = history[slices.IndexFunc(history, func(first events.Event) bool { return first.ID == e.ID })]
				e.Data.UserIDs = drawUsers(t, users)
				e.Data.MentionedUserIDs = slices.DeleteFunc(slices.Clone(e.Data.MentionedUserIDs), func(u string) bool {
					return !slices.Contains(e.Data.UserIDs, u)
				})
			case "another event":
				e = drawEvent(t, e.ID, rapid.SampledFrom(types).Draw(t, "type"), users)
			case "another name":
				e.ID = fmt.Sprintf("e%d", i)
			}
			history = append(history, e)
			continue
		}
		history = append(history, drawEvent(t, fmt.Sprintf("e%d", i), rapid.SampledFrom(types).Draw(t, "type"), users))
	}
	return history
}

// drawTimes draws when the log took each event of a history: now and then, and
// not always in order.
func drawTimes(t *rapid.T, history []events.Event) []events.Event {
	at := noon
	for i := range history {
		at = at.Add(rapid.SampledFrom([]time.Duration{0, time.Microsecond, 20 * time.Second, time.Minute, -30 * time.Second}).Draw(t, "after"))
		history[i].AppendedAt = at
	}
	return history
}

// drawGenerations draws in which generation each of n events is, and where the
// generations begin: event i is at offset i+1.
func drawGenerations(t *rapid.T, n int) (of []int, begin []store.Generation) {
	number := 1
	begin = []store.Generation{{Number: number}}
	for i := range n {
		if rapid.IntRange(0, 4).Draw(t, "rotate") == 0 {
			number++
			begin = append(begin, store.Generation{Number: number, After: events.Position{Offset: int64(i)}})
		}
		of = append(of, number)
	}
	return of, begin
}

func drawUsers(t *rapid.T, users []string) []string {
	return rapid.SliceOfNDistinct(rapid.SampledFrom(users), 1, len(users), rapid.ID).Draw(t, "users")
}

func drawEvent(t *rapid.T, id string, typ events.Type, users []string) events.Event {
	e := events.Event{ID: id, Source: "test", Type: typ}
	d := &e.Data
	d.UserIDs = drawUsers(t, users)
	conversations := rapid.SampledFrom([]string{"c1", "c2"})
	seqs := rapid.Int64Range(1, 8)
	if typ != events.UserReadAll {
		d.ConversationID = conversations.Draw(t, "conversation")
	}
	switch typ {
	case events.MessageDelivered:
		d.Seq = seqs.Draw(t, "seq")
		d.SenderID = rapid.SampledFrom(append([]string{""}, users...)).Draw(t, "sender")
		d.Category = rapid.SampledFrom([]string{"", "", "likes", "system"}).Draw(t, "category")
		d.MentionedUserIDs = rapid.SliceOfNDistinct(rapid.SampledFrom(d.UserIDs), 0, len(d.UserIDs), rapid.ID).Draw(t, "mentioned")
	case events.MessageRecalled:
		d.Seq = seqs.Draw(t, "seq")
	case events.ConversationRead:
		d.UpToSeq = seqs.Draw(t, "up to")
		d.ByApp = rapid.Bool().Draw(t, "by an app")
	case events.ConversationExpired:
		d.UpToSeq = seqs.Draw(t, "up to")
	case events.ConversationLeft:
		if rapid.Bool().Draw(t, "ahead") {
			d.UpToSeq = seqs.Draw(t, "up to")
		}
	case events.ConversationLevelSet:
		d.Level = rapid.SampledFrom([]events.Level{events.LevelAll, events.LevelMentions, events.LevelNone}).Draw(t, "level")
	case events.UserReadAll:
		d.Category = rapid.SampledFrom([]string{"", "chat", "likes"}).Draw(t, "category")
	}
	if err := e.Validate(); err != nil {
		t.Fatalf("drew an event that is invalid: %v", err)
	}
	return e
}
