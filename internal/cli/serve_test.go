package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/badged/badged/internal/bridge/traffic"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/snippets"
)

const publisherKey = "publisher-secret"

// startServer starts `badged serve` on a database.
func startServer(t *testing.T, databaseURL string, args ...string) *service {
	t.Helper()
	return start(t, append([]string{
		"serve", "--listen=127.0.0.1:0", "--database-url=" + databaseURL,
		"--publisher-keys=chat=" + publisherKey, "--jwt-keys=" + jwtKeys, "--log-level=error",
	}, args...)...)
}

// The second start has nothing to migrate.
func TestServe(t *testing.T) {
	url := pgtest.NewDB(t, pgtest.Template{})
	for range 2 {
		server := startServer(t, url, "--migrate")
		if !strings.HasPrefix(server.url, "http://127.0.0.1:") || strings.HasSuffix(server.url, ":0") {
			t.Errorf("it serves on %s, want the port that it got", server.url)
		}
		if code := server.stop(); code != exitDone {
			t.Errorf("interrupted, it exits with %d:\n%s", code, server.err)
		}
		if got := server.err.String(); strings.Count(got, "\n") != 1 {
			t.Errorf("besides the ready line it printed:\n%s", got)
		}
	}
}

func TestLoad(t *testing.T) {
	url := pgtest.NewDB(t, migrated())
	server := startServer(t, url)
	const text = "1 2 1082040961\n1 2 1082040962\n3 2 1082040963\n"
	file := filepath.Join(t.TempDir(), "traffic.txt")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var first traffic.Summary
	out := mustDo(t, "load", file, "--json", "--quiet", "--url="+server.url, "--publisher-key="+publisherKey)
	if err := json.Unmarshal([]byte(out), &first); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if first.Messages != 3 || first.Users != 3 || first.TotalUnread == 0 {
		t.Errorf("load to the server: %+v, want 3 messages among 3 users", first)
	}
	// The same traffic by another way counts once.
	r := badgedWith(t.Context(), text, "load", "-", "--json", "--quiet", "--database-url="+url)
	var second traffic.Summary
	if err := json.Unmarshal([]byte(r.out), &second); err != nil {
		t.Fatalf("exit code %d, %v in %s%s", r.code, err, r.out, r.err)
	}
	if second.Messages != 3 || second.TotalUnread != first.TotalUnread {
		t.Errorf("load to the database: %+v, want the totals of %+v", second, first)
	}
	// The text output.
	out = mustDo(t, "load", file, "--quiet", "--database-url="+url)
	snippets.ExpectShape(t, snippets.Output(t, "docs/cli.md", "badged load traffic.txt.gz"), strings.ReplaceAll(out, file, "traffic.txt.gz"))
	if r := badged(t, "load", file, "--url="+server.url, "--publisher-key=wrong", "--quiet"); r.code != exitFailed || !strings.Contains(r.err, "401") {
		t.Errorf("with a wrong key: exit code %d, stderr %s", r.code, r.err)
	}
	if r := badged(t, "load", file+".not", "--database-url="+url); r.code != exitFailed || !strings.Contains(r.err, "no such file") {
		t.Errorf("without a file: exit code %d, stderr %s", r.code, r.err)
	}
}
