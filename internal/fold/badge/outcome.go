package badge

import (
	"fmt"
	"slices"
	"strings"

	"github.com/badged/badged/events"
)

// This file describes the effect of an event on a user, to explain past badges. The rules are
// in the functions that fold events: each of them returns the reason why an event changed no
// count.

// Why classifies the reasons why an event changed no count.
type Why string

// The kinds.
const (
	WhyOwnMessage       Why = "own_message"       // the user sent the message
	WhyAlreadyRead      Why = "already_read"      // at or below the read position
	WhyRecalled         Why = "recalled"          // recalled before
	WhyAlreadyDelivered Why = "already_delivered" // counted by an earlier event
	WhyNotDelivered     Why = "not_delivered"     // a recall or a read of an undelivered message
	WhyAlreadyMarked    Why = "already_marked"    // marked unread before
	WhyLeft             Why = "left"              // the user has left
	WhySameLevel        Why = "same_level"        // the level was the same before
	WhySameState        Why = "same_state"        // the reset changed nothing
	WhyNothingUnread    Why = "nothing_unread"    // there was nothing to read
	WhyAlreadyMember    Why = "already_member"    // the user joined the room before
	WhyNoMember         Why = "no_member"         // the user was not in the room
)

// Reason is a detailed reason why an event changed no count. Functions that fold return a
// reason for every event; callers ignore it if a count changed.
type Reason uint8

// The reasons.
const (
	none Reason = iota
	ownMessage
	alreadyRead
	readInRoom
	readAhead
	alreadySeen
	alreadyRecalled
	alreadyRevised
	alreadyDelivered
	alreadyPosted
	nothingDelivered
	notDelivered
	notPosted
	hasLeft
	leftFurther
	alreadyLeft
	alreadyMarked
	allMarked
	markedFrom
	sameLevel
	noLevelEnds
	sameCategoryLevel
	tooManyLevels
	sameState
	allSame
	sameRoom
	alreadyReset
	nothingUnread
	alreadyMember
	noMember
)

// reasons has the kind (see [Why]) and the text of each reason. In the text, READ, SEEN and LEFT
// are replaced by positions of the conversation, and LEVEL by the level in the event.
var reasons = [...]struct {
	cause Why
	text  string
}{
	ownMessage:        {WhyOwnMessage, "the user sent the message"},
	alreadyRead:       {WhyAlreadyRead, "the conversation was read up to READ before"},
	readInRoom:        {WhyAlreadyRead, "the room was read up to READ before"},
	readAhead:         {WhyAlreadyRead, "an app had read the message before it was delivered"},
	alreadySeen:       {WhyAlreadyRead, "the conversation was seen up to SEEN before"},
	alreadyRecalled:   {WhyRecalled, "the message was recalled before"},
	alreadyRevised:    {WhySameState, "the message was in this state already, or a later revision of it was folded before"},
	alreadyDelivered:  {WhyAlreadyDelivered, "an earlier event delivered the message"},
	alreadyPosted:     {WhyAlreadyDelivered, "an earlier event posted the message"},
	nothingDelivered:  {WhyNotDelivered, "no message above READ was delivered before"},
	notDelivered:      {WhyNotDelivered, "the message was not delivered; if it is delivered later, it does not count"},
	notPosted:         {WhyNotDelivered, "the message was not posted; if it is posted later, it does not count"},
	hasLeft:           {WhyLeft, "the user had left the conversation"},
	leftFurther:       {WhyLeft, "the user had left the conversation up to LEFT"},
	alreadyLeft:       {WhyLeft, "the user had left the conversation before"},
	alreadyMarked:     {WhyAlreadyMarked, "the conversation was marked unread before"},
	allMarked:         {WhyAlreadyMarked, "each of the messages was marked or unread before, recalled, or not delivered since the user last left"},
	markedFrom:        {WhyAlreadyMarked, "messages from that seq on were marked or unread before, or are from before the user joined"},
	sameLevel:         {WhySameLevel, "the level was LEVEL before"},
	noLevelEnds:       {WhySameLevel, "no level ends at that time or earlier"},
	sameCategoryLevel: {WhySameLevel, "the level of the category was LEVEL before"},
	tooManyLevels:     {WhySameLevel, "apps have set the levels of too many categories"},
	sameState:         {WhySameState, "the conversation was in this state already"},
	allSame:           {WhySameState, "every conversation was in this state already"},
	sameRoom:          {WhySameState, "the room was in this state already for the user"},
	alreadyReset:      {WhySameState, "the room had the same event before"},
	nothingUnread:     {WhyNothingUnread, "nothing was unread"},
	alreadyMember:     {WhyAlreadyMember, "the user was a member before"},
	noMember:          {WhyNoMember, "the user was not a member"},
}

// Explain returns the kind of the reason, and the reason as a sentence. c is the conversation
// of e, nil if e is about all conversations.
func (r Reason) Explain(e *events.Event, c *Conversation) (Why, string) {
	text := strings.ReplaceAll(reasons[r].text, "LEVEL", string(e.Data.Level))
	if c != nil {
		text = strings.NewReplacer("READ", fmt.Sprint(c.ReadPosition()), "SEEN", fmt.Sprint(c.SeenPosition()), "LEFT", fmt.Sprint(c.LeftSeq)).Replace(text)
	}
	if r == nothingDelivered && e.Data.ByApp {
		text += fmt.Sprintf("; messages up to %d are read if they are delivered within %s", e.Data.UpToSeq, ReadAheadSpan)
	}
	return reasons[r].cause, text
}

