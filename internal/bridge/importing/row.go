// Package importing imports the states of users from another chat system: for each user and
// conversation, the read position and the unread messages. It publishes events that change badged's
// tables to these states, and reports the differences that remain.
//
// [Row] is one state, [Reader] reads rows from a file, plan.go plans the events of rows, and
// [Import] runs an import.
//
// It does not know the fold: like a backend, it publishes events. ADR 74 has the reasons.
package importing

import (
	"fmt"
	"slices"

	"github.com/badged/badged/events"
)

// MaxUnread is the maximum number of unread messages in a row. It limits the number of events,
// because each message needs an event, which all users of the conversation share.
const MaxUnread = 10_000

// Row is the state of a user in a conversation.
type Row struct {
	// Line is the line of the file, from 1.
	Line                   int
	UserID, ConversationID string
	// LastSeq is the seq of the last message of the conversation. ReadSeq is the seq of the last
	// message that the user has read. 0 means that there is no such message.
	LastSeq, ReadSeq int64
	Level            events.Level
	Category         string
	// Unread has the seqs of the unread messages in ascending order. Mentions has the unread
	// messages that mention the user.
	Unread, Mentions []int64
	// MarkedUnread is true if the user marked the conversation as unread.
	MarkedUnread bool
}

// EmptyUnread defines what an empty list of unread messages means if the conversation has messages
// after the read position: some exports write an empty list if no message is unread, others if all
// these messages are unread.
type EmptyUnread string

// Values of EmptyUnread.
const (
	EmptyIsAsked EmptyUnread = "ask" // the line is bad: the operator must choose
	EmptyIsNone  EmptyUnread = "none"
	EmptyIsAll   EmptyUnread = "all"
)

// stated has the fields of a row that say, in different ways, which messages are unread.
type stated struct {
	// listed is true if the row has a list of unread messages, which may be empty. read is true if
	// the row has a read position.
	listed, read bool
	empty        EmptyUnread
	// count and mentions are the numbers of unread messages and of mentions, nil if the row has no
	// such number.
	count, mentions *int64
}

// FieldError is an error in a field of a row.
type FieldError struct {
	Field, Reason string
}

// Error implements error.
func (e *FieldError) Error() string { return e.Field + ": " + e.Reason }

func wrong(field, format string, args ...any) error {
	return &FieldError{field, fmt.Sprintf(format, args...)}
}

// complete checks a row. It fills in the level, the category and the unread messages if they are
// not given.
func (r *Row) complete(s stated) error {
	if r.Level == "" || r.Level == events.LevelAll { // not LevelAll, which would override a level that is later set for the category
		r.Level = events.LevelDefault
	}
	if r.Category == "" {
		r.Category = events.DefaultCategory
	}
	if err := r.checkNames(); err != nil {
		return err
	}
	if r.LastSeq < 0 {
		return wrong("last_seq", "must be 0 or more, is %d", r.LastSeq)
	}
	if r.ReadSeq < 0 {
		return wrong("read_seq", "must be 0 or more, is %d", r.ReadSeq)
	}
	if err := r.fillUnread(s); err != nil {
		return err
	}
	return r.checkMessages()
}

// fillUnread fills in Unread if the row does not list the unread messages.
func (r *Row) fillUnread(s stated) error {
	switch {
	case s.count != nil:
		return r.countUnread(s)
	case s.mentions != nil:
		return wrong("mentions_count", "is given without unread_count; list the mentions in mentions_seqs")
	case !s.listed:
		return r.assumeUnread()
	case len(r.Unread) > 0 || r.ReadSeq >= r.LastSeq || s.empty == EmptyIsNone:
		return nil
	case s.empty == EmptyIsAll:
		return r.assumeUnread()
	}
	return wrong("unread_seqs", "is empty, but read_seq %d is below last_seq %d: list what is unread, give unread_count, or say with --empty-unread none or all what an empty list means", r.ReadSeq, r.LastSeq)
}

