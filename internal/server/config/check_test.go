package config_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/badged/badged/internal/server/config"
)

// check checks settings of flags and, unless it is "", of a file.
func check(t *testing.T, file string, args ...string) (r config.Report, g *grammar, path string) {
	t.Helper()
	parser, g := newParser(t)
	if file != "" {
		path = write(t, file)
		args = append([]string{"--config", path}, args...)
	}
	return config.Check(parser, append([]string{"check"}, args...), &g.Check.Server), g, path
}

// Check reports the settings that `serve` reads.
func TestCheckReadsWhatServeReads(t *testing.T) {
	const file = needed + `
listen: 127.0.0.1:0
admin-keys: [ops=a, 'root=b,c']
roles: [api, projector, gateway]
trusted-proxies: 10.0.0.0/8
reconcile-interval: 90s
migrate: true
batch-size: 7
`
	t.Setenv("BADGED_RECONCILE_INTERVAL", "45s")
	t.Setenv("BADGED_JWT_AUDIENCE", "badges")
	args := []string{"--listen=127.0.0.1:1", "--expire", "chat=168h", "--expire=likes=24h", "--self-heal"}
	want, err := parse(t, file, args...)
	if err != nil {
		t.Fatal(err)
	}
	r, got, path := check(t, file, append(args, "--connect")...)
	if len(r.Mistakes) > 0 {
		t.Fatalf("mistakes: %q", r.Mistakes)
	}
	if diff := cmp.Diff(want.Serve.Server, got.Check.Server, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Errorf("settings (-serve +check):\n%s", diff)
	}
	if diff := cmp.Diff(want.Serve.Log, got.Check.Log); diff != "" {
		t.Errorf("settings of the log (-serve +check):\n%s", diff)
	}
	for _, s := range []config.Setting{
		{Name: "listen", Value: "127.0.0.1:1", Source: "flag"},
		{Name: "self-heal", Value: "true", Source: "flag"},
		{Name: "reconcile-interval", Value: "45s", Source: "environment BADGED_RECONCILE_INTERVAL"},
		{Name: "admin-keys", Value: "ops=***,root=***", Source: path + ":7"},
		{Name: "drain-timeout", Value: "5s", Source: "default"},
	} {
		if !slices.Contains(r.Settings, s) {
			t.Errorf("%+v is not among\n%+v", s, r.Settings)
		}
	}
}

// All mistakes are reported, each with its place.
func TestCheckNamesEveryMistake(t *testing.T) {
	t.Setenv("BADGED_DRAIN_TIMEOUT", "5")
	t.Setenv("BADGED_JWT_KEY", "k=HS256:secret")
	r, _, path := check(t, `# a comment
databse-url: postgres://u:hunter2@localhost/chat
reconcile-interval: 30
roles: [api, folder]
roles: [api]
jwt-keys: {k: HS256:hunter2}
cache-mib: 0
`, "--lisen=x", "serve", "--log-level=loud", "--admin-keys")
	want := []string{
		`command line: unknown flag --lisen, did you mean "--listen"?`,
		"command line: unexpected argument serve",
		"command line: --admin-keys needs a value",
		path + `:2: "databse-url" is not a setting; did you mean database-url?`,
		path + `:5: "roles" appears twice`,
		path + ":6: --jwt-keys cannot be read",
		path + `:4: --roles must be one of "api","projector","gateway","notifier","ingest" but got "folder"`,
		path + `:3: --reconcile-interval: expected duration but got "30": time: missing unit in duration "30"`,
		`environment BADGED_DRAIN_TIMEOUT: --drain-timeout: expected duration but got "5": time: missing unit in duration "5"`,
		`flag: --log-level must be one of "debug","info","warn","error" but got "loud"`,
		"--database-url (BADGED_DATABASE_URL) is required, such as postgres://user@localhost/chat; or --shard (BADGED_SHARDS) for each of several databases",
		"--cache-mib must be 1 or more",
	}
	if diff := cmp.Diff(want, r.Mistakes); diff != "" {
		t.Errorf("mistakes (-want +got):\n%s", diff)
	}
	if want := "environment: BADGED_JWT_KEY is not a setting; did you mean BADGED_JWT_KEYS?"; !slices.Contains(r.Warnings, want) {
		t.Errorf("no warning %q, but %q", want, r.Warnings)
	}
	if text := strings.Join(append(r.Mistakes, r.Warnings...), "\n"); strings.Contains(text, "hunter2") {
		t.Errorf("it tells a secret:\n%s", text)
	}
}

