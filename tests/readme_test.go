package tests

import (
	"bufio"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/badged/badged/internal/devtest/snippets"
)

// The README's command that follows a badge works without a terminal. It prints the state, and then
// every change.
func TestReadmeFollowsABadge(t *testing.T) {
	t.Parallel()
	page := readFile(t, "../README.md")
	found := regexp.MustCompile("(?m)^```sh\n(.*/v1/(?:sse|ws)[^`]*)\n```$").FindSubmatch(page)
	if found == nil {
		t.Fatal("the README has no command that follows a badge")
	}
	p := serve(t, newDatabase(t))
	line := strings.NewReplacer("http://127.0.0.1:8080", p.url, "go run ./cmd/badged", binary).Replace(string(found[1]))
	follow := exec.CommandContext(t.Context(), "sh", "-c", "exec "+line) // its standard input is empty
	follow.Env = environment("BADGED_JWT_KEYS=" + jwtKeys)
	out, err := follow.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = follow.Process.Kill()
		_ = follow.Wait()
	})
	lines := bufio.NewScanner(out)
	await := func(want string) {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), want) {
				return
			}
		}
		t.Fatalf("the command ended without printing %s", want)
	}
	await(`"t":"snapshot"`)
	publish(t, p, delivered("lunch", 1, `"eve"`))
	await(`"total":1`)
}

// The answers that the README shows are the real answers to its commands.
func TestReadmeReadsABadge(t *testing.T) {
	t.Parallel()
	page := readFile(t, "../README.md")
	found := regexp.MustCompile("(?s) -d '([^']*)'\n```\n\n```json\n([^`]*)\n```\n.*?/v1/users/eve/badge.*?```json\n([^`]*)\n```").FindSubmatch(page)
	if found == nil {
		t.Fatal("the README does not publish an event and read a badge")
	}
	p := serve(t, newDatabase(t))
	status, header, answer := request(t, http.MethodPost, p.url+"/v1/events", "application/json", string(found[1]))
	if status != http.StatusAccepted || strings.TrimSpace(answer) != string(found[2]) {
		t.Errorf("publishing is answered %d %s, the README says %s", status, answer, found[2])
	}
	_, _, badge := request(t, http.MethodGet, p.url+"/v1/users/eve/badge?timeout=30s&at_least="+header.Get("Badged-Position"), "", "")
	epoch := regexp.MustCompile(`"epoch":"[0-9a-f]*"`)
	if got, want := epoch.ReplaceAllString(strings.TrimSpace(badge), ""), epoch.ReplaceAllString(string(found[3]), ""); got != want {
		t.Errorf("the badge is %s, the README says %s", got, want)
	}
}

// The requests of the pages that a newcomer reads first succeed as they are pasted.
func TestRequestsOfThePages(t *testing.T) {
	t.Parallel()
	database := oneDatabase(t)
	p := serve(t, database)
	// The first page reads the badge of ada at once, which includes the event if the server folds it
	// in the transaction that stores it. For that the server must own the partition of ada.
	expectTotals(t, p, "the start", map[string]int64{"ada": 0})
	programs := t.TempDir()
	if err := os.Symlink(binary, filepath.Join(programs, "badged")); err != nil {
		t.Fatal(err)
	}
	for _, shown := range []struct{ page, text, want string }{
		{"docs/getting-started.md", "/v1/events", `"total":1`},
		{"docs/publishing.md", "m-1-read-ada", `{"accepted":2}`},
		{"docs/http-api.md", "/disconnect", `"revoked_before"`},
	} {
		block := snippets.With(t, shown.page, shown.text, "sh")
		script := `set -e; curl() { command curl --fail-with-body "$@"; }` + "\n" + strings.ReplaceAll(block.Text, "http://127.0.0.1:8080", p.url)
		paste := exec.CommandContext(t.Context(), "sh", "-c", script)
		paste.Env = environment("BADGED_PUBLISHER_KEY="+publisherKey, "BADGED_JWT_KEYS="+jwtKeys, "BADGED_DATABASE_URL="+database, "PATH="+programs+":"+os.Getenv("PATH"))
		out, err := paste.CombinedOutput()
		if err != nil || !strings.Contains(string(out), shown.want) {
			t.Errorf("%s prints, with error %v, without %s:\n%s", block, err, shown.want, out)
		}
	}
	sql(t, database, `CREATE TABLE messages (room text, seq bigint, body text)`)
	sql(t, database, snippets.With(t, "docs/publishing.md", "INSERT INTO messages", "sql").Text)
	// ada has read message 1 of this conversation above.
	expectTotals(t, p, "the SQL", map[string]int64{"ada": 2, "chloe": 2})
}

// The page about tests of other programs is followed: its tests pass against `badged dev`, and
// the first how-to's token is one that the server accepts.
func TestPagesAreFollowed(t *testing.T) {
	t.Parallel()
	p := launch(t, nil, "dev", "--listen=127.0.0.1:0")
	dir := t.TempDir()
	run := func(name, program, with string, args ...string) string {
		t.Helper()
		writeFile(t, filepath.Join(dir, name), program)
		cmd := exec.CommandContext(t.Context(), with, append(args, name)...)
		cmd.Dir = dir // unittest takes only files below it
		cmd.Env = environment("BADGED_URL=" + p.url)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		return string(out)
	}
	run("count.test.mjs", snippets.With(t, "docs/testing.md", "node:test", "js").Text, "node", "--test")
	if out := run("test_count.py", snippets.With(t, "docs/testing.md", "unittest", "python").Text, "python3", "-m", "unittest"); !strings.Contains(out, "Ran 1 test") {
		t.Errorf("unittest prints\n%s", out)
	}
	backend := `const app = { get: (path, answer) => answer({ user: { id: "ada" } }, { type() { return this; }, send: (text) => console.log(text) }) };` + "\n"
	token := run("backend.mjs", backend+snippets.With(t, "docs/howto/show-a-badge.md", "createHmac", "js").Text, "node")
	wantStatus(t, strings.TrimSpace(token), http.MethodGet, p.url+"/v1/users/ada/badge", "", "", http.StatusOK)
}
