package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The states of another system, imported while the server runs: a dry run, a bad line,
// twice the same, and what differs in the end.
func TestImport(t *testing.T) {
	t.Parallel()
	database := newDatabase(t)
	p := serve(t, database)
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("states.csv", "user_id,conversation_id,last_seq,read_seq,level\nann,tea,9,6,all\nbob,tea,9,9,all\nann,crew,4,2,none\n")
	bad := write("bad.ndjson", `{"user_id":"ann","conversation_id":"lunch","last_seq":2,"read_seq":"one"}`+"\n")
	report := filepath.Join(dir, "report.ndjson")
	db := "--database-url=" + database
	// published is what the import of the good file says of its events.
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
}
