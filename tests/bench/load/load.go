// Package load publishes messages at a rate, and times their arrival at clients that
// are connected to badged or to centrifugo.
package load

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"
)

// Load is the load of a latency measurement.
type Load struct {
	Clients       int // connected, one user each
	Conversations int // of each user, in turn
	Connections   int // of the publisher
	Rate          float64
	WarmUp        time.Duration // not counted
	Measured      time.Duration
	// Rooms makes each conversation a room, whose messages name no users.
	Rooms bool
}

// String describes the load.
func (l Load) String() string {
	return fmt.Sprintf("%.0f events/s on %d connections for %s after %s of warm-up, to %d clients",
		l.Rate, l.Connections, l.Measured, l.WarmUp, l.Clients)
}

// Message is one event of a schedule: message seq of a conversation with a single
// recipient.
type Message struct {
	// Due is the scheduled time, from the start.
	Due          time.Duration
	Client       int
	conversation string
	seq          int64
	event        []byte // CloudEvents JSON
}

// Schedule returns the events in the order of their times, the same every time.
// The times are a Poisson process, as of many independent senders, so several may
// coincide. The conversations take turns, so messages of one are seconds apart.
func (l Load) Schedule() ([]Message, error) {
	random := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // the same schedule every time
	turns := random.Perm(l.Clients * l.Conversations)
	var due time.Duration
	var messages []Message
	for i := 0; ; i++ {
		due += time.Duration(random.ExpFloat64() / l.Rate * float64(time.Second))
		if due >= l.WarmUp+l.Measured {
			return messages, nil
		}
		turn := turns[i%len(turns)]
		m := Message{
			Due: due, Client: turn / l.Conversations,
			conversation: ConversationOf(turn), seq: int64(i/len(turns)) + 1,
		}
		var err error
		if m.event, err = m.encode(l.Rooms); err != nil {
			return nil, err
		}
		messages = append(messages, m)
	}
}

// encode returns the event as a chat backend would send it.
func (m Message) encode(toRoom bool) ([]byte, error) {
	type data struct {
		ConversationID string   `json:"conversation_id"`
		Seq            int64    `json:"seq"`
		UserIDs        []string `json:"user_ids,omitempty"`
		SenderID       string   `json:"sender_id"`
	}
	typ, users := "message.delivered", []string{UserOf(m.Client)}
	if toRoom {
		typ, users = "room.posted", nil
	}
	return json.Marshal(struct {
		SpecVersion string `json:"specversion"`
		ID          string `json:"id"`
		Source      string `json:"source"`
		Type        string `json:"type"`
		Data        data   `json:"data"`
	}{
		"1.0", fmt.Sprintf("%s/%d", m.conversation, m.seq), "bench/latency", typ,
		data{m.conversation, m.seq, users, "sender"},
	})
}

// ConversationOf returns conversation i of all clients, in their order.
func ConversationOf(i int) string { return fmt.Sprintf("conversation-%06d", i) }

// UserOf returns the user of a client.
func UserOf(client int) string { return fmt.Sprintf("user-%06d", client) }
