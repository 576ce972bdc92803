// Mutation checks that the tests detect bugs that would make a count wrong. It tries the listed
// mutants one after the other: it changes the code in the way of the mutant and runs some tests. It
// fails if these tests still pass. It does not change the working tree.
//
//	go run ./internal/devtest/mutation [-only REGEXP]
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	only := flag.String("only", "", "try the mutants whose name matches this regular expression")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *only); err != nil {
		fmt.Fprintln(os.Stderr, "mutation:", err)
		os.Exit(1) //nolint:gocritic // stop only restores signals
	}
}

// run tries the mutants whose names match only. Its error names each mutant that survived or could
// not be tried.
func run(ctx context.Context, only string) error {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutation-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	var errs []error
	sound := soundness{dir: dir, built: map[string]string{}, passed: map[check]error{}}
	tried, all := 0, time.Now()
	for _, m := range slices.Concat(mutants, trustMutants, splitMutants, moveMutants, lostMutants, commandMutants, levelMutants, clockMutants, pathMutants) {
		if !wanted.MatchString(m.name) {
			continue
		}
		tried++
		began := time.Now()
		// A test that also fails without the mutant proves nothing.
		err := sound.passes(ctx, m.caught)
		if err == nil {
			err = m.try(ctx, dir)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		verdict := "caught"
		if err != nil {
			verdict = err.Error()
			errs = append(errs, fmt.Errorf("%s: %w", m.name, err))
		}
		fmt.Printf("%5.1fs  %s: %s\n", time.Since(began).Seconds(), m.name, verdict)
	}
	if tried == 0 {
		return fmt.Errorf("no mutant's name matches %q", only)
	}
	fmt.Printf("%d of %d mutants were caught, in %s\n", tried-len(errs), tried, time.Since(all).Round(time.Second))
	if len(errs) > 0 {
		return fmt.Errorf("not caught, or not tried:\n%w", errors.Join(errs...))
	}
	return nil
}

// soundness runs each check once without any mutant, and stores the result.
type soundness struct {
	dir    string
	built  map[string]string // paths of test binaries by package
	passed map[check]error
}

func (s *soundness) passes(ctx context.Context, c check) error {
	if err, known := s.passed[c]; known {
		return err
	}
	tests, known := s.built[c.pkg]
	if !known {
		tests = filepath.Join(s.dir, fmt.Sprintf("sound-%d.test", len(s.built)))
		if err := c.build(ctx, tests, nil); err != nil {
			return err
		}
		s.built[c.pkg] = tests
	}
	s.passed[c] = c.pass(ctx, tests)
	return s.passed[c]
}

// errFailed means that a test ran and failed.
var errFailed = errors.New("a test failed")

// try applies m and runs its check. It returns nil if a test of the check fails, so that m is
// caught.
func (m *mutant) try(ctx context.Context, dir string) error {
	overlay := map[string]string{}
	for i, e := range m.edits {
		path, err := filepath.Abs(e.file)
		if err != nil {
			return err
		}
		text, err := e.apply(overlay[path])
		if err != nil {
			return err
		}
		changed := filepath.Join(dir, fmt.Sprintf("%d-%s", i, filepath.Base(e.file)))
		if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
			return err
		}
		overlay[path] = changed
	}
	tests := filepath.Join(dir, "mutant.test")
	if err := m.caught.build(ctx, tests, overlay); err != nil {
		return err
	}
	switch err := m.caught.pass(ctx, tests); {
	case errors.Is(err, errFailed):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("SURVIVED %s", m.caught)
}

// apply returns the text of the file with the edit applied. If an earlier edit has changed the same
// file, changed is the path of the result, else "".
func (e *edit) apply(changed string) (string, error) {
	from := e.file
	if changed != "" {
		from = changed
	}
	b, err := os.ReadFile(from)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(b), e.old); n != 1 {
		return "", fmt.Errorf("%s contains this text %d times, want once; update the mutant:\n%s", e.file, n, e.old)
	}
	return strings.Replace(string(b), e.old, e.new, 1), nil
}

// build builds the test binary of the check's package. overlay maps files to the files that replace
// them.
func (c check) build(ctx context.Context, tests string, overlay map[string]string) error {
	replace, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return err
	}
	if err := os.WriteFile(overlayOf(tests), replace, 0o600); err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "test", "-c", "-ldflags=-s -w", "-overlay", overlayOf(tests), "-o", tests, c.pkg) //nolint:gosec // its arguments are listed here
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the tests: %w\n%s", err, out)
	}
	return nil
}

// overlayOf returns the path of the file that lists the replaced files of a test binary.
func overlayOf(tests string) string { return tests + ".json" }

// pass runs the tests of the check. It returns nil if all pass, and errFailed if one fails.
func (c check) pass(ctx context.Context, tests string) error {
	args := []string{"-test.run", c.run, "-test.timeout=2m", "-test.failfast"}
	if c.rapid {
		// Only the result matters: do not shrink the failure, and do not save it.
		args = append(args, "-rapid.nofailfile", "-rapid.shrinktime=1ms")
	}
	cmd := exec.CommandContext(ctx, tests, args...) //nolint:gosec // as above
	cmd.Dir = c.pkg
	// Some tests build a program. Without the overlay they would build it without the mutant.
	cmd.Env = append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlayOf(tests)),
		"PGTEST_CACHE=off") // a cached cluster has the schema without the mutant
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil && strings.Contains(string(out), "no tests to run"):
		return fmt.Errorf("%s names no test", c)
	case err == nil:
		return nil
	case errors.As(err, &exit) && (strings.Contains(string(out), "--- FAIL") || strings.Contains(string(out), "panic: ")):
		return errFailed
	}
	return fmt.Errorf("%s: %w\n%s", c, err, out)
}

func (c check) String() string { return fmt.Sprintf("go test -run '%s' %s", c.run, c.pkg) }
