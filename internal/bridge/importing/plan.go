package importing

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/badges"
)

// Source is the CloudEvents source of the events that an import publishes.
const Source = "badged/import"

// change is a change of one conversation that an event makes for each of the event's users. All
// users who need the same change share one event, and the id of the event is derived from the
// change. So a change counts only once for each user, even if a second import groups the rows in
// another way.
type change struct {
	kind           events.Type
	conversationID string
	seq            int64 // the read position if the event is a read; 0 for a level
	category       string
	mentioned      bool
	level          events.Level
	// round is the number of earlier undos. It gives the events of an import after an undo new ids.
	round int64
	// since distinguishes changes that are otherwise equal, so that the same change can be
	// published again later with another event id. In a change of the level, `since` is the version
	// that the row in the tables has before the change. In a mark, it is the seq of the last
	// message.
	since int64
}

// id returns the id of the event for the change.
func (c *change) id() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d\x00%s\x00%t\x00%s\x00%d\x00%d",
		c.kind, c.conversationID, c.seq, c.category, c.mentioned, c.level, c.since, c.round))
	return string(c.kind) + "-" + hex.EncodeToString(sum[:16])
}

func (c *change) event(users []string) events.Event {
	e := events.Event{
		ID: c.id(), Source: Source, Type: c.kind,
		Data: events.Data{ConversationID: c.conversationID, UserIDs: users, Level: c.level},
	}
	switch c.kind {
	case events.ConversationRead:
		e.Data.UpToSeq = c.seq
	case events.MessageDelivered:
		e.Data.Seq, e.Data.Category = c.seq, c.category
		if c.mentioned {
			e.Data.MentionedUserIDs = users
		}
	case events.MessageRecalled:
		e.Data.Seq = c.seq
	}
	return e
}

// stages has the event types in the order of publishing. Levels and reads come before messages:
// otherwise messages that are read or muted would count for a short time. Marks come after reads,
// because a read clears a mark.
var stages = [...]events.Type{
	events.ConversationLevelSet, events.ConversationRead, events.MessageRecalled,
	events.MessageDelivered, events.ConversationMarkedUnread, events.ConversationReset,
}

// plan collects the changes of a chunk of rows, and the users who need each change.
type plan struct {
	round int64
	users map[change][]string
	order [len(stages)][]change
}

func newPlan(round int64) *plan { return &plan{round: round, users: map[change][]string{}} }

func (p *plan) add(stage int, c change, user string) {
	c.kind, c.round = stages[stage], p.round
	users, ok := p.users[c]
	if !ok {
		p.order[stage] = append(p.order[stage], c)
	}
	p.users[c] = append(users, user)
}

// row adds the changes that are needed so that the tables match a row. It adds no change if the
// conversation is a room of which the user is a member: the numbers of a member are computed from
// the room.
func (p *plan) row(r *Row, now *badges.Stored) {
	if now.Member {
		return
	}
	base := change{conversationID: r.ConversationID}
	if now.Level != string(r.Level) {
		c := base
		c.level, c.since = r.Level, now.Version
		p.add(0, c, r.UserID)
	}
	if r.ReadSeq > now.ReadSeq {
		c := base
		c.seq = r.ReadSeq
		p.add(1, c, r.UserID)
	}
	for _, seq := range r.Unread {
		mentioned := r.mentions(seq)
		if seq <= now.ReadSeq || now.IsUnread(seq) && (!mentioned || now.IsMention(seq)) && !r.renames(seq, now) {
			continue
		}
		p.deliver(r, seq, mentioned)
	}
	if !r.lastUnread() && (r.LastSeq > now.LastSeq || r.renames(r.LastSeq, now)) {
		if r.LastSeq > max(r.ReadSeq, now.ReadSeq, now.LastSeq) {
			// The message is above the read position but is not unread: the user sent it, or it was
			// deleted.
			c := base
			c.seq = r.LastSeq
			p.add(2, c, r.UserID)
		}
		p.deliver(r, r.LastSeq, false)
	}
	if r.MarkedUnread && r.ReadSeq >= now.ReadSeq && (!now.MarkedUnread || r.ReadSeq > now.ReadSeq) {
		c := base
		c.seq, c.since = r.ReadSeq, r.LastSeq
		p.add(4, c, r.UserID)
	}
}

