package foldtest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/category"
)

// State is everything that a client can see of a user, except versions.
type State struct {
	category.Numbers
	Categories map[string]category.Numbers
	Levels     map[string]string

	Conversations []ConversationState
}

// ConversationState is everything that a client can see of a conversation.
type ConversationState struct {
	ID                                  string
	Unread, First, Mentions, Read, Last int64
	Unseen, UnseenMentions, Seen        int64
	Level                               events.Level
	Until                               time.Time
	Category                            string
	Marked, Left                        bool
}

// String returns the state as text, with a line for each conversation. It omits conversations that
// no event has changed.
func (s State) String() string {
	var lines []string
	for _, c := range s.Conversations {
		if c != (ConversationState{ID: c.ID, Level: events.LevelDefault, Category: "chat"}) {
			lines = append(lines, fmt.Sprintf("%s: %d unread from %d, %d mentions, read up to %d of %d, unseen %d with %d mentions above %d, level %s until %s, category %s, marked %v, left %v",
				c.ID, c.Unread, c.First, c.Mentions, c.Read, c.Last, c.Unseen, c.UnseenMentions, c.Seen, c.Level, c.Until.Format(time.TimeOnly), c.Category, c.Marked, c.Left))
		}
	}
	slices.Sort(lines)
	if len(s.Levels) == 0 {
		s.Levels = nil
	}
	return fmt.Sprintf("%+v, categories %+v, levels %v\n%s", s.Numbers, s.Categories, s.Levels, strings.Join(lines, "\n"))
}

// Story describes events in sentences, one per line.
func Story(evs []events.Event) string {
	var b strings.Builder
	for i := range evs {
		b.WriteString("  " + sentence(&evs[i]) + "\n")
	}
	return b.String()
}

// sentence describes an event.
func sentence(e *events.Event) string {
	d := e.Data
	who := strings.Join(d.UserIDs, " and ")
	var what string
	switch e.Type {
	case events.MessageDelivered, events.MessageChanged:
		what = fmt.Sprintf("%s get message %d of %s", who, d.Seq, d.ConversationID)
		if e.Type == events.MessageChanged {
			what = fmt.Sprintf("%s get a change of message %d of %s", who, d.Seq, d.ConversationID)
		}
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
		if len(d.Seqs) > 0 {
			what = fmt.Sprintf("%s mark messages %v of %s unread", who, d.Seqs, d.ConversationID)
		}
		if d.FromSeq > 0 {
			what += fmt.Sprintf(", of a room those from %d on", d.FromSeq)
		}
	case events.ConversationReset:
		what = fmt.Sprintf("%s is reset for %s to %d with %v unread", d.ConversationID, who, d.UpToSeq, d.Seqs)
	case events.ConversationLevelSet:
		what = fmt.Sprintf("%s set %s to %s", who, d.ConversationID, d.Level)
		if !d.Until.IsZero() {
			what += " until " + d.Until.Format(time.TimeOnly)
		}
	case events.ConversationLevelEnded:
		what = fmt.Sprintf("the level of %s ends for %s that was set until %s", d.ConversationID, who, d.Until.Format(time.TimeOnly))
	case events.ConversationLeft:
		what = fmt.Sprintf("%s leave %s", who, d.ConversationID)
		if d.UpToSeq > 0 {
			what += fmt.Sprintf(" up to %d", d.UpToSeq)
		}
	case events.RoomJoined:
		what = fmt.Sprintf("%s join room %s", who, d.ConversationID)
		if d.UpToSeq > 0 {
			what += fmt.Sprintf(", read up to %d", d.UpToSeq)
		}
		if d.Level != "" {
			what += ", with level " + string(d.Level)
		}
	case events.RoomLeft:
		what = fmt.Sprintf("%s leave room %s", who, d.ConversationID)
	case events.RoomPosted, events.RoomChanged:
		what = fmt.Sprintf("message %d of room %s", d.Seq, d.ConversationID)
		if e.Type == events.RoomChanged {
			what = fmt.Sprintf("a change of message %d of room %s", d.Seq, d.ConversationID)
		}
		if d.SenderID != "" {
			what += " from " + d.SenderID
		}
		if d.Category != "" {
			what += " in category " + d.Category
		}
		if len(d.MentionedUserIDs) > 0 {
			what += ", which mentions " + strings.Join(d.MentionedUserIDs, " and ")
		}
		if d.MentionsAll {
			what += ", which mentions all"
		}
	case events.RoomRecalled:
		what = fmt.Sprintf("message %d of room %s is recalled", d.Seq, d.ConversationID)
	case events.RoomReset:
		what = fmt.Sprintf("room %s ends at %d, and all have read at least up to %d", d.ConversationID, d.Seq, d.UpToSeq)
	case events.ConversationSeen:
		what = fmt.Sprintf("%s see %s up to %d", who, d.ConversationID, d.UpToSeq)
		if d.ByApp {
			what += ", says an app"
		}
	case events.UserReadAll:
		what = fmt.Sprintf("%s read all of category %q", who, d.Category)
	case events.UserSeenAll:
		what = fmt.Sprintf("%s see all of category %q", who, d.Category)
	case events.UserLeftAll:
		what = fmt.Sprintf("%s leave all of category %q", who, d.Category)
	case events.CategoryLevelSet:
		what = fmt.Sprintf("%s set category %q to %s", who, d.Category, d.Level)
	}
	if d.Revision > 0 {
		what += fmt.Sprintf(", with revision %d", d.Revision)
	}
	return fmt.Sprintf("%s at %s: %s", e.ID, e.AppendedAt.Format(time.TimeOnly), what)
}
