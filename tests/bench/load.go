package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"
)

// load is the load of a latency measurement.
type load struct {
	clients       int // connected, one user each
	conversations int // of each user, in turn
	connections   int // of the publisher
	rate          float64
	warmUp        time.Duration // not counted
	measured      time.Duration
}

// String describes the load.
func (l load) String() string {
	return fmt.Sprintf("%.0f events/s on %d connections for %s after %s of warm-up, to %d clients",
		l.rate, l.connections, l.measured, l.warmUp, l.clients)
}

// message is one event of a schedule: message seq of a conversation with a single
// recipient.
type message struct {
	// due is the scheduled time, from the start.
	due          time.Duration
	client       int
	conversation string
	seq          int64
	event        []byte // CloudEvents JSON
}

// schedule returns the events in the order of their times, the same every time.
// The times are a Poisson process, as of many independent senders, so several may
// coincide. The conversations take turns, so messages of one are seconds apart.
func (l load) schedule() ([]message, error) {
	random := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // the same schedule every time
	turns := random.Perm(l.clients * l.conversations)
	var due time.Duration
	var messages []message
	for i := 0; ; i++ {
		due += time.Duration(random.ExpFloat64() / l.rate * float64(time.Second))
		if due >= l.warmUp+l.measured {
			return messages, nil
		}
		turn := turns[i%len(turns)]
		m := message{
			due: due, client: turn / l.conversations,
			conversation: fmt.Sprintf("conversation-%06d", turn), seq: int64(i/len(turns)) + 1,
		}
		var err error
		if m.event, err = m.encode(); err != nil {
			return nil, err
		}
		messages = append(messages, m)
	}
}

// encode returns the event as a chat backend would send it.
func (m message) encode() ([]byte, error) {
	type data struct {
		ConversationID string   `json:"conversation_id"`
		Seq            int64    `json:"seq"`
		UserIDs        []string `json:"user_ids"`
		SenderID       string   `json:"sender_id"`
	}
	return json.Marshal(struct {
		SpecVersion string `json:"specversion"`
		ID          string `json:"id"`
		Source      string `json:"source"`
		Type        string `json:"type"`
		Data        data   `json:"data"`
	}{
		"1.0", fmt.Sprintf("%s/%d", m.conversation, m.seq), "bench/latency", "message.delivered",
		data{m.conversation, m.seq, []string{userOf(m.client)}, "sender"},
	})
}

func userOf(client int) string { return fmt.Sprintf("user-%06d", client) }
