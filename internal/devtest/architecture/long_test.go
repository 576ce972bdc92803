package architecture

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// testFunc matches the first line of a test.
var testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)

// unknownTests returns the lines of .ci/long that name no test, and those that leave out a test of
// the same name in another package too. A subtest, after a slash, is not checked.
func unknownTests(tree fs.FS) ([]string, error) {
	folders := map[string][]string{}
	err := fs.WalkDir(tree, ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := fs.ReadFile(tree, name)
		for _, m := range testFunc.FindAllStringSubmatch(string(text), -1) {
			folders[m[1]] = append(folders[m[1]], path.Dir(name))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	list, err := fs.ReadFile(tree, ".ci/long")
	var found []string
	for line := range strings.Lines(string(list)) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if len(fields) != 2 {
			found = append(found, fmt.Sprintf("%q is not a folder and a test", line))
			continue
		}
		name, _, _ := strings.Cut(fields[1], "/")
		at := folders[name]
		if fields[0] != "tests" { // make test leaves tests of packages out whatever their package
			at = slices.DeleteFunc(slices.Clone(at), func(folder string) bool { return folder == "tests" })
		}
		switch {
		case !slices.Contains(at, fields[0]):
			found = append(found, fmt.Sprintf("%s has no %s", fields[0], name))
		case fields[0] != "tests" && len(at) > 1:
			found = append(found, fmt.Sprintf("%s is also in %q", name, at))
		}
	}
	return found, err
}

func TestLongTestsExist(t *testing.T) {
	found, err := unknownTests(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range found {
		t.Errorf(".ci/long: %s", problem)
	}
}

func TestUnknownTestsAreFound(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	found, err := unknownTests(fstest.MapFS{
		".ci/long":        file("# Long.\ntests TestA # slow\ntests TestA/Part\ntests TestGone\nfold TestA\nfold TestB\nfold\n"),
		"tests/a_test.go": file("func TestA(t *testing.T) {\n}\n"),
		"fold/a_test.go":  file("func TestA(t *testing.T) {\n}\n\nfunc TestB(t *testing.T) {\n}\n"),
		"keys/b_test.go":  file("func TestB(t *testing.T) {\n}\n"),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"tests has no TestGone", `TestB is also in ["fold" "keys"]`, `"fold\n" is not a folder and a test`}
	if !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
}
