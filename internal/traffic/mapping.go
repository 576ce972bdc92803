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

// message is one line SRC DST UNIXTS.
type message struct {
	line     int
	src, dst string
	at       int64 // seconds since 1970
}

// mapping turns messages into events.
//
// The conversation of a message is the unordered pair of its users, its seq
// its rank in that conversation, in the order of the file. It is delivered to
// DST with SRC as the sender.
//
// The file has no reads, but a user who answers has read. A message is an
// answer if anything was delivered to SRC in the conversation before, however
// long ago; just before it, SRC reads the conversation up to the message
// before it. A second message in a row is an answer as well: its read moves
// SRC's position over the first one and changes no count.
//
// A message to oneself has a conversation and seqs like any other. Its sender
// is its only recipient, and a user's own messages do not count, so it is
// delivered to no user and has no answer.
//
// The id of an event has the number of its line and a hash of the line and of
// its seq, so that equal ids mean equal events: loading a file again, whole,
// grown or after a crash, changes nothing. Two files with the same user ids
// share conversations.
type mapping struct {
	conversations map[pair]*conversation
}

// pair is two users, first ≤ second.
type pair struct{ first, second string }

func pairOf(a, b string) pair { return pair{min(a, b), max(a, b)} }

// conversation is the state of a pair's conversation.
type conversation struct {
	id string
	// seq is the seq of the last message.
	seq int64
	// firstReceived and secondReceived report whether a message was delivered
	// to that user.
	firstReceived, secondReceived bool
}

func newMapping() *mapping { return &mapping{conversations: map[pair]*conversation{}} }

// events returns the events of m: the read first, if there is one.
func (mp *mapping) events(m message) []events.Event {
	p := pairOf(m.src, m.dst)
	c, ok := mp.conversations[p]
	if !ok {
		c = &conversation{id: p.conversationID()}
		mp.conversations[p] = c
	}
	c.seq++
	id := m.eventID(c.seq)
	at := time.Unix(m.at, 0).UTC()
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

// conversationID returns the id of a pair's conversation: "first:second", with
// exactly one colon, or a hash without a colon if an id contains a colon or
// the whole is too long. No two pairs share one.
func (p pair) conversationID() string {
	plain := p.first + ":" + p.second
	if len(plain) <= events.MaxIDBytes && strings.Count(plain, ":") == 1 {
		return plain
	}
	// No id contains a space, so no other pair gives the same bytes.
	sum := sha256.Sum256([]byte(p.first + " " + p.second))
	return "pair-" + hex.EncodeToString(sum[:])
}

// eventID returns the id of the delivery of m as message seq.
func (m message) eventID(seq int64) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %d %d", m.src, m.dst, m.at, seq))
	return fmt.Sprintf("%d-%x", m.line, sum[:8])
}
