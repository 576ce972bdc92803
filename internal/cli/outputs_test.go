package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/snippets"
)

// chat is a server, to which a test publishes.
type chat struct {
	*testing.T
	*service
}

// publish publishes events and returns once the badges of users include them.
func (c chat) publish(evs []string, users ...string) {
	c.Helper()
	for i, e := range evs {
		evs[i] = `{"specversion":"1.0","source":"https://chat.example",` + e + `}`
	}
	status, header, body := fetch(c.T, http.MethodPost, c.url+"/v1/events", publisherKey, "application/cloudevents-batch+json", "["+strings.Join(evs, ",")+"]")
	if status != http.StatusAccepted {
		c.Fatalf("publish: %d %s", status, body)
	}
	for _, user := range users {
		c.badge(user, header.Get("Badged-Position"))
	}
}

func delivered(id, conversation string, seq int, more string, users ...string) string {
	return fmt.Sprintf(`"id":%q,"type":"message.delivered","data":{"conversation_id":%q,"seq":%d,"user_ids":["%s"]%s}`, id, conversation, seq, strings.Join(users, `","`), more)
}

// badge returns the id of the state, or of the state that includes a position.
func (c chat) badge(user, position string) (lastID string) {
	c.Helper()
	query := ""
	if position != "" {
		query = "?timeout=30s&at_least=" + position
	}
	status, _, body := fetch(c.T, http.MethodGet, c.url+"/v1/users/"+user+"/badge"+query, publisherKey, "", "")
	var b struct {
		Epoch   string
		Version int64
	}
	if err := json.Unmarshal([]byte(body), &b); err != nil || status != http.StatusOK {
		c.Fatalf("badge of %s: %d %s", user, status, body)
	}
	return fmt.Sprintf("%s:%d", b.Epoch, b.Version)
}

// token returns a token of a user.
func (c chat) token(user string) string {
	c.Helper()
	return strings.TrimSpace(mustDo(c.T, "token", user, "--jwt-keys="+jwtKeys))
}

// stream returns the beginning of a stream of server-sent events, up to the first frame, and for
// each change up to the frame that follows it.
func (c chat) stream(user, lastID string, changes ...func()) (beginning string) {
	c.Helper()
	r, err := http.NewRequestWithContext(c.Context(), http.MethodGet, c.url+"/v1/sse", nil)
	if err != nil {
		c.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+c.token(user))
	if lastID != "" {
		r.Header.Set("Last-Event-ID", lastID)
	}
	r.Close = true
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		c.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		beginning += lines.Text() + "\n"
		if !strings.HasPrefix(lines.Text(), "data: ") {
			continue
		}
		if len(changes) == 0 {
			return beginning
		}
		changes[0]()
		changes = changes[1:]
	}
	c.Fatalf("the stream of %s ends after %q: %v", user, beginning, lines.Err())
	return ""
}

