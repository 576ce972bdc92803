package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
)

// asAdmin sends a request to the admin API and returns the answer.
func asAdmin(t *testing.T, p *process, method, path, body string) (status int, answer string) {
	t.Helper()
	status, _, answer = requestAs(t, adminKey, method, p.url+"/admin/"+path, "", body)
	return status, answer
}

// job is a job, as the admin API returns it.
type job struct {
	ID       int    `json:"id"`
	Shard    string `json:"shard"`
	Others   []int  `json:"others"`
	State    string `json:"state"`
	Error    string `json:"error"`
	Progress struct {
		Note string `json:"note"`
	} `json:"progress"`
	Result struct {
		DifferentUsers int `json:"different_users"`
		Differences    int `json:"differences"`
	} `json:"result"`
}

// startJob starts a job of a kind, "rebuilds" or "verifications".
func startJob(t *testing.T, p *process, kind, body string) job {
	t.Helper()
	status, answer := asAdmin(t, p, http.MethodPost, "v1/"+kind, body)
	if status != http.StatusAccepted {
		t.Fatalf("%s: %d %s", kind, status, answer)
	}
	return decodeJob(t, answer)
}

// startJobFor starts jobs on all shards and returns the job on the shard of a user.
func startJobFor(t *testing.T, p *process, database, user, kind, body string) job {
	t.Helper()
	j := startJob(t, p, kind, body)
	shards := stackOf(database)
	if len(shards) == 1 {
		return j
	}
	if len(j.Others) != len(shards)-1 {
		t.Fatalf("the first job is %+v", j)
	}
	name := shardName(t, database, user)
	for _, id := range append(j.Others, j.ID) {
		_, answer := asAdmin(t, p, http.MethodGet, fmt.Sprintf("v1/%s/%d", kind, id), "")
		if j := decodeJob(t, answer); j.Shard == name {
			return j
		}
	}
	t.Fatalf("no job is on shard %s", name)
	return j
}

func decodeJob(t *testing.T, answer string) (j job) {
	t.Helper()
	if err := json.Unmarshal([]byte(answer), &j); err != nil {
		t.Fatalf("%v: %s", err, answer)
	}
	return j
}

// awaitJob waits until ok accepts a job, and returns it.
func awaitJob(t *testing.T, p *process, kind string, id int, ok func(job) bool) job {
	t.Helper()
	for range polls(t, fmt.Sprintf("job %d of %s", id, kind)) {
		_, answer := asAdmin(t, p, http.MethodGet, fmt.Sprintf("v1/%s/%d", kind, id), "")
		if j := decodeJob(t, answer); ok(j) {
			return j
		}
	}
	panic("unreachable")
}

// awaitAnswer waits until the answer of a route contains a text n times.
func awaitAnswer(t *testing.T, p *process, route, text string, n int) {
	t.Helper()
	await(t, text, func() bool {
		_, answer := asAdmin(t, p, http.MethodGet, "v1/"+route, "")
		return strings.Count(answer, text) >= n
	})
}

func ended(j job) bool { return j.State != "running" }

// hold keeps a transaction open that has read the tables of a partition, until release is called
// or the test ends. A rebuild that finds a difference waits for this transaction.
func hold(t *testing.T, database string, partition int) (release func()) {
	t.Helper()
	reading, err := pgx.Connect(t.Context(), holderOf(t, database, partition))
	if err != nil {
		t.Fatal(err)
	}
	release = func() { _ = reading.Close(context.WithoutCancel(t.Context())) }
	t.Cleanup(release)
	pgtest.Exec(t, reading, fmt.Sprintf(`BEGIN; SELECT FROM badged.users_p%02d`, partition))
	return release
}

