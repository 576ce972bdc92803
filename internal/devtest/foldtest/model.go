package foldtest

import (
	"maps"
	"slices"
	"time"

	"github.com/badged/badged/events"
)

// Model is an implementation of the fold that is too simple to be wrong. It stores all events, and
// goes through all of them whenever it is asked about a user. It uses plain sets, and no ranges,
// chunks, batches, versions or running sums.
type Model struct {
	Events []events.Event
	// Generations has the generation of each event's key, by the index of the event. If it is nil,
	// all keys are in the same generation.
	Generations []int
}

// Conversation is a user's state of a conversation.
type Conversation struct {
	Unread, Mentions map[int64]bool
	Marked           bool
	// Again has the messages at or below read that were marked as unread.
	Again    map[int64]bool
	recalled map[int64]bool
	// revisions has the messages that were changed, with the greatest revision, 0 if they had none.
	revisions  map[int64]int64
	read, last int64
	// seen is the greatest seq that the user has seen without reading.
	seen int64
	// leftAt is set when the user leaves: only messages above it bring the conversation back. -1
	// means that the user has not left.
	leftAt int64
	// known is true once a client may have been told about the conversation.
	known bool
	level events.Level
	// until is when level ends, and after is the level that then applies; until is zero if level
	// does not end.
	until    time.Time
	after    events.Level
	category string
	// room is set while the user is a member of the room. own has the messages that the user has
	// sent as a member. named has the messages that mention the user by name.
	room       *room
	own, named map[int64]bool
	// sent and remembered are like own and named, but also cover messages that were already read. A
	// mark needs them. A recall ends what is remembered of an unread message.
	sent, remembered map[int64]bool
	// joinedAt is the read position at the time of joining, or a lower position to which the member
	// was reset later: the senders of messages up to joinedAt are unknown. from, unless 0, is a
	// mark: messages from this seq on count again.
	joinedAt, from int64
}

// room is the state of a room.
type room struct {
	posted, all, recalled map[int64]bool
	last                  int64
	category              string
	members               int
	resets                [][2]string // the last 16, as rooms remember them
	revisions             map[int64]int64
}

// left reports whether the user has left the conversation and no later message has brought it back.
func (c *Conversation) left() bool { return c.room == nil && c.last <= c.leftAt }

// showsLeft reports whether the user has left the conversation and a client may know of it.
func (c *Conversation) showsLeft() bool { return c.left() && c.known }

// appRead is a read by an app. For a minute it also applies to messages that are delivered later.
type appRead struct {
	conversation string
	upTo         int64
	at           time.Time
}

// user is the state of a user.
type user struct {
	id            string
	conversations map[string]*Conversation
	reads         []appRead
	levels        map[string]events.Level // by category
	// had has the generation in which an event was last folded, by source and id.
	had    map[[2]string]int
	folded []events.Event
}

// world is the state of all users and rooms.
type world struct {
	users map[string]*user
	rooms map[string]*room
}

// play folds all events and returns the resulting state. The users in asked have a state even if no
// event names them.
func (m *Model) play(asked ...string) *world {
	w := &world{map[string]*user{}, map[string]*room{}}
	for _, id := range asked {
		w.user(id)
	}
	for i, e := range m.Events {
		generation := 0
		if m.Generations != nil {
			generation = m.Generations[i]
		}
		switch e.Type {
		case events.RoomPosted, events.RoomChanged:
			w.post(&e)
		case events.RoomRecalled:
			w.recall(&e)
		case events.RoomReset:
			w.reset(&e)
		}
		for _, id := range e.Data.UserIDs {
			u, key := w.user(id), [2]string{e.Source, e.ID}
			if last, ok := u.had[key]; ok && generation <= last+2 {
				continue
			}
			if u.refuses(&e) {
				continue
			}
			u.had[key] = generation
			u.folded = append(u.folded, e)
			u.fold(&e, w)
			for _, c := range u.conversations {
				c.known = c.known || !c.until.IsZero() || c.last > 0 || c.read > 0 || c.level != events.LevelDefault || c.seen > 0 || c.Marked || c.room != nil
			}
		}
	}
	for _, u := range w.users {
		for _, c := range u.conversations {
			c.complete(u.levels)
		}
	}
	return w
}

