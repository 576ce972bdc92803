package gateway

import (
	"strings"
	"testing"
)

// A frame with an invalid field is answered with an error with its id, if the id can be decoded,
// and reaches neither the log nor the tables. The session goes on.
func TestInvalidFramesEndNoSession(t *testing.T) {
	w := newWorld(t, nil)
	w.tables.commit("ann", "c1", 1)
	const noID = "conversation_id must have 1 to 128 bytes of UTF-8, without control characters"
	for _, categories := range []string{"", "//chat"} {
		c, _ := w.connect("ann" + categories)
		for _, tc := range []struct{ say, answer string }{
			{`{"t":"read","id":1,"conversation_id":123,"up_to_seq":5}`, `{"t":"error","id":1,"code":"invalid","message":"field conversation_id must not be a JSON number"}`},
			{`{"t":"read","conversation_id":"c1","up_to_seq":"five","id":"two"}`, `{"t":"error","id":"two","code":"invalid","message":"field up_to_seq: a seq must be a whole number from 1 to 9223372036854775807, or its digits in a string; the field is \"five\""}`},
			{`{"t":"auth","id":3,"token":5}`, `{"t":"error","id":3,"code":"invalid","message":"field token must not be a JSON number"}`},
			{`{"id":4}`, `{"t":"error","id":4,"code":"invalid","message":"frame has no type t"}`},
			{`{"t":"read","id":{},"conversation_id":5}`, `{"t":"error","code":"invalid","message":"id must be a number or a string"}`},
			{`{"t":"read","id":5,"conversation_id":"","up_to_seq":5}`, `{"t":"error","id":5,"code":"invalid","message":"` + noID + `"}`},
			{`{"t":"read","id":8,"conversation_id":"c1\ud800","up_to_seq":1}`, `{"t":"error","id":8,"code":"invalid","message":"field conversation_id must be UTF-8, without halves of surrogate pairs"}`},
			{`{"t":"read","id":"\ud800","conversation_id":"c1","up_to_seq":1}`, `{"t":"error","code":"invalid","message":"field id must be UTF-8, without halves of surrogate pairs"}`},
			{`{"t":"mark_unread","id":6,"conversation_id":"a\u0000b"}`, `{"t":"error","id":6,"code":"invalid","message":"` + noID + `"}`},
			{`{"t":"mark_unread","id":7,"conversation_id":"` + strings.Repeat("é", 65) + `"}`, `{"t":"error","id":7,"code":"invalid","message":"` + noID + `"}`},
		} {
			c.say(tc.say)
			if f := c.hear(); f.raw != tc.answer {
				t.Errorf("%s is answered with %s, want %s", tc.say, f.raw, tc.answer)
			}
		}
		if did := w.log.recorded(); len(did) > 0 {
			t.Errorf("did %q", did)
		}
		c.say(`{"t":"ping"}`)
		if f := c.hear(); f.T != "pong" {
			t.Errorf("then a ping is answered with %s", f.raw)
		}
	}
}
