package config_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/badged/badged/internal/devtest/snippets"
	"github.com/badged/badged/internal/server/config"
)

// grammar is a command line with every setting of a server.
type grammar struct {
	Config config.FileFlag
	Serve  struct {
		config.Server `embed:""`
		config.Log    `embed:""`
	} `cmd:""`
	// Check has the settings of serve, and one of its own.
	Check struct {
		Connect       bool `env:"-"`
		config.Server `embed:""`
		config.Log    `embed:""`
	} `cmd:""`
	// Other has a setting that serve lacks.
	Other struct {
		BatchSize int
	} `cmd:""`
}

// newParser returns a parser of settings.
func newParser(t *testing.T) (*kong.Kong, *grammar) {
	t.Helper()
	var g grammar
	parser, err := kong.New(&g, kong.DefaultEnvars("BADGED"))
	if err != nil {
		t.Fatal(err)
	}
	return parser, &g
}

// write writes a configuration file.
func write(t *testing.T, file string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "badged.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// parse parses `serve` with a configuration file.
func parse(t *testing.T, file string, args ...string) (*grammar, error) {
	t.Helper()
	parser, g := newParser(t)
	_, err := parser.Parse(append([]string{"serve", "--config", write(t, file)}, args...))
	return g, err
}

// needed has the required settings of a server.
const needed = `
database-url: postgres://localhost/chat
jwt-keys: k=HS256:secret
publisher-keys: chat=secret
`

func TestFile(t *testing.T) {
	want := config.Server{
		Database: config.Database{DatabaseURL: "postgres://localhost/chat"},
		Tokens:   config.Tokens{JWTKeys: []string{"a=HS256:se,cret", "b=RS256:b.pem"}, JWTAudience: "7"},
		Limits: config.Limits{
			MaxUserConnections: 100, CommandsPerSecond: 50, ConnectsPerSecond: 2.5, ReadsPerSecond: 20, LockTimeout: 4 * time.Second,
			TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")},
		},
		Listen: "127.0.0.1:0", RedisURL: "redis://localhost",
		Roles:         []config.Role{config.RoleAPI, config.RoleGateway},
		PublisherKeys: []string{`chat=se,cret\`, "push=7"}, AdminKeys: []string{"ops=a", "root=b"},
		CacheMiB: 256, VerifyInterval: time.Minute, VerifySample: 10,
		MaxLag: 30 * time.Second, ReconcileInterval: 90 * time.Second, RoomPushInterval: time.Minute, DrainDuration: 2 * time.Second, JWTMaxLifetime: 720 * time.Hour, DrainTimeout: 5 * time.Second,
		DedupWindow: 48 * time.Hour, Expire: []string{"chat=168h", "likes=24h"}, Migrate: true,
		Webhooks: config.Webhooks{WebhooksOrigin: "badged"},
		Tracing:  config.Tracing{TraceSample: 0.01},
	}
	for name, file := range map[string]string{
		"YAML": `
# Where
database-url: postgres://localhost/chat
redis-url:    "redis://localhost"
listen: 127.0.0.1:0

# Items of a list may hold commas; what is one text is split at them.
jwt-keys:
  - a=HS256:se,cret
  - b=RS256:b.pem
publisher-keys: ['chat=se,cret\', push=7]
admin-keys: ops=a,root=b
jwt-audience: 7
jwt-issuer: # empty, as if it were not here
roles: [api, gateway]
reconcile-interval: 1m30s
dedup-window: 48h
expire: chat=168h,likes=24h
connects-per-second: 2.5
trusted-proxies: [10.0.0.0/8, "fd00::/8"]
migrate: true
log-level: debug
`,
		"JSON": `{"database-url": "postgres://localhost/chat", "redis-url": "redis://localhost", "listen": "127.0.0.1:0",
"jwt-keys": ["a=HS256:se,cret", "b=RS256:b.pem"], "publisher-keys": ["chat=se,cret\\", "push=7"], "admin-keys": "ops=a,root=b",
"jwt-audience": "7", "jwt-issuer": null, "roles": ["api", "gateway"], "reconcile-interval": "1m30s", "dedup-window": "48h", "expire": ["chat=168h", "likes=24h"], "connects-per-second": 2.5, "trusted-proxies": "10.0.0.0/8,fd00::/8", "migrate": true, "log-level": "debug"}`,
	} {
		t.Run(name, func(t *testing.T) {
			g, err := parse(t, file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, g.Serve.Server, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
			if g.Serve.LogLevel != "debug" || g.Serve.LogFormat != "text" {
				t.Errorf("log level %s, format %s; want debug from the file, text by default", g.Serve.LogLevel, g.Serve.LogFormat)
			}
		})
	}
}

func TestFileMayHoldSettingsOfOtherCommands(t *testing.T) {
	if _, err := parse(t, needed+"batch-size: 7"); err != nil {
		t.Error(err)
	}
	r, _, _ := check(t, needed+"batch-size: 7")
	if want := `"batch-size" is a setting of other commands, which the server ignores`; len(r.Mistakes) > 0 || !strings.Contains(strings.Join(r.Warnings, "\n"), want) {
		t.Errorf("mistakes %q, warnings %q, want %s", r.Mistakes, r.Warnings, want)
	}
}

func TestInvalidFiles(t *testing.T) {
	for _, test := range []struct{ name, file, want string }{
		{"a setting that does not exist", needed + "listen-on: x", `"listen-on" is not a setting`},
		{"a misspelt setting that is needed", "databse-url: x", `"databse-url" is not a setting`},
		{"a setting named as in the environment", needed + "LISTEN: x", `"LISTEN" is not a setting`},
		{"a file in a file", needed + "config: x", `"config" is not a setting`},
		{"a call for help", needed + "help: true", `"help" is not a setting`},
		{"settings in a section", needed + "serve: {listen: x}", `"serve" is not a setting`},
		{"an object in place of text", needed + "listen: {host: x}", "listen must be text, a number, true or false"},
		{"a list in place of text", needed + "listen: [x]", "listen must be text, a number, true or false"},
		{"an object in place of a list", needed + "admin-keys: {ops: hunter2}", "admin-keys must be text or a list"},
		{"an object in a list", needed + "admin-keys:\n  - ops: hunter2", "item 1 of admin-keys must be text or a number"},
		{"nothing in a list", needed + "admin-keys: [ops=x, ]\nroles: [api, ~]", "item 2 of roles must be text or a number"},
		{"a role that does not exist", needed + "roles: [api, folder]", `--roles must be one of`},
		{"a duration without unit", needed + "reconcile-interval: 30", `--reconcile-interval`},
		{"text without settings", `"hunter2"`, "want settings by name, each once, such as log-level: debug"},
		{"a list of settings", "- hunter2", "want settings by name, each once"},
		{"a setting twice", needed + "listen: x\nlisten: y", `:6: "listen" appears twice`},
		{"a second document", needed + "\n---\nlisten: x\n", "it has a second document, or something after the first"},
		{"something broken after the first document", needed + "\n---\n{", "it has a second document, or something after the first"},
		{"broken YAML", needed + "  listen: x", ": line "},
		{"required settings are missing", "", "--database-url (BADGED_DATABASE_URL) is required"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := parse(t, test.file)
			checkError(t, err, test.want)
			r, _, _ := check(t, test.file)
			said := fmt.Sprint(err, r.Mistakes)
			if strings.Contains(said, "hunter2") {
				t.Errorf("the error tells a secret: %v", said)
			}
			// The values of secrets are not told, and so not what is wrong with them.
			if text := strings.Join(r.Mistakes, "\n"); !strings.Contains(text, test.want) && !strings.Contains(text, "cannot be read") {
				t.Errorf("checked, its mistakes are %q, want %q", r.Mistakes, test.want)
			}
		})
	}
}

func TestPrecedenceOfSources(t *testing.T) {
	file := needed + "listen: file:1\nroles: [api, projector, gateway]\nadmin-keys: [file=x]\n"
	check := func(name, wantListen string, wantKeys []string, args ...string) {
		t.Helper()
		g, err := parse(t, file, args...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if g.Serve.Listen != wantListen {
			t.Errorf("%s: listen = %s, want %s", name, g.Serve.Listen, wantListen)
		}
		if diff := cmp.Diff(wantKeys, g.Serve.AdminKeys); diff != "" {
			t.Errorf("%s: admin keys (-want +got):\n%s", name, diff)
		}
	}
	check("the file alone", "file:1", []string{"file=x"})
	t.Setenv("BADGED_LISTEN", "environment:1")
	t.Setenv("BADGED_ADMIN_KEYS", "environment=x,y=z")
	check("the environment", "environment:1", []string{"environment=x", "y=z"})
	check("flags", "flag:1", []string{"flag=x"}, "--listen=flag:1", "--admin-keys=flag=x")
}

// The file on the page has settings of the server; its values name what operators have.
func TestFileOfThePage(t *testing.T) {
	block := snippets.With(t, "docs/getting-started.md", "badged serve --config", "yaml")
	r, _, _ := check(t, block.Text)
	if len(r.Mistakes) > 0 || strings.Contains(strings.Join(r.Warnings, "\n"), "other commands") {
		t.Errorf("%s: mistakes %q, warnings %q", block, r.Mistakes, r.Warnings)
	}
}
