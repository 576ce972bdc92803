package cli

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
)

// everyCommand returns the words of every command that can run.
func everyCommand(t *testing.T) [][]string {
	t.Helper()
	parser, err := kong.New(&commands{})
	if err != nil {
		t.Fatal(err)
	}
	var all [][]string
	for _, leaf := range parser.Model.Leaves(true) {
		all = append(all, strings.Fields(leaf.Path()))
	}
	if len(all) < 8 {
		t.Fatalf("only %d commands: %v", len(all), all)
	}
	return all
}

func TestHelp(t *testing.T) {
	commands := append(everyCommand(t), nil) // and without a command
	for _, command := range commands {
		t.Run(strings.Join(command, " "), func(t *testing.T) {
			out := mustDo(t, append(command, "--help")...)
			if want := strings.TrimSpace("Usage: badged " + strings.Join(command, " ")); !strings.HasPrefix(out, want) {
				t.Errorf("help starts otherwise than %q:\n%s", want, out)
			}
			if strings.Contains(out, "…,...") || strings.Contains(out, "!") {
				t.Errorf("help has kong's wording:\n%s", out)
			}
		})
	}
	if out, help := mustDo(t), mustDo(t, "--help"); out != help {
		t.Errorf("without a command there is no help:\n%s", out)
	}
}

// A script whose variable is not set must not do for all what is meant for one.
func TestEmptyFlags(t *testing.T) {
	t.Setenv("BADGED_DATABASE_URL", "postgres://nowhere.invalid/badged")
	t.Setenv("BADGED_JWT_KEYS", jwtKeys)
	parser, err := kong.New(&commands{}, kong.DefaultEnvars("BADGED"))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("BADGED_OUTBOX_URL", "postgres://nowhere.invalid/chat")
	more := map[string]string{"archive": "--older-than=24h", "conformance": "client"} // what else a command needs
	tried := 0
	for _, leaf := range parser.Model.Leaves(true) {
		command := strings.Fields(leaf.Path())
		for _, argument := range leaf.Positional {
			if argument.Required {
				command = append(command, "1")
			}
		}
		for _, flag := range leaf.Flags {
			if k := flag.Target.Kind(); len(flag.Envs) > 0 || k != reflect.String && k != reflect.Slice {
				continue
			}
			tried++
			args := append(slices.Clone(command), "--"+flag.Name+"=")
			if needs := more[leaf.Path()]; needs != "" {
				args = append(args, needs)
			}
			for _, other := range leaf.Flags {
				if other.Required && other != flag && len(other.Envs) == 0 {
					args = append(args, "--"+other.Name+"=x")
				}
			}
			r := badged(t, args...)
			if r.code != exitUsage || r.out != "" || !strings.Contains(r.err, "--"+flag.Name) {
				t.Errorf("%v: exit code %d, printed %q, says %s", args, r.code, r.out, r.err)
			}
		}
	}
	if tried < 20 {
		t.Errorf("only %d flags were tried", tried)
	}
}

func TestHelpHidesSecrets(t *testing.T) {
	const secret = "hunter2hunter2hunter2hunter2hunter2"
	for name, value := range map[string]string{
		"BADGED_DATABASE_URL":   "postgres://badged:" + secret + "@localhost/chat",
		"BADGED_REDIS_URL":      "redis://:" + secret + "@localhost",
		"BADGED_JWT_KEYS":       "k=HS256:" + secret,
		"BADGED_PUBLISHER_KEYS": "chat=" + secret,
		"BADGED_PUBLISHER_KEY":  secret,
		"BADGED_ADMIN_KEYS":     "ops=" + secret,
		"BADGED_ADMIN_KEY":      secret,
	} {
		t.Setenv(name, value)
	}
	for _, command := range everyCommand(t) {
		if out := mustDo(t, append(command, "--help")...); strings.Contains(out, "hunter2") {
			t.Errorf("badged %s --help shows a secret:\n%s", strings.Join(command, " "), out)
		}
	}
	// Nor does an error about another flag.
	for _, args := range [][]string{{"serve", "--frobnicate"}, {"serve", "--roles=x"}, {"load"}, {"token"}} {
		if r := badged(t, args...); strings.Contains(r.err, "hunter2") {
			t.Errorf("badged %s shows a secret:\n%s", strings.Join(args, " "), r.err)
		}
	}
}

