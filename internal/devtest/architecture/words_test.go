package architecture

import (
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

// glossary is the page with the words of badged and those to avoid.
const glossary = "docs/glossary.md"

// avoided is a word, or some words in a row, that code and pages must not use.
type avoided struct {
	// first is the first of the words, and all matches a lower-case text that begins with them.
	first   string
	all     *regexp.Regexp
	instead string
}

// in returns where a lower-case text uses the words.
func (a *avoided) in(text string) (places []int) {
	for at := 0; ; at++ {
		next := strings.Index(text[at:], a.first)
		if next < 0 {
			return places
		}
		at += next
		if before := at - 1; (before < 0 || !isLetter(text[before])) && a.all.MatchString(text[at:min(at+100, len(text))]) {
			places = append(places, at)
		}
	}
}

func isLetter(b byte) bool { return b == '_' || b >= 'a' && b <= 'z' || b >= '0' && b <= '9' }

// readGlossary returns the words to avoid, and how many terms the glossary has. A row of the
// glossary is a term, its meaning and words not to use for it; a row of the list of words to
// avoid is such words, in backticks, and what to use instead.
func readGlossary(tree fs.FS) (avoid []avoided, terms int, err error) {
	text, err := fs.ReadFile(tree, glossary)
	if err != nil {
		return nil, 0, err
	}
	quoted := regexp.MustCompile("`([^`]+)`")
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		words, instead := "", ""
		switch {
		case !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") || strings.HasPrefix(line, "| word |"):
			continue
		case len(cells) == 3:
			terms++
			words, instead = cells[2], fmt.Sprintf("%q", strings.TrimSpace(cells[0]))
		case len(cells) == 2:
			words, instead = cells[0], strings.TrimSpace(cells[1])
		default:
			return nil, 0, fmt.Errorf("%s: a row has two or three cells, not %d: %s", glossary, len(cells), line)
		}
		for _, match := range quoted.FindAllStringSubmatch(words, -1) {
			words := strings.Fields(strings.ToLower(match[1]))
			// Words may be on two lines of a comment. Code may have the last before a dot or a
			// parenthesis: "of before.rows".
			all, err := regexp.Compile("^" + strings.Join(words, `(?:\s+|\n\s*(?://|--|#)\s*)`) + `(?:\.?\s|[^.(\[)\w]|\.?$)`)
			if err != nil {
				return nil, 0, fmt.Errorf("%s: %w", glossary, err)
			}
			avoid = append(avoid, avoided{words[0], all, instead})
		}
	}
	return avoid, terms, nil
}

// wrongWords returns the lines of code and pages that use a word to avoid.
func wrongWords(tree fs.FS) ([]string, error) {
	avoid, _, err := readGlossary(tree)
	if err != nil {
		return nil, err
	}
	var found []string
	err = walkTexts(tree, func(name, text string) {
		if name == glossary || strings.HasPrefix(name, "internal/devtest/architecture/words_test") {
			return
		}
		lower := strings.ToLower(text)
		if len(lower) != len(text) {
			lower = text
		}
		for _, a := range avoid {
			for _, at := range a.in(lower) {
				if strings.HasPrefix(name, "internal/pg/embedpg/") || strings.HasPrefix(text[at:], "NoBody") {
					continue // the system user nobody; net/http
				}
				line := 1 + strings.Count(text[:at], "\n")
				found = append(found, fmt.Sprintf("%s:%d: use %s instead of %q", name, line, a.instead, a.all.FindString(lower[at:])))
			}
		}
	})
	return found, err
}

func TestNoWordToAvoidIsUsed(t *testing.T) {
	found, err := wrongWords(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		t.Error(f)
	}
}

func TestGlossaryIsShort(t *testing.T) {
	avoid, terms, err := readGlossary(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	if terms < 40 || terms > 60 || len(avoid) < 20 {
		t.Errorf("%d terms and %d words to avoid; want 40 to 60 terms and at least 20 words", terms, len(avoid))
	}
}

func TestWrongWordsAreFound(t *testing.T) {
	page := "| word | meaning | not |\n|---|---|---|\n| replay | folds again | `refold` |\n\n| word | instead of it |\n|---|---|\n| `nobody`, `of before` | the role |\n"
	tree := fstest.MapFS{
		glossary:   {Data: []byte(page)},
		"a.go":     {Data: []byte("// Refold it.\nvar http.NoBody\n")},
		"b.md":     {Data: []byte("A line.\nThe state of\nbefore is lost.\n")},
		"web/c.ts": {Data: []byte("for (const x of before.rows) {}\nfor (const x of before) {}\n")},
		"d.sql":    {Data: []byte("-- Nobody.\n")},
	}
	found, err := wrongWords(tree)
	want := []string{
		`a.go:1: use "replay" instead of "refold "`,
		`b.md:2: use the role instead of "of\nbefore "`,
		`d.sql:1: use the role instead of "nobody.\n"`,
	}
	if err != nil || fmt.Sprint(found) != fmt.Sprint(want) {
		t.Errorf("found %q, %v; want %q", found, err, want)
	}
}
