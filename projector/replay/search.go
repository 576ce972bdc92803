package replay

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/internal/badge"
	"github.com/badged/badged/projector/internal/store"
)

// search folds the events of one user and records which event led to each
// number.
type search struct {
	user *badge.User
	// replay has the user, and the rooms that the user has joined.
	replay *Replay
	keys   *store.DedupReplay
	// folded are, by key, the positions where the events that name the user
	// were last folded.
	folded map[uuid.UUID]events.Place
	// levels are the events that set the levels of categories.
	levels    map[string]LoggedEvent
	traces    map[string]*trace
	uncounted uncountedEvents
	question  Question
	// history and delivered are nil unless the question asks for them.
	history   *historySketch
	delivered *deliveries
	// effect is nil unless the search is for one event.
	effect *watchedEvent
}

// trace records which events led to the numbers of one conversation.
type trace struct {
	// messages are the events that delivered the unread messages, by seq: only
	// the last ones if there are very many.
	messages          map[int64]LoggedEvent
	lastRead          *ReadEvent
	markedBy, levelBy *LoggedEvent
	// ahead are the events that read, or left, beyond the last delivered
	// message: in the order of the log, those that reach further first.
	ahead []aheadEvent
}

// aheadEvent is an event that reaches beyond the last delivered message.
type aheadEvent struct {
	upTo int64
	LoggedEvent
}

// reach records an event that is ahead.
func (t *trace) reach(upTo int64, e LoggedEvent) {
	t.ahead = append(slices.DeleteFunc(t.ahead, func(a aheadEvent) bool { return a.upTo <= upTo }), aheadEvent{upTo, e})
	if surplus := len(t.ahead) - badge.MaxClaims; surplus > 0 {
		t.ahead = slices.Delete(t.ahead, 0, surplus)
	}
}

// mover returns the event that moved the read position to seq when a message
// was delivered. If it is archived, mover returns the delivery.
func (t *trace) mover(seq int64, delivery LoggedEvent) LoggedEvent {
	for _, a := range slices.Backward(t.ahead) {
		if a.upTo >= seq {
			return a.LoggedEvent
		}
	}
	return delivery
}

func newSearch(userID string, in *Snapshot, q Question) *search {
	s := &search{question: q, folded: map[uuid.UUID]events.Place{}, traces: map[string]*trace{}, levels: map[string]LoggedEvent{}}
	s.replay = in.newReplay(func(id string) bool { return id == userID }, nil)
	s.user, s.keys = s.replay.user(userID), s.replay.Keys
	s.replay.Users[userID] = s.user
	return s
}

// begin prepares for the first record, after the user was restored from the
// baseline.
func (s *search) begin() {
	if s.question.History {
		s.history = newHistorySketch(s.total())
	}
	if s.question.Delivered > 0 {
		s.delivered = &deliveries{limit: s.question.Delivered}
	}
}

// trace returns the trace of a conversation, a new one if there is none.
func (s *search) trace(conversationID string) *trace {
	t, ok := s.traces[conversationID]
	if !ok {
		t = &trace{messages: map[int64]LoggedEvent{}}
		s.traces[conversationID] = t
	}
	return t
}

