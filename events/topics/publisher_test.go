package topics_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/events"
	"github.com/badged/badged/events/topics"
	"github.com/badged/badged/internal/devtest/foldtest"
)

// asMessages returns events as messages of a publisher.
func asMessages(t testing.TB, evs ...events.Event) []*message.Message {
	t.Helper()
	var msgs []*message.Message
	for i := range evs {
		payload, err := evs[i].MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		msgs = append(msgs, message.NewMessage("any id", payload))
	}
	return msgs
}

// A call appends its events in one transaction, each to the partitions of its users.
func TestPublisherAppendsOnce(t *testing.T) {
	log, pool := newLog(t)
	publisher := topics.NewPublisher(log)
	msgs := asMessages(t, delivered("1", userIn(0, 0)), delivered("2", userIn(3, 0), userIn(0, 1)))
	if err := publisher.Publish(events.Topic(0), msgs...); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([partitions][]string{0: {"1", "2"}, 3: {"2"}}, stored(t, pool)); diff != "" {
		t.Errorf("events by partition (-want +got):\n%s", diff)
	}
	first, last := readAll(t, pool, 0), readAll(t, pool, 3)
	if first[0].TransactionID != last[0].TransactionID {
		t.Errorf("the events were appended by the transactions %d and %d", first[0].TransactionID, last[0].TransactionID)
	}
	if err := publisher.Publish(events.Topic(0)); err != nil {
		t.Errorf("no messages: %v", err)
	}
}

// A message to a room goes to every partition, whatever the topic.
func TestPublisherOfRooms(t *testing.T) {
	log, pool := newLog(t)
	publisher := topics.NewPublisher(log)
	if err := publisher.Publish(events.Topic(0), asMessages(t, foldtest.Event("1", events.RoomJoined, "r", nil, userIn(0, 0), userIn(2, 0)))...); err != nil {
		t.Fatal(err)
	}
	if err := publisher.Publish(events.Topic(3), asMessages(t, foldtest.Event("2", events.RoomPosted, "r", foldtest.Seq(1)))...); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([partitions][]string{0: {"1", "2"}, 1: {"2"}, 2: {"1", "2"}, 3: {"2"}}, stored(t, pool)); diff != "" {
		t.Errorf("stored events (-want +got):\n%s", diff)
	}
}

// A call with a message that cannot be published appends nothing, and names the
// message and what is wrong.
func TestPublisherRefuses(t *testing.T) {
	log, pool := newLog(t)
	good := asMessages(t, delivered("1", userIn(0, 0)))[0]
	elsewhere := asMessages(t, delivered("2", userIn(2, 0)))[0]
	expired := delivered("3", userIn(0, 0))
	expired.Type, expired.Data.UpToSeq, expired.Data.Seq = events.ConversationExpired, 1, 0
	closed := topics.NewPublisher(log)
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		publisher *topics.Publisher
		topic     string
		second    *message.Message
		index     int // of the bad message, 0 if it is not about one
		want      string
	}{
		"an invalid event":     {topics.NewPublisher(log), "events_p00", message.NewMessage("m", []byte(`{}`)), 1, "specversion"},
		"a type of badged":     {topics.NewPublisher(log), "events_p00", asMessages(t, expired)[0], 1, "is written by badged itself only"},
		"a user of another":    {topics.NewPublisher(log), "events_p00", elsewhere, 1, "data.user_ids: has no user of topic events_p00; publish the event to events_p02"},
		"an unknown topic":     {topics.NewPublisher(log), "events_p04", good, 0, `there is no topic "events_p04": the log has events_p00 to events_p03`},
		"after it was closed":  {closed, "events_p00", good, 0, "the publisher is closed"},
		"a topic of no number": {topics.NewPublisher(log), "events_p0", good, 0, `there is no topic "events_p0"`},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.publisher.Publish(tc.topic, good, tc.second)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("error %v, want %q in it", err, tc.want)
			}
			var bad *events.BatchError
			if errors.As(err, &bad) != (tc.index > 0) || bad != nil && bad.Events[0].Index != tc.index {
				t.Errorf("%v is not about message %d", err, tc.index)
			}
		})
	}
	if diff := cmp.Diff([partitions][]string{}, stored(t, pool)); diff != "" {
		t.Errorf("stored events (-want +got):\n%s", diff)
	}
}
