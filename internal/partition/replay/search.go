package replay

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/badge"
	"github.com/badged/badged/internal/fold/store"
)

// search folds the events of one user for an explanation, and records which event caused each
// number.
type search struct {
	user *badge.User
	// replay and state refer to the same users and rooms: the user, and the rooms of which the
	// user is or was a member.
	replay *Replay
	state  *badge.State
	// total is the user's total after the last folded event.
	total int64
	// keys are the event keys of replay.
	keys *store.DedupReplay
	// folded maps each event key to the place of the last event with this key that was folded for
	// the user.
	folded map[uuid.UUID]events.Place
	// levels maps each category with a level to the event that set the level.
	levels    map[string]LoggedEvent
	traces    map[string]*trace
	uncounted uncountedEvents
	question  Question
	// history and delivered are nil if the question does not ask for them.
	history   *historySketch
	delivered *deliveries
	// effect is nil unless the search looks for the effect of one event.
	effect *watchedEvent
}

// trace records which events caused the numbers of one conversation.
type trace struct {
	// messages maps the seq of each unread message to the event that delivered the message. If
	// many messages are unread, it has only the messages with the greatest seqs.
	messages          map[int64]LoggedEvent
	lastRead          *ReadEvent
	markedBy, levelBy *LoggedEvent
	// ahead lists, in log order, the reads and leaves of the conversation whose up_to_seq was above
	// the seq of every message delivered before. A new entry replaces all earlier entries with the
	// same or a lower up_to_seq.
	ahead []aheadEvent
}

// aheadEvent is a read or leave with the up_to_seq upTo. It came before the message with the seq
// upTo was delivered.
type aheadEvent struct {
	upTo int64
	LoggedEvent
}

// reach adds an event to t.ahead. If t.ahead then has more than badge.MaxReadsAhead events, it
// removes the oldest.
func (t *trace) reach(upTo int64, e LoggedEvent) {
	t.ahead = append(slices.DeleteFunc(t.ahead, func(a aheadEvent) bool { return a.upTo <= upTo }), aheadEvent{upTo, e})
	if surplus := len(t.ahead) - badge.MaxReadsAhead; surplus > 0 {
		t.ahead = slices.Delete(t.ahead, 0, surplus)
	}
}

// mover is called when the delivery of a message has moved the read position to seq. It returns
// the cause: an earlier read or leave whose up_to_seq is at least seq, and which came before the
// message. If this event is archived, and so not in t.ahead, mover returns the delivery.
func (t *trace) mover(seq int64, delivery LoggedEvent) LoggedEvent {
	for _, a := range slices.Backward(t.ahead) {
		if a.upTo >= seq {
			return a.LoggedEvent
		}
	}
	return delivery
}

func newSearch(userID string, snapshot *Snapshot, q Question) *search {
	s := &search{question: q, folded: map[uuid.UUID]events.Place{}, traces: map[string]*trace{}, levels: map[string]LoggedEvent{}}
	s.replay = snapshot.newReplay(func(id string) bool { return id == userID }, nil)
	s.user, s.keys = s.replay.user(userID), s.replay.Keys
	s.replay.Users[userID] = s.user
	s.state = &badge.State{Users: s.replay.Users, Rooms: s.replay.Rooms}
	return s
}

// begin prepares the search. Call it after the user was restored from the baseline, and before
// the first call of visit.
func (s *search) begin() {
	s.total = s.user.Sums(s.replay.Rooms).Total
	if s.question.History {
		s.history = newHistorySketch(s.total)
	}
	if s.question.Delivered > 0 {
		s.delivered = &deliveries{limit: s.question.Delivered}
	}
}

// trace returns the trace of a conversation, which it creates if necessary.
func (s *search) trace(conversationID string) *trace {
	t, ok := s.traces[conversationID]
	if !ok {
		t = &trace{messages: map[int64]LoggedEvent{}}
		s.traces[conversationID] = t
	}
	return t
}

// visit processes the next record: it folds the record's item, and records its effect on the user.
func (s *search) visit(r *events.Record, folded time.Time, item *store.Item, dead error) {
	if dead != nil {
		if mayName(r.Payload, s.user.ID) {
			s.uncounted.add(UncountedEvent{
				LoggedEvent: LoggedEvent{ID: r.UUID.String(), AppendedAt: r.AppendedAt.UTC(), FoldedAt: folded, Position: r.String()},
				Why:         WhyDeadLetter, Detail: "not understood: " + dead.Error(),
			})
		}
		return
	}
	e, duplicate := &item.Event, false
	c := s.user.Conversations[e.Data.ConversationID]
	concerned := slices.Contains(e.Data.UserIDs, s.user.ID) || item.ToRoom() && c != nil && c.Member()
	if s.keys.First(item, r.Position); !item.ToRoom() {
		duplicate = concerned && !slices.Contains(e.Data.UserIDs, s.user.ID)
	}
	logged := LoggedEvent{
		ID: e.ID, Source: e.Source, Type: e.Type, Time: e.Time.UTC(),
		AppendedAt: r.AppendedAt.UTC(), FoldedAt: folded, Position: r.String(),
	}
	s.state.FoldErased(item.Erased)
	s.replay.followOthers(e)
	before, o := s.total, badge.Outcome{}
	if !duplicate && (concerned || item.ToRoom()) {
		o = s.fold(e, logged)
		s.replay.forgetMarks(item)
	}
	if !concerned {
		return
	}
	cause, detail := o.Why, o.Detail
	if duplicate {
		cause, detail = WhyDuplicate, "the user had an event of the same source and id before"
		if place, ok := s.folded[item.Key]; ok {
			detail += fmt.Sprintf(", at %s", place)
		}
	} else {
		s.folded[item.Key] = r.Place
		s.history.add(e, logged, before, s.total)
		s.followMessages(r.Place, e, logged, cause)
	}
	s.effect.note(s, r.Position, e, Effect{Before: before, Why: cause, Detail: detail}, o.Changes)
	if id := e.Data.ConversationID; cause != "" && (s.wants(id) || id == "") {
		s.uncounted.add(UncountedEvent{
			LoggedEvent: logged, ConversationID: id,
			Seq: cmp.Or(e.Data.UpToSeq, e.Data.Seq), Why: cause, Detail: detail,
		})
	}
}

