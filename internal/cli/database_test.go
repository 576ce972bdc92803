package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/schematest"
	"github.com/badged/badged/pubsub"
)

func TestMigrate(t *testing.T) {
	url := "--database-url=" + pgtest.NewDB(t, pgtest.Template{})
	const pending = "migrations are pending; run `badged migrate up`\n"

	r := badged(t, "migrate", "status", url)
	if r.code != exitFailed || !strings.HasSuffix(r.err, pending) || strings.Count(r.out, "pending") < 2 {
		t.Errorf("status before: exit code %d, printed\n%s%s", r.code, r.out, r.err)
	}
	out := mustDo(t, "migrate", "up", "--partitions=3", url)
	if !strings.HasPrefix(out, "applied 00001_") || strings.Count(out, "\n") != strings.Count(out, "applied ") {
		t.Errorf("up prints\n%s", out)
	}
	status := mustDo(t, "migrate", "status", url)
	if strings.Contains(status, "pending") || strings.Count(status, "\n") != strings.Count(out, "\n")+1 {
		t.Errorf("status after:\n%s", status)
	}
	if out := mustDo(t, "migrate", "status", "--json", url); strings.Count(out, `"migration": "0000`) != strings.Count(out, `"applied_at": "2`) || strings.Count(out, `"migration"`) != strings.Count(status, "\n")-1 {
		t.Errorf("status as JSON:\n%s", out)
	}
	if out := mustDo(t, "migrate", "up", url); out != "nothing to do: every migration is applied\n" {
		t.Errorf("up again prints\n%s", out)
	}
	if out := mustDo(t, "migrate", "up", "--partitions=3", url); out != "nothing to do: every migration is applied\n" {
		t.Errorf("up again with as many partitions prints\n%s", out)
	}
	r = badged(t, "migrate", "up", "--partitions=4", url)
	if want := "badged: the number of partitions of the database is 3, not 4: it is chosen when the database is created; `badged partition split` makes more of them\n"; r.code != exitFailed || r.err != want {
		t.Errorf("up with other partitions: exit code %d, stderr %q, want %q", r.code, r.err, want)
	}
}

func TestMigrateAcceptsPoolSettings(t *testing.T) {
	// The server's URL has settings of its pool; commands must accept it.
	url := "--database-url=" + pgtest.NewDB(t, pgtest.Template{}) + "&pool_max_conns=3"
	mustDo(t, "migrate", "up", url)
	mustDo(t, "migrate", "status", url)
	mustDo(t, "lag", url)
}

// databaseCommands are the commands that need a migrated database.
func databaseCommands(t *testing.T) map[string][]string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "traffic.txt")
	if err := os.WriteFile(file, []byte("1 2 1082040961\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return map[string][]string{
		"user show":           {"user", "show", "ada"},
		"user explain":        {"user", "explain", "ada"},
		"user export":         {"user", "export", "ada"},
		"user erase":          {"user", "erase", "ada"},
		"user merge":          {"user", "merge", "guest", "ada"},
		"lag":                 {"lag"},
		"log":                 {"log"},
		"verify":              {"verify", "--quiet"},
		"rebuild":             {"rebuild", "--quiet"},
		"archive":             {"archive", "--before=2026-01-31T00:00:00Z", "--to=" + filepath.Dir(file)},
		"restore":             {"restore", "--quiet", "--from=" + filepath.Dir(file)},
		"partition list":      {"partition", "list"},
		"partition plan":      {"partition", "plan"},
		"partition move":      {"partition", "move", "0", "--to=b"},
		"partition split":     {"partition", "split", "0", "--quiet"},
		"deadletters list":    {"deadletters", "list"},
		"deadletters retry":   {"deadletters", "retry", "--all"},
		"deadletters discard": {"deadletters", "discard", "--all"},
		"audit list":          {"audit", "list"},
		"audit verify":        {"audit", "verify"},
		"audit prune":         {"audit", "prune", "--before=2026-01-31T00:00:00Z"},
		"mcp":                 {"mcp"},
		"repair-log":          {"repair-log"},
		"load":                {"load", file, "--quiet"},
		"import":              {"import", file, "--quiet"},
		"ingest":              {"ingest", "--listen=127.0.0.1:0", "--from=redis://127.0.0.1:1/0?stream=s", "--log-level=error"},
		"relay run":           {"relay", "run", "--listen=127.0.0.1:0", "--outbox-url=" + pgtest.NewDB(t, schematest.Outbox()), "--log-level=error"},
		"tail":                {"tail", "--listen=127.0.0.1:0", "--to=redis://127.0.0.1:1/0?stream=s", "--log-level=error"},
		"serve":               {"serve", "--listen=127.0.0.1:0", "--publisher-keys=chat=secret", "--jwt-keys=" + jwtKeys, "--log-level=error"},
	}
}

func TestDatabaseThatIsNotMigrated(t *testing.T) {
	url := pgtest.NewDB(t, pgtest.Template{})
	for name, args := range databaseCommands(t) {
		t.Run(name, func(t *testing.T) {
			r := badged(t, append(args, "--database-url="+url)...)
			if r.code != exitFailed || !strings.Contains(r.err, "run `badged migrate up`") || strings.Count(r.err, "\n") != 1 {
				t.Errorf("exit code %d, stderr:\n%s", r.code, r.err)
			}
		})
	}
}