// visit processes the next record.
func (s *search) visit(r *events.Record, folded time.Time, it *store.Item, dead error) {
	if dead != nil {
		if mayName(r.Payload, s.user.ID) {
			s.uncounted.add(UncountedEvent{
				LoggedEvent: LoggedEvent{ID: r.UUID.String(), AppendedAt: r.AppendedAt.UTC(), FoldedAt: folded, Position: r.String()},
				Why:         WhyDeadLetter, Detail: "not understood: " + dead.Error(),
			})
		}
		return
	}
	e := &it.Event
	named := slices.Contains(e.Data.UserIDs, s.user.ID)
	s.keys.First(it, r.Position)
	logged := LoggedEvent{
		ID: e.ID, Source: e.Source, Type: e.Type, Time: e.Time.UTC(),
		AppendedAt: r.AppendedAt.UTC(), FoldedAt: folded, Position: r.String(),
	}
	s.state().FoldErased(it.Erased)
	s.replay.followOthers(e)
	if it.ToRoom() {
		s.visitMessage(r, it, logged)
		return
	}
	if !named {
		return
	}
	repeated := !slices.Contains(e.Data.UserIDs, s.user.ID)
	why, detail := WhyDuplicate, "the user had an event of the same source and id before"
	if at, ok := s.folded[it.Key]; ok {
		detail += fmt.Sprintf(", at %s", at)
	}
	before, watched := s.totalBefore(), s.effect.before(s, r.Position, e)
	if !repeated {
		s.folded[it.Key] = r.Place
		why, detail = s.fold(e, logged)
		s.replay.forgetMarks(it)
		s.history.add(e, logged, before, s.totalBefore())
		s.followMessages(r.Place, e, logged, why)
	}
	s.effect.after(s, watched, why, detail)
	if why == "" {
		return
	}
	if c := e.Data.ConversationID; s.wants(c) || c == "" {
		s.uncounted.add(UncountedEvent{
			LoggedEvent: logged, ConversationID: c,
			Seq: cmp.Or(e.Data.UpToSeq, e.Data.Seq), Why: why, Detail: detail,
		})
	}
}

// wants reports whether the question is about a conversation.
func (s *search) wants(conversationID string) bool {
	return s.question.Conversation == "" || s.question.Conversation == conversationID
}

// fold folds an event. It returns why the event changed no count, "" if it
// did.
func (s *search) fold(e *events.Event, logged LoggedEvent) (why Why, detail string) {
	mentioned := slices.Contains(e.Data.MentionedUserIDs, s.user.ID)
	switch {
	case e.Type.OfConversations():
		if e.Type == events.CategoryLevelSet {
			before := s.user.Paths.Levels[e.Data.Category]
			if !s.user.Apply(e, mentioned, s.state()) {
				return WhySameLevel, fmt.Sprintf("the level of the category was %s before, or too many are set", cmp.Or(before, string(events.LevelDefault)))
			}
			if s.levels[e.Data.Category] = logged; e.Data.Level == events.LevelDefault {
				delete(s.levels, e.Data.Category)
			}
			return "", ""
		}
		before := map[string]badge.View{}
		for id, c := range s.user.Conversations {
			before[id] = s.view(c)
		}
		if !s.user.Apply(e, mentioned, s.state()) {
			if e.Type == events.UserReadAll {
				return WhyNothingUnread, "nothing was unread"
			}
			return WhySameState, "every conversation was so before"
		}
		for id, c := range s.user.Conversations {
			s.trace(id).note(before[id], s.view(c), logged)
		}
		return "", ""
	case (e.Type == events.MessageDelivered || e.Type == events.MessageChanged) && e.Data.SenderID == s.user.ID:
		return WhyOwnMessage, "the user sent the message"
	}
	c := s.user.Conversation(e.Data.ConversationID)
	before, member := s.view(c), c.Member()
	why, detail = s.reason(c, e)
	s.user.Apply(e, mentioned, s.state())
	after := s.view(c)
	t := s.trace(c.ID)
	by := logged
	if e.Type == events.MessageDelivered || e.Type == events.MessageChanged {
		by = t.mover(after.ReadSeq, logged)
	} else if (e.Data.ByApp || e.Type == events.ConversationLeft) && e.Data.UpToSeq > after.LastSeq {
		t.reach(e.Data.UpToSeq, logged)
	}
	t.note(before, after, by)
	for _, seq := range e.Data.Seqs {
		if c.Again.Contains(seq) || e.Type == events.ConversationReset && c.Unread.Contains(seq) {
			t.count(seq, logged)
		}
	}
	if e.Type == events.ConversationReset {
		t.ahead = nil
		if c.Member() {
			s.recount(t, c, logged)
		}
	}
	if e.Data.FromSeq > 0 && c.Member() && after != before {
		for seq := range c.MarkedIn(s.replay.Rooms[c.ID]) {
			t.count(seq, logged)
		}
	}
	if e.Type == events.MessageChanged && after.Unread > before.Unread {
		t.count(e.Data.Seq, logged)
	}
	if e.Type != events.MessageDelivered {
		if after != before || c.Member() != member {
			return "", ""
		}
		return why, detail
	}
	if after.Unread > before.Unread {
		s.trace(c.ID).count(e.Data.Seq, logged)
	}
	if after.Unread > before.Unread || after.Mentions > before.Mentions {
		return "", ""
	}
	return why, detail
}

