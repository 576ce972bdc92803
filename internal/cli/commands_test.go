package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/badged/badged/internal/devtest/pgtest"
)

// Every command that connects to a database is in databaseCommands, which
// tests how it fails, or in the list here, whose commands have tests of their
// own.
func TestEveryCommandWithADatabaseIsTested(t *testing.T) {
	tested := []string{"migrate up", "migrate status", "migrate grant", "config check"}
	for name := range databaseCommands(t) {
		tested = append(tested, name)
	}
	parser, err := kong.New(&commands{})
	if err != nil {
		t.Fatal(err)
	}
	for _, leaf := range parser.Model.Leaves(true) {
		name := strings.Join(commandOf(leaf), " ")
		hasDatabase := slices.ContainsFunc(leaf.Flags, func(f *kong.Flag) bool { return f.Name == "database-url" })
		if hasDatabase != slices.Contains(tested, name) {
			t.Errorf("%s takes a database: %t; a test of its failure without one exists: %t", name, hasDatabase, !hasDatabase)
		}
	}
}

// commandOf returns the words of a command, without its arguments.
func commandOf(n *kong.Node) (words []string) {
	for word := range strings.FieldsSeq(n.Path()) {
		if !strings.HasPrefix(word, "<") && !strings.HasPrefix(word, "[") && word != "..." {
			words = append(words, word)
		}
	}
	return words
}

func TestEveryCommandRefusesUnknownFlags(t *testing.T) {
	for _, words := range everyCommand(t) {
		name := strings.Join(words, " ")
		t.Run(name, func(t *testing.T) {
			r := badged(t, append(words, "--frobnicate")...)
			if r.code != exitUsage || !strings.Contains(r.err+r.out, "unknown flag --frobnicate") {
				t.Errorf("exit code %d, want %d; stderr %s", r.code, exitUsage, r.err)
			}
			if hint := "Run `badged " + name + " --help` for what there is.\n"; name != "config check" && (r.out != "" || !strings.HasSuffix(r.err, hint)) {
				t.Errorf("stdout %q, stderr %s, want %s", r.out, r.err, hint)
			}
		})
	}
}

// The output of commands that have nothing to do.
func TestCommandsOnAnEmptyDatabase(t *testing.T) {
	url := "--database-url=" + pgtest.NewDB(t, migrated())
	for _, test := range []struct{ command, want string }{
		{"deadletters list", "there are no dead letters\n"},
		{"deadletters list --json", ""},
		{"deadletters retry --all", ""},
		{"deadletters discard --all", ""},
		{"repair-log", "nothing to do: the log is in order\n"},
		{"repair-log --dry-run", "nothing to do: the log is in order\n"},
		{"verify --quiet", "0 users and 0 conversations of 2 partitions compared with the log: no difference\n"},
		{"rebuild --quiet", "0 users and 0 conversations of 2 partitions rebuilt from the log: no difference, nothing was changed\n"},
		{"rebuild --quiet --user=ada", "user \"ada\" "},
	} {
		t.Run(test.command, func(t *testing.T) {
			if out := mustDo(t, append(strings.Fields(test.command), url)...); !strings.HasPrefix(out, test.want) || test.want == "" && out != "" {
				t.Errorf("it prints\n%swant\n%s", out, test.want)
			}
		})
	}
	for command, want := range map[string]string{
		"deadletters retry 1":   "there is no such dead letter",
		"deadletters discard 1": "there is no such dead letter",
		"rebuild --partition=2": "--partition: there is no partition 2",
		"verify --partition=2":  "--partition: there is no partition 2",
	} {
		if r := badged(t, append(strings.Fields(command), url)...); r.code != exitFailed || !strings.Contains(r.err, want) {
			t.Errorf("%s: exit code %d, stderr %s", command, r.code, r.err)
		}
	}
}
