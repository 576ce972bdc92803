package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/badged/badged/internal/devtest/privateredis"
)

// event returns a CloudEvent.
func event(id, typ, data string) string {
	return fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"test","type":%q,"data":%s}`, id, typ, data)
}

// delivered returns an event that delivers message seq of a conversation to users. users are JSON
// strings, separated by commas.
func delivered(conversation string, seq int, users string) string {
	return event(fmt.Sprintf("%s/%d", conversation, seq), "message.delivered",
		fmt.Sprintf(`{"conversation_id":%q,"seq":%d,"user_ids":[%s]}`, conversation, seq, users))
}

// publishSQL publishes an event within the transaction of a session.
const publishSQL = `SELECT badged.publish($1::text::jsonb)`

// publish publishes one event and returns its position.
func publish(t *testing.T, p *process, body string) string {
	t.Helper()
	status, header, answer := request(t, http.MethodPost, p.url+"/v1/events", "application/cloudevents+json", body)
	if status != http.StatusAccepted {
		t.Fatalf("publish: %d %s", status, answer)
	}
	return header.Get("Badged-Position")
}

// total returns a user's total once it includes a position.
func total(t *testing.T, p *process, user, position string) int64 {
	t.Helper()
	status, _, answer := request(t, http.MethodGet, p.url+"/v1/users/"+user+"/badge?timeout=30s&at_least="+position, "", "")
	var badge struct{ Total int64 }
	if err := json.Unmarshal([]byte(answer), &badge); err != nil || status != http.StatusOK {
		t.Fatalf("badge of %s: %d %s", user, status, answer)
	}
	return badge.Total
}

// wantTotal fails the test unless a user's total, once it includes a position, is n.
func wantTotal(t *testing.T, p *process, user, position string, n int64) {
	t.Helper()
	if got := total(t, p, user, position); got != n {
		t.Errorf("the total of %s is %d, want %d", user, got, n)
	}
}

// A published message becomes visible over a connection, in the API and in the CLI, and is not
// counted any more once it is read.
func TestFromPublishToBadge(t *testing.T) {
	t.Parallel()
	database := newDatabase(t)
	one := serve(t, database)
	throughEverything(t, database, one, one)
	one.mustStop()
}

// roles starts a process for each role.
func roles(t *testing.T, database string, redis *privateredis.Server, more ...string) map[string]*process {
	t.Helper()
	return rolesOver(t, database, redis.URL(), more...)
}

// rolesOver is like roles, but takes the URL of a Redis, a cluster or Sentinels.
func rolesOver(t *testing.T, database, redisURL string, more ...string) map[string]*process {
	t.Helper()
	processes := map[string]*process{}
	for _, role := range []string{"projector", "api", "gateway"} {
		processes[role] = serve(t, database, append([]string{"--redis-url=" + redisURL, "--roles=" + role}, more...)...)
	}
	return processes
}

func throughEverything(t *testing.T, database string, api, gateway *process) {
	ann, bob := connect(t, gateway.url, "ann"), connect(t, gateway.url, "bob")
	ann.awaitTotal(0)
	bob.awaitTotal(0)

	publish(t, api, delivered("team", 1, `"ann","bob"`))
	publish(t, api, delivered("team", 2, `"ann","bob"`))
	position := publish(t, api, delivered("direct", 1, `"ann"`))
	ann.awaitTotal(3)
	bob.awaitTotal(2)
	wantTotal(t, api, "ann", position, 3)
	publish(t, api, delivered("team", 2, `"ann","bob"`)) // a retry

	ann.say(`{"t":"read","id":1,"conversation_id":"team","up_to_seq":1}`)
	ann.awaitTotal(2)
	ann.say(`{"t":"read","id":2,"conversation_id":"team","up_to_seq":2}`)
	ann.awaitTotal(1)
	ann.await("two answers", func() bool { return ann.answers[1] == "ok" && ann.answers[2] == "ok" })
	position = publish(t, api, delivered("team", 3, `"ann","bob"`))
	ann.awaitTotal(2)
	bob.awaitTotal(3)

	wantTotal(t, api, "bob", position, 3)
	shown := must(t, "user", "show", "ann", "--database-url="+database)
	contains(t, shown, "total      2", "team", "direct")
	lag := must(t, "lag", "--database-url="+database)
	if n := strings.Count(lag, "badged projector"); n != partitions {
		t.Errorf("%d partitions have an owner:\n%s", n, lag)
	}

	// A second device shows the same number at once, and a client that reconnects resumes
	// with its state.
	second := connect(t, gateway.url, "ann")
	second.awaitTotal(2)
	for _, probe := range []string{"/livez", "/readyz", "/metrics"} {
		wantStatus(t, publisherKey, http.MethodGet, gateway.url+probe, "", "", http.StatusOK)
	}
}