func (w *world) user(id string) *user {
	if w.users[id] == nil {
		w.users[id] = &user{id: id, conversations: map[string]*Conversation{}, levels: map[string]events.Level{}, had: map[[2]string]int{}}
	}
	return w.users[id]
}

func (w *world) room(id string) *room {
	if w.rooms[id] == nil {
		w.rooms[id] = &room{posted: map[int64]bool{}, all: map[int64]bool{}, recalled: map[int64]bool{}, category: "chat", revisions: map[int64]int64{}}
	}
	return w.rooms[id]
}

// post adds a message to a room and to the state of its members, or changes it.
func (w *world) post(e *events.Event) {
	d, r := &e.Data, w.room(e.Data.ConversationID)
	category := d.Category
	if category == "" {
		category = "chat"
	}
	if d.Seq > r.last || d.Seq == r.last && category > r.category {
		r.last, r.category = d.Seq, category
	}
	mentioned, all := d.MentionedUserIDs, d.MentionsAll
	changes := e.Type == events.RoomChanged
	if _, was := r.revisions[d.Seq]; was && !changes {
		mentioned, all = nil, false
	}
	if changes {
		if !revise(r.revisions, d) {
			return
		}
		delete(r.recalled, d.Seq)
	}
	hadAll := r.all[d.Seq]
	r.posted[d.Seq] = true
	r.all[d.Seq] = all || hadAll && !changes
	for _, u := range w.users {
		c := u.conversations[d.ConversationID]
		if c == nil || c.room == nil || d.Seq <= c.joinedAt {
			continue
		}
		named := slices.Contains(mentioned, u.id)
		c.sent[d.Seq] = c.sent[d.Seq] || d.SenderID == u.id
		// A change of a message that the member has read does not change what a mark remembers.
		if changes && !named && c.named[d.Seq] && !c.own[d.Seq] && d.Seq > c.counted() {
			c.remembered[d.Seq] = false
		}
		c.remembered[d.Seq] = c.remembered[d.Seq] || named && !r.recalled[d.Seq]
		if d.Seq <= c.counted() || r.recalled[d.Seq] {
			continue
		}
		c.own[d.Seq] = c.own[d.Seq] || d.SenderID == u.id
		c.named[d.Seq] = (named || c.named[d.Seq] && !changes) && !c.own[d.Seq]
	}
}

// recall recalls a message of a room.
func (w *world) recall(e *events.Event) {
	d, r := &e.Data, w.room(e.Data.ConversationID)
	if d.Revision > 0 && !revise(r.revisions, d) {
		return
	}
	r.recalled[d.Seq] = true
	delete(r.all, d.Seq)
	for _, u := range w.users {
		if c := u.conversations[d.ConversationID]; c != nil && c.room != nil && d.Seq > c.counted() {
			c.remembered[d.Seq] = c.remembered[d.Seq] && !c.named[d.Seq]
			delete(c.own, d.Seq)
			delete(c.named, d.Seq)
		}
	}
}

// counted returns the position of a member: the messages of the room above it count.
func (c *Conversation) counted() int64 {
	if c.from > 0 {
		return c.from - 1
	}
	return c.read
}

// recount is called when a member's position has moved back from the position from. For the
// messages between, it sets own and named from what is remembered, except for recalled messages.
func (c *Conversation) recount(from int64) {
	for seq := range c.room.posted {
		if seq > c.counted() && seq <= from {
			live := !c.room.recalled[seq]
			c.own[seq] = live && c.sent[seq]
			c.remembered[seq] = live && c.remembered[seq]
			c.named[seq] = c.remembered[seq] && !c.own[seq]
		}
	}
}

