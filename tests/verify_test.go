package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/partition/replay"
)

const adminKey = "admin-secret"

// sql runs a statement in each database of a stack.
func sql(t *testing.T, database, statement string, args ...any) {
	t.Helper()
	for _, url := range stackOf(database) {
		conn := pgtest.Connect(t, url)
		pgtest.Exec(t, conn, statement, args...)
	}
}

// Explanations are the same on the command line and over HTTP, for the present and for earlier times.
func TestExplain(t *testing.T) {
	t.Parallel()
	database := newDatabase(t)
	p := serve(t, database, "--admin-keys=ops="+adminKey)
	first := publish(t, p, delivered("lunch", 1, `"ann","bob"`))
	total(t, p, "bob", first) // waits until the first message is folded
	total(t, p, "ann", publish(t, p, event("read", "conversation.read", `{"conversation_id":"lunch","user_ids":["ann"],"up_to_seq":1}`)))
	publish(t, p, delivered("lunch", 2, `"ann","bob"`))
	position := publish(t, p, delivered("lunch", 2, `"ann","bob"`)) // a repetition
	wantTotal(t, p, "ann", position, 1)

	out := must(t, "user", "explain", "ann", "--database-url="+database)
	contains(t, out,
		"total      1\n", "\nlunch adds 1: 1 unread, 0 mentions; level default, category chat\n", "\n  read up to 1 by conversation.read read of test, ",
		"\n  2 ", "  lunch/2  test\n", "\nEvents that changed no count:\n", "the user had an event of the same source and id before, at ",
	)
	if strings.Contains(out, "lunch/1") {
		t.Errorf("a read message counts:\n%s", out)
	}

	out = must(t, "user", "explain", "ann", "--json", "--database-url="+database)
	var fromCLI, fromAPI replay.Explanation
	decode(t, out, &fromCLI)
	status, answer := asAdmin(t, p, http.MethodGet, "v1/users/ann/explain", "")
	if status != http.StatusOK {
		t.Fatalf("explain: %d %s", status, answer)
	}
	decode(t, answer, &fromAPI)
	if diff := cmp.Diff(fromCLI, fromAPI); diff != "" {
		t.Errorf("the command line and the API differ (-CLI +API):\n%s", diff)
	}
	if c := fromCLI.Conversations; !fromCLI.Agrees || fromCLI.Total != 1 || len(c) != 1 || c[0].Messages[0].ID != "lunch/2" || fromCLI.Uncounted[0].Why != replay.WhyDuplicate {
		t.Errorf("the explanation is %s", out)
	}

	// The explanation for a time before the second message.
	before := fromCLI.Conversations[0].Messages[0].FoldedAt.Add(-time.Microsecond).Format(time.RFC3339Nano)
	if out := must(t, "user", "explain", "ann", "--at="+before, "--database-url="+database); !strings.Contains(out, "total      0\n") || !strings.Contains(out, "Nothing is unread.") {
		t.Errorf("as of %s it prints\n%s", before, out)
	}
	wantStatus(t, publisherKey, http.MethodGet, p.url+"/admin/v1/users/ann/explain", "", "", http.StatusForbidden)

	sql(t, database, `UPDATE badged.users SET total = 5 WHERE user_id = 'ann'`)
	out, stderr, code := command(t, "user", "explain", "ann", "--database-url="+database)
	if code != 1 || !strings.Contains(out, "total      1\n") || !strings.Contains(stderr, "run `badged rebuild --user ann`") || !strings.Contains(stderr, "total is 5") {
		t.Errorf("with a wrong total: exit %d\n%s%s", code, out, stderr)
	}
	fails(t, 2, "--at", "user", "explain", "ann", "--at=yesterday", "--database-url="+database)
}

// The row of a conversation or a room was changed without an event in the log, while the user's own row
// is right. Every view of the user for operators reports the difference.
func TestShownUsersAreComparedWithTheLog(t *testing.T) {
	t.Parallel()
	database := newDatabase(t)
	p := serve(t, database, "--admin-keys=ops="+adminKey, "--verify-interval=0")
	for seq := 1; seq <= 3; seq++ {
		publish(t, p, delivered("lunch", seq, `"ann"`))
	}
	publish(t, p, event("join", "room.joined", `{"conversation_id":"lobby","user_ids":["bob"]}`))
	total(t, p, "ann", publish(t, p, event("post", "room.posted", `{"conversation_id":"lobby","seq":1}`)))
	total(t, p, "bob", publish(t, p, delivered("crew", 1, `"bob"`)))
	for _, user := range []string{"ann", "bob"} {
		must(t, "user", "show", user, "--database-url="+database)
		must(t, "user", "explain", user, "--database-url="+database)
	}

	sql(t, database, `UPDATE badged.conversations SET unread = 9 WHERE user_id = 'ann'`)
	sql(t, database, `UPDATE badged.rooms SET last_seq = 7`)
	partition := events.PartitionOf("bob", partitions)
	for _, tc := range []struct{ user, difference, heal string }{
		{"ann", `user "ann", conversation "lunch": unread is 9 in the table, 3 by the log`, "--user ann"},
		{"bob", `room "lobby": last_seq is 7 in the table, 1 by the log`, fmt.Sprintf("--partition %d", partition)},
	} {
		advice := "badged: the tables differ from the log in 1 place, such as " + tc.difference + ": run `badged rebuild " + tc.heal + "`\n"
		for _, args := range [][]string{{"show"}, {"show", "--json"}, {"explain"}, {"explain", "--json"}} {
			args = append(append([]string{"user"}, args...), tc.user, "--database-url="+database)
			if out, stderr, code := command(t, args...); code != 1 || !strings.HasSuffix(stderr, advice) || out == "" {
				t.Errorf("%v: exit %d\n%s%s", args, code, out, stderr)
			}
		}
		if out, _, _ := command(t, "user", "explain", tc.user, "--database-url="+database); !strings.Contains(out, "\n  "+tc.difference+"\n") {
			t.Errorf("explain prints\n%s", out)
		}
		_, answer := asAdmin(t, p, http.MethodGet, "v1/users/"+tc.user+"/explain", "")
		var e replay.Explanation
		if decode(t, answer, &e); e.Agrees || len(e.Differences) != 1 || e.Differences[0].String() != tc.difference {
			t.Errorf("over HTTP it is %s", answer)
		}
		must(t, strings.Fields("rebuild -q "+tc.heal+" --database-url="+database)...)
		must(t, "user", "show", tc.user, "--database-url="+database)
	}
}

