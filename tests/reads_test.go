package tests

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
)

// command sends a command over HTTP, as an app with server-sent events does.
func (p *process) command(user, frame string) (status int, answer string) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, p.url+"/v1/commands", strings.NewReader(frame))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token(p.t, user))
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// mustCommand is command, which must succeed.
func (p *process) mustCommand(user, frame string) {
	p.t.Helper()
	if status, answer := p.command(user, frame); status != http.StatusOK {
		p.t.Fatalf("%s is answered %d %s", frame, status, answer)
	}
}

// An app's read covers every message that it has seen, however far the tables
// are behind the log, over WebSocket and HTTP, even for the first message of a
// conversation.
func TestReadAheadOfTheTables(t *testing.T) {
	database, redis := newDatabase(t), "--redis-url="+newRedis(t).URL()
	p := serve(t, database, redis, "--roles=api,gateway")
	projector := serve(t, database, redis, "--roles=projector")
	ann := connect(t, p.url, "ann")
	p.mustPost(delivered("c", 1, `"ann"`))
	ann.awaitTotal(1)

	if err := projector.stop(); err != nil {
		t.Fatal(err)
	}
	p.mustPost(delivered("c", 2, `"ann"`), delivered("first", 1, `"ann","ben"`))
	ann.say(`{"t":"read","id":1,"conversation_id":"c","up_to_seq":2}`)
	ann.say(`{"t":"read","id":2,"conversation_id":"first","up_to_seq":1}`)
	ann.await("two answers", func() bool { return ann.answers[1] != "" && ann.answers[2] != "" })
	if ann.answers[1] != "ok" || ann.answers[2] != "ok" {
		t.Errorf("the answers are %v", ann.answers)
	}
	p.mustCommand("ben", `{"t":"read","id":3,"conversation_id":"first","up_to_seq":1}`)
	// Whether the conversation exists is not known yet.
	if status, answer := p.command("ben", `{"t":"mark_unread","id":4,"conversation_id":"first"}`); status != http.StatusServiceUnavailable {
		t.Errorf("the mark is answered %d %s", status, answer)
	}
	serve(t, database, redis, "--roles=projector")
	position := p.mustPost(delivered("last", 1, `"ann","ben"`))
	for _, user := range []string{"ann", "ben"} {
		everyReaderSays(t, database, p, user, position, map[string]int64{"last": 1})
	}
	ann.awaitTotal(1)
	p.mustCommand("ben", `{"t":"mark_unread","id":5,"conversation_id":"first"}`)
}

// An app reads a message just after and just before the backend publishes it,
// forty times each.
func TestReadsAroundPublishing(t *testing.T) {
	database := newDatabase(t)
	p := serve(t, database)
	ann := connect(t, p.url, "ann")
	ann.awaitTotal(0)
	reads := func(id int, conversation string, upTo int) {
		ann.say(fmt.Sprintf(`{"t":"read","id":%d,"conversation_id":%q,"up_to_seq":%d}`, id, conversation, upTo))
		ann.await("an answer", func() bool { return ann.answers[id] == "ok" })
	}
	for i := 1; i <= 40; i++ {
		p.mustPost(delivered("after", i, `"ann"`))
		reads(i, "after", i)
		reads(100+i, fmt.Sprint("before ", i), 1)
		p.mustPost(delivered(fmt.Sprint("before ", i), 1, `"ann"`))
	}
	position := p.mustPost(delivered("last", 1, `"ann"`))
	everyReaderSays(t, database, p, "ann", position, map[string]int64{"last": 1})
	ann.awaitTotal(1)
	must(t, "verify", "--database-url="+database)
}

// A read ahead of the delivered messages affects a conversation for one minute
// of the log, and no longer.
func TestForgedReadEnds(t *testing.T) {
	database := newDatabase(t)
	p := serve(t, database)
	p.mustCommand("ann", `{"t":"read","id":1,"conversation_id":"c","up_to_seq":9223372036854775807}`)
	position := p.mustPost(delivered("c", 1, `"ann"`))
	everyReaderSays(t, database, p, "ann", position, map[string]int64{})

	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), `INSERT INTO badged.`+events.Topic(events.PartitionOf("ann", 16))+` (uuid, payload, transaction_id, created_at)
VALUES (gen_random_uuid(), $1::text::json, pg_current_xact_id(), now() + interval '61 seconds')`, delivered("c", 2, `"ann"`)); err != nil {
		t.Fatal(err)
	}
	position = p.mustPost(delivered("last", 1, `"ann"`))
	everyReaderSays(t, database, p, "ann", position, map[string]int64{"c": 1, "last": 1})
	must(t, "verify", "--database-url="+database)
}

