package tests

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Imports the states of another system while the server runs: a dry run, a file with a bad line,
// the same file twice, and a comparison with later changes.
func TestImport(t *testing.T) {
	t.Parallel()
	database := newDatabase(t)
	p := serve(t, database)
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		writeFile(t, path, text)
		return path
	}
	good := write("states.csv", "user_id,conversation_id,last_seq,read_seq,level\nann,tea,9,6,all\nbob,tea,9,9,all\nann,crew,4,2,none\n")
	bad := write("bad.ndjson", `{"user_id":"ann","conversation_id":"lunch","last_seq":2,"read_seq":"one"}`+"\n")
	report := filepath.Join(dir, "report.ndjson")
	db := "--database-url=" + database
	// published is the end of the summary after importing the good file.
	const published = ": deliveries 5, reads 3, levels 1, recalls 0, marks 0\n"

	out := must(t, "import", "--dry-run", "--quiet", "--report="+report, good, db)
	if !strings.Contains(out, "would publish  9"+published) || !strings.Contains(out, "conversations  2\n") {
		t.Errorf("the dry run prints\n%s", out)
	}
	lines, err := os.ReadFile(report)
	if want := `{"file":"` + good + `","line":2,"user_id":"ann","conversation_id":"tea","field":"last_seq","file_value":"9","badged_value":"0"}` + "\n"; err != nil || !strings.HasPrefix(string(lines), want) {
		t.Errorf("the report: %v\n%s", err, lines)
	}

	out, stderr, code := command(t, "import", "--quiet", good, bad, db)
	if want := bad + ":1: read_seq: must be a whole number, is \"one\"\nbadged: 1 bad line: nothing was published"; code != 1 || out != "" || !strings.HasPrefix(stderr, want) {
		t.Errorf("with a bad line: exit %d\n%s%s", code, out, stderr)
	}
	badges := func() string {
		_, _, ann := request(t, "GET", p.url+"/v1/users/ann/badge", "", "")
		_, _, bob := request(t, "GET", p.url+"/v1/users/bob/badge", "", "")
		return ann + bob
	}
	if now := badges(); strings.Count(now, `"version":0`) != 2 {
		t.Fatalf("before anything was published the badges are\n%s", now)
	}

	out = must(t, "import", "--quiet", good, db)
	if !strings.Contains(out, "events         9"+published) || !strings.HasSuffix(out, "compared       no difference\n") {
		t.Errorf("the import prints\n%s", out)
	}
	first := badges()
	if !strings.Contains(first, `"user_id":"ann"`) || !strings.Contains(first, `"total":3`) {
		t.Errorf("the badges after the import:\n%s", first)
	}
	if out := must(t, "import", "--quiet", "--skip-bad", bad, good, db); !strings.Contains(out, "bad lines      1, left out\n") || !strings.Contains(out, "events         0:") {
		t.Errorf("the second import prints\n%s", out)
	}
	if second := badges(); second != first {
		t.Errorf("after the second import the badges are\n%swere\n%s", second, first)
	}

	total(t, p, "ann", publish(t, p, delivered("tea", 10, `"ann"`)))
	out, stderr, code = command(t, "import", "--quiet", good, db)
	if code != 1 || !strings.Contains(out, good+`:2: user "ann", conversation "tea": last_seq is 9 in the file, 10 in badged`+"\n") ||
		stderr != "badged: the badges differ from the files: 2 differences in 1 row; --report FILE writes them all\n" {
		t.Errorf("after another message: exit %d\n%s%s", code, out, stderr)
	}
	must(t, "verify", "--quiet", db)

	empty := write("empty.csv", "user_id,conversation_id,last_seq,read_seq\n")
	for _, args := range [][]string{{}, {"--dry-run"}, {"--undo"}} {
		out := must(t, append([]string{"import", "--quiet", empty, db}, args...)...)
		if want := "nothing: there are no rows to import\n"; !strings.HasSuffix(out, want) {
			t.Errorf("import %v of a header without rows prints\n%s", args, out)
		}
	}
}

