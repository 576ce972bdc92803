// Mutation shows that the tests notice what would make a number wrong: it
// breaks badged in one listed way after the other, and fails where the tests
// pass all the same. Nothing in the working tree is changed.
//
//	go run ./internal/mutation [-only REGEXP]
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

// run tries the mutants whose name matches only, and returns an error that
// names those that survived or could not be tried.
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
	for _, m := range mutants {
		if !wanted.MatchString(m.name) {
			continue
		}
		tried++
		began := time.Now()
		// A test that fails anyway would show nothing.
		err := sound.passes(ctx, m.caught)
		if err == nil {
			err = m.try(ctx, dir)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		verdict := "noticed"
		if err != nil {
			verdict = err.Error()
			errs = append(errs, fmt.Errorf("%s: %w", m.name, err))
		}
		fmt.Printf("%5.1fs  %s: %s\n", time.Since(began).Seconds(), m.name, verdict)
	}
	if tried == 0 {
		return fmt.Errorf("no mutant's name matches %q", only)
	}
	fmt.Printf("%d of %d mutants were noticed, in %s\n", tried-len(errs), tried, time.Since(all).Round(time.Second))
	if len(errs) > 0 {
		return fmt.Errorf("not noticed, or not tried:\n%w", errors.Join(errs...))
	}
	return nil
}

// soundness is whether checks pass while nothing is broken, each tried once.
type soundness struct {
	dir    string
	built  map[string]string // the tests of a package
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

// errFailed says that tests ran and one failed.
var errFailed = errors.New("a test failed")

// try breaks badged as m says and returns nil if a test notices.
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

// apply returns the text of the edit's file with the edit made; changed is
// where an edit before it has put that file, or "".
func (e *edit) apply(changed string) (string, error) {
	from := e.file
	if changed != "" {
		from = changed
	}
	b, err := os.ReadFile(from) //nolint:gosec // a file of this repository
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(b), e.old); n != 1 {
		return "", fmt.Errorf("%s has this %d times, want once; bring the list of mutants up to date:\n%s", e.file, n, e.old)
	}
	return strings.Replace(string(b), e.old, e.new, 1), nil
}

// build builds the tests of the check's package, with some files replaced by
// others.
func (c check) build(ctx context.Context, tests string, overlay map[string]string) error {
	replace, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return err
	}
	overlayFile := tests + ".json"
	if err := os.WriteFile(overlayFile, replace, 0o600); err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "test", "-c", "-ldflags=-s -w", "-overlay", overlayFile, "-o", tests, c.pkg) //nolint:gosec // its arguments are listed here
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the tests: %w\n%s", err, out)
	}
	return nil
}

// pass runs the tests of the check. It returns nil if they pass and errFailed
// if they do not.
func (c check) pass(ctx context.Context, tests string) error {
	args := []string{"-test.run", c.run, "-test.timeout=2m", "-test.failfast"}
	if c.rapid {
		// How a mutant fails need not be made small or kept.
		args = append(args, "-rapid.nofailfile", "-rapid.shrinktime=1ms")
	}
	cmd := exec.CommandContext(ctx, tests, args...) //nolint:gosec // as above
	cmd.Dir = c.pkg
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
