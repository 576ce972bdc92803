package tests

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// microseconds is a seq in microseconds, while the other seqs of its conversation are milliseconds.
const microseconds = 1_700_000_001_000_000

func reset(id, conversation, data, users string) string {
	return event(id, "conversation.reset", fmt.Sprintf(`{"conversation_id":%q,%s"user_ids":[%s]}`, conversation, data, users))
}

// A backend uses milliseconds as seqs, but sends one message with a seq in microseconds, and the
// user reads it. Later messages do not count until the conversation is reset.
func silencedByASeq(t *testing.T) {
	database := newDatabase(t)
	p := serve(t, database, "--redis-url="+newRedis(t).URL())
	ann := connect(t, p.url, "ann")
	at := func(n int) int { return 1_700_000_000_000 + n }
	p.mustPost(delivered("c", at(1), `"ann"`), delivered("c", microseconds, `"ann"`))
	ann.awaitTotal(2)
	p.mustCommand("ann", fmt.Sprintf(`{"t":"read","id":1,"conversation_id":"c","up_to_seq":%d}`, microseconds))
	ann.awaitTotal(0)
	position := p.mustPost(delivered("c", at(2), `"ann"`), delivered("c", at(3), `"ann"`))
	everyReaderSays(t, database, p, "ann", position, map[string]int64{}) // silent

	wanted := reset("reset", "c", fmt.Sprintf(`"up_to_seq":%d,"seqs":[%d,%d],`, at(1), at(2), at(3)), `"ann"`)
	if status, _, answer := requestAs(t, token(t, "ann"), http.MethodPost, p.url+"/v1/events", "application/cloudevents+json", wanted); status/100 != 4 {
		t.Errorf("an app that resets a conversation is answered %d %s", status, answer)
	}
	if status, answer := p.command("ann", `{"t":"reset","id":2,"conversation_id":"c","up_to_seq":1}`); status/100 != 4 {
		t.Errorf("a command that resets a conversation is answered %d %s", status, answer)
	}
	position = p.mustPost(wanted)
	ann.awaitTotal(2)
	everyReaderSays(t, database, p, "ann", position, map[string]int64{"c": 2})
	if status, _, answer := request(t, http.MethodGet, p.url+"/v1/users/ann/conversations", "", ""); status != http.StatusOK || !strings.Contains(answer, fmt.Sprintf(`"read_seq":%d,"last_seq":%d`, at(1), at(3))) {
		t.Errorf("the positions are %d %s", status, answer)
	}
	p.mustCommand("ann", `{"t":"read_all","id":3}`)
	ann.awaitTotal(0)
	position = p.mustPost(delivered("c", at(4), `"ann"`))
	ann.awaitTotal(1)
	everyReaderSays(t, database, p, "ann", position, map[string]int64{"c": 1})

	if _, _, metrics := request(t, http.MethodGet, p.url+"/metrics", "", ""); !strings.Contains(metrics, "\nbadged_projector_seq_leaps_total 1\n") {
		t.Error("no metric tells of the seq")
	}
	must(t, "verify", "--database-url="+database)
	must(t, "rebuild", "--database-url="+database)
	everyReaderSays(t, database, p, "ann", position, map[string]int64{"c": 1})
}

// The backend is restored from a backup and loses its last day. It has messages 1 and 2, and ann
// has read the first. badged also has messages 3 to 5 and the recall of 4.
func restoredBackup(t *testing.T) {
	database := newDatabase(t)
	p := serve(t, database, "--redis-url="+newRedis(t).URL())
	ann := connect(t, p.url, "ann")
	for seq := 1; seq <= 5; seq++ {
		p.mustPost(delivered("c", seq, `"ann","bob"`))
	}
	p.mustPost(recalled("c", 4, `"ann","bob"`), read("read 5", "c", 5, `"ann"`))
	ann.awaitTotal(0)

	p.mustPost(reset("restored/ann", "c", `"up_to_seq":1,"seqs":[2],`, `"ann"`), reset("restored/bob", "c", `"seqs":[1,2],`, `"bob"`))
	ann.awaitTotal(1)
	again := func(seq int) string {
		return event(fmt.Sprintf("restored/c/%d", seq), "message.delivered", fmt.Sprintf(`{"conversation_id":"c","seq":%d,"user_ids":["ann","bob"]}`, seq))
	}
	position := p.mustPost(delivered("c", 2, `"ann","bob"`), again(3), again(4), again(5), again(3)) // message 2 comes a second time
	ann.awaitTotal(4)
	everyReaderSays(t, database, p, "ann", position, map[string]int64{"c": 4})
	everyReaderSays(t, database, p, "bob", position, map[string]int64{"c": 5})
	position = p.mustPost(read("read 4 again", "c", 4, `"ann","bob"`))
	ann.awaitTotal(1)
	everyReaderSays(t, database, p, "ann", position, map[string]int64{"c": 1})
	everyReaderSays(t, database, p, "bob", position, map[string]int64{"c": 1})
	must(t, "verify", "--database-url="+database)
}