// Operations over HTTP take effect and are in the audit trail. If a process is killed, its jobs
// get the state interrupted.
func TestAdmin(t *testing.T) {
	t.Parallel()
	database := newDatabase(t)
	p := serve(t, database, "--admin-keys=ops="+adminKey, "--reconcile-interval=1h") // reconciliation would show clients the rows that are corrupted below
	home := events.PartitionOf("ann", partitions)
	publish(t, p, delivered("lunch", 1, `"ann"`))
	connect(t, p.url, "ann").awaitTotal(1)

	if status, page := asAdmin(t, p, http.MethodGet, "", ""); status != http.StatusOK || !strings.Contains(page, "<title>badged: operations</title>") {
		t.Errorf("the page is %d %s", status, page)
	}
	if status, answer := asAdmin(t, p, http.MethodGet, "v1/partitions", ""); status != http.StatusOK ||
		strings.Count(answer, `"owner":"badged projector `) != partitions {
		t.Errorf("the partitions are %d %s", status, answer)
	}
	awaitAnswer(t, p, "processes", `"connections":{"websockets":1,`, 1)

	writeLog(t, database, home, `"not an event"`)
	writeLog(t, database, (home+1)%partitions, delivered("astray", 1, `"ann"`)) // not in ann's partition
	awaitAnswer(t, p, "deadletters", `"reason"`, 2)
	for after := int64(0); ; {
		_, answer := asAdmin(t, p, http.MethodGet, fmt.Sprintf("v1/deadletters?after=%d&limit=1", after), "")
		var page struct {
			DeadLetters []struct {
				ID int64 `json:"id"`
			} `json:"dead_letters"`
		}
		decode(t, answer, &page)
		if len(page.DeadLetters) == 0 {
			break
		}
		id := page.DeadLetters[0].ID
		after = id
		path, want := fmt.Sprintf("v1/deadletters/%d", id), http.StatusOK
		method := http.MethodDelete
		if strings.Contains(answer, "astray") {
			path, method, want = path+"/retry", http.MethodPost, http.StatusNoContent
		}
		if status, answer := asAdmin(t, p, method, path, ""); status != want {
			t.Errorf("%s %s: %d %s", method, path, status, answer)
		}
	}
	connect(t, p.url, "ann").awaitTotal(2)

	sql(t, database, spoil, "ann")
	if j := awaitJob(t, p, "verifications", startJobFor(t, p, database, "ann", "verifications", `{}`).ID, ended); j.Result.Differences == 0 {
		t.Errorf("verifying finds nothing: %+v", j)
	}
	release := hold(t, database, home)
	first := startJobFor(t, p, database, "ann", "rebuilds", `{}`)
	awaitJob(t, p, "rebuilds", first.ID, func(j job) bool { return strings.Contains(j.Progress.Note, "waits for") })
	if status, answer := asAdmin(t, p, http.MethodPost, "v1/rebuilds", `{}`); status != http.StatusConflict || !strings.Contains(answer, "another rebuild is under way: job") {
		t.Errorf("a second rebuild: %d %s", status, answer)
	}
	p.kill()

	p = serve(t, database, "--admin-keys=ops="+adminKey)
	if j := awaitJob(t, p, "rebuilds", first.ID, ended); j.State != "interrupted" || j.Error != "the process that ran it has ended" {
		t.Errorf("after the kill it is %+v", j)
	}
	release()
	second := startJobFor(t, p, database, "ann", "rebuilds", `{"max_load":0.9}`)
	if j := awaitJob(t, p, "rebuilds", second.ID, ended); j.State != "done" || j.Result.DifferentUsers != 1 {
		t.Errorf("the next one ends as %+v", j)
	}
	must(t, "verify", "--database-url="+database)

	must(t, "rebuild", "-q", "--user=ann", "--database-url="+database)
	_, trail := asAdmin(t, p, http.MethodGet, "v1/audit", "")
	contains(t, trail,
		`"who":"ops","via":"api","action":"deadletters.retry","arguments":{"id":`,
		`"who":"ops","via":"api","action":"deadletters.discard","arguments":{"id":`,
		`"payload":"not an event",`,
		`"action":"verification.start","arguments":{},`,
		fmt.Sprintf(`"result":{"job":%d}`, first.ID),
		`another rebuild is under way: job`,
		`"via":"cli","action":"rebuild","arguments":{"user":"ann","max_load":1},`,
	)
	p.mustStop()
}

// The admin page is served only with the role api, and only to requests with an admin key.
func TestAdminPageIsForOperators(t *testing.T) {
	t.Parallel()
	p := serve(t, newDatabase(t))
	if status, _ := asAdmin(t, p, http.MethodGet, "", ""); status != http.StatusNotFound {
		t.Errorf("without an admin key the page is %d", status)
	}
	if status, answer := asAdmin(t, p, http.MethodGet, "v1/audit", ""); status != http.StatusNotFound {
		t.Errorf("without an admin key the trail is %d %s", status, answer)
	}
	servers := roles(t, newDatabase(t), newRedis(t), "--admin-keys=ops="+adminKey)
	for role, want := range map[string]int{"api": http.StatusOK, "gateway": http.StatusNotFound, "projector": http.StatusNotFound} {
		if status, _ := asAdmin(t, servers[role], http.MethodGet, "", ""); status != want {
			t.Errorf("of the role %s the page is %d", role, status)
		}
	}
	awaitAnswer(t, servers["api"], "processes", `"process":`, 3) // all three processes have stored a sample
}

