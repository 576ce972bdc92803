package tests

import (
	"net/http"
	"strings"
	"testing"
)

// A user marks messages unread that were read: they count again until they are read
// or recalled, for every reader.
func TestMarkedMessages(t *testing.T) {
	t.Parallel()
	database := newDatabase(t)
	p := serve(t, database, "--redis-url="+newRedis(t).URL())
	ann := connect(t, p.url, "ann")
	p.mustPost(delivered("c", 1, `"ann"`), delivered("c", 2, `"ann"`), delivered("c", 3, `"ann"`))
	ann.awaitTotal(3)
	p.mustCommand("ann", `{"t":"read","id":1,"conversation_id":"c","up_to_seq":3}`)
	ann.awaitTotal(0)
	ann.say(`{"t":"mark_unread","id":2,"conversation_id":"c","seqs":[1,3]}`)
	ann.awaitTotal(2)
	position := p.mustPost(`{"specversion":"1.0","id":"recall","source":"chat","type":"message.recalled","data":{"conversation_id":"c","user_ids":["ann"],"seq":1}}`)
	ann.awaitTotal(1)
	everyReaderSays(t, database, p, "ann", position, map[string]int64{"c": 1})
	// A client with nothing reads it from the tables.
	fresh := connect(t, p.url, "ann")
	fresh.awaitTotal(1)
	fresh.say(`{"t":"read","id":3,"conversation_id":"c","up_to_seq":2}`) // older than the mark
	fresh.say(`{"t":"read","id":4,"conversation_id":"c","up_to_seq":3}`)
	ann.awaitTotal(0)

	for frame, want := range map[string]string{
		`{"t":"mark_unread","id":5,"conversation_id":"c","seqs":[0]}`:    "seqs[0] must be at least 1, is 0",
		`{"t":"mark_unread","id":6,"conversation_id":"c","seqs":[]}`:     "seqs must name at least one message",
		`{"t":"mark_unread","id":7,"conversation_id":"c","seqs":["1"]}`:  "field seqs must not be a JSON string",
		`{"t":"mark_unread","id":8,"conversation_id":"room","seqs":[1]}`: "seqs must be absent in a room",
	} {
		if strings.Contains(frame, "room") {
			p.mustPost(
				`{"specversion":"1.0","id":"join","source":"chat","type":"room.joined","data":{"conversation_id":"room","user_ids":["ann"]}}`,
				`{"specversion":"1.0","id":"post","source":"chat","type":"room.posted","data":{"conversation_id":"room","seq":1}}`)
			ann.awaitTotal(1)
		}
		if status, answer := p.command("ann", frame); status != http.StatusBadRequest || !strings.Contains(answer, want) {
			t.Errorf("%s is answered %d %s, want that %s", frame, status, answer, want)
		}
	}
}
