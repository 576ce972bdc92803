package tombstones_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/log/tombstones"
)

// What remains of an event is read as it was written, and nothing else is taken for it.
func TestRemains(t *testing.T) {
	joined := []tombstones.Members{{Type: events.RoomJoined, ConversationID: `a <"room">`, Users: 2}}
	left := []tombstones.Members{{Type: events.RoomLeft, ConversationID: "r", Users: 1}, {Type: events.RoomLeft, ConversationID: "s", Users: 1}}
	for want, r := range map[string]tombstones.Tombstone{
		`null`: {},
		`{"erased":[{"type":"room.joined","conversation_id":"a <\"room\">","users":2}]}`:                                                                                        {Members: joined},
		`{"erased":[{"type":"room.left","conversation_id":"r","users":1},{"type":"room.left","conversation_id":"s","users":1}],"event":{"specversion":"1.0","data":{"seq":1}}}`: {Members: left, Event: []byte(`{"specversion":"1.0","data":{"seq":1}}`)},
	} {
		text, err := r.Append([]byte("x"))
		if err != nil || string(text) != "x"+want {
			t.Errorf("%+v is written as %s, %v; want %s", r, text, err, want)
		}
		got, ok := tombstones.Parse([]byte(want))
		if diff := cmp.Diff(r, got); !ok || diff != "" {
			t.Errorf("%s is read as (-want +got):\n%s", want, diff)
		}
		if event := tombstones.EventIn([]byte(want)); string(event) != string(r.Event) {
			t.Errorf("the event in %s is %s", want, event)
		}
	}
	for _, text := range []string{
		``, `nul`, `null `, `{}`, `{"specversion":"1.0"}`, `{"erased":null}`, `{"erased":{}}`, `{"erased":[]}`, `{"erased":[{}]}`, `{"erased":1}`,
		`{"erased":[{"type":"room.posted","conversation_id":"r","users":1}]}`, `{"erased":[{"type":"room.left","conversation_id":"","users":1}]}`,
		`{"erased":[{"type":"room.left","conversation_id":"r","users":0}]}`, `{"erased":[{"type":"room.left","conversation_id":"r","users":10001}]}`,
		`{"erased":[{"type":"room.left","conversation_id":"r","users":1,"user_id":"ada"}]}`, `{"erased":[{"type":"room.left","conversation_id":"` + strings.Repeat("r", 129) + `","users":1}]}`,
	} {
		if got, ok := tombstones.Parse([]byte(text)); ok || string(tombstones.EventIn([]byte(text))) != text {
			t.Errorf("%s is read as %+v", text, got)
		}
	}
}
