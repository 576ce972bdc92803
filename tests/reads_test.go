package tests

import (
	"net/http"
	"testing"
)

// command sends a command once over HTTP, as an app with server-sent events does.
func (p *process) command(user, frame string) (status int, answer string) {
	p.t.Helper()
	status, _, answer = requestOnce(p.t, token(p.t, user), http.MethodPost, p.url+"/v1/commands", "", frame)
	return status, answer
}

// mustCommand sends a command, and fails the test unless the command succeeds.
func (p *process) mustCommand(user, frame string) {
	p.t.Helper()
	if status, _, answer := requestAs(p.t, token(p.t, user), http.MethodPost, p.url+"/v1/commands", "", frame); status != http.StatusOK {
		p.t.Fatalf("%s is answered %d %s", frame, status, answer)
	}
}

// An app's read covers every message that the app has seen, even if folding is behind: over WebSocket
// and HTTP, and also for the first message of a conversation.
func TestReadAheadOfTheTables(t *testing.T) {
	t.Parallel()
	database, redis := newDatabase(t), "--redis-url="+newRedis(t).URL()
	p := serve(t, database, redis, "--roles=api,gateway")
	projector := serve(t, database, redis, "--roles=projector")
	ann := connect(t, p.url, "ann")
	p.mustPost(delivered("c", 1, `"ann"`))
	ann.awaitTotal(1)

	projector.mustStop()
	p.mustPost(delivered("c", 2, `"ann"`), delivered("first", 1, `"ann","ben"`))
	ann.say(`{"t":"read","id":1,"conversation_id":"c","up_to_seq":2}`)
	ann.say(`{"t":"read","id":2,"conversation_id":"first","up_to_seq":1}`)
	ann.await("two answers", func() bool { return ann.answers[1] != "" && ann.answers[2] != "" })
	if ann.answers[1] != "ok" || ann.answers[2] != "ok" {
		t.Errorf("the answers are %v", ann.answers)
	}
	p.mustCommand("ben", `{"t":"read","id":3,"conversation_id":"first","up_to_seq":1}`)
	// The server does not know yet whether the conversation exists.
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
	ben := connect(t, p.url, "ben")
	ben.awaitTotal(2)
}
