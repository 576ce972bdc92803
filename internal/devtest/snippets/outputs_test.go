package snippets

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/badged/badged/internal/devtest/source"
)

// uncompared are shown outputs that no test compares with what is printed, with the reason. The
// second part is the command, or the first line of a block without commands.
var uncompared = map[[2]string]string{
	{"docs/nesting.md", `{"t":"seen_all","id":1,"category":"bell"}`}:                   "a frame that a client sends; TestPagesShowWhatIsDescribed compares it with the description",
	{"docs/clients-mobile.md", "GET /v1/users/ada/badge?at_least=POSITION&timeout=2s"}: "a request",
	{"docs/howto/closed-phone.md", "PUT /v1/users/ada/devices/0191f3b2-phone"}:         "a request",
	{"docs/push.md", "PUT /v1/users/ada/devices/0191f3b2-phone"}:                       "a request",
	{"docs/archiving.md", "# public key: age1…"}:                                       "a file that age-keygen writes",
}

// reading is a call that reads an output or a block from a page.
var reading = regexp.MustCompile("snippets\\.(Output|With)\\((?:c\\.T|t), \"([^\"]+\\.md)\", (\"(?:[^\"\\\\\n]|\\\\.)*\"|`[^`]*`)((?:, \"\\w*\")*)\\)")

// compared returns the outputs that tests read from the pages, as uncompared names them.
func compared(t *testing.T) map[[2]string]bool {
	t.Helper()
	all := map[[2]string]bool{}
	root := source.Path(".")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".") && path != root):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, call := range reading.FindAllStringSubmatch(string(text), -1) {
			page, languages := call[2], call[4]
			of, err := strconv.Unquote(call[3])
			switch {
			case err != nil:
				t.Errorf("%s: %s: %v", path, call[0], err)
			case call[1] == "Output":
				all[[2]string{page, of}] = true
			case strings.HasSuffix(languages, `, ""`):
				all[[2]string{page, outputs(With(t, page, of, ""))[0]}] = true
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// outputs returns what a block without a language shows: the commands that have an output, or the
// first line if the block has no commands.
func outputs(block Block) (all []string) {
	if !strings.HasPrefix(block.Text, "$ ") {
		first, _, _ := strings.Cut(block.Text, "\n")
		return []string{first}
	}
	for part := range strings.SplitSeq("\n"+block.Text, "\n$ ") {
		command, output, _ := strings.Cut(part, "\n")
		if output = strings.Trim(output, "…\n "); output != "" && !strings.HasSuffix(command, `\`) {
			all = append(all, command)
		}
	}
	return all
}

// Every output that a page shows is compared with what is printed, or has a reason.
func TestEveryOutputIsCompared(t *testing.T) {
	read, used := compared(t), map[[2]string]bool{}
	for _, block := range Blocks(t, "", "text", "console") {
		for _, output := range outputs(block) {
			key := [2]string{block.Page, output}
			if used[key] = true; block.Page == "docs/cli.md" && strings.HasSuffix(output, "--help") {
				continue // by TestHelpInDocs
			}
			switch reason := uncompared[key]; {
			case read[key] && reason != "":
				t.Errorf("%s: a test compares %q: remove it from uncompared", block, output)
			case !read[key] && reason == "":
				t.Errorf("%s: no test compares %q with what is printed: let one call ExpectShape with it", block, output)
			}
		}
	}
	for key := range uncompared {
		if !used[key] {
			t.Errorf("%s does not show %q", key[0], key[1])
		}
	}
}

func TestSameShape(t *testing.T) {
	const shown = "ID  SHARD  HEAD\n1   a      9b1f0c6e…\n…\n3 users, 1.5 MB in 26h3m11s: {\"a\":1,…}\n"
	for got, same := range map[string]bool{
		shown: true,
		"ID    SHARD  HEAD\n12    a      0123456789abcdef\n3,700 users, 98 kB in 1m2.5s: {\"a\":1,\"b\":2}\n": true,
		"ID  SHARD  HEAD\n1   a      0123456789abcdef\nmore\n3 users, 1.5 MB in 1.2s: {\"a\":1,}\n":           true,
		"ID  HEAD\n1   0123456789abcdef\n3 users, 1.5 MB in 26h3m11s: {\"a\":1,}\n":                           false,
		"ID  SHARD  HEAD\n1   b      0123456789abcdef\n3 users, 1.5 MB in 26h3m11s: {\"a\":1,}\n":             false,
		"ID  SHARD  HEAD\n1   a      0123456789abcdef\n3 users: 1.5 MB in 26h3m11s: {\"a\":1,}\n":             false,
		"ID  SHARD  HEAD\n1   a      0123456789abcdef\n3 users, 1.5 MB in 26h3m11s: {\"a\":1,}\nand so on\n":  false,
		"ID  SHARD  HEAD\n1   a      0123456789abcdef\n":                                                      false,
	} {
		if difference := SameShape(shown, got); (difference == "") != same {
			t.Errorf("%q: %s", got, difference)
		}
	}
}
