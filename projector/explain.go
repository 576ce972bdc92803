package projector

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/archive"
	"github.com/badged/badged/pubsub"
)

// Limits of an explanation.
const (
	// MaxExplained is the most conversations in an explanation.
	MaxExplained = 500
	// MaxCounted is the most counted messages of one conversation in it.
	MaxCounted = 100
	// MaxUncounted is the most events in it that changed nothing.
	MaxUncounted = 100
)

// Explainer tells why the badge of a user is what it is, from the log. It is
// safe for concurrent use.
type Explainer struct {
	pool *pgxpool.Pool
	log  *events.Log
	// archive, where not nil, is what was cut off the log.
	archive *archive.Archive
	// slots bounds how many searches of the log are under way.
	slots chan struct{}
}

// explanationsAtOnce is how many connections an explainer takes, so that
// whoever asks a lot waits rather than those who only want their badge.
const explanationsAtOnce = 2

// NewExplainer returns an explainer of a database and its log.
func NewExplainer(pool *pgxpool.Pool, log *events.Log) *Explainer {
	return &Explainer{pool: pool, log: log, slots: make(chan struct{}, explanationsAtOnce)}
}

// From returns an explainer that folds an archive of the log, and then the log:
// so it can name events that are cut off.
func (x *Explainer) From(a *archive.Archive) *Explainer {
	return &Explainer{pool: x.pool, log: x.log, archive: a, slots: x.slots}
}

// ArchivedError says that what is asked for is not in the log any more.
type ArchivedError struct {
	// Until is when the latest of what is archived was appended.
	Until time.Time
}

// Error implements error.
func (e *ArchivedError) Error() string {
	return fmt.Sprintf("what was appended until %s is archived, and cannot be told apart without the archive: give --archive DIR, or a later time", e.Until.UTC().Format(time.RFC3339))
}

// Explanation is why the badge of a user is what it is.
type Explanation struct {
	UserID    string     `json:"user_id" doc:"The user."`
	Partition int        `json:"partition" minimum:"0" doc:"The partition of the user."`
	At        *time.Time `json:"at,omitempty" doc:"The time as of which it holds; absent for now."`
	Position  string     `json:"position" doc:"How far the log of the partition was folded, such as 1234/56."`
	// ArchivedUntil is where the log begins; nil where nothing is archived, or the
	// archive was gone through.
	ArchivedUntil *time.Time `json:"archived_until,omitempty" doc:"What was appended until then is archived: it is counted, and cannot be named. Absent where nothing is."`

	// What the log says. Version is that of the tables as of now; in the past,
	// what it would have been.
	Version    int64            `json:"version" minimum:"0" doc:"The version that the log gives; in the past, what it would have been."`
	Total      int64            `json:"total" minimum:"0" doc:"The total that the log gives."`
	Mentions   int64            `json:"mentions" minimum:"0" doc:"The mentions that the log gives."`
	Categories map[string]int64 `json:"categories" doc:"The total by category that the log gives."`
	// Conversations are those with anything unread or marked, also where their
	// level keeps that from the total: most recently changed first, at most
	// MaxExplained.
	Conversations     []ExplainedConversation `json:"conversations" doc:"Those with anything unread or marked, also where their level keeps that from the total; most recently changed first."`
	MoreConversations int                     `json:"more_conversations" minimum:"0" doc:"How many others there are."`
	MoreAdds          int64                   `json:"more_adds" minimum:"0" doc:"What these add to the total."`

	// Uncounted are the events that named the user and changed nothing that is
	// counted, newest first, at most MaxUncounted; MoreUncounted is how many
	// there were before.
	Uncounted     []UncountedEvent `json:"uncounted" doc:"Events that named the user and changed nothing that is counted, newest first."`
	MoreUncounted int64            `json:"more_uncounted" minimum:"0" doc:"How many there were before."`

	Table  *pubsub.Badge `json:"table,omitempty" doc:"The badge as the tables have it; absent for one in the past."`
	Agrees bool          `json:"agrees" doc:"Whether the tables are what the log says; true of the past."`
}

// LoggedEvent is an event in the log, by what identifies it. Of one that is not
// understood, ID is the message id, and Source, Type and Time are not known.
type LoggedEvent struct {
	ID         string      `json:"event_id" doc:"The id of the event."`
	Source     string      `json:"source,omitempty" doc:"Who published it; absent where the event is not understood."`
	Type       events.Type `json:"type,omitempty" doc:"What it means; absent where the event is not understood."`
	Time       time.Time   `json:"time,omitzero" doc:"When it happened, by its publisher."`
	AppendedAt time.Time   `json:"appended_at" doc:"When it came into the log."`
	Position   string      `json:"position" doc:"Its place in the log, such as 1234/56."`
}

