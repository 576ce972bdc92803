package tests

import (
	"os/exec"
	"regexp"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Each example of docs/publishing stores one message and publishes it, and
// takes back another: the badge knows of the first alone.
func TestPublishingExamples(t *testing.T) {
	database := newDatabase(t)
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
		{"Node", []string{"node", "../docs/publishing/node/publish.mjs"}}, // its packages come with make needs
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

	// Behind whatever the examples have published.
	position := publish(t, p, delivered("elsewhere", 1, `"ben"`))
	if n := total(t, p, "ada", position); n != int64(len(examples)) {
		t.Errorf("in the end the total of ada is %d, want %d", n, len(examples))
	}
}

// pythonWith returns a Python that has a module. The one in PATH need not be the
// system's, whose module it is.
func pythonWith(t *testing.T, module string) string {
	t.Helper()
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.CommandContext(t.Context(), python, "-c", "import "+module).Run() == nil {
			return python
		}
	}
	t.Fatalf("no Python here has %s: run make needs", module)
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
