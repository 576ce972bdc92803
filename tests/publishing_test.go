package tests

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each example of docs/publishing publishes one message and rolls back another. Only the first message
// changes the badge.
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
			wantTotal(t, p, user, said[2], int64(i+1))
		}
		if seq := value[string](t, database, `SELECT max(seq)::text FROM messages`); seq != said[1] {
			t.Errorf("%s: the last message stored is %s, want %s, which was published; %s was rolled back",
				example.language, seq, said[1], said[3])
		}
	}

	// The position of an event after all events of the examples.
	position := publish(t, p, delivered("elsewhere", 1, `"ben"`))
	wantTotal(t, p, "ada", position, int64(len(examples)))
}

// The samples in the READMEs of the publisher packages work: events share a request, and a bad event
// does not make the others fail.
func TestPublisherPackages(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ language, readme, end string }{
		{"python", "../web/python/README.md", `
with Publisher(URL, KEY, source="chat") as p:
    def message(seq):
        return {"id": f"c/{seq}", "type": "message.delivered", "data": {"conversation_id": "c", "seq": seq, "user_ids": ["ada"]}}
    calls = [p.submit(message(1234567890123456789 + i)) for i in range(100)] + [p.submit(message(-1))]
    print(calls[99].result().position, calls[100].exception())
`},
		{"node", "../web/publish/README.md", `
await delivered(42n);
const message = (seq) => ({ id: "c/" + seq, type: "message.delivered", data: { conversation_id: "c", seq, user_ids: ["ada"] } });
const calls = Array.from({ length: 100 }, (_, i) => publisher.publish(message(1234567890123456789n + BigInt(i))));
const bad = await publisher.publish(message(-1)).catch((error) => error.message);
console.log((await calls[99]).position, bad);
await stop();
`},
	} {
		t.Run(c.language, func(t *testing.T) {
			t.Parallel()
			p := serve(t, newDatabase(t))
			out := runSample(t, p, c.language, c.readme, c.end)
			lines := strings.Split(strings.TrimSpace(out), "\n")
			position, said, _ := strings.Cut(lines[len(lines)-1], " ")
			if !strings.Contains(said, "data.seq: must be at least 1") {
				t.Errorf("the bad event: %q", said)
			}
			wantTotal(t, p, "ada", position, 101)
			wantTotal(t, p, "chloe", position, 1)
		})
	}
}

// runSample runs the first sample of a README, followed by the lines in end, and returns its output.
func runSample(t *testing.T, p *process, language, readme, end string) string {
	t.Helper()
	page := readFile(t, readme)
	sample := regexp.MustCompile("(?s)```(?:python|ts)\n(.*?)```").FindSubmatch(page)
	program := strings.NewReplacer("http://badged:8080", p.url, "the publisher key", publisherKey).Replace(string(sample[1]))
	file := filepath.Join(t.TempDir(), "sample.py")
	interpreter := []string{"python3", file}
	if language == "node" {
		module, err := filepath.Abs("../web/dist/publish/index.js")
		if err != nil {
			t.Fatal(err)
		}
		program = strings.NewReplacer("@badged/publish", module, "seq: bigint", "seq", "export ", "").Replace(program)
		file = filepath.Join(t.TempDir(), "sample.mjs")
		interpreter = []string{"node", file}
	} else {
		program += fmt.Sprintf("\nURL, KEY = %q, %q\n", p.url, publisherKey)
	}
	writeFile(t, file, program+end)
	cmd := exec.CommandContext(t.Context(), interpreter[0], interpreter[1:]...)
	cmd.Env = environment("PYTHONPATH=../web/python", "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", readme, err, out)
	}
	return string(out)
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
