package traffic

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/badged/badged/events"
)

// Source is the CloudEvents source of the events made from messages.
const Source = "badged/load"

// message is a line of the form SRC DST UNIXTS.
type message struct {
	line     int
	src, dst string
	sentAt   int64 // seconds since 1970
}

// mapping converts messages to events.
//
// A conversation is an unordered pair of users: it has the messages in both directions. The seq of
// a message is its rank among the messages of the conversation, in the order of the file. The
// message is delivered to DST, with SRC as the sender.
//
// The file contains no reads, but a user who answers has read the messages before. A message counts
// as an answer if an earlier message of the conversation was delivered to SRC. Before each answer,
// SRC reads the conversation up to the previous message. If SRC answers with two messages in a row,
// the read before the second message changes no number: it only moves SRC's read position past
// SRC's own first message.
//
// A message from a user to the same user has a conversation and a seq, too. But its delivery
// changes no number, and it is no answer, because a user's own messages do not count.
//
// An event id consists of the line number and a hash of the line and its seq, so that equal ids
// mean equal events. Therefore a file can be loaded again, even after lines were appended to it or
// the first load was interrupted: events that were loaded before change nothing. If two files have
// the same user ids, they share conversations.
type mapping struct {
	conversations map[pair]*conversation
}

// pair has two user ids, first ≤ second.
type pair struct{ first, second string }

func pairOf(a, b string) pair { return pair{min(a, b), max(a, b)} }

// conversation is the state of a pair's conversation.
type conversation struct {
	id string
	// seq is the seq of the last message.
	seq int64
	// firstReceived and secondReceived report whether any message was delivered to the first and
	// the second user of the pair.
	firstReceived, secondReceived bool
}

func newMapping() *mapping { return &mapping{conversations: map[pair]*conversation{}} }

// events returns the events of m: a read, if m is an answer, and then the delivery of m.
func (mp *mapping) events(m message) []events.Event {
	p := pairOf(m.src, m.dst)
	c, ok := mp.conversations[p]
	if !ok {
		c = &conversation{id: p.conversationID()}
		mp.conversations[p] = c
	}
	c.seq++
	id := m.eventID(c.seq)
	at := time.Unix(m.sentAt, 0).UTC()
	evs := make([]events.Event, 0, 2)
	if c.received(m.src == p.first) {
		evs = append(evs, events.Event{
			ID: id + "-read", Source: Source, Type: events.ConversationRead, Time: at,
			Data: events.Data{
				ConversationID: c.id, UserIDs: []string{m.src}, UpToSeq: c.seq - 1,
			},
		})
	}
	if m.src != m.dst {
		c.deliver(m.dst == p.first)
	}
	return append(evs, events.Event{
		ID: id, Source: Source, Type: events.MessageDelivered, Time: at,
		Data: events.Data{
			ConversationID: c.id, UserIDs: []string{m.dst}, Seq: c.seq, SenderID: m.src,
		},
	})
}

func (c *conversation) received(first bool) bool {
	if first {
		return c.firstReceived
	}
	return c.secondReceived
}

func (c *conversation) deliver(first bool) {
	if first {
		c.firstReceived = true
	} else {
		c.secondReceived = true
	}
}

// conversationID returns the id of a pair's conversation. Each pair has a different id, of the form
// "first:second". If a user id contains a colon, or if this text is too long, the id is a hash,
// which contains no colon.
func (p pair) conversationID() string {
	plain := p.first + ":" + p.second
	if len(plain) <= events.MaxIDBytes && strings.Count(plain, ":") == 1 {
		return plain
	}
	// User ids contain no spaces, so different pairs have different texts.
	sum := sha256.Sum256([]byte(p.first + " " + p.second))
	return "pair-" + hex.EncodeToString(sum[:])
}

// eventID returns the event id for the delivery of m as message seq.
func (m message) eventID(seq int64) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %d %d", m.src, m.dst, m.sentAt, seq))
	return fmt.Sprintf("%d-%x", m.line, sum[:8])
}