func TestCheckWithoutAFile(t *testing.T) {
	if r, _, _ := check(t, "", "--config=/nowhere"); r.Mistakes[0] != "--config: open /nowhere: no such file or directory" {
		t.Errorf("a file that is not there: %q", r.Mistakes)
	}
	if r, _, _ := check(t, "# nothing\n"); len(r.Mistakes) != 3 { // the required settings
		t.Errorf("an empty file: %q", r.Mistakes)
	}
}

func TestCheckHidesSecrets(t *testing.T) {
	for _, test := range []struct{ name, value, want string }{
		{"database-url", "postgres://badged:hunter2@db1,db2/chat?sslmode=require&sslpassword=hunter2", "postgres://badged:***@db1,db2/chat?sslmode=require&sslpassword=***"},
		{"database-url", "host=db1 user=badged password='hunter2 \\'x' dbname=chat", "host=db1 user=badged password=*** dbname=chat"},
		{"database-url", "postgres://badged:hunter2%@db1/chat", "***"},
		{"redis-url", "redis://:hunter2@localhost", "redis://:***@localhost"},
		{"jwt-keys", "a=HS256:hunter2,b=RS256:/etc/b.pem", "a=HS256:***,b=RS256:/etc/b.pem"},
		{"jwt-keys", "hunter2", "***"},
		{"publisher-keys", "chat=hunter2,push=sha256:ab12", "chat=***,push=sha256:***"},
	} {
		r, _, _ := check(t, "", "--"+test.name+"="+test.value)
		for _, s := range r.Settings {
			if s.Name == test.name && s.Value != test.want {
				t.Errorf("%s is shown as %s, want %s", test.name, s.Value, test.want)
			}
		}
	}
}

func TestEncryptedAndLocalConnectionsAreNoRisk(t *testing.T) {
	for _, s := range []*config.Server{
		server(func(s *config.Server) { s.DatabaseURL = "postgres://db.example/chat?sslmode=verify-full" }),
		server(func(s *config.Server) { s.DatabaseURL = "postgres://one.example,two.example/chat?sslmode=require" }),
		server(func(s *config.Server) { s.DatabaseURL = "host=/run/postgresql dbname=chat" }),
		server(func(s *config.Server) { s.DatabaseURL = "postgres://[::1]/chat?sslmode=disable" }),
		server(func(s *config.Server) { s.RedisURL = "rediss://redis.example" }),
		server(func(s *config.Server) { s.RedisURL = "unix:///run/redis.sock" }),
		server(func(s *config.Server) { s.RedisURL = "redis://127.0.0.1:6379?addr=localhost:6380" }),
	} {
		if risks := s.ClearTextRisks(); len(risks) > 0 {
			t.Errorf("%s and %s: %q", s.DatabaseURL, s.RedisURL, risks)
		}
	}
}

func TestUnencryptedShardsAreRisks(t *testing.T) {
	s := server(func(s *config.Server) {
		s.DatabaseURL = ""
		s.Shards = []string{"a=postgres://localhost/chat", "b=postgres://db2.example/chat"}
	})
	if risks := s.ClearTextRisks(); len(risks) != 1 || !strings.HasPrefix(risks[0], "--shard b: the connection to db2.example may be in the clear") {
		t.Errorf("risks %q, want one about shard b", risks)
	}
}

