package foldtest

import (
	"slices"
	"time"

	"github.com/badged/badged/events"
)

// Model is the fold, too simple to be wrong: it keeps every event and goes
// through all of them when it is asked about a user. It has plain sets, and no
// ranges, batches, versions or running sums.
type Model struct {
	Events []events.Event
	// Generations are the generations of keys of the events. If it is nil, all
	// events are of one.
	Generations []int
}

// Conversation is a conversation of a user as the model sees it.
type Conversation struct {
	Unread, Mentions map[int64]bool
	Marked           bool
	recalled         map[int64]bool
	read, last       int64
	// leftAt is the seq up to which messages do not bring the conversation back,
	// or -1.
	leftAt   int64
	level    events.Level
	category string
}

// left reports whether the user has left.
func (c *Conversation) left() bool { return c.last <= c.leftAt }

// showsLeft reports whether a client knows a conversation that the user left.
func (c *Conversation) showsLeft() bool {
	return c.left() && (c.last > 0 || c.read > 0 || c.level != events.LevelAll)
}

// appRead is a read by an app, which covers messages for a minute.
type appRead struct {
	conversation string
	upTo         int64
	at           time.Time
}

// FoldedFor returns the events that are folded for a user: those that name the
// user, and of several with one name only the first, until it is forgotten.
func (m *Model) FoldedFor(user string) (evs []events.Event) {
	folded := map[[2]string]int{} // in which generation
	for i, e := range m.Events {
		generation := 0
		if m.Generations != nil {
			generation = m.Generations[i]
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

// Conversations works out the conversations of a user.
func (m *Model) Conversations(user string) map[string]*Conversation {
	all := map[string]*Conversation{}
	get := func(id string) *Conversation {
		if all[id] == nil {
			all[id] = &Conversation{
				Unread: map[int64]bool{}, Mentions: map[int64]bool{}, recalled: map[int64]bool{},
				level: events.LevelAll, category: "chat", leftAt: -1,
			}
		}
		return all[id]
	}
	var reads []appRead
	// forget drops the reads that are more than a minute old.
	forget := func(at time.Time) {
		reads = slices.DeleteFunc(reads, func(r appRead) bool { return at.Sub(r.at) > time.Minute })
	}
	for _, e := range m.FoldedFor(user) {
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
			forget(e.AppendedAt)
			c.readUpTo(min(d.Seq, c.leftAt))
			for _, r := range reads {
				if r.conversation == d.ConversationID {
					c.readUpTo(min(r.upTo, d.Seq))
				}
			}
			if d.Seq > c.read && !c.recalled[d.Seq] {
				c.Unread[d.Seq] = true
				if slices.Contains(d.MentionedUserIDs, user) {
					c.Mentions[d.Seq] = true
				}
			}
		case events.ConversationRead, events.ConversationExpired:
			c, upTo := get(d.ConversationID), d.UpToSeq
			if upTo >= c.read {
				c.Marked = false
			}
			if d.ByApp {
				forget(e.AppendedAt)
				reads = append(reads, appRead{d.ConversationID, upTo, e.AppendedAt})
			}
			if d.ByApp || e.Type == events.ConversationExpired {
				upTo = min(upTo, c.last)
			}
			c.readUpTo(upTo)
		case events.MessageRecalled:
			c := get(d.ConversationID)
			c.recalled[d.Seq] = true
			delete(c.Unread, d.Seq)
			delete(c.Mentions, d.Seq)
		case events.ConversationMarkedUnread:
			if c := get(d.ConversationID); !c.left() {
				c.Marked = true
			}
		case events.ConversationLevelSet:
			get(d.ConversationID).level = d.Level
		case events.ConversationLeft:
			c := get(d.ConversationID)
			c.leftAt = max(c.leftAt, c.last, d.UpToSeq)
			c.readUpTo(c.last)
			c.Marked = false
		case events.UserReadAll:
			for _, c := range all {
				if d.Category == "" || d.Category == c.category {
					c.readUpTo(c.last)
					c.Marked = false
				}
			}
		}
	}
	return all
}

func (c *Conversation) readUpTo(seq int64) {
	c.read = max(c.read, seq)
	for s := range c.Unread {
		if s <= seq {
			delete(c.Unread, s)
			delete(c.Mentions, s)
		}
	}
}

// Adds returns what the conversation adds to the total.
func (c *Conversation) Adds() int64 {
	switch {
	case c.left() || c.level == events.LevelNone:
		return 0
	case c.level == events.LevelMentions:
		return int64(len(c.Mentions))
	case c.Marked && len(c.Unread) == 0:
		return 1
	}
	return int64(len(c.Unread))
}

// Describe returns the state of a user as text.
func (m *Model) Describe(user string) string {
	s := State{Categories: map[string]int64{}}
	for id, c := range m.Conversations(user) {
		s.Total += c.Adds()
		if n := c.Adds(); n > 0 {
			s.Categories[c.category] += n
		}
		if c.level != events.LevelNone {
			s.Mentions += int64(len(c.Mentions))
		}
		first := int64(0)
		for seq := range c.Unread {
			if first == 0 || seq < first {
				first = seq
			}
		}
		s.Conversations = append(s.Conversations, ConversationState{
			ID: id, Unread: int64(len(c.Unread)), First: first, Mentions: int64(len(c.Mentions)), Read: c.read, Last: c.last,
			Level: c.level, Category: c.category, Marked: c.Marked, Left: c.showsLeft(),
		})
	}
	return s.String()
}