// Outcome is the effect of an event on a user.
type Outcome struct {
	// Changes has the conversations in which clients see a difference, and the conversations
	// whose contribution to the total changed.
	Changes []Change
	// Counted has the messages that began to count because of the event. If the event goes to
	// a room, Counted may also have messages that do not count for this user, because the user
	// has read further or is not a member yet.
	Counted []int64
	// Why and Detail give the reason why no count changed; both are "" if a count changed.
	Why    Why
	Detail string
}

// Change is the effect of an event on a conversation.
type Change struct {
	*Conversation
	Before, After View
	// AddedBefore and AddedAfter are the contributions of the conversation to the total,
	// before and after the event.
	AddedBefore, AddedAfter int64
}

// View returns what a client can see of a conversation of u, and its contribution to the total. If
// the conversation is a room, every closed chunk above the read position must be loaded.
func (s *State) View(u *User, c *Conversation) (v View, adds int64) {
	if r := s.roomOf(c); r != nil {
		v = c.ViewIn(r, u.Paths.Levels)
	} else {
		v = c.View()
	}
	return v, v.Adds(u.Paths.Levels).Total
}

// Counts reports whether a message of a conversation of u is unread, and whether it mentions
// the user. In a room, the chunk of the message must be loaded.
func (s *State) Counts(u *User, c *Conversation, seq int64) (counts, mentioned bool) {
	r := s.roomOf(c)
	if r == nil {
		return c.Unread.Contains(seq) || c.MarkedUnread.Contains(seq), c.Mentions.Contains(seq)
	}
	live, all, _ := r.Message(seq)
	return live && seq > c.ReadSeq && !c.Membership.Own.Contains(seq), c.IsMention(seq, all, u.Paths.Levels.Of(string(c.Level), r.Category))
}

// FoldFor folds e, which names u or goes to a room, and returns its effect on u. The whole
// state of u and of its rooms must be loaded.
func (s *State) FoldFor(u *User, e *events.Event) (o Outcome) {
	d, toRoom := &e.Data, e.Type.ToRoom()
	before := s.changes(u, e)
	read, counts := int64(0), s.counting(u, e)
	if c := u.Conversations[d.ConversationID]; c != nil && c.Member() {
		read = c.ReadSeq
	}
	counted := slices.DeleteFunc(append(slices.Clone(d.Seqs), d.Seq), counts)
	changed, reason := false, none
	if toRoom {
		reason = s.foldInRoom(e)
	} else {
		changed, reason = u.Apply(e, slices.Contains(d.MentionedUserIDs, u.ID), s)
	}
	o.Counted = slices.DeleteFunc(counted, func(seq int64) bool { return !counts(seq) })
	c := u.Conversations[d.ConversationID]
	if c != nil && c.Member() && !toRoom {
		for seq := range c.UnreadIn(s.Rooms[c.ID]) {
			if seq > read {
				break
			}
			o.Counted = append(o.Counted, seq)
		}
	}
	more, fewer := false, false
	for _, x := range before {
		x.After, x.AddedAfter = s.View(u, x.Conversation)
		if x.After != x.Before || x.AddedAfter != x.AddedBefore {
			o.Changes = append(o.Changes, x)
		}
		more = more || x.After.Unread > x.Before.Unread || x.After.Mentions > x.Before.Mentions
		fewer = fewer || x.After.Unread < x.Before.Unread || x.After.Mentions < x.Before.Mentions
	}
	switch e.Type {
	case events.MessageDelivered, events.RoomPosted:
		changed = more
	case events.RoomChanged, events.RoomRecalled:
		changed = more || fewer
	default:
		changed = changed || len(o.Changes) > 0
	}
	switch {
	case changed || len(before) == 0:
		return o
	case toRoom && e.Type != events.RoomReset && d.Seq <= c.ReadSeq:
		reason = readInRoom
	case toRoom && reason == none:
		reason = ownMessage
	}
	o.Why, o.Detail = reason.Explain(e, c)
	return o
}

// changes returns the conversations of u that e may change, with Before and AddedBefore set.
func (s *State) changes(u *User, e *events.Event) (before []Change) {
	add := func(c *Conversation) {
		x := Change{Conversation: c}
		x.Before, x.AddedBefore = s.View(u, c)
		before = append(before, x)
	}
	switch c, ok := u.Conversations[e.Data.ConversationID]; {
	case e.Type.OfConversations():
		for _, c := range u.Conversations {
			add(c)
		}
	case !e.Type.ToRoom():
		add(u.Conversation(e.Data.ConversationID))
	case ok && c.Member():
		add(c)
	}
	return before
}

// counting returns a function that reports whether a message of e's conversation counts for u.
// If e goes to a room, the function reports whether the message is live.
func (s *State) counting(u *User, e *events.Event) func(seq int64) bool {
	return func(seq int64) (counts bool) {
		switch c := u.Conversations[e.Data.ConversationID]; {
		case seq == 0:
		case e.Type.ToRoom():
			counts, _, _ = s.Room(e.Data.ConversationID).Message(seq)
		case c != nil:
			counts, _ = s.Counts(u, c, seq)
		}
		return counts
	}
}