// ExplainedConversation is what a conversation adds, and why.
type ExplainedConversation struct {
	pubsub.Conversation
	Adds int64 `json:"adds" minimum:"0" doc:"What the conversation adds to the total."`
	// Messages are the unread ones, greatest seq first, at most MaxCounted;
	// MoreMessages is how many others there are.
	Messages     []CountedMessage `json:"messages" doc:"The unread messages, greatest seq first."`
	MoreMessages int64            `json:"more_messages" minimum:"0" doc:"How many others there are."`
	LastRead     *ReadEvent       `json:"last_read,omitempty" doc:"What moved the read position last."`
	MarkedBy     *LoggedEvent     `json:"marked_by,omitempty" doc:"What marked it unread; absent where it is not."`
	LevelBy      *LoggedEvent     `json:"level_by,omitempty" doc:"What set its level; absent where nothing did."`
}

// CountedMessage is an unread message and the event that delivered it first.
type CountedMessage struct {
	Seq       int64 `json:"seq" minimum:"1" doc:"Its place in the conversation."`
	Mentioned bool  `json:"mentioned" doc:"Whether it mentions the user."`
	LoggedEvent
}

// ReadEvent is an event that moved a read position.
type ReadEvent struct {
	UpToSeq int64 `json:"up_to_seq" minimum:"1" doc:"Where it moved the read position to."`
	LoggedEvent
}

// UncountedEvent is an event that changed nothing that is counted.
type UncountedEvent struct {
	LoggedEvent
	ConversationID string `json:"conversation_id,omitempty" doc:"The conversation that it was about, if any."`
	Seq            int64  `json:"seq,omitempty" minimum:"1" doc:"The message, or the position, that it was about, if any."`
	Why            Why    `json:"why" enum:"duplicate,dead_letter,own_message,already_read,recalled,already_delivered,not_delivered,already_marked,left,same_level,nothing_unread" doc:"The reason."`
	Detail         string `json:"detail" doc:"The reason, told to people."`
}

// Why is a reason for an event to change nothing.
type Why string

// The reasons.
const (
	WhyDuplicate        Why = "duplicate"         // its source and id came before
	WhyDeadLetter       Why = "dead_letter"       // it is not understood
	WhyOwnMessage       Why = "own_message"       // the user sent it
	WhyAlreadyRead      Why = "already_read"      // at or below the read position
	WhyRecalled         Why = "recalled"          // recalled before
	WhyAlreadyDelivered Why = "already_delivered" // counted by an earlier event
	WhyNotDelivered     Why = "not_delivered"     // a recall of what has not come
	WhyAlreadyMarked    Why = "already_marked"    // marked unread before
	WhyLeft             Why = "left"              // the user has left
	WhySameLevel        Why = "same_level"        // the level was that before
	WhyNothingUnread    Why = "nothing_unread"    // there was nothing to read
)

// Explain tells why the badge of a user is what it is; where at is not zero,
// why it was what it was when everything appended until then, and nothing
// since, was folded.
//
// It searches the partition of the user: its cost grows with the log, and its
// memory with what is unread. Two run at a time; others wait.
func (x *Explainer) Explain(ctx context.Context, userID string, at time.Time) (Explanation, error) {
	select {
	case x.slots <- struct{}{}:
		defer func() { <-x.slots }()
	case <-ctx.Done():
		return Explanation{}, fmt.Errorf("explain the badge of user %q: %w", userID, context.Cause(ctx))
	}
	partition := x.log.PartitionOf(userID)
	e := Explanation{UserID: userID, Partition: partition, Agrees: true}
	err := atInstant(ctx, x.pool, partition, x.log.Partitions(), func(in *instant) error {
		e.Position = in.position.String()
		if err := in.from(ctx, x.archive); err != nil {
			return err
		}
		s := newSearch(userID, in)
		if in.archive == nil && in.base.events > 0 {
			until := in.base.until
			if e.ArchivedUntil = &until; !at.IsZero() && at.Before(until) {
				return &ArchivedError{Until: until}
			}
		}
		if err := in.restoreUsers(ctx, &refold{users: map[string]*user{userID: s.user}, wants: func(id string) bool { return id == userID }}, []string{userID}, func() {}); err != nil {
			return err
		}
		err := in.eachOf(ctx, []string{userID}, s.keys, func(r *events.Record, it item, dead error) error {
			if at.IsZero() || !r.AppendedAt.After(at) {
				s.visit(r, &it, dead)
			}
			return nil
		})
		if err != nil {
			return err
		}
		s.explain(&e)
		if !at.IsZero() {
			at = at.UTC()
			e.At = &at
			return nil
		}
		return in.compareBadge(ctx, &e)
	})
	if err != nil {
		return Explanation{}, fmt.Errorf("explain the badge of user %q: %w", userID, err)
	}
	return e, nil
}