func TestDatabaseThatCannotBeUsed(t *testing.T) {
	const password = "hunter2"
	elsewhere := regexp.MustCompile(`/test_[a-z0-9]+\?`).ReplaceAllString(pgtest.NewDB(t, pgtest.Template{}), "/elsewhere?")
	const hint = "\nIs Postgres running there, and may this user connect? --database-url (BADGED_DATABASE_URL) or --shard (BADGED_SHARDS) says where and who.\n"
	const badURL = "badged: --database-url (BADGED_DATABASE_URL): "
	for _, test := range []struct {
		name, url, contains, hint string
		away                      bool
	}{
		{
			"a closed port", "postgres://badged:" + password + "@127.0.0.1:1/chat",
			"failed to connect to `user=badged database=chat`: 127.0.0.1:1 (127.0.0.1): dial error: dial tcp 127.0.0.1:1: connect: connection refused", hint, true,
		},
		{"no such socket", "host=/nowhere user=badged password=" + password + " dbname=chat", "/nowhere/.s.PGSQL.", hint, true},
		{"no such database", elsewhere + "&password=" + password, `database "elsewhere" does not exist`, hint, false},
		{"a bad port", "postgres://badged:" + password + "@localhost:99999/chat", badURL + "invalid port; want a URL such as", "\n", false},
		{"a bad password", "postgres://badged:%zz" + password + "@localhost/chat", badURL + "failed to parse as URL", "\n", false},
		{"nonsense", password, badURL + "failed to parse as keyword/value", "\n", false},
	} {
		commands := databaseCommands(t)
		commands["migrate up"] = []string{"migrate", "up"}
		commands["migrate status"] = []string{"migrate", "status"}
		commands["migrate grant"] = []string{"migrate", "grant", "server", "chat"}
		if test.away {
			for _, waits := range []string{"serve", "ingest", "relay run", "tail"} { // they start before Postgres does
				delete(commands, waits)
			}
		}
		for name, args := range commands {
			t.Run(test.name+"/"+name, func(t *testing.T) {
				r := badged(t, append(args, "--database-url="+test.url)...)
				want := exitFailed
				if strings.HasPrefix(test.contains, badURL) {
					want = exitUsage
				}
				if r.code != want || r.out != "" {
					t.Errorf("exit code %d, want %d; printed %q", r.code, want, r.out)
				}
				if !strings.HasPrefix(r.err, "badged: ") || !strings.Contains(r.err, test.contains) || !strings.HasSuffix(r.err, test.hint) ||
					strings.Count(r.err, "\n") != max(1, strings.Count(test.hint, "\n")) {
					t.Errorf("stderr:\n%swant a line with:\n%s%s", r.err, test.contains, test.hint)
				}
				if strings.Contains(r.err, password) {
					t.Errorf("it shows the password:\n%s", r.err)
				}
			})
		}
	}
}

func TestUserWithoutEvents(t *testing.T) {
	url := "--database-url=" + pgtest.NewDB(t, migrated())
	shown := badged(t, "user", "show", "unknown", url)
	if !strings.HasSuffix(shown.out, "\nNothing has ever happened to this user.\n") || shown.err != "" || shown.code != exitUnknown {
		t.Errorf("it exits with %d and prints:\n%s%s", shown.code, shown.out, shown.err)
	}
	if r := badged(t, "user", "explain", "unknown", url); r.err != "Nothing has ever happened to this user.\n" || r.code != exitUnknown {
		t.Errorf("user explain exits with %d and prints:\n%s%s", r.code, r.out, r.err)
	}
	var s pubsub.Snapshot
	shown = badged(t, "user", "show", "unknown", "--json", url)
	if err := json.Unmarshal([]byte(shown.out), &s); err != nil || shown.code != exitUnknown {
		t.Fatalf("as JSON it exits with %d: %v", shown.code, err)
	}
	want := pubsub.Snapshot{
		Badge:         pubsub.Badge{UserID: "unknown", Epoch: s.Epoch, Categories: map[string]pubsub.Numbers{}},
		Conversations: []pubsub.Conversation{},
	}
	if diff := cmp.Diff(want, s); diff != "" || s.Epoch == "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
	r := badged(t, "user", "show", "a\tb", url)
	if want := "badged: user id must not hold control characters\n"; r.code != exitUsage || r.err != want {
		t.Errorf("exit code %d, stderr %q, want %q", r.code, r.err, want)
	}
}

func TestMigrateShards(t *testing.T) {
	a, b, c := pgtest.NewDB(t, pgtest.Template{}), pgtest.NewDB(t, pgtest.Template{}), pgtest.NewDB(t, pgtest.Template{})
	out := mustDo(t, "migrate", "up", "--shard=a="+a, "--shard", "b="+b)
	for _, want := range []string{
		"shard a: applied 00001_log.sql\n", "shard b: applied 00001_log.sql\n",
		"shard a: has joined the cluster and holds the partitions 0-3\n", "shard b: has joined the cluster and holds the partitions 4-7\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("up prints\n%s", out)
		}
	}
	t.Setenv("BADGED_SHARDS", "a="+a+",b="+b+"\nc="+c)
	r := badged(t, "migrate", "status")
	if r.code != exitFailed || !strings.Contains(r.out, "a      00001_log.sql") || !strings.Contains(r.err, "are pending; run `badged migrate up`") {
		t.Errorf("status prints\n%s%s", r.out, r.err)
	}
	if out = mustDo(t, "migrate", "up"); !strings.HasSuffix(out, "shard a: holds the partitions 0-3\nshard b: holds the partitions 4-7\nshard c: has joined the cluster and holds no partitions: move some to it\n") {
		t.Errorf("up prints\n%s", out)
	}
	mustDo(t, "migrate", "status")
	t.Setenv("BADGED_SHARDS", "")
	r = badged(t, "migrate", "up", "--partitions=3", "--shard", "a="+a)
	if want := "badged: nothing was migrated: the number of partitions of shard a is 8, not 3: it is settled when the first database is created\n"; r.code != exitFailed || r.err != want {
		t.Errorf("up with other partitions: exit code %d, stderr %q, want %q", r.code, r.err, want)
	}
}