func decode(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}

// `badged verify` finds no difference while the server runs, and finds a row that was changed.
func TestVerify(t *testing.T) {
	t.Parallel()
	database := newDatabase(t)
	p := serve(t, database)
	publish(t, p, delivered("lunch", 1, `"ann","bob"`))
	position := publish(t, p, delivered("crew", 1, `"ann"`))
	total(t, p, "ann", position)
	total(t, p, "bob", position)
	out := must(t, "verify", "--database-url="+database)
	if out != "2 users and 3 conversations of 8 partitions compared with the log: no difference\n" {
		t.Errorf("it prints %s", out)
	}
	for _, only := range []string{"--user=ann", "--user=unknown", "--sample=1", "--sample=100", "--partition=0"} {
		must(t, "verify", only, "--database-url="+database)
	}
	if out := must(t, "verify", "--json", "--database-url="+database); out != `{"partitions":8,"users":2,"conversations":3,"differences":0}`+"\n" {
		t.Errorf("it prints %s", out)
	}

	sql(t, database, `UPDATE badged.conversations SET unread = 7 WHERE user_id = 'ann' AND conversation_id = 'crew'`)
	out, stderr, code := command(t, "verify", "--database-url="+database)
	if want := `user "ann", conversation "crew": unread is 7 in the table, 1 by the log` + "\n"; code != 1 || !strings.HasPrefix(out, want) || !strings.Contains(out, ": 1 difference\n") {
		t.Errorf("exit %d\n%s%s", code, out, stderr)
	}
	if !strings.HasSuffix(stderr, "badged: the tables differ from the log: 1 difference\n") { // on a slow machine, lines of progress come first
		t.Errorf("the error is %s", stderr)
	}
	out, _, code = command(t, "verify", "--json", "--user=bob", "--user=ann", "--database-url="+database)
	var d replay.Difference
	line, _, _ := strings.Cut(out, "\n")
	if decode(t, line, &d); code != 1 || d.UserID != "ann" || d.ConversationID != "crew" || d.Field != "unread" || d.Table != "7" || d.Log != "1" {
		t.Errorf("exit %d\n%s", code, out)
	}
	must(t, "verify", "--user=bob", "--database-url="+database)

	// Delete the folded events.
	sql(t, database, fmt.Sprintf(`TRUNCATE badged.events_p%02d`, events.PartitionOf("ann", partitions)))
	out, stderr, code = command(t, "verify", "--database-url="+database)
	if want := `user "ann": the row is present in the table, absent by the log` + "\n"; code != 1 || !strings.Contains(out, want) {
		t.Errorf("with an empty log: exit %d\n%s%s", code, out, stderr)
	}

	fails(t, 1, "--partition: there is no partition 8: they are numbered from 0 to 7", "verify", "--partition=8", "--database-url="+database)
}

// With --self-heal the server corrects a wrong row with a greater version, and clients get the right
// state.
func TestSelfHeal(t *testing.T) {
	t.Parallel()
	database := newDatabase(t)
	p := serve(t, database, "--verify-interval=10ms", "--self-heal")
	publish(t, p, delivered("lunch", 1, `"ann"`))
	ann := connect(t, p.url, "ann")
	ann.awaitTotal(1)
	ann.mu.Lock()
	version := ann.version
	ann.mu.Unlock()
	sql(t, database, `UPDATE badged.users SET total = 7 WHERE user_id = 'ann'`)
	ann.await("a greater version", func() bool { return ann.version > version })
	ann.awaitTotal(1)
	must(t, "verify", "--database-url="+database)
	metrics := metricsOf(t, p)
	for name, least := range map[string]float64{"badged_verify_users_total": 1, "badged_verify_mismatches_total": 1, "badged_verify_healed_total": 1} {
		if n := metric(t, metrics, name); n < least {
			t.Errorf("%s is %v", name, n)
		}
	}
}