// reset ends a room at a message: it deletes all later messages, for all members.
func (w *world) reset(e *events.Event) {
	d, r := &e.Data, w.room(e.Data.ConversationID)
	key := [2]string{e.Source, e.ID}
	if slices.Contains(r.resets, key) {
		return
	}
	r.resets = append(r.resets, key)
	r.resets = r.resets[max(0, len(r.resets)-16):]
	r.last = d.Seq
	end := func(sets ...map[int64]bool) {
		for _, set := range sets {
			maps.DeleteFunc(set, func(seq int64, _ bool) bool { return seq > d.Seq })
		}
	}
	end(r.posted, r.all, r.recalled)
	maps.DeleteFunc(r.revisions, func(seq, _ int64) bool { return seq > d.Seq })
	for _, u := range w.users {
		c := u.conversations[d.ConversationID]
		if c == nil || c.room == nil {
			continue
		}
		end(c.own, c.named, c.sent, c.remembered)
		c.seen = min(c.seen, d.Seq)
		counted := max(min(c.counted(), d.Seq), d.UpToSeq)
		c.read, c.from, c.joinedAt = max(min(c.read, d.Seq), counted), 0, min(c.joinedAt, d.Seq)
		if counted < c.read {
			c.from = counted + 1
		}
	}
}

// complete computes the sets of unread messages and mentions of a membership.
func (c *Conversation) complete(levels map[string]events.Level) {
	if c.room == nil {
		return
	}
	c.last, c.category = c.room.last, c.room.category
	for seq := range c.room.posted {
		if seq > c.joinedAt && (seq > c.read || c.from > 0 && seq >= c.from) && !c.own[seq] && !c.room.recalled[seq] {
			c.Unread[seq] = true
			if c.room.all[seq] && c.applies(levels) != events.LevelDirectMentions || c.named[seq] {
				c.Mentions[seq] = true
			}
		}
	}
}

// refuses reports whether an event cannot be folded, because it treats a room of the user as an
// ordinary conversation, or an ordinary conversation as a room.
func (u *user) refuses(e *events.Event) bool {
	c := u.conversations[e.Data.ConversationID]
	member := c != nil && c.room != nil
	if e.Data.FromSeq > 0 {
		return !member && len(e.Data.Seqs) == 0
	}
	return member && (e.Type == events.MessageDelivered || e.Type == events.MessageChanged || e.Type == events.MessageRecalled || e.Type == events.ConversationLeft ||
		e.Type == events.ConversationMarkedUnread && len(e.Data.Seqs) > 0)
}

// conversation returns a conversation of the user. It creates the conversation if necessary.
func (u *user) conversation(id string) *Conversation {
	if u.conversations[id] == nil {
		u.conversations[id] = &Conversation{
			Unread: map[int64]bool{}, Mentions: map[int64]bool{}, Again: map[int64]bool{}, recalled: map[int64]bool{}, revisions: map[int64]int64{},
			level: events.LevelDefault, category: "chat", leftAt: -1,
		}
	}
	return u.conversations[id]
}

// forget deletes the reads by apps that are more than a minute old.
func (u *user) forget(at time.Time) {
	u.reads = slices.DeleteFunc(u.reads, func(r appRead) bool { return at.Sub(r.at) > time.Minute })
}