// deliver adds the delivery of a message.
func (p *plan) deliver(r *Row, seq int64, mentioned bool) {
	p.add(3, change{conversationID: r.ConversationID, seq: seq, category: r.Category, mentioned: mentioned}, r.UserID)
}

// renames reports whether another delivery of a message would correct the category of the
// conversation: the message is the last one of the row and of the tables, and the category of the
// row differs from the category in the tables.
func (r *Row) renames(seq int64, now *badges.Stored) bool {
	return seq == r.LastSeq && seq > 0 && seq == now.LastSeq && r.Category != now.Category
}

// events returns an event for each planned change, in the order of stages.
func (p *plan) events() []events.Event {
	evs := make([]events.Event, 0, len(p.users))
	for _, changes := range p.order {
		for i := range changes {
			evs = append(evs, changes[i].event(p.users[changes[i]]))
		}
	}
	return evs
}

// Difference is a difference between a field of a row and the tables.
type Difference struct {
	File           string `json:"file"`
	Line           int    `json:"line"`
	UserID         string `json:"user_id"`
	ConversationID string `json:"conversation_id"`
	// Field is the name of a field of a row, or one of these names: "unread" and "mentions" for
	// numbers of messages; "first_unread_seq"; "room" if the user is a member of a room; "events"
	// if events of other sources prevent an undo.
	Field string `json:"field"`
	// Want is the value in the file. Have is the value in the tables.
	Want string `json:"file_value"`
	Have string `json:"badged_value"`
}

// eventsField is the Field if events that no import published prevent an undo.
const eventsField = "events"

// String describes d in one line.
func (d Difference) String() string {
	if d.Field == eventsField {
		return fmt.Sprintf("%s:%d: user %q, conversation %q: the log has events for them that no import published; publish a conversation.reset instead",
			d.File, d.Line, d.UserID, d.ConversationID)
	}
	return fmt.Sprintf("%s:%d: user %q, conversation %q: %s is %s in the file, %s in badged",
		d.File, d.Line, d.UserID, d.ConversationID, d.Field, d.Want, d.Have)
}

// differences returns the differences between a row and the tables.
func (r *Row) differences(file string, now *badges.Stored) (all []Difference) {
	differ := func(field, want, have string) {
		if want != have {
			all = append(all, Difference{file, r.Line, r.UserID, r.ConversationID, field, want, have})
		}
	}
	number := func(field string, want, have int64) {
		differ(field, strconv.FormatInt(want, 10), strconv.FormatInt(have, 10))
	}
	if now.Member {
		differ("room", "no", "the user is a member")
		return all
	}
	first := int64(0)
	if len(r.Unread) > 0 {
		first = r.Unread[0]
	}
	number("last_seq", r.LastSeq, now.LastSeq)
	number("read_seq", r.ReadSeq, now.ReadSeq)
	number("unread", int64(len(r.Unread)), now.Unread)
	number("mentions", int64(len(r.Mentions)), now.Mentions)
	number("first_unread_seq", first, now.FirstUnreadSeq)
	differ("level", string(r.Level), now.Level)
	differ("marked_unread", strconv.FormatBool(r.MarkedUnread), strconv.FormatBool(now.MarkedUnread))
	if r.LastSeq > 0 { // a conversation without messages has no category
		differ("category", r.Category, now.Category)
	}
	if len(all) > 0 {
		return all
	}
	for _, seq := range r.Unread {
		if !now.IsUnread(seq) {
			differ("unread_seqs", strconv.FormatInt(seq, 10)+" is unread", "not")
			break
		}
	}
	for _, seq := range r.Mentions {
		if !now.IsMention(seq) {
			differ("mentions_seqs", strconv.FormatInt(seq, 10)+" mentions the user", "not")
			break
		}
	}
	return all
}