// compareBadge adds the badge of the tables to e.
func (in *instant) compareBadge(ctx context.Context, e *Explanation) error {
	badge, err := NewReader(in.tx, in.partitions).Badge(ctx, e.UserID)
	if err != nil {
		return err
	}
	var m mend
	err = in.tx.QueryRow(ctx, `SELECT coalesce(max(ahead), 0) FROM badged.mended_users
WHERE partition_id = $1 AND user_id = $2`, in.partition, e.UserID).Scan(&m.ahead)
	if err != nil {
		return fmt.Errorf("read whether the user was mended: %w", err)
	}
	e.Version = m.user(e.Version)
	e.Table = &badge
	e.Agrees = badge.Version == e.Version && badge.Total == e.Total && badge.Mentions == e.Mentions &&
		maps.Equal(badge.Categories, e.Categories)
	return nil
}

// search folds what happened to one user, and keeps what put each number where
// it is.
type search struct {
	user *user
	keys *keyMemory
	// everything is set where all events are visited, and not only those that may
	// matter.
	everything bool
	// folded are where each key was folded last; where everything is visited, of
	// events that name the user.
	folded map[uuid.UUID]events.Position
	traces map[string]*trace
	// uncounted are the last events that changed nothing, before them were more.
	uncounted []UncountedEvent
	more      int64
}

// trace is what put the numbers of one conversation where they are.
type trace struct {
	// messages are the events that delivered what is unread, by seq: of the
	// last messages, where there are very many.
	messages          map[int64]LoggedEvent
	lastRead          *ReadEvent
	markedBy, levelBy *LoggedEvent
}

func newSearch(userID string, in *instant) *search {
	return &search{
		user: newUser(userID), keys: in.newKeys(), everything: in.archive != nil,
		folded: map[uuid.UUID]events.Position{}, traces: map[string]*trace{},
	}
}

func (s *search) trace(conversationID string) *trace {
	t, ok := s.traces[conversationID]
	if !ok {
		t = &trace{messages: map[int64]LoggedEvent{}}
		s.traces[conversationID] = t
	}
	return t
}

// visit takes the next record.
func (s *search) visit(r *events.Record, it *item, dead error) {
	if dead != nil {
		if mayName(r.Payload, []string{s.user.id}) {
			s.leaveOut(UncountedEvent{
				LoggedEvent: LoggedEvent{ID: r.UUID.String(), AppendedAt: r.AppendedAt.UTC(), Position: r.Position.String()},
				Why:         WhyDeadLetter, Detail: "not understood: " + dead.Error(),
			})
		}
		return
	}
	e := &it.event
	repeated := s.keys.duplicate(it.key, r.Position)
	named := slices.Contains(e.Data.UserIDs, s.user.id)
	if !repeated && (named || !s.everything) {
		s.folded[it.key] = r.Position
	}
	if !named {
		return
	}
	logged := LoggedEvent{
		ID: e.ID, Source: e.Source, Type: e.Type, Time: e.Time.UTC(),
		AppendedAt: r.AppendedAt.UTC(), Position: r.Position.String(),
	}
	why, detail := WhyDuplicate, "the same source and id came before"
	if at, ok := s.folded[it.key]; ok {
		detail += fmt.Sprintf(", at %s", at)
	}
	if !repeated {
		if why, detail = s.fold(e, logged); why == "" {
			return
		}
	}
	s.leaveOut(UncountedEvent{
		LoggedEvent: logged, ConversationID: e.Data.ConversationID,
		Seq: max(e.Data.Seq, e.Data.UpToSeq), Why: why, Detail: detail,
	})
}

// leaveOut keeps an event that changed nothing.
func (s *search) leaveOut(e UncountedEvent) {
	s.uncounted = append(s.uncounted, e)
	if surplus := len(s.uncounted) - MaxUncounted; surplus > MaxUncounted {
		s.uncounted = slices.Delete(s.uncounted, 0, surplus)
		s.more += int64(surplus)
	}
}

// fold folds an event, and returns why it changed nothing that is counted; ""
// where it did.
func (s *search) fold(e *events.Event, logged LoggedEvent) (why Why, detail string) {
	mentioned := slices.Contains(e.Data.MentionedUserIDs, s.user.id)
	switch {
	case e.Type == events.UserReadAll:
		before := map[string]view{}
		for id, c := range s.user.conversations {
			before[id] = c.view()
		}
		if !s.user.apply(e, mentioned) {
			return WhyNothingUnread, "nothing was unread"
		}
		for id, c := range s.user.conversations {
			s.trace(id).note(before[id], c.view(), logged)
		}
		return "", ""
	case e.Type == events.MessageDelivered && e.Data.SenderID == s.user.id:
		return WhyOwnMessage, "the user sent the message"
	}
	c := s.user.conversation(e.Data.ConversationID)
	before := c.view()
	why, detail = reason(c, e)
	s.user.apply(e, mentioned)
	after := c.view()
	s.trace(c.id).note(before, after, logged)
	if e.Type != events.MessageDelivered {
		if after != before {
			return "", ""
		}
		return why, detail
	}
	if after.unread > before.unread {
		s.trace(c.id).count(e.Data.Seq, logged)
	}
	if after.unread > before.unread || after.mentions > before.mentions {
		return "", ""
	}
	return why, detail
}

