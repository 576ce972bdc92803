package cli

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/badged/badged/internal/bridge/traffic"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/snippets"
	"github.com/badged/badged/migrations"
	"github.com/badged/badged/pubsub"
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

func TestServe(t *testing.T) {
	url := pgtest.NewDB(t, pgtest.Template{})
	server := startServer(t, url, "--migrate")
	if !strings.HasPrefix(server.url, "http://127.0.0.1:") || strings.HasSuffix(server.url, ":0") {
		t.Errorf("it serves on %s, want the port that it got", server.url)
	}

	status, header, body := fetch(t, http.MethodPost, server.url+"/v1/events", publisherKey, "application/json",
		`{"specversion":"1.0","id":"1","source":"test","type":"message.delivered",`+
			`"data":{"conversation_id":"lunch","seq":7,"user_ids":["ada"],"mentioned_user_ids":["ada"]}}`)
	if status != http.StatusAccepted {
		t.Fatalf("publish: %d %s", status, body)
	}
	token := strings.TrimSpace(mustDo(t, "token", "ada", "--jwt-keys="+jwtKeys))
	status, _, body = fetch(t, http.MethodGet, server.url+"/v1/users/ada/badge?timeout=30s&at_least="+header.Get("Badged-Position"), token, "", "")
	if status != http.StatusOK || !strings.Contains(body, `"total":1,"mentions":1`) {
		t.Errorf("badge: %d %s", status, body)
	}

	db := "--database-url=" + url
	show := mustDo(t, "user", "show", "ada", db)
	for _, want := range []string{"user       ada\n", "total      1\n", "mentions   1\n", "  chat     1\n", "\nlunch         1       1         7             0     7     default  chat"} {
		if !strings.Contains(show, want) {
			t.Errorf("user show has no %q:\n%s", want, show)
		}
	}
	var snapshot pubsub.Snapshot
	if err := json.Unmarshal([]byte(mustDo(t, "user", "show", "ada", "--json", db)), &snapshot); err != nil {
		t.Fatal(err)
	}
	if snapshot.Total != 1 || len(snapshot.Conversations) != 1 || snapshot.Conversations[0].FirstUnreadSeq != 7 {
		t.Errorf("user show --json: %+v", snapshot)
	}
	if lag := mustDo(t, "lag", db); strings.Contains(lag, "none") || strings.Count(lag, "badged projector") != migrations.DefaultPartitions {
		t.Errorf("lag, with a server that folds all partitions:\n%s", lag)
	}
	if code := server.stop(); code != exitDone {
		t.Errorf("interrupted, it exits with %d:\n%s", code, server.err)
	}
	if got := server.err.String(); strings.Count(got, "\n") != 1 {
		t.Errorf("besides the ready line it printed:\n%s", got)
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

func TestServeRefuses(t *testing.T) {
	var lc net.ListenConfig
	taken, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	url := pgtest.NewDB(t, migrated())
	for _, test := range []struct {
		name string
		args []string // later flags win
		want string
	}{
		{"an address that is taken", []string{"--listen=" + taken.Addr().String()}, "--listen " + taken.Addr().String() + ": another program is listening there"},
		{"an address that makes no sense", []string{"--listen=nowhere"}, "--listen nowhere: "},
		{"a publisher key without a name", []string{"--publisher-keys=hunter2"}, "--publisher-keys: key 2: want NAME=SECRET"},
		{"an admin key that is a bad digest", []string{"--admin-keys=ops=sha256:hunter2"}, "--admin-keys: key ops: sha256: must be followed by 64"},
		{"a JWT key that is short", []string{"--jwt-keys=k=HS256:hunter2"}, "--jwt-keys: JWT key k: the secret must have at least 32 bytes"},
		{"an origin that is a page", []string{"--allowed-origins=https://chat.example/page"}, `--allowed-origins: "https://chat.example/page" has more than a scheme, a host and a port: browsers send only these`},
		{"an invalid Redis URL", []string{"--redis-url=ftp://:hunter2@localhost"}, "--redis-url: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := badged(t, append([]string{
				"serve", "--listen=127.0.0.1:0", "--database-url=" + url,
				"--publisher-keys=chat=" + publisherKey, "--jwt-keys=" + jwtKeys,
			}, test.args...)...)
			if r.code != exitFailed || !strings.HasPrefix(r.err, "badged: "+test.want) || strings.Count(r.err, "\n") != 1 {
				t.Errorf("exit code %d, stderr:\n%swant:\nbadged: %s", r.code, r.err, test.want)
			}
			if strings.Contains(r.err, "hunter2") {
				t.Errorf("it tells a secret:\n%s", r.err)
			}
		})
	}
}