// A mark on a conversation without messages ends with a read. A newer mark
// survives an older read and a repetition of that read with the same id, but
// no other read.
func TestMarksEnd(t *testing.T) {
	database := newDatabase(t)
	p := serve(t, database)
	marked := func(id, conversation string) string {
		return event(id, "conversation.marked_unread", fmt.Sprintf(`{"conversation_id":%q,"user_ids":["ann"]}`, conversation))
	}
	n := 0
	expect := func(want int64) {
		t.Helper()
		n++
		// An event published now is after the command's event.
		if got := total(t, p, "ann", p.mustPost(read(fmt.Sprint("nothing ", n), "nothing", n, `"ann"`))); got != want {
			t.Errorf("the total is %d, want %d", got, want)
		}
	}
	p.mustPost(marked("1", "empty"))
	expect(1)
	p.mustCommand("ann", `{"t":"read","id":1,"conversation_id":"empty","up_to_seq":1}`)
	expect(0)
	p.mustPost(delivered("empty", 1, `"ann"`))
	expect(0) // a read like any other
	p.mustPost(delivered("c", 1, `"ann"`), delivered("c", 2, `"ann"`))
	const uuid = `"0b7d5a4e-1f3c-4c7e-9a52-6f6d1f3f7c10"`
	p.mustCommand("ann", `{"t":"read","id":`+uuid+`,"conversation_id":"c","up_to_seq":2}`)
	expect(0)
	p.mustCommand("ann", `{"t":"mark_unread","id":2,"conversation_id":"c"}`)
	expect(1)
	p.mustCommand("ann", `{"t":"read","id":`+uuid+`,"conversation_id":"c","up_to_seq":2}`)
	expect(1)
	p.mustCommand("ann", `{"t":"read","id":3,"conversation_id":"c","up_to_seq":1}`)
	p.mustPost(read("older", "c", 1, `"ann"`))
	expect(1)
	p.mustCommand("ann", `{"t":"read","id":4,"conversation_id":"c","up_to_seq":2}`)
	expect(0)
}

// A conversation that was left stays left when older messages arrive late, is
// distinct from one that was read, and cannot be marked.
func TestLeft(t *testing.T) {
	database := newDatabase(t)
	p := serve(t, database)
	ann := connect(t, p.url, "ann")
	p.mustPost(delivered("c", 1, `"ann"`), delivered("d", 1, `"ann"`))
	ann.awaitTotal(2)
	p.mustPost(event("leave", "conversation.left", `{"conversation_id":"c","up_to_seq":2,"user_ids":["ann"]}`), read("read", "d", 1, `"ann"`))
	ann.awaitTotal(0)
	ann.await("c left, d read", func() bool {
		heard := strings.Join(ann.frames, "\n")
		return strings.Contains(heard, `"left":true`) && strings.Count(heard, `"left":true`) == 1
	})
	before := ann.version
	position := p.mustPost(event("leave unknown", "conversation.left", `{"conversation_id":"unknown","user_ids":["ann"]}`))
	everyReaderSays(t, database, p, "ann", position, map[string]int64{})
	position = p.mustPost(delivered("c", 2, `"ann"`)) // in flight when the user left
	everyReaderSays(t, database, p, "ann", position, map[string]int64{})
	ann.await("the message in flight", func() bool { return ann.last["c"] == 2 })
	if got := ann.version - before; got != 1 {
		t.Errorf("the version grew by %d, want 1 for the message and 0 for leaving an unknown conversation", got)
	}
	for conversation, want := range map[string]string{"c": "you have left this conversation", "unknown": "no message of this conversation"} {
		status, answer := p.command("ann", `{"t":"mark_unread","id":1,"conversation_id":"`+conversation+`"}`)
		if status != http.StatusNotFound || !strings.Contains(answer, want) {
			t.Errorf("the mark of %s is answered %d %s", conversation, status, answer)
		}
	}
	position = p.mustPost(delivered("c", 3, `"ann"`))
	everyReaderSays(t, database, p, "ann", position, map[string]int64{"c": 1})
	p.mustCommand("ann", `{"t":"mark_unread","id":2,"conversation_id":"c"}`)
}