// fold folds an event for the user.
func (u *user) fold(e *events.Event, w *world) {
	d := e.Data
	switch e.Type {
	case events.MessageDelivered, events.MessageChanged:
		if d.SenderID == u.id {
			return
		}
		c := u.conversation(d.ConversationID)
		category := d.Category
		if category == "" {
			category = "chat"
		}
		if d.Seq > c.last {
			c.last, c.category = d.Seq, category
		} else if d.Seq == c.last && category > c.category {
			c.category = category
		}
		u.forget(e.AppendedAt)
		c.readUpTo(min(d.Seq, c.leftAt))
		for _, r := range u.reads {
			if r.conversation == d.ConversationID {
				c.readUpTo(min(r.upTo, d.Seq))
			}
		}
		mentioned, changed := slices.Contains(d.MentionedUserIDs, u.id), c.changed(d.Seq)
		if e.Type == events.MessageChanged {
			if !revise(c.revisions, &d) {
				return
			}
			delete(c.recalled, d.Seq)
			delete(c.Mentions, d.Seq)
			changed = false
		}
		if d.Seq > c.read && !c.recalled[d.Seq] {
			c.Unread[d.Seq] = true
			if mentioned && !changed {
				c.Mentions[d.Seq] = true
			}
		}
	case events.ConversationRead, events.ConversationExpired:
		c, upTo := u.conversation(d.ConversationID), d.UpToSeq
		if upTo >= c.read {
			c.unmark()
		}
		if d.ByApp {
			u.forget(e.AppendedAt)
			if c.room == nil {
				u.reads = append(u.reads, appRead{d.ConversationID, upTo, e.AppendedAt})
			}
		}
		if d.ByApp || e.Type == events.ConversationExpired {
			upTo = min(upTo, c.lastMessage())
		}
		c.readUpTo(upTo)
	case events.MessageRecalled:
		c := u.conversation(d.ConversationID)
		if d.Revision > 0 && !revise(c.revisions, &d) {
			return
		}
		c.recalled[d.Seq] = true
		delete(c.Unread, d.Seq)
		delete(c.Mentions, d.Seq)
		delete(c.Again, d.Seq)
	case events.ConversationMarkedUnread:
		c := u.conversation(d.ConversationID)
		if c.room != nil && d.FromSeq > 0 {
			c.markFrom(d.FromSeq)
			return
		}
		for _, seq := range d.Seqs {
			if seq <= c.read && seq <= c.last && seq > c.leftAt && !c.recalled[seq] {
				c.Again[seq] = true
			}
		}
		if len(d.Seqs) == 0 && !c.left() {
			c.Marked = true
		}
	case events.ConversationReset:
		u.reads = slices.DeleteFunc(u.reads, func(r appRead) bool { return r.conversation == d.ConversationID })
		u.conversation(d.ConversationID).reset(&d)
	case events.ConversationLevelSet:
		c := u.conversation(d.ConversationID)
		if c.until.IsZero() {
			c.after = c.level
		}
		c.level, c.until = d.Level, d.Until
	case events.ConversationLevelEnded:
		if c := u.conversation(d.ConversationID); !c.until.IsZero() && !d.Until.Before(c.until) {
			c.level, c.until = c.after, time.Time{}
		}
	case events.ConversationLeft:
		u.conversation(d.ConversationID).leave(d.UpToSeq)
	case events.ConversationSeen:
		c, upTo := u.conversation(d.ConversationID), d.UpToSeq
		if d.ByApp {
			upTo = min(upTo, c.lastMessage())
		}
		c.seen = max(c.seen, upTo)
	case events.CategoryLevelSet:
		if u.levels[d.Category] = d.Level; d.Level == events.LevelDefault {
			delete(u.levels, d.Category)
		}
	case events.UserReadAll, events.UserSeenAll, events.UserLeftAll:
		for id, c := range u.conversations {
			switch {
			case d.Category != "" && !covers(d.Category, c.present()):
			case e.Type == events.UserReadAll:
				c.readUpTo(c.lastMessage())
				c.unmark()
			case e.Type == events.UserSeenAll:
				c.seen = max(c.seen, c.lastMessage())
			case c.room != nil:
				u.quit(id)
			case c.known:
				c.leave(0)
			}
		}
	case events.RoomJoined:
		u.join(w.room(d.ConversationID), &d)
	case events.RoomLeft:
		u.quit(d.ConversationID)
	}
}

