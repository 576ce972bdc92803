package cli

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// update is set by `make docs`.
var update = flag.Bool("update", false, "write the help in docs/cli.md instead of comparing with it")

// docs/cli.md shows the help of every command as it is printed.
func TestHelpInDocs(t *testing.T) {
	file := filepath.Join("..", "..", "docs", "cli.md")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```\n\\$ badged ([^\n]*)--help\n(.*?)```")
	shown := map[string]bool{}
	page := block.ReplaceAllStringFunc(string(b), func(old string) string {
		command := strings.TrimSpace(block.FindStringSubmatch(old)[1])
		shown[command] = true
		help := mustDo(t, append(strings.Fields(command), "--help")...)
		return "```\n$ " + strings.TrimSpace("badged "+command) + " --help\n" + help + "```"
	})
	if *update {
		if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if page != string(b) {
		t.Errorf("docs/cli.md differs from the output of the commands; run `make docs` and commit the result")
	}
	for _, command := range append(everyCommand(t), nil) {
		if name := strings.Join(command, " "); !shown[name] {
			t.Errorf("docs/cli.md does not show the help of %q", name)
		}
	}
}