// reason returns why an event, if it changes nothing that is counted, does not.
func reason(c *conversation, e *events.Event) (Why, string) {
	d := &e.Data
	switch e.Type {
	case events.MessageDelivered:
		switch {
		case d.Seq <= c.readSeq:
			return WhyAlreadyRead, fmt.Sprintf("the conversation was read up to %d before", c.readSeq)
		case c.recalled.contains(d.Seq):
			return WhyRecalled, "the message was recalled before"
		}
		return WhyAlreadyDelivered, "an earlier event delivered the message"
	case events.ConversationRead, events.ConversationExpired:
		return WhyAlreadyRead, fmt.Sprintf("the conversation was read up to %d before", c.readSeq)
	case events.MessageRecalled:
		switch {
		case d.Seq <= c.readSeq:
			return WhyAlreadyRead, fmt.Sprintf("the conversation was read up to %d before", c.readSeq)
		case c.recalled.contains(d.Seq):
			return WhyRecalled, "the message was recalled before"
		}
		return WhyNotDelivered, "the message was not delivered; if it comes, it does not count"
	case events.ConversationMarkedUnread:
		if c.left() {
			return WhyLeft, "the user had left the conversation"
		}
		return WhyAlreadyMarked, "the conversation was marked unread before"
	case events.ConversationLevelSet:
		return WhySameLevel, fmt.Sprintf("the level was %s before", c.level)
	case events.ConversationLeft:
		return WhyLeft, "the user had left the conversation before"
	}
	return "", ""
}

// note keeps what an event did to a conversation, apart from its messages.
func (t *trace) note(before, after view, e LoggedEvent) {
	if after.readSeq > before.readSeq {
		t.lastRead = &ReadEvent{UpToSeq: after.readSeq, LoggedEvent: e}
		maps.DeleteFunc(t.messages, func(seq int64, _ LoggedEvent) bool { return seq <= after.readSeq })
	}
	if after.marked != before.marked {
		t.markedBy = &e
	}
	if after.level != before.level {
		t.levelBy = &e
	}
}

// count keeps what delivered a message. With very many it forgets the oldest,
// of which a few times as many as are told remain: some may be recalled.
func (t *trace) count(seq int64, e LoggedEvent) {
	const enough = 10 * MaxCounted
	t.messages[seq] = e
	if len(t.messages) > 2*enough {
		for _, old := range slices.Sorted(maps.Keys(t.messages))[:enough] {
			delete(t.messages, old)
		}
	}
}

// explain tells what was found.
func (s *search) explain(e *Explanation) {
	u := s.user
	e.Version, e.Total, e.Mentions, e.Categories = u.version, u.total, u.mentions, u.categories.byName()
	var unread []*conversation
	for _, c := range u.conversations {
		if c.unread.len() > 0 || c.marked {
			unread = append(unread, c)
		}
	}
	slices.SortFunc(unread, func(a, b *conversation) int {
		return cmp.Or(cmp.Compare(b.version, a.version), cmp.Compare(a.id, b.id))
	})
	e.Conversations = []ExplainedConversation{}
	for i, c := range unread {
		if i >= MaxExplained {
			e.MoreConversations++
			e.MoreAdds += c.adds()
			continue
		}
		e.Conversations = append(e.Conversations, s.trace(c.id).explain(c))
	}
	slices.Reverse(s.uncounted)
	n := min(len(s.uncounted), MaxUncounted)
	e.Uncounted = append([]UncountedEvent{}, s.uncounted[:n]...)
	e.MoreUncounted = s.more + int64(len(s.uncounted)-n)
}

// explain tells what was found of one conversation.
func (t *trace) explain(c *conversation) ExplainedConversation {
	x := ExplainedConversation{
		Conversation: c.public(), Adds: c.adds(),
		Messages: []CountedMessage{}, LastRead: t.lastRead, LevelBy: t.levelBy,
	}
	if c.marked {
		x.MarkedBy = t.markedBy
	}
	for _, seq := range slices.Backward(slices.Sorted(maps.Keys(t.messages))) {
		if len(x.Messages) < MaxCounted && c.unread.contains(seq) { // not recalled
			x.Messages = append(x.Messages, CountedMessage{seq, c.mentions.contains(seq), t.messages[seq]})
		}
	}
	x.MoreMessages = c.unread.len() - int64(len(x.Messages))
	return x
}