func inRoom(room, id, typ, data string) string {
	return event(id, typ, fmt.Sprintf(`{"conversation_id":%q%s}`, room, data))
}

func postTo(room string, seq int, rest string) string {
	return inRoom(room, fmt.Sprintf("%s/%d", room, seq), "room.posted", fmt.Sprintf(`,"seq":%d%s`, seq, rest))
}

// The same happens in a room: first for one member, whose backend published a read that is far
// ahead, then for all members, who have read a message with a seq that is far ahead.
func silencedRoom(t *testing.T) {
	database := newDatabase(t)
	p := serve(t, database, "--redis-url="+newRedis(t).URL())
	ann, ben := connect(t, p.url, "ann"), connect(t, p.url, "ben")
	p.mustPost(inRoom("hall", "join", "room.joined", `,"user_ids":["ann","ben"]`), postTo("hall", 1, ""), postTo("hall", 2, `,"sender_id":"ann"`), postTo("hall", 3, `,"mentioned_user_ids":["ann"]`))
	ann.awaitTotal(2)
	ben.awaitTotal(3)
	p.mustPost(read("far", "hall", microseconds, `"ann"`), postTo("hall", 4, ""))
	ann.awaitTotal(0)
	position := p.mustPost(reset("reset", "hall", `"up_to_seq":1,`, `"ann"`))
	ann.awaitTotal(2) // her own message does not count
	everyReaderSays(t, database, p, "ann", position, map[string]int64{"hall": 2})
	everyReaderSays(t, database, p, "ben", position, map[string]int64{"hall": 4})

	p.mustPost(postTo("hall", microseconds, ""))
	p.mustCommand("ann", `{"t":"read_all","id":1}`)
	ann.awaitTotal(0)
	position = p.mustPost(postTo("hall", 5, ""))
	everyReaderSays(t, database, p, "ann", position, map[string]int64{}) // silent
	position = p.mustPost(inRoom("hall", "ends", "room.reset", `,"seq":5`), postTo("hall", 6, ""))
	ann.awaitTotal(1)
	everyReaderSays(t, database, p, "ann", position, map[string]int64{"hall": 1})
	everyReaderSays(t, database, p, "ben", position, map[string]int64{"hall": 6})
	p.mustCommand("ann", `{"t":"read_all","id":2}`)
	ann.awaitTotal(0)
	position = p.mustPost(postTo("hall", 7, ""))
	ann.awaitTotal(1)
	everyReaderSays(t, database, p, "ann", position, map[string]int64{"hall": 1})
	must(t, "verify", "--database-url="+database)
}

// A channel is truncated for all members while clients are connected, and its seqs begin with 1
// again. Messages also count for a member who left earlier and joins again.
func truncatedChannel(t *testing.T) {
	database := newDatabase(t)
	p := serve(t, database, "--redis-url="+newRedis(t).URL())
	ann, ben, cem := connect(t, p.url, "ann"), connect(t, p.url, "ben"), connect(t, p.url, "cem")
	p.mustPost(inRoom("channel", "join", "room.joined", `,"user_ids":["ann","ben","cem"]`))
	for seq := 1; seq <= 300; seq++ { // with gaps, so that the room gets chunks (badged.room_chunks)
		p.mustPost(postTo("channel", 7*seq, ""))
	}
	p.mustPost(postTo("channel", 2200, `,"sender_id":"ben","mentions_all":true`), read("read", "channel", 2100, `"ann"`))
	ann.awaitTotal(1)
	ben.awaitTotal(300)
	p.mustPost(inRoom("channel", "leave", "room.left", `,"user_ids":["cem"]`))
	cem.awaitTotal(0)

	truncated := inRoom("channel", "truncated", "room.reset", "")
	position := p.mustPost(truncated)
	ann.awaitTotal(0)
	ben.awaitTotal(0)
	everyReaderSays(t, database, p, "ann", position, map[string]int64{})
	everyReaderSays(t, database, p, "ben", position, map[string]int64{})
	again := func(seq int, rest string) string {
		return inRoom("channel", fmt.Sprint("again/", seq), "room.posted", fmt.Sprintf(`,"seq":%d%s`, seq, rest))
	}
	position = p.mustPost(again(1, ""), again(2, `,"sender_id":"ann"`), truncated) // a retry
	ann.awaitTotal(1)
	ben.awaitTotal(2)
	everyReaderSays(t, database, p, "ann", position, map[string]int64{"channel": 1})
	everyReaderSays(t, database, p, "ben", position, map[string]int64{"channel": 2})
	position = p.mustPost(inRoom("channel", "back", "room.joined", `,"user_ids":["cem"]`), again(3, ""))
	cem.awaitTotal(1)
	everyReaderSays(t, database, p, "cem", position, map[string]int64{"channel": 1})
	must(t, "verify", "--database-url="+database)
	must(t, "rebuild", "--database-url="+database)
	everyReaderSays(t, database, p, "ben", position, map[string]int64{"channel": 3})
}