// recount records that an event made the messages of a room above the read position count
// for a member, unless the event that posted them is known.
func (s *search) recount(t *trace, c *badge.Conversation, logged LoggedEvent) {
	for seq := range c.UnreadIn(s.replay.Rooms[c.ID]) {
		if _, ok := t.messages[seq]; !ok {
			t.count(seq, logged)
		}
	}
}

// reason returns why an event changes no count, if it does not.
func (s *search) reason(c *badge.Conversation, e *events.Event) (Why, string) {
	d := &e.Data
	switch e.Type {
	case events.MessageDelivered:
		switch {
		case d.Seq <= c.ReadSeq:
			return WhyAlreadyRead, fmt.Sprintf("the conversation was read up to %d before", c.ReadSeq)
		case c.Recalled.Contains(d.Seq):
			return WhyRecalled, "the message was recalled before"
		case d.Seq <= c.LeftSeq:
			return WhyLeft, fmt.Sprintf("the user had left the conversation up to %d", c.LeftSeq)
		case s.isClaimed(c, e):
			return WhyAlreadyRead, "an app had read the message before it was delivered"
		}
		return WhyAlreadyDelivered, "an earlier event delivered the message"
	case events.ConversationSeen:
		return WhyAlreadyRead, fmt.Sprintf("the conversation was seen up to %d before", c.SeenPosition())
	case events.ConversationRead, events.ConversationExpired:
		if d.UpToSeq > c.ReadPosition() {
			why := fmt.Sprintf("no message above %d was delivered before", c.ReadSeq)
			if d.ByApp {
				why += fmt.Sprintf("; those up to %d are read if they come within %s", d.UpToSeq, badge.ClaimSpan)
			}
			return WhyNotDelivered, why
		}
		return WhyAlreadyRead, fmt.Sprintf("the conversation was read up to %d before", c.ReadPosition())
	case events.MessageRecalled:
		switch {
		case c.Recalled.Contains(d.Seq):
			return WhyRecalled, "the message was recalled before"
		case d.Seq <= c.ReadSeq:
			return WhyAlreadyRead, fmt.Sprintf("the conversation was read up to %d before", c.ReadSeq)
		}
		return WhyNotDelivered, "the message was not delivered; if it comes, it does not count"
	case events.ConversationMarkedUnread:
		if c.Left() {
			return WhyLeft, "the user had left the conversation"
		}
		if d.FromSeq > 0 && c.Member() {
			return WhyAlreadyMarked, "messages from there on were marked or unread before, or are from before the user joined"
		}
		if len(d.Seqs) > 0 {
			return WhyAlreadyMarked, "each of the messages was marked or unread before, recalled, or not delivered since the user last left"
		}
		return WhyAlreadyMarked, "the conversation was marked unread before"
	case events.MessageChanged:
		if d.Seq <= c.ReadSeq {
			return WhyAlreadyRead, fmt.Sprintf("the conversation was read up to %d before", c.ReadSeq)
		}
		return WhySameState, "the message was so before, or a later revision of it came before"
	case events.ConversationReset:
		return WhySameState, "the conversation was so before"
	case events.ConversationLevelEnded:
		return WhySameLevel, "no level was set until then or earlier"
	case events.ConversationLevelSet:
		return WhySameLevel, fmt.Sprintf("the level was %s before", c.Level)
	case events.ConversationLeft:
		return WhyLeft, "the user had left the conversation before"
	case events.RoomJoined:
		return WhyAlreadyMember, "the user was a member before"
	case events.RoomLeft:
		return WhyNoMember, "the user was not a member"
	}
	return "", ""
}