// join makes the user a member of a room.
func (u *user) join(r *room, d *events.Data) {
	c := u.conversation(d.ConversationID)
	if c.room != nil {
		return
	}
	if c.left() {
		c.read = 0
	}
	if d.UpToSeq > 0 {
		c.read = max(c.read, d.UpToSeq)
	} else {
		c.read = max(c.read, r.last)
	}
	if d.Level != "" {
		c.level, c.until = d.Level, time.Time{}
	}
	c.Unread, c.Mentions, c.Again, c.recalled, c.leftAt = map[int64]bool{}, map[int64]bool{}, map[int64]bool{}, map[int64]bool{}, -1
	c.joinedAt, c.from, c.seen, c.revisions = c.read, 0, 0, map[int64]int64{}
	c.room, c.own, c.named, c.sent, c.remembered = r, map[int64]bool{}, map[int64]bool{}, map[int64]bool{}, map[int64]bool{}
	r.members++
}

// quit ends the user's membership of a room.
func (u *user) quit(id string) {
	c := u.conversation(id)
	if c.room == nil {
		return
	}
	c.room.members--
	c.last, c.category, c.leftAt = c.room.last, c.room.category, c.room.last
	c.read, c.seen, c.Marked, c.room = max(c.read, c.last), 0, false, nil
}

// lastMessage returns the seq of the last message.
func (c *Conversation) lastMessage() int64 {
	if c.room != nil {
		return c.room.last
	}
	return c.last
}

// FoldedFor returns the events that are folded for a user: the events that name the user. If an
// event is repeated, only the first counts, until its key is forgotten.
func (m *Model) FoldedFor(user string) []events.Event { return m.play(user).users[user].folded }

// Conversations returns the state of a user's conversations after all events.
func (m *Model) Conversations(user string) map[string]*Conversation {
	return m.play(user).users[user].conversations
}

// reset sets the conversation to the state that a conversation.reset gives.
func (c *Conversation) reset(d *events.Data) {
	c.seen = 0
	if c.room != nil {
		counted := c.counted()
		c.read, c.from, c.joinedAt = d.UpToSeq, 0, min(c.joinedAt, d.UpToSeq)
		c.recount(counted)
		return
	}
	if !c.left() || len(d.Seqs) > 0 {
		c.leftAt = -1
	} else {
		c.leftAt = d.UpToSeq
	}
	c.read, c.last = d.UpToSeq, d.UpToSeq
	c.Unread, c.Mentions, c.Again, c.recalled = map[int64]bool{}, map[int64]bool{}, map[int64]bool{}, map[int64]bool{}
	c.revisions = map[int64]int64{}
	for _, seq := range d.Seqs {
		c.last = max(c.last, seq)
		if seq > d.UpToSeq {
			c.Unread[seq] = true
		} else {
			c.Again[seq] = true
		}
	}
}

// changed reports whether a message was changed after its delivery.
func (c *Conversation) changed(seq int64) bool {
	_, ok := c.revisions[seq]
	return ok
}

// revise records a change of a message. It reports whether the change is newer than the changes
// before; if not, the change does not count.
func revise(revisions map[int64]int64, d *events.Data) bool {
	if was, ok := revisions[d.Seq]; ok && d.Revision > 0 && d.Revision <= was {
		return false
	}
	revisions[d.Seq] = max(revisions[d.Seq], d.Revision)
	return true
}

// unmark removes all marks: of the conversation, of single messages, and of a room.
func (c *Conversation) unmark() { c.Marked, c.Again, c.from = false, map[int64]bool{}, 0 }

// markFrom marks a room as unread from the message seq on.
func (c *Conversation) markFrom(seq int64) {
	if c.from > 0 {
		seq = min(seq, c.from)
	}
	if seq <= c.read && c.joinedAt < c.read {
		counted := c.counted()
		c.from = max(seq, c.joinedAt+1)
		c.recount(counted)
	}
}

// count returns the number of messages that are unread or were marked as unread.
func (c *Conversation) count() int64 { return int64(len(c.Unread) + len(c.Again)) }

func (c *Conversation) readUpTo(seq int64) {
	c.read = max(c.read, seq)
	for s := range c.Unread {
		if s <= seq {
			delete(c.Unread, s)
			delete(c.Mentions, s)
		}
	}
}
