package tests

import (
	"net/http"
	"strings"
	"testing"
)

// A user marks read messages as unread. In every view they count again until they are read or
// recalled.
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
	// A new client without a state gets the numbers from the tables.
	fresh := connect(t, p.url, "ann")
	fresh.awaitTotal(1)
	fresh.say(`{"t":"read","id":3,"conversation_id":"c","up_to_seq":2}`) // older than the mark
	fresh.say(`{"t":"read","id":4,"conversation_id":"c","up_to_seq":3}`)
	ann.awaitTotal(0)

}

// A member of a room marks messages unread from a seq on. All later messages count again, except the
// member's own messages, recalled messages, and messages from before the member joined.
func TestMarkedMessagesOfARoom(t *testing.T) {
	t.Parallel()
	database := newDatabase(t)
	p := serve(t, database, "--redis-url="+newRedis(t).URL())
	event := func(id, typ, data string) string {
		return `{"specversion":"1.0","id":"` + id + `","source":"chat","type":"` + typ + `","data":{"conversation_id":"hall",` + data + `}}`
	}
	ann, ben := connect(t, p.url, "ann"), connect(t, p.url, "ben")
	p.mustPost(event("1", "room.joined", `"user_ids":["ben"]`), event("2", "room.posted", `"seq":10`),
		event("3", "room.joined", `"user_ids":["ann"]`),
		event("4", "room.posted", `"seq":20`), event("5", "room.posted", `"seq":30,"sender_id":"ann"`),
		event("6", "room.posted", `"seq":40,"mentioned_user_ids":["ann"]`), event("7", "room.posted", `"seq":50,"mentions_all":true`),
		event("8", "room.recalled", `"seq":20`))
	ann.awaitTotal(2)
	ben.awaitTotal(4)
	p.mustCommand("ann", `{"t":"read","id":1,"conversation_id":"hall","up_to_seq":50}`)
	ann.awaitTotal(0)
	ann.say(`{"t":"mark_unread","id":2,"conversation_id":"hall","from_seq":1}`)
	ann.awaitTotal(2)
	// The API shows the real read position, and mentions count again.
	if status, _, answer := request(t, http.MethodGet, p.url+"/v1/users/ann/conversations", "", ""); status != http.StatusOK ||
		!strings.Contains(answer, `"unread":2,"mentions":2,"seen":2,"seen_mentions":2,"first_unread_seq":40,"read_seq":50`) {
		t.Errorf("the conversation is %d %s", status, answer)
	}
	p.mustPost(event("9", "room.posted", `"seq":35`), event("10", "room.posted", `"seq":36,"sender_id":"ann"`)) // late messages
	ann.awaitTotal(3)
	position := p.mustPost(event("11", "room.recalled", `"seq":30`), event("12", "room.recalled", `"seq":40`))
	ann.awaitTotal(2)
	everyReaderSays(t, database, p, "ann", position, map[string]int64{"hall": 2})
	fresh := connect(t, p.url, "ann")
	fresh.awaitTotal(2)
	fresh.say(`{"t":"read","id":3,"conversation_id":"hall","up_to_seq":40}`) // older than the mark
	fresh.say(`{"t":"mark_unread","id":4,"conversation_id":"hall","from_seq":50}`)
	fresh.awaitTotal(2)
	fresh.say(`{"t":"read","id":5,"conversation_id":"hall","up_to_seq":50}`)
	ann.awaitTotal(0)

}