func TestUsage(t *testing.T) {
	const (
		db       = "--database-url=postgres://localhost/chat"
		jwt      = "--jwt-keys=k=HS256:0123456789abcdef0123456789abcdef"
		needURL  = "--database-url (BADGED_DATABASE_URL) is required, such as postgres://user@localhost/chat; or --shard (BADGED_SHARDS) for each of several databases"
		needKeys = "--publisher-keys (BADGED_PUBLISHER_KEYS) or --keys-file (BADGED_KEYS_FILE) is required with the role api: publishing needs a key"
		needJWT  = "--jwt-keys (BADGED_JWT_KEYS) or --jwks-url (BADGED_JWKS_URL) is required with the role gateway: clients connect with tokens"
	)
	for _, test := range []struct{ name, args, want, help string }{
		{"an unknown command", "frobnicate", "unknown command frobnicate", ""},
		{"a misspelt command", "usr", `unknown command usr, did you mean "user"?`, ""},
		{"replay, which is not a command", "replay file", `unknown command replay, did you mean "relay"?`, ""},
		{"half a command", "migrate", `expected one of "up", "status", "grant"`, "migrate"},
		{"an unknown flag", "lag --frobnicate", "unknown flag --frobnicate", "lag"},
		{"a flag of another command", "lag --ttl=1s", "unknown flag --ttl", "lag"},
		{"an argument too many", "lag now " + db, "unexpected argument now", "lag"},
		{"no argument", "user show " + db, "expected \"<user>\"", "user show"},

		{"serve without anything", "serve", "serve: " + needURL + "; " + needKeys + "; " + needJWT, "serve"},
		{"serve an unknown role", "serve --roles=folder", `--roles must be one of "api","projector","gateway","notifier","ingest" but got "folder"`, "serve"},
		{"a duration without unit", "serve --drain-timeout=5", `--drain-timeout: must be a duration such as 10s or 1h30m, is "5"`, "serve"},
		{"a duration in days", "serve --jwt-max-lifetime=30d", `--jwt-max-lifetime: must be a duration such as 10s or 1h30m, is "30d"; write 720h`, "serve"},
		{"an unknown log level", "serve --log-level=loud", `--log-level must be one of "debug","info","warn","error" but got "loud"`, "serve"},

		{"migrate without a database", "migrate up", "migrate up: " + needURL, "migrate up"},
		{"migrate to no partitions", "migrate up --partitions=-1 " + db, "migrate up: --partitions must be from 1 to 1024, is -1", "migrate up"},
		{"migrate to zero partitions", "migrate up --partitions=0 " + db, "migrate up: --partitions must be from 1 to 1024, is 0", "migrate up"},
		{"migrate to too many partitions", "migrate up --partitions=1025 " + db, "migrate up: --partitions must be from 1 to 1024, is 1025", "migrate up"},
		{"status without a database", "migrate status", "migrate status: " + needURL, "migrate status"},
		{"lag without a database", "lag", "lag: " + needURL, "lag"},
		{"user without a database", "user show ada", "user show: " + needURL, "user show"},

		{
			"load to nowhere", "load file",
			"load: a target is required: --url (BADGED_URL) with --publisher-key, or --database-url (BADGED_DATABASE_URL)", "load",
		},
		{"load without traffic", "load --database-url=x", "load: a file of traffic is required, or --rooms", "load"},
		{"load of a file and rooms", "load file --rooms=2 --database-url=x", "load: --rooms generates traffic: it takes no file", "load"},
		{"load without a key", "load file --url=http://localhost", "load: --url requires --publisher-key (BADGED_PUBLISHER_KEY)", "load"},
		{"a token without a key", "token ada", "token: --jwt-keys (BADGED_JWT_KEYS) is required: the token is signed with its first HS256 key", "token"},
		{"a token for no time", "token ada --ttl=0s " + jwt, "token: --ttl must be more than 0s", "token"},
		{"a zone of a day", "audit prune --before=2026-01-31T00:00:00+24:00 " + db, `--before: must be a time such as 2026-01-31T23:59:59Z, is "2026-01-31T00:00:00+24:00"`, "audit prune"},
		{"no age", "audit prune " + db, "audit prune: give --before TIME or --audit-age DURATION", "audit prune"},
		{"actions before none", "audit list --before=0 " + db, "audit list: --before must be the id of an action", "audit list"},
		{"a head of no records", "audit verify --count=0 " + db, "audit verify: --count and --head belong together; --count must be 1 or more", "audit verify"},
		{"half a head", "audit verify --count=3 " + db, "audit verify: --count and --head belong together", "audit verify"},
		{"a head that is none", "audit verify --count=3 --head=abc " + db, "audit verify: --head must be 64 hexadecimal digits", "audit verify"},
		{"an assistant that writes without a key", "mcp --allow-writes " + db, "mcp: --allow-writes requires --url (BADGED_URL); --allow-writes requires --admin-key (BADGED_ADMIN_KEY)", "mcp"},
		{"conformance without a client", "conformance", "conformance: the command of a client is required, such as `badged conformance -- node client.mjs`", "conformance"},
		{"conformance without time", "conformance --timeout=0s -- client", "conformance: --timeout must be more than 0s", "conformance"},
		{"conformance one by none", "conformance --parallel=0 -- client", "conformance: --parallel must be from 1 to 64", "conformance"},
		{"a configuration file that is not there", "lag --config=/nowhere/badged.yaml", "--config: open /nowhere/badged.yaml: no such file or directory", "lag"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := badged(t, strings.Fields(test.args)...)
			hint := "Run `" + strings.Join(strings.Fields("badged "+test.help+" --help"), " ") + "` for what there is."
			if want := "badged: " + test.want + "\n" + hint + "\n"; r.err != want {
				t.Errorf("stderr:\n%swant:\n%s", r.err, want)
			}
			if r.code != exitUsage || r.out != "" {
				t.Errorf("exit code %d, want %d; printed %q", r.code, exitUsage, r.out)
			}
		})
	}
}

func TestConfigurationFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "badged.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check := func(r result, code int, want string) {
		t.Helper()
		if r.code != code || !strings.HasPrefix(r.err, want) || strings.Contains(r.err, "hunter2") {
			t.Errorf("exit code %d, want %d; stderr %q, want %q", r.code, code, r.err, want)
		}
	}
	write("databse-url: postgres://badged:hunter2@localhost/chat")
	misspelt := "badged: " + file + ":1: \"databse-url\" is not a setting; did you mean database-url?\nRun `badged "
	check(badged(t, "lag", "--config="+file), exitUsage, misspelt)
	check(badged(t, "--config="+file, "lag"), exitUsage, misspelt)

	write("database-url: postgres://badged:hunter2@127.0.0.1:1/file")
	const refused = "badged: connect to the database: failed to connect to `user=badged database=file`: 127.0.0.1:1 "
	check(badged(t, "lag", "--config="+file), exitFailed, refused)
	t.Setenv("BADGED_CONFIG", file)
	check(badged(t, "lag"), exitFailed, refused)
}

func TestInterruptedCommandPrintsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := badgedWith(ctx, "", "lag", "--database-url=postgres://127.0.0.1:1/chat")
	if r.code != exitFailed || r.out != "" || r.err != "" {
		t.Errorf("exit code %d, stdout %q, stderr %q", r.code, r.out, r.err)
	}
}

// A flag that is given is not taken for one that is not: the zero time is refused by every flag with
// a time.
func TestZeroTimes(t *testing.T) {
	parser, err := kong.New(&commands{})
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, leaf := range parser.Model.Leaves(true) {
		for _, flag := range leaf.Flags {
			if flag.Target.Type() != reflect.TypeFor[time.Time]() {
				continue
			}
			tried++
			args := append(strings.Fields(leaf.Path()), "--"+flag.Name+"=0001-01-01T00:00:00Z")
			if r := badged(t, args...); r.code != exitUsage || !strings.Contains(r.err, "--"+flag.Name+": must be a time") {
				t.Errorf("%v: exit code %d, stderr:\n%s", args, r.code, r.err)
			}
		}
	}
	if tried < 4 {
		t.Errorf("only %d flags have a time", tried)
	}
}
