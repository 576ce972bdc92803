package main

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Every mutant applies to the code, so that a change of mutated code fails a
// quick test and not only the nightly run.
func TestEveryMutantCanBeMade(t *testing.T) {
	t.Chdir("../../..")
	named := map[string]bool{}
	for _, m := range slices.Concat(mutants, trustMutants, splitMutants, moveMutants, lostMutants, commandMutants, levelMutants, clockMutants, pathMutants) {
		if named[m.name] {
			t.Errorf("two mutants are called %q", m.name)
		}
		named[m.name] = true
		for _, e := range m.edits {
			if _, err := e.apply(""); err != nil {
				t.Errorf("%s: %v", m.name, err)
			}
			if e.old == e.new {
				t.Errorf("%s changes nothing", m.name)
			}
		}
	}
}

// A mutant is reported if no test notices it, if it does not compile, and if
// its text is gone.
func TestVerdicts(t *testing.T) {
	t.Chdir("../../..")
	dir := t.TempDir()
	count, comma := "internal/base/progress/progress.go", `"," + s[i:]`
	quick := check{pkg: "./internal/base/progress", run: "^TestCount$"} // quick to build
	nested := check{pkg: "./internal/devtest/mutation/testdata/nested", run: "^TestBuiltProgram$"}
	for name, tc := range map[string]struct {
		edit   edit
		caught check
		want   string
	}{
		"noticed":  {edit{count, comma, `"." + s[i:]`}, quick, ""},
		"survived": {edit{count, comma, `("," + s[i:])`}, quick, "SURVIVED go test -run"},
		"broken":   {edit{count, comma, `"," + s[i]`}, quick, "build the tests"},
		"outdated": {edit{count, "no such text", ""}, quick, "contains this text 0 times"},
		// By a program that the test builds.
		"noticed outside": {edit{"internal/devtest/mutation/testdata/nested/program/main.go", `"sound"`, `"broken"`}, nested, ""},
	} {
		m := mutant{name: name, edits: []edit{tc.edit}, caught: tc.caught}
		switch err := m.try(t.Context(), dir); {
		case tc.want == "" && err != nil, tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	sound := soundness{dir: dir, built: map[string]string{}, passed: map[check]error{}}
	for _, c := range []check{quick, nested} {
		if err := sound.passes(t.Context(), c); err != nil {
			t.Errorf("%s, which passes: %v", c, err)
		}
	}
	if err := sound.passes(t.Context(), check{pkg: "./internal/base/progress", run: "^TestNothingAtAll$"}); err == nil || errors.Is(err, errFailed) {
		t.Errorf("a check without tests: %v", err)
	}
	if left, err := filepath.Glob("internal/base/progress/*.test"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}