// imports imports a text in a format, and checks badged's output and the totals.
func imports(t *testing.T, format, text, says string, totals map[string]int64) {
	t.Helper()
	database := newDatabase(t)
	p := serve(t, database)
	file := filepath.Join(t.TempDir(), "export")
	writeFile(t, file, text)
	prints(t, says, "import", "--quiet", "--format="+format, file, "--database-url="+database)
	for user, want := range totals {
		if _, _, badge := request(t, http.MethodGet, p.url+"/v1/users/"+user+"/badge", "", ""); !strings.Contains(badge, fmt.Sprintf(`"total":%d,`, want)) {
			t.Errorf("%s, want %d", badge, want)
		}
	}
	must(t, "verify", "--quiet", "--database-url="+database)
}

func exportWithoutLastViewed(t *testing.T) {
	imports(t, "mattermost", `{"type":"channel","channel":{"team":"crew","name":"closed","deleted_at":1769846600000}}
{"type":"user","user":{"username":"ada","teams":[{"name":"crew","channels":[{"name":"tea"},{"name":"closed","last_viewed_at":1},{"name":"lunch","last_viewed_at":1}]}]}}
{"type":"user","user":{"username":"ben","teams":[{"name":"crew","channels":[{"name":"tea","mention_count":3}]}]}}
{"type":"post","post":{"team":"crew","channel":"tea","user":"eve","create_at":1769846400000}}
{"type":"post","post":{"team":"crew","channel":"closed","user":"eve","create_at":1769846400000}}
{"type":"post","post":{"team":"crew","channel":"lunch","user":"eve","create_at":1769846400000}}
`, "rows           1\nleft out       1 of archived channels\nleft out       2 without last_viewed_at\n", map[string]int64{"ada": 1, "ben": 0})
}

func archivedRooms(t *testing.T) {
	const seen = `"ls":{"$date":"2026-01-31T08:00:00Z"}`
	imports(t, "rocketchat", `{"rid":"general","u":{"_id":"ada"},`+seen+`,"unread":2,"open":true}
{"rid":"old","u":{"_id":"ada"},`+seen+`,"unread":7,"open":true,"archived":true}
{"rid":"hidden","u":{"_id":"ada"},`+seen+`,"unread":5,"alert":true,"open":false}
`, "left out       1 of archived rooms\nleft out       1 of rooms that the user has hidden\n", map[string]int64{"ada": 2})
}

// Imports from systems that have only counters: the last messages become unread, and later messages
// add to the counts.
func TestImportOfCounts(t *testing.T) {
	t.Parallel()
	database := newDatabase(t)
	p := serve(t, database)
	file := filepath.Join(t.TempDir(), "counts.csv")
	writeFile(t, file, "user_id,conversation_id,last_seq,read_seq,unread_count,mentions_count\nann,tea,1769846400000,,3,1\nbob,tea,1769846400000,,0,\n")
	if out := must(t, "import", "--quiet", file, "--database-url="+database); !strings.HasSuffix(out, "compared       no difference\n") {
		t.Errorf("the import prints\n%s", out)
	}
	position := p.mustPost(event("next", "message.delivered", `{"conversation_id":"tea","seq":1769846500000,"user_ids":["ann","bob"]}`))
	for user, want := range map[string]int64{"ann": 4, "bob": 1} {
		wantTotal(t, p, user, position, want)
	}
	wantTotal(t, p, "ann", p.mustPost(read("seen", "tea", 1769846500000, `"ann"`)), 0)
	writeFile(t, file, "user_id,conversation_id,last_seq,read_seq,unread_seqs\nann,crew,5,2,\n")
	fails(t, 1, "counts.csv:2: unread_seqs: is empty, but read_seq 2 is below last_seq 5", "import", "--quiet", file, "--database-url="+database)
	must(t, "import", "--quiet", "--empty-unread=all", file, "--database-url="+database)
	wantTotal(t, p, "ann", position, 3)
}

