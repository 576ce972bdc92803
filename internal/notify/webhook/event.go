package webhook

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/badged/badged/internal/notify/outbound"
)

// Content types of calls.
const (
	oneEvent   = "application/cloudevents+json; charset=utf-8"
	manyEvents = "application/cloudevents-batch+json; charset=utf-8"
)

// event is a CloudEvent in structured mode.
type event struct {
	SpecVersion     string          `json:"specversion"`
	ID              string          `json:"id"`
	Source          string          `json:"source"`
	Type            string          `json:"type"`
	Subject         string          `json:"subject,omitempty"`
	Time            time.Time       `json:"time"`
	DataContentType string          `json:"datacontenttype"`
	Data            json.RawMessage `json:"data"`
}

// eventOf returns the event for a change. The id of the event is a hash of its content, so a
// repeated call with the same content has the same id, even after a restart.
func eventOf(origin, webhook string, c outbound.Call, data json.RawMessage) event {
	return event{
		SpecVersion: "1.0", ID: digest(webhook, c.Type, c.Subject, string(data)), Source: origin, Type: c.Type, Subject: c.Subject,
		Time: c.QueuedAt.UTC(), DataContentType: "application/json", Data: data,
	}
}

// digest returns an id for an event or a call: a hash of parts. The id has no dots, as Standard
// Webhooks requires.
func digest(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		_, _ = fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return "msg_" + hex.EncodeToString(h.Sum(nil)[:16])
}

// encode returns the body of a call, its content type and its id. If the call has a single event,
// the call has the id of the event. batch is true if the webhook gets JSON arrays.
func encode(events []event, batch bool) (body []byte, contentType, id string, err error) {
	id = events[0].ID
	if len(events) > 1 {
		ids := make([]string, len(events))
		for i, e := range events {
			ids[i] = e.ID
		}
		id = digest(ids...)
	}
	if batch {
		body, err = json.Marshal(events)
		contentType = manyEvents
	} else {
		body, err = json.Marshal(events[0])
		contentType = oneEvent
	}
	if err != nil {
		return nil, "", "", fmt.Errorf("encode a call: %w", err)
	}
	return body, contentType, id, nil
}
