package tests

import (
	"os/exec"
	"regexp"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Each example of docs/publishing publishes one message and rolls back
// another: only the first changes the badge.
func TestPublishingExamples(t *testing.T) {
	t.Parallel()
	database := oneDatabase(t)
	p := serve(t, database)
	printed := regexp.MustCompile(`^message (\d+) is stored and published, position (\d+)
message (\d+) was rolled back: it is neither stored nor published
$`)
	examples := []struct {
		language string
		command  []string
	}{
		{"Go", []string{"go", "run", "../docs/publishing/go"}},
		{"Python", []string{pythonWith(t, "psycopg"), "../docs/publishing/python/publish.py"}},
		{"Node", []string{"node", "../docs/publishing/node/publish.mjs"}}, // make needs installs its packages
	}
	for i, example := range examples {
		cmd := exec.CommandContext(t.Context(), example.command[0], example.command[1:]...)
		cmd.Env = environment("DATABASE_URL=" + database)
		out, err := cmd.CombinedOutput()
		said := printed.FindStringSubmatch(string(out))
		if err != nil || said == nil {
			t.Fatalf("%s: %v\n%s", example.language, err, out)
		}
		for _, user := range []string{"ada", "chloe"} {
			if n := total(t, p, user, said[2]); n != int64(i+1) {
				t.Errorf("%s: the total of %s is %d, want %d", example.language, user, n, i+1)
			}
		}
		if seq := lastMessage(t, database); seq != said[1] {
			t.Errorf("%s: the last message stored is %s, want %s, which was published; %s was rolled back",
				example.language, seq, said[1], said[3])
		}
	}

	// After all events of the examples.
	position := publish(t, p, delivered("elsewhere", 1, `"ben"`))
	if n := total(t, p, "ada", position); n != int64(len(examples)) {
		t.Errorf("in the end the total of ada is %d, want %d", n, len(examples))
	}
}

// pythonWith returns a Python that has a module. The one in PATH may differ
// from the system's, which has the packaged modules.
func pythonWith(t *testing.T, module string) string {
	t.Helper()
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.CommandContext(t.Context(), python, "-c", "import "+module).Run() == nil {
			return python
		}
	}
	t.Fatalf("no Python has the module %s: run make needs", module)
	return ""
}

// lastMessage returns the seq of the last message that the examples stored.
func lastMessage(t *testing.T, database string) (seq string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := conn.QueryRow(t.Context(), `SELECT max(seq)::text FROM messages`).Scan(&seq); err != nil {
		t.Fatal(err)
	}
	return seq
}