// An import is undone, except for conversations that have changed since. Then the file is imported
// again, and its earlier states count again.
func TestImportUndo(t *testing.T) {
	t.Parallel()
	database := newDatabase(t)
	p := serve(t, database)
	db := "--database-url=" + database
	dir := t.TempDir()
	states := filepath.Join(dir, "states.csv")
	const header = "user_id,conversation_id,last_seq,read_seq,level,unread_seqs,mentions_seqs,marked_unread\n"
	write := func(text string) {
		t.Helper()
		writeFile(t, states, header+text)
	}
	wants := func(when string, totals map[string]int64) {
		t.Helper()
		for user, want := range totals {
			if _, _, badge := request(t, http.MethodGet, p.url+"/v1/users/"+user+"/badge", "", ""); !strings.Contains(badge, fmt.Sprintf(`"total":%d,`, want)) {
				t.Errorf("%s: %s, want %d", when, badge, want)
			}
		}
		must(t, "verify", "--quiet", db)
	}
	total(t, p, "eve", publish(t, p, delivered("tea", 1, `"eve","fay"`)))
	write("ann,tea,9,6,all,7-9,8,\nben,tea,9,9,all,,,true\ncat,tea,9,6,none,7 8,,\ndan,tea,9,7,all,8-9,,\neve,tea,9,6,all,7-9,,\nfay,lunch,2,0,all,1-2,,\nfay,tea,1,0,all,1,,\n")
	imported := map[string]int64{"ann": 3, "ben": 1, "cat": 0, "dan": 2, "eve": 3, "fay": 3}
	must(t, "import", "--quiet", states, db)
	wants("imported", imported)

	// Dan has read since the import, and eve and fay had a message before it.
	p.mustCommand("dan", `{"t":"read","id":1,"conversation_id":"tea","up_to_seq":8}`)
	total(t, p, "dan", p.mustPost(delivered("other", 1, `"gil"`)))
	out := must(t, "import", "--undo", "--dry-run", "--quiet", states, db)
	contains(t, out,
		"would publish  4: resets 2, reads 1, levels 1\n", "undone         4 rows, refused 3\n",
		`user "dan", conversation "tea": read_seq is 7 in the file, 8 in badged`,
		`user "eve", conversation "tea": the log has events for them that no import published; publish a conversation.reset instead`,
		`user "fay", conversation "tea": the log has events for them`,
	)
	wants("after the dry run", map[string]int64{"ann": 3, "ben": 1, "dan": 1})

	out, stderr, code := command(t, "import", "--undo", "--quiet", states, db)
	if code != 1 || !strings.Contains(out, "undone         4 rows, refused 3\n") || !strings.Contains(stderr, "3 rows cannot be undone: something else has changed them") {
		t.Errorf("the undo: exit %d\n%s%s", code, out, stderr)
	}
	undone := map[string]int64{"ann": 0, "ben": 0, "cat": 0, "dan": 1, "eve": 3, "fay": 1}
	wants("undone", undone)
	if out, _, _ := command(t, "import", "--undo", "--quiet", states, db); !strings.Contains(out, "undone         0 rows, refused 3\n") {
		t.Errorf("the undo again:\n%s", out)
	}
	wants("undone twice", undone)
	if out := must(t, "audit", "list", db); strings.Count(out, "import.undo") != 2 {
		t.Errorf("the audit trail:\n%s", out)
	}

	// A later message counts, and the undone states can be imported again.
	write("ann,tea,9,6,all,7-9,8,\nben,tea,9,9,all,,,true\ncat,tea,9,6,all,7 8,,\n")
	if out := must(t, "import", "--quiet", states, db); !strings.HasSuffix(out, "compared       no difference\n") {
		t.Errorf("imported again:\n%s", out)
	}
	wants("imported again", map[string]int64{"ann": 3, "ben": 1, "cat": 2})
	prints(t, "events         0:", "import", "--quiet", states, db)
	must(t, "rebuild", "--quiet", db)
	wants("rebuilt", map[string]int64{"ann": 3, "ben": 1, "cat": 2, "dan": 1, "eve": 3, "fay": 1})
}