// countUnread fills in Unread if the row has only the number of unread messages. It assumes that
// the unread messages are the last messages of the conversation, with consecutive seqs.
func (r *Row) countUnread(s stated) error {
	n := *s.count
	if !s.read {
		r.ReadSeq = r.LastSeq - n
	}
	switch {
	case len(r.Unread)+len(r.Mentions) > 0:
		return wrong("unread_count", "is given beside unread_seqs or mentions_seqs: give numbers or lists")
	case n < 0 || n > MaxUnread:
		return wrong("unread_count", "must be from 0 to %d, is %d", MaxUnread, n)
	case s.mentions != nil && (*s.mentions < 0 || *s.mentions > n):
		return wrong("mentions_count", "must be from 0 to unread_count %d, is %d", n, *s.mentions)
	case r.ReadSeq < 0:
		return wrong("last_seq", "must be unread_count %d or more, is %d: give the seq of the last message as your backend will publish it, such as its time in milliseconds", n, r.LastSeq)
	case n > max(0, r.LastSeq-r.ReadSeq):
		return wrong("unread_count", "is %d, but there are %d seqs from read_seq %d to last_seq %d", n, max(0, r.LastSeq-r.ReadSeq), r.ReadSeq, r.LastSeq)
	}
	for i := range n {
		r.Unread = append(r.Unread, r.LastSeq-n+1+i)
	}
	if s.mentions != nil {
		r.Mentions = newest(r.Unread, *s.mentions)
	}
	return nil
}

func (r *Row) checkNames() error {
	if reason := events.CheckID(r.UserID); reason != "" {
		return wrong("user_id", "%s", reason)
	}
	if reason := events.CheckID(r.ConversationID); reason != "" {
		return wrong("conversation_id", "%s", reason)
	}
	if reason := events.CheckCategory(r.Category); reason != "" {
		return wrong("category", "%s", reason)
	}
	switch r.Level {
	case events.LevelDefault, events.LevelAll, events.LevelMentions, events.LevelDirectMentions, events.LevelNone:
		return nil
	}
	return wrong("level", "must be all, mentions or none, is %.40q", r.Level)
}

// assumeUnread marks every message after the read position as unread.
func (r *Row) assumeUnread() error {
	n := r.LastSeq - r.ReadSeq
	if n <= 0 {
		return nil
	}
	if n > MaxUnread {
		return wrong("last_seq", "%d messages after read_seq %d would be unread, at most %d may be: list them in unread_seqs, or raise read_seq", n, r.ReadSeq, MaxUnread)
	}
	r.Unread = make([]int64, n)
	for i := range r.Unread {
		r.Unread[i] = r.ReadSeq + 1 + int64(i)
	}
	return nil
}

func (r *Row) checkMessages() error {
	slices.Sort(r.Unread)
	r.Unread = slices.Compact(r.Unread)
	slices.Sort(r.Mentions)
	r.Mentions = slices.Compact(r.Mentions)
	if n := len(r.Unread); n > 0 {
		switch {
		case n > MaxUnread:
			return tooMany("unread_seqs")
		case r.Unread[0] <= r.ReadSeq:
			return wrong("unread_seqs", "%d is not above read_seq %d", r.Unread[0], r.ReadSeq)
		case r.Unread[n-1] > r.LastSeq:
			return wrong("unread_seqs", "%d is above last_seq %d", r.Unread[n-1], r.LastSeq)
		}
	}
	for _, seq := range r.Mentions {
		if _, ok := slices.BinarySearch(r.Unread, seq); !ok {
			return wrong("mentions_seqs", "%d is not among the unread messages", seq)
		}
	}
	return nil
}

func tooMany(field string) error {
	return wrong(field, "more than %d messages: leave out the oldest, and raise read_seq above them", MaxUnread)
}

// mentions reports whether the unread message with the given seq mentions the user.
func (r *Row) mentions(seq int64) bool {
	_, ok := slices.BinarySearch(r.Mentions, seq)
	return ok
}

// lastUnread reports whether the last message is unread.
func (r *Row) lastUnread() bool { return len(r.Unread) > 0 && r.Unread[len(r.Unread)-1] == r.LastSeq }