// publishStories publishes events of users that the tests of the admin page look at, and returns
// the last position. dan has read everything, the id " eve " has spaces around it, and busy has
// 150 conversations and 300 repeated events.
func publishStories(t *testing.T, p *process) string {
	t.Helper()
	read := func(id string, upTo int) string {
		return event(id, "conversation.read", fmt.Sprintf(`{"conversation_id":"tea","user_ids":["dan"],"up_to_seq":%d}`, upTo))
	}
	for _, body := range []string{
		delivered("tea", 1, `"dan"`), delivered("tea", 2, `"dan"`), delivered("tea", 3, `"dan"`), delivered("pie", 1, `"dan"`),
		read("dan-read", 2), delivered("tea", 4, `"dan"`),
		event("late", "message.delivered", `{"conversation_id":"tea","seq":1,"user_ids":["dan"]}`),
		event("recall", "message.recalled", `{"conversation_id":"tea","seq":4,"user_ids":["dan"]}`),
		delivered("spaces", 1, `" eve "`), delivered("spaces", 2, `" eve "`),
		event("only-eve", "message.delivered", `{"conversation_id":"spaces","seq":3,"user_ids":["eve"]}`),
		event("busy-late", "conversation.read", `{"conversation_id":"room-1","user_ids":["busy"],"up_to_seq":1}`),
		event("busy-again", "message.delivered", `{"conversation_id":"room-1","seq":1,"user_ids":["busy"]}`),
	} {
		publish(t, p, body)
	}
	var batch []string
	for room := 1; room <= 151; room++ {
		for seq := 2; seq < 3+room%4; seq++ {
			batch = append(batch, delivered(fmt.Sprint("room-", room), seq, `"busy"`))
		}
		if room%30 == 0 {
			batch = append(batch, event(fmt.Sprint("busy-read-", room), "conversation.read",
				fmt.Sprintf(`{"conversation_id":"room-%d","user_ids":["busy"],"up_to_seq":9}`, room-1)))
		}
	}
	for range 300 {
		batch = append(batch, delivered("room-151", 2, `"busy"`))
	}
	return p.mustPost(batch...)
}

// publishLate publishes two messages for gus; the transaction of the second
// commits two seconds later.
func publishLate(t *testing.T, p *process, database string) {
	t.Helper()
	total(t, p, "gus", publish(t, p, delivered("gus", 1, `"gus"`)))
	conn := pgtest.Connect(t, shardOf(t, database, "gus"))
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var position int64
	late := event("gus-late", "message.delivered", `{"conversation_id":"gus","seq":2,"user_ids":["gus"]}`)
	if err := tx.QueryRow(t.Context(), `SELECT badged.publish($1)`, late).Scan(&position); err != nil {
		t.Fatal(err)
	}
	// Times of folding are exact to a second, so the commit comes two seconds later.
	pgtest.Exec(t, tx, `SELECT pg_sleep(2)`)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantTotal(t, p, "gus", fmt.Sprint(position), 2)
}

// Runs the tests of the admin page, web/browser/admin.test.mjs, in a real browser. The database
// has dead letters, users with wrong rows, a webhook that fails, and an open transaction that
// has read the tables of ann's partition, so that a rebuild of them waits.
func TestAdminBrowser(t *testing.T) {
	t.Parallel()
	database := oneDatabase(t) // the page counts the jobs of a rebuild, and with shards there is one for each
	// Without the long interval, reconciliation would show clients the rows that are
	// corrupted below.
	p := serve(t, database, "--admin-keys=ops="+adminKey, "--reconcile-interval=1h", "--webhooks-allow-private")
	endpoint := failingEndpoint(t)
	if status, answer := asAdmin(t, p, http.MethodPut, "v1/webhooks/crm", `{"url":"`+endpoint+`/hook?token=s3cret","events":["badge.changed"]}`); status != http.StatusCreated {
		t.Fatalf("the webhook is %d %s", status, answer)
	}
	ann, bob := events.PartitionOf("ann", partitions), events.PartitionOf("bob", partitions)
	if ann == bob {
		t.Fatal("ann and bob must be in different partitions")
	}
	for seq := 1; seq <= 3; seq++ {
		publish(t, p, delivered("lunch", seq, `"ann","bob","cem"`))
	}
	publish(t, p, delivered("design", 1, `"ann","cem"`))
	for user, count := range map[string]int64{"ann": 4, "bob": 3} {
		connect(t, p.url, user).awaitTotal(count)
	}
	total(t, p, "busy", publishStories(t, p))
	publishLate(t, p, database)
	writeLog(t, database, ann, `{"specversion":"1.0","id":"1","source":"s","type":"message.teleported","data":{}}`)
	writeLog(t, database, (ann+1)%partitions, delivered("astray", 1, `"ann"`)) // a retry stores it in ann's partition
	awaitAnswer(t, p, "deadletters", `"reason"`, 2)
	sql(t, database, spoil, "bob")
	hold(t, database, ann)
	sql(t, database, `UPDATE badged.users SET mentions = 5 WHERE user_id = $1`, "ann")
	browse(t, "admin.test.mjs", "BADGED_URL="+p.url, "BADGED_ADMIN_KEY="+adminKey, "BADGED_ADMIN_PARTITION="+fmt.Sprint(bob), "BADGED_ENDPOINT="+endpoint)
}

// failingEndpoint returns the URL of an endpoint of webhooks that answers 503 until its path
// /works is requested.
func failingEndpoint(t *testing.T) string {
	t.Helper()
	var works atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/works" {
			works.Store(true)
		}
		if works.Load() || r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusNoContent)
		} else {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}
