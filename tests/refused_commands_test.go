package tests

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// An invalid command gets its own error, over a WebSocket as over HTTP, also with a token that is
// restricted to categories. The connection stays open, and all other commands are executed.
func TestInvalidCommandsEndNoConnection(t *testing.T) {
	t.Parallel()
	p := serve(t, newDatabase(t), "--commands-per-second=0")
	p.mustPost(delivered("tea", 1, `"ann"`))
	commands := []struct{ fields, says string }{
		{`"t":"read","conversation_id":123,"up_to_seq":5`, "field conversation_id must not be a JSON number"},
		{`"t":"read","conversation_id":["tea"],"up_to_seq":5`, "field conversation_id must not be a JSON array"},
		{`"t":"read","up_to_seq":5`, "conversation_id must have 1 to 128 bytes"},
		{`"t":"read","conversation_id":null,"up_to_seq":5`, "field conversation_id must not be null"},
		{`"t":"read","conversation_id":"` + strings.Repeat("x", 129) + `","up_to_seq":5`, "conversation_id must have 1 to 128 bytes"},
		{`"t":"read","conversation_id":"a\u0000b","up_to_seq":5`, "conversation_id must have 1 to 128 bytes"},
		{`"t":"read","conversation_id":"tea","up_to_seq":"five"`, "field up_to_seq must not be a JSON string"},
		{`"t":"read","conversation_id":"tea","up_to_seq":1.5`, "field up_to_seq must not be a JSON number 1.5"},
		{`"t":"read","conversation_id":"tea","up_to_seq":99999999999999999999`, "field up_to_seq must not be a JSON number"},
		{`"t":"read","conversation_id":"tea","up_to_seq":-1`, "up_to_seq must be at least 1"},
		{`"t":"read","conversation_id":"tea"`, "up_to_seq must be at least 1"},
		{`"t":"mark_unread"`, "conversation_id must have 1 to 128 bytes"},
		{`"t":"mark_unread","conversation_id":"a\u0000b"`, "conversation_id must have 1 to 128 bytes"},
		{`"t":"mark_unread","conversation_id":"tea","seqs":1`, "field seqs must not be a JSON number"},
		{`"t":"mark_unread","conversation_id":"tea","from_seq":"1.0"`, "field from_seq must not be a JSON string"},
		{`"t":"read_all","category":5`, "field category must not be a JSON number"},
		{`"t":"read_all","category":"a\u0001b"`, "category"},
		{`"t":"read_all","categorie":"x"`, `read_all has no field \"categorie\"`},
		{`"t":"read_all","Category":"x"`, `read_all has no field \"Category\"`},
		{`"t":"read_all","category":null`, "field category must not be null"},
		{`"t":"read_all","category":"x","category":"chat"`, "field category is given twice"},
		{`"t":"read_all","conversation_id":"tea"`, `read_all has no field \"conversation_id\"`},
		{`"t":"read","conversation_id":"tea","up_to_seq":1,"Up_To_Seq":1`, `read has no field \"Up_To_Seq\"`},
		{`"t":"mark_unread","conversation_id":"tea","seq":[1]`, `mark_unread has no field \"seq\"`},
		{`"t":"read","conversation_id":"tea\ud800","up_to_seq":1`, "field conversation_id must be UTF-8"},
		{`"t":"read_all","category":"\udc00"`, "field category must be UTF-8"},
		{`"t":5`, "field t must not be a JSON number"},
		{`"conversation_id":"tea"`, "frame has no type t"},
		{`"t":"dance"`, ""},
	}
	// The order matters: the valid command of the first token reads the only message.
	for _, holder := range []struct{ who, jwt string }{
		{"all", token(t, "ann")}, {"some", restricted(t, "ann", "chat")},
	} {
		who, jwt := holder.who, holder.jwt
		c := connectWith(t, p.url, jwt)
		for i, test := range commands {
			c.say(fmt.Sprintf(`{"id":%d,%s}`, i+1, test.fields))
			c.await("an error for "+test.fields, func() bool { return c.answers[i+1] == "invalid" })
			status, _, answer := requestAs(t, jwt, http.MethodPost, p.url+"/v1/commands", "", fmt.Sprintf(`{"id":%d,%s}`, i+1, test.fields))
			if status != http.StatusBadRequest || !strings.Contains(answer, test.says) {
				t.Errorf("a token of %s categories: {%s} is answered by HTTP with %d %s, want %q", who, test.fields, status, answer, test.says)
			}
		}
		if who == "all" {
			c.awaitTotal(1) // the invalid commands have read nothing
		}
		// If the id of the command cannot be repeated in the error, the error has no id.
		for _, id := range []string{`{}`, `true`, `"` + strings.Repeat("x", 129) + `"`} {
			c.say(fmt.Sprintf(`{"t":"read","id":%s,"conversation_id":"tea","up_to_seq":1}`, id))
			c.await("an error without an id", func() bool {
				refused := c.answers[0] == "invalid"
				delete(c.answers, 0)
				return refused
			})
		}
		if status, _, answer := requestAs(t, jwt, http.MethodPost, p.url+"/v1/commands?at_least=5", "", `{"t":"read_all","id":1}`); status != http.StatusBadRequest || !strings.Contains(answer, "not a parameter of this route") {
			t.Errorf("a command with a parameter is answered with %d %s", status, answer)
		}
		c.say(`{"t":"read","id":100,"conversation_id":"tea","up_to_seq":1}`)
		c.await("the answer to a good command", func() bool { return c.answers[100] == "ok" })
		c.awaitTotal(0)
	}
}