// wants reports whether the question includes a conversation.
func (s *search) wants(conversationID string) bool {
	return s.question.Conversation == "" || s.question.Conversation == conversationID
}

// fold folds an event, and records it as the cause of the numbers that it changed.
func (s *search) fold(e *events.Event, logged LoggedEvent) badge.Outcome {
	o := s.state.FoldFor(s.user, e)
	for i := range o.Changes {
		x := &o.Changes[i]
		s.total += x.AddedAfter - x.AddedBefore
		t, by := s.trace(x.ID), logged
		if e.Type == events.MessageDelivered || e.Type == events.MessageChanged {
			by = t.mover(x.After.ReadSeq, logged)
		}
		t.note(x.Before, x.After, by)
	}
	t := s.trace(e.Data.ConversationID)
	for _, seq := range o.Counted {
		t.count(seq, logged)
	}
	switch {
	case e.Type == events.ConversationReset || e.Type == events.RoomReset:
		t.ahead = nil
	case e.Type == events.ConversationRead && e.Data.ByApp || e.Type == events.ConversationLeft:
		if v, _ := s.state.View(s.user, s.user.Conversations[e.Data.ConversationID]); e.Data.UpToSeq > v.LastSeq {
			t.reach(e.Data.UpToSeq, logged)
		}
	case e.Type == events.CategoryLevelSet && o.Why == "":
		if s.levels[e.Data.Category] = logged; e.Data.Level == events.LevelDefault {
			delete(s.levels, e.Data.Category)
		}
	}
	return o
}

// note records an event as the cause of a change of the conversation's read position, mark or
// level. before and after are the conversation before and after the event.
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

// count records the event that delivered a message. If too many messages are recorded, it deletes
// the messages with the lowest seqs. It retains more messages than an explanation lists, since some
// may be recalled later.
func (t *trace) count(seq int64, e LoggedEvent) {
	const enough = 10 * maxCounted
	t.messages[seq] = e
	if len(t.messages) > 2*enough {
		for _, old := range slices.Sorted(maps.Keys(t.messages))[:enough] {
			delete(t.messages, old)
		}
	}
}

// explain writes the result of the search to e.
func (s *search) explain(e *Explanation) {
	u, sums := s.user, s.user.Sums(s.replay.Rooms)
	e.Version, e.Numbers, e.Categories, e.Levels = sums.Version, sums.Numbers, sums.Categories, s.levels
	var unread []*badge.Conversation
	for _, c := range u.Conversations {
		if v, _ := s.state.View(u, c); s.wants(c.ID) && (v.Unread > 0 || c.Marked || s.question.Conversation != "") {
			unread = append(unread, c)
		}
	}
	slices.SortFunc(unread, func(a, b *badge.Conversation) int {
		return cmp.Or(cmp.Compare(b.Version, a.Version), cmp.Compare(a.ID, b.ID))
	})
	e.Conversations = []ExplainedConversation{}
	for i, c := range unread {
		if i >= maxExplained {
			_, adds := s.state.View(u, c)
			e.MoreConversations++
			e.MoreAdds += adds
			continue
		}
		e.Conversations = append(e.Conversations, s.explainConversation(c, sums.Version))
	}
	e.Uncounted, e.MoreUncounted, e.UncountedKinds = s.uncounted.newest()
	e.History = s.history.result()
	e.Delivered = s.delivered.newest()
}

// explainConversation returns the explanation of one conversation. version is the version of the
// user that clients see.
func (s *search) explainConversation(c *badge.Conversation, version int64) ExplainedConversation {
	t := s.trace(c.ID)
	v, adds := s.state.View(s.user, c)
	x := ExplainedConversation{
		Conversation: store.Public(c), Adds: adds,
		Messages: []CountedMessage{}, LastRead: t.lastRead, LevelBy: t.levelBy,
	}
	x.Version += version - s.user.Version // changes of rooms raise only the version that clients see
	if c.Member() {
		x.Unread, x.Mentions, x.FirstUnreadSeq, x.LastSeq, x.Category, x.Version = v.Unread, v.Mentions, v.FirstUnread, v.LastSeq, v.Category, version
		x.Seen, x.SeenMentions = v.Unread-v.Unseen, v.Mentions-v.UnseenMentions
	}
	x.Applies, x.LevelOf = s.user.Paths.Levels.From(x.Level, x.Category)
	if c.Marked {
		x.MarkedBy = t.markedBy
	}
	for _, seq := range slices.Backward(slices.Sorted(maps.Keys(t.messages))) {
		if counts, mentioned := s.state.Counts(s.user, c, seq); counts && len(x.Messages) < maxCounted {
			x.Messages = append(x.Messages, CountedMessage{seq, mentioned, t.messages[seq]})
		}
	}
	x.MoreMessages = x.Unread - int64(len(x.Messages))
	return x
}
