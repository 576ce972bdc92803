// Package encode encodes the frames that gateways send.
//
// It does not know sessions or the bus.
package encode

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/badged/badged/gateway/protocol"
	"github.com/badged/badged/pubsub"
)

// Buffers holds buffers for frames; a frame is copied when it is written.
type Buffers struct{ pool sync.Pool }

// Encode returns a frame as JSON, in a buffer to give back.
func (p *Buffers) Encode(frame any) (body []byte, release func(), err error) {
	f, ok := frame.(protocol.StateFrame)
	if !ok { // rare
		b, err := json.Marshal(frame)
		return b, func() {}, err
	}
	buffer, ok := p.pool.Get().(*[]byte)
	if !ok {
		buffer = new([]byte)
	}
	*buffer = appendState((*buffer)[:0], &f)
	return *buffer, func() { p.pool.Put(buffer) }, nil
}

// appendState appends what encoding/json would, which takes three times as long, and
// completes CategoryConversations. Most frames are changes.
func appendState(b []byte, f *protocol.StateFrame) []byte {
	b = appendText(append(b, `{"t":`...), f.T)
	b = appendText(append(b, `,"epoch":`...), f.Epoch)
	b = appendInt(append(b, `,"version":`...), f.Version)
	b = appendInt(append(b, `,"total":`...), f.Total)
	b = appendInt(append(b, `,"mentions":`...), f.Mentions)
	b = append(b, `,"categories":`...)
	b = appendCategories(b, f.Categories)
	if f.MoreCategories {
		b = append(b, `,"more_categories":true`...)
	}
	b = appendInt(append(b, `,"unread_conversations":`...), f.UnreadConversations)
	b = append(b, `,"category_conversations":`...)
	if f.CategoryConversations == nil { // of the only category, if any
		b = append(b, '{')
		for name := range f.Categories {
			b = appendInt(append(appendText(b, name), ':'), f.UnreadConversations)
		}
		b = append(b, '}')
	} else {
		b = appendCategories(b, f.CategoryConversations)
	}
	b = append(b, `,"conversations":`...)
	if f.Conversations == nil {
		return append(b, `null}`...)
	}
	b = append(b, '[')
	for i := range f.Conversations {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendConversation(b, &f.Conversations[i])
	}
	return append(b, `]}`...)
}

func appendCategories(b []byte, categories map[string]int64) []byte {
	if categories == nil {
		return append(b, `null`...)
	}
	b = append(b, '{')
	if len(categories) == 1 { // nothing to sort
		for name, n := range categories {
			b = appendInt(append(appendText(b, name), ':'), n)
		}
		return append(b, '}')
	}
	for i, name := range slices.Sorted(maps.Keys(categories)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendInt(append(appendText(b, name), ':'), categories[name])
	}
	return append(b, '}')
}

func appendConversation(b []byte, c *pubsub.Conversation) []byte {
	b = appendText(append(b, `{"conversation_id":`...), c.ConversationID)
	b = appendInt(append(b, `,"unread":`...), c.Unread)
	b = appendInt(append(b, `,"mentions":`...), c.Mentions)
	b = appendInt(append(b, `,"first_unread_seq":`...), c.FirstUnreadSeq)
	b = appendInt(append(b, `,"read_seq":`...), c.ReadSeq)
	b = appendInt(append(b, `,"last_seq":`...), c.LastSeq)
	b = appendText(append(b, `,"level":`...), c.Level)
	if !c.LevelUntil.IsZero() {
		b = append(c.LevelUntil.AppendFormat(append(b, `,"level_until":"`...), time.RFC3339Nano), '"')
	}
	b = appendText(append(b, `,"category":`...), c.Category)
	b = strconv.AppendBool(append(b, `,"marked_unread":`...), c.MarkedUnread)
	if c.Left {
		b = append(b, `,"left":true`...)
	}
	return append(appendInt(append(b, `,"version":`...), c.Version), '}')
}

func appendInt(b []byte, n int64) []byte { return strconv.AppendInt(b, n, 10) }

func appendText(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s) // invalid UTF-8 is replaced
	return b
}
