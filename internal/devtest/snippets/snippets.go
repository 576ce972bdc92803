// Package snippets reads the code blocks of the documentation, so that tests can run, parse or
// compare them.
//
// The package does not know what a block means.
package snippets

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/badged/badged/internal/devtest/source"
)

// Block is a code block of a page.
type Block struct {
	// Page is the path of the page in the repository; Line is the number of the first line of
	// Text, from 1.
	Page string
	Line int
	// Language is "" for a block without one, such as the output of a command.
	Language string
	Text     string
}

// String returns "PAGE:LINE".
func (b Block) String() string { return fmt.Sprintf("%s:%d", b.Page, b.Line) }

// Pages returns the text of each page that people write: README.md, CONTRIBUTING.md, docs
// without decisions and reference, and the READMEs of clients. Keys are paths in the repository.
func Pages(t *testing.T) map[string]string {
	t.Helper()
	root := source.Path(".")
	pages := map[string]string{}
	for _, top := range []string{"README.md", "CONTRIBUTING.md", "docs", "web"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			page, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			switch page = filepath.ToSlash(page); {
			case d.IsDir() && (page == "docs/adr" || page == "docs/reference" || page == "web/dist" || d.Name() == "node_modules"):
				return filepath.SkipDir
			case filepath.Ext(page) == ".md":
				text, err := os.ReadFile(path)
				pages[page] = string(text)
				return err
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return pages
}

var fence = regexp.MustCompile("(?ms)^( *)```(\\w*)\n(.*?)^ *```$")

// Blocks returns all blocks of Pages that have one of the languages.
func Blocks(t *testing.T, languages ...string) (blocks []Block) {
	t.Helper()
	for page, text := range Pages(t) {
		for _, at := range fence.FindAllStringSubmatchIndex(text, -1) {
			b := Block{Page: page, Line: 1 + strings.Count(text[:at[6]], "\n"), Language: text[at[4]:at[5]]}
			indent := text[at[2]:at[3]]
			b.Text = strings.ReplaceAll("\n"+text[at[6]:at[7]], "\n"+indent, "\n")[1:]
			for _, l := range languages {
				if b.Language == l {
					blocks = append(blocks, b)
				}
			}
		}
	}
	if len(blocks) == 0 {
		t.Fatalf("the pages have no block of %q", languages)
	}
	return blocks
}

// With returns the block of a page that contains some text.
func With(t *testing.T, page, text string, languages ...string) Block {
	t.Helper()
	for _, b := range Blocks(t, languages...) {
		if b.Page == page && strings.Contains(b.Text, text) {
			return b
		}
	}
	t.Fatalf("%s has no block of %q with %s", page, languages, text)
	return Block{}
}

// Output returns the output that a page shows below the line "$ command".
func Output(t *testing.T, page, command string) string {
	t.Helper()
	_, after, ok := strings.Cut(Pages(t)[page], "\n$ "+command+"\n")
	if !ok {
		t.Fatalf("%s does not show %q", page, command)
	}
	end := strings.Index(after, "```")
	if next := strings.Index(after, "\n$ "); next >= 0 && next < end {
		end = next + 1
	}
	return after[:end]
}

// What differs from run to run, or only aligns columns.
var (
	varies = regexp.MustCompile(`\d{4}-\d\d-\d\d[T ][\d:.]+Z?|[0-9a-f]{12,}|\b[0-9a-f]{8}…|(\d+h)?\d+m[\d.]+s` +
		`|\d+([,.]\d+)*( ?(ns|µs|ms|s|m|h|B|kB|KB|MB|GB|TB|KiB|MiB|GiB)\b)?`)
	columns = regexp.MustCompile(` {2,}`)
)

// shape returns a line without what may differ.
func shape(line string) string {
	return strings.TrimSpace(columns.ReplaceAllString(varies.ReplaceAllString(line, "0"), " "))
}

// sameLine reports whether two lines have the same shape.
func sameLine(shown, got string) bool {
	parts := strings.Split(shape(shown), "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(shape(got))
}

// SameShape returns "" if an output has the lines that a page shows, but for numbers, times,
// hexadecimal ids and the width of columns. Otherwise it returns the first line that differs.
// A shown line that is "…" stands for any number of lines, and "…" in a line for any text.
func SameShape(shown, got string) (difference string) {
	lines := strings.Split(strings.TrimSpace(got), "\n")
	skipping := false
	for want := range strings.SplitSeq(strings.TrimSpace(shown), "\n") {
		if strings.TrimSpace(want) == "…" {
			skipping = true
			continue
		}
		for skipping && len(lines) > 0 && !sameLine(want, lines[0]) {
			lines = lines[1:]
		}
		if len(lines) == 0 {
			return fmt.Sprintf("the page shows %q, which is not printed", want)
		}
		if !sameLine(want, lines[0]) {
			return fmt.Sprintf("the page shows %q, printed is %q", want, lines[0])
		}
		lines, skipping = lines[1:], false
	}
	if len(lines) > 0 && !skipping {
		return fmt.Sprintf("the page does not show %q", lines[0])
	}
	return ""
}

// ExpectShape fails the test unless an output has the shape that a page shows.
func ExpectShape(t *testing.T, shown, got string) {
	t.Helper()
	if difference := SameShape(shown, got); difference != "" {
		t.Errorf("%s\nprinted:\n%s", difference, got)
	}
}