// The pages show what commands and requests print about a chat that a server serves.
func TestOutputsOfThePages(t *testing.T) {
	url := pgtest.NewDB(t, migrated())
	pool, db := poolOf(t, url), "--database-url="+url
	const old = `INSERT INTO badged.audit (at, who, via, action, arguments) VALUES ('2024-11-22', 'ops', 'api', 'rebuild.start', '{}')`
	pgtest.Exec(t, pool, old) // before the records of the server
	c := chat{t, startServer(t, url, "--admin-keys=ops=admin-secret", "--webhooks-allow-private")}
	prints := func(args ...string) string { // and may fail, or show its progress
		t.Helper()
		return badged(t, append(args, db)...).out
	}
	home := events.PartitionOf("ada", partitions)
	inHome, everybody := fmt.Sprintf("--partition=%d", home), make([]string, 8) // users of both partitions
	for i := range everybody {
		everybody[i] = fmt.Sprintf("user-%d", i)
	}
	c.publish([]string{delivered("t-1", "team", 1, "", everybody...)}, everybody...)
	for _, e := range []string{
		delivered("m-1", "lunch", 1, "", "ada"),
		`"id":"r-1","type":"conversation.read","data":{"conversation_id":"lunch","up_to_seq":1,"user_ids":["ada"]}`,
		delivered("m-2", "lunch", 2, "", "ada"),
		delivered("m-2", "lunch", 2, "", "ada"),
	} {
		c.publish([]string{e}, "ada")
	}
	snippets.ExpectShape(t, snippets.Output(t, "docs/cli.md", "badged user show ada"), mustDo(t, "user", "show", "ada", db))
	snippets.ExpectShape(t, snippets.Output(t, "docs/cli.md", "badged user explain ada"), mustDo(t, "user", "explain", "ada", db))
	snippets.ExpectShape(t, snippets.Output(t, "docs/cli.md", "badged log --user ada --follow"), mustDo(t, "log", "--user=ada", db))
	var conversation string
	var unread int
	if err := pool.QueryRow(t.Context(), snippets.With(t, "docs/postgres.md", "FROM badged.unread", "sql").Text).Scan(&conversation, &unread); err != nil || conversation != "lunch" || unread != 1 {
		t.Errorf("the query of the page returns %q, %d, %v", conversation, unread, err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	snippets.ExpectShape(t, snippets.Output(t, "docs/cli.md", "badged lag"), strings.ReplaceAll(mustDo(t, "lag", db), host, "db1"))

	// Another program writes to the tables.
	corrupt := func(sql string) {
		t.Helper()
		pgtest.Exec(t, pool, sql)
	}
	const lunch, total = `UPDATE badged.conversations SET unread = 7 WHERE user_id = 'ada' AND conversation_id = 'lunch'`, `UPDATE badged.users SET total = 7 WHERE user_id = 'ada'`
	corrupt(lunch)
	snippets.ExpectShape(t, snippets.Output(t, "docs/cli.md", "badged verify --partition 3"), prints("verify", inHome))
	snippets.ExpectShape(t, snippets.Output(t, "docs/cli.md", "badged rebuild"), prints("rebuild"))
	corrupt(lunch)
	snippets.ExpectShape(t, snippets.Output(t, "docs/cli.md", "badged rebuild --user ada"), prints("rebuild", "--user=ada"))
	corrupt(total)
	snippets.ExpectShape(t, snippets.Output(t, "docs/runbooks.md", "badged verify -q"), prints("verify", "-q"))
	snippets.ExpectShape(t, snippets.Output(t, "docs/runbooks.md", "badged rebuild --user ada -q"), prints("rebuild", "--user=ada", "-q"))
	corrupt(fmt.Sprintf(`INSERT INTO badged.%s (uuid, payload, transaction_id) VALUES (gen_random_uuid(), '{"specversion":"1.0","id":"1","source":"s","type":"message.pinned","data":{}}', pg_current_xact_id())`, events.Topic(home)))

	before := c.badge("ada", "")
	c.publish([]string{delivered("m-3", "lunch", 3, "", "ada")}, "ada")
	snippets.ExpectShape(t, snippets.Output(t, "docs/runbooks.md", "badged deadletters list"), mustDo(t, "deadletters", "list", db)) // it is folded before m-3
	snippets.ExpectShape(t, snippets.Output(t, "docs/clients.md", `curl -sN http://127.0.0.1:8080/v1/sse -H "Authorization: Bearer TOKEN" -H "Last-Event-ID: c9a41196e14f:1"`), c.stream("ada", before))

	c.publish([]string{delivered("n-1", "C1", 7, `,"category":"acme/general"`, "nia")}, "nia")
	before = c.badge("nia", "")
	c.publish([]string{delivered("n-2", "C1/thread/3", 2, `,"category":"acme/threads/general"`, "nia")}, "nia")
	shown, _, _ := strings.Cut(snippets.With(t, "docs/nesting.md", `{"t":"changes"`, "").Text, "\n")
	_, frame, _ := strings.Cut(c.stream("nia", before), "data: ")
	snippets.ExpectShape(t, shown, frame)

	c.publish([]string{delivered("e-1", "tea", 1, "", "eve")}, "eve")
	const read = `{"t":"read","id":1,"conversation_id":"tea","up_to_seq":1}`
	answer := ""
	stream := c.stream("eve", "", func() {
		_, _, answer = fetch(t, http.MethodPost, c.url+"/v1/commands", c.token("eve"), "application/json", read)
	})
	frames := regexp.MustCompile(`(?m)^data: (.*)$`).FindAllStringSubmatch(stream, -1)
	dialog := fmt.Sprintf("> {\"t\":\"hello\"}\n< %s\n> %s\n< %s\n< %s\n", frames[0][1], read, strings.TrimSpace(answer), frames[1][1])
	snippets.ExpectShape(t, snippets.With(t, "docs/clients.md", `< {"t":"snapshot"`, "").Text, dialog)

	file := filepath.Join(t.TempDir(), "states.csv")
	if err := os.WriteFile(file, []byte("user_id,conversation_id,last_seq,read_seq,level\nann,tea,9,6,all\nbob,tea,9,9,\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	snippets.ExpectShape(t, snippets.Output(t, "docs/cli.md", "badged import states.csv"), prints("import", file))
	c.publish([]string{delivered("g-1", "tea", 10, "", "guest-17"), delivered("g-2", "tea", 11, "", "guest-17"), delivered("g-3", "crew", 1, "", "guest-17")}, "guest-17")
	snippets.ExpectShape(t, snippets.Output(t, "docs/cli.md", "badged user merge guest-17 ada"), mustDo(t, "user", "merge", "guest-17", "ada", db))

	pruned := mustDo(t, "audit", "prune", "--before=2024-11-23T00:00:00Z", db)
	snippets.ExpectShape(t, snippets.Output(t, "docs/admin.md", "badged audit prune --before 2024-11-23T00:00:00Z"), pruned)

	c.failingWebhook()
	split := badged(t, "partition", "split", "0", db)
	snippets.ExpectShape(t, snippets.Output(t, "docs/cli.md", "badged partition split 0"), split.err+split.out)
}

// failingWebhook expects that a webhook whose endpoint fails is shown as on the page.
func (c chat) failingWebhook() {
	c.Helper()
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	c.Cleanup(endpoint.Close)
	webhook := func(method, body string) (answer string) {
		c.Helper()
		status, _, answer := fetch(c.T, method, c.url+"/admin/v1/webhooks/crm", "admin-secret", "application/json", body)
		if status >= 300 {
			c.Fatalf("%s: %d %s", method, status, answer)
		}
		return answer
	}
	webhook(http.MethodPut, fmt.Sprintf(`{"url":%q,"events":["badge.changed"]}`, endpoint.URL))
	c.publish([]string{delivered("w-1", "lunch", 4, "", "ada")}, "ada")
	answer := ""
	for tick := time.Tick(50 * time.Millisecond); !strings.Contains(answer, `"last_status":503`); answer = webhook(http.MethodGet, "") {
		select {
		case <-tick:
		case <-c.Context().Done():
			c.Fatalf("no call of the webhook is shown: %s", answer)
		}
	}
	snippets.ExpectShape(c.T, snippets.Output(c.T, "docs/runbooks.md", `curl -H "Authorization: Bearer $ADMIN_KEY" https://badged.example/admin/v1/webhooks/crm`), answer)
}