// isClaimed reports whether an app has read the message that e delivers.
func (s *search) isClaimed(c *badge.Conversation, e *events.Event) bool {
	live := slices.Clone(s.user.Claims)
	live.Lapse(e.AppendedAt.UnixMicro())
	return live.Reach(c.ID, e.Data.Seq) == e.Data.Seq
}

// note records what an event did to a conversation, apart from its messages.
func (t *trace) note(before, after badge.View, e LoggedEvent) {
	if after.ReadSeq != before.ReadSeq {
		t.lastRead = &ReadEvent{UpToSeq: after.ReadSeq, LoggedEvent: e}
		maps.DeleteFunc(t.messages, func(seq int64, _ LoggedEvent) bool {
			return seq <= after.ReadSeq && (after.FirstUnread == 0 || seq < after.FirstUnread)
		})
	}
	if after.Marked != before.Marked {
		t.markedBy = &e
	}
	if after.Level != before.Level || after.LevelUntil != before.LevelUntil {
		t.levelBy = &e
	}
}

// count records the event that delivered a message. If there are very many it
// drops the oldest. It keeps more than are listed, since some may be recalled.
func (t *trace) count(seq int64, e LoggedEvent) {
	const enough = 10 * maxCounted
	t.messages[seq] = e
	if len(t.messages) > 2*enough {
		for _, old := range slices.Sorted(maps.Keys(t.messages))[:enough] {
			delete(t.messages, old)
		}
	}
}

// explain fills e with the result.
func (s *search) explain(e *Explanation) {
	u, sums := s.user, s.user.Sums(s.replay.Rooms)
	e.Version, e.Numbers, e.Categories, e.Levels = sums.Version, sums.Numbers, sums.Categories, s.levels
	var unread []*badge.Conversation
	for _, c := range u.Conversations {
		if s.wants(c.ID) && (s.view(c).Unread > 0 || c.Marked || s.question.Conversation != "") {
			unread = append(unread, c)
		}
	}
	slices.SortFunc(unread, func(a, b *badge.Conversation) int {
		return cmp.Or(cmp.Compare(b.Version, a.Version), cmp.Compare(a.ID, b.ID))
	})
	e.Conversations = []ExplainedConversation{}
	for i, c := range unread {
		if i >= maxExplained {
			e.MoreConversations++
			e.MoreAdds += s.adds(c)
			continue
		}
		e.Conversations = append(e.Conversations, s.explainConversation(c, sums.Version))
	}
	e.Uncounted, e.MoreUncounted, e.UncountedKinds = s.uncounted.newest()
	e.History = s.history.result()
	e.Delivered = s.delivered.newest()
}

// explainConversation returns the result for one conversation of a user with a
// version.
func (s *search) explainConversation(c *badge.Conversation, version int64) ExplainedConversation {
	t := s.trace(c.ID)
	x := ExplainedConversation{
		Conversation: store.Public(c), Adds: s.adds(c),
		Messages: []CountedMessage{}, LastRead: t.lastRead, LevelBy: t.levelBy,
	}
	x.Version += version - s.user.Version // what rooms have added
	if c.Member() {
		v := s.view(c)
		x.Unread, x.Mentions, x.FirstUnreadSeq, x.LastSeq, x.Category, x.Version = v.Unread, v.Mentions, v.FirstUnread, v.LastSeq, v.Category, version
		x.Seen, x.SeenMentions = v.Unread-v.Unseen, v.Mentions-v.UnseenMentions
	}
	x.Applies, x.LevelOf = s.user.Paths.Levels.From(x.Level, x.Category)
	if c.Marked {
		x.MarkedBy = t.markedBy
	}
	for _, seq := range slices.Backward(slices.Sorted(maps.Keys(t.messages))) {
		if counts, mentioned := s.counts(c, seq); counts && len(x.Messages) < maxCounted {
			x.Messages = append(x.Messages, CountedMessage{seq, mentioned, t.messages[seq]})
		}
	}
	x.MoreMessages = x.Unread - int64(len(x.Messages))
	return x
}
