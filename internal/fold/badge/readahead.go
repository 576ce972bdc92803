package badge

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// This file limits the effect of a read by an app. An app may receive a message before the log
// does, so its read may be ahead of the log; but a read by a faulty app may cover messages
// that do not exist yet. So the read covers the messages delivered before it in the log, and
// messages appended within ReadAheadSpan after it. Both times are append times of the log.

const (
	// ReadAheadSpan is how long after its append a read by an app covers new messages: a message up
	// to the seq of the read that is appended in this time counts as read on delivery.
	ReadAheadSpan = time.Minute
	// MaxReadsAhead is the maximum number of reads ahead of a user; the oldest is dropped first.
	// The limit exists because an app can name any number of conversations.
	MaxReadsAhead = 32
)

// ReadAhead is the part of an app's read that is ahead of the log. A message of the conversation up
// to UpTo counts as read on delivery if the log appends it at the time Until or earlier.
type ReadAhead struct {
	Conversation string
	UpTo         int64
	// Until is in microseconds since 1970, the precision of Postgres.
	Until int64
}

// ReadsAhead are the reads ahead of one user, oldest first. They are stored with the user, since
// the conversation may not exist yet.
//
// A read ahead does not extend an earlier one: each has its own end. A read ahead is dropped if
// another read ahead of the conversation covers it, that is, has neither a lower UpTo nor an earlier
// Until. So if a conversation has two reads ahead, the read ahead with the greater UpTo has the
// earlier Until.
type ReadsAhead []ReadAhead

// Lapse removes the reads ahead that ended before now, in microseconds since 1970.
func (s *ReadsAhead) Lapse(now int64) {
	*s = slices.DeleteFunc(*s, func(c ReadAhead) bool { return c.Until < now })
}

// Add adds a read ahead and reports whether it changed anything.
func (s *ReadsAhead) Add(c ReadAhead) bool {
	for _, other := range *s {
		if other.covers(c) {
			return false
		}
	}
	*s = append(slices.DeleteFunc(*s, c.covers), c)
	if surplus := len(*s) - MaxReadsAhead; surplus > 0 {
		*s = slices.Delete(*s, 0, surplus)
	}
	return true
}

// covers reports whether c makes other redundant.
func (c ReadAhead) covers(other ReadAhead) bool {
	return c.Conversation == other.Conversation && c.UpTo >= other.UpTo && c.Until >= other.Until
}

// Reach is called when message `seq` of a conversation is delivered. It returns the seq up to which
// the reads ahead mark the conversation as read: the greatest UpTo, but at most `seq`, or 0 if
// there is no read ahead. Call Lapse before, since Reach does not check Until.
func (s ReadsAhead) Reach(conversation string, seq int64) (upTo int64) {
	for _, c := range s {
		if c.Conversation == conversation {
			upTo = max(upTo, min(c.UpTo, seq))
		}
	}
	return upTo
}

// String returns the reads ahead as jsonb prints them, "" for none.
func (s ReadsAhead) String() string {
	if len(s) == 0 {
		return ""
	}
	b := []byte{'['}
	for i, c := range s {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = strconv.AppendInt(append(b, `{"until": `...), c.Until, 10)
		b = strconv.AppendInt(append(b, `, "up_to_seq": `...), c.UpTo, 10)
		b, _ = jsontext.AppendQuote(append(b, `, "conversation_id": `...), c.Conversation) // ids are valid UTF-8
		b = append(b, '}')
	}
	return string(append(b, ']'))
}

// ParseReadsAhead parses the result of String.
func ParseReadsAhead(text string) (ReadsAhead, error) {
	if text == "" {
		return nil, nil
	}
	var stored []struct {
		Until          int64  `json:"until"`
		UpToSeq        int64  `json:"up_to_seq"`
		ConversationID string `json:"conversation_id"`
	}
	if err := json.Unmarshal([]byte(text), &stored); err != nil {
		return nil, err
	}
	s := make(ReadsAhead, len(stored))
	for i, c := range stored {
		s[i] = ReadAhead{Conversation: c.ConversationID, UpTo: c.UpToSeq, Until: c.Until}
	}
	return s, nil
}