func TestCheckWarnsAboutRisks(t *testing.T) {
	good := []string{
		"--database-url=postgres://localhost/chat", "--jwt-keys=k=HS256:0123456789abcdef0123456789abcdef",
		"--publisher-keys=chat=sha256:ab", "--admin-keys=ops=sha256:cd",
	}
	if r, _, _ := check(t, "", good...); len(r.Warnings) > 0 || len(r.Mistakes) > 0 {
		t.Errorf("good settings: warnings %q, mistakes %q", r.Warnings, r.Mistakes)
	}
	for arg, want := range map[string]string{
		"--listen=:8080":                                      "without --tls-cert keys and tokens travel in the clear",
		"--publisher-keys=chat=hunter2":                       "shorter than 16 characters",
		"--admin-keys=ops=0123456789abcdef":                   "in plain text",
		"--admin-keys=ops=sha256:ab":                          "a publisher has the same secret",
		"--jwt-keys=k=HS256:abababababababababababababababab": "fewer than 8 different characters",
		"--publisher-keys=chat=aaaaaaaaaaaaaaaaaaaa":          "fewer than 8 different characters",
		"--listen=:8080 --internal-listen=:8081":              "--internal-listen :8081: /metrics needs no key",
		"--jwks-max-age=1h":                                   "no effect without --jwks-url",
		"--admin-keys=":                                       "/admin/v1/ is unusable",
		"--allowed-origins=*":                                 "any page may connect",
		"--jwks-url=https://login.example":                    "without --jwt-audience",
		"--jwks-url=http://login.example":                     "is not https",
		"--connects-per-second=5":                             "without --trusted-proxies",
		"--reconcile-interval=10m":                            "shows the old number for that long",
		"--reconcile-interval=10ms":                           "is read from Postgres this often",
		"--verify-interval=0s":                                "wrong badges go unnoticed",
		"--dedup-window=1h":                                   "may apply twice",
		"--drain-timeout=20s":                                 "may take twice as long",

		"--trusted-proxies=10.0.0.0/8,0.0.0.0/0": "--trusted-proxies 0.0.0.0/0 includes addresses of clients",
		"--trusted-proxies=::/0":                 "--trusted-proxies ::/0 includes addresses of clients",

		"--roles=api --redis-url=redis://localhost --expire=chat=24h": "--expire has no effect",

		"--database-url=postgres://db.example/chat?sslmode=disable":                 "the connection to db.example may be in the clear",
		"--database-url=postgres://db.example/chat":                                 "the connection to db.example may be in the clear", // sslmode=prefer
		"--database-url=postgres://127.0.0.1,db2.example/chat?sslmode=allow":        "the connection to db2.example may be in the clear",
		"--redis-url=redis://:x@10.0.0.7:6379":                                      "the connection to 10.0.0.7 is in the clear",
		"--redis-url=redis://127.0.0.1:6379?addr=redis2.example:6379&addr=[::1]:63": "the connection to redis2.example is in the clear",
	} {
		r, _, _ := check(t, "", append(slices.Clone(good), strings.Fields(arg)...)...)
		if strings.HasPrefix(arg, "--publisher-keys") || strings.HasPrefix(arg, "--admin-keys") {
			r, _, _ = check(t, "", append(slices.DeleteFunc(slices.Clone(good), func(a string) bool {
				return strings.HasPrefix(a, arg[:12])
			}), arg)...)
		}
		if !slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.Contains(w, want) }) {
			t.Errorf("%s: no warning %q, but %q", arg, want, r.Warnings)
		}
	}
}

// Names of shards that differ in case only are warned about; networks of proxies that are
// private are not.
func TestCheckWarnsAboutSimilarNames(t *testing.T) {
	r, _, _ := check(t, "", "--shard=a=postgres://localhost/a", "--shard=B=postgres://localhost/b", "--shard=b=postgres://localhost/c",
		"--trusted-proxies=10.0.0.0/8,192.168.0.0/16,fc00::/7", "--jwt-keys=k=HS256:0123456789abcdef0123456789abcdef", "--publisher-keys=chat=sha256:ab", "--admin-keys=ops=sha256:cd")
	if len(r.Mistakes) > 0 || len(r.Warnings) != 1 || !strings.HasPrefix(r.Warnings[0], "--shard B, b: these names differ in case only") {
		t.Errorf("warnings %q, mistakes %q", r.Warnings, r.Mistakes)
	}
}
