// Mutation shows that the tests notice what would make a number wrong: it
// breaks badged in one listed way after the other, and fails where the tests
// pass all the same. Nothing in the working tree is changed.
//
//	go run ./internal/mutation [-only NAME]
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
	"strings"
	"time"
)

func main() {
	only := flag.String("only", "", "try the mutants whose name contains this")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *only); err != nil {
		fmt.Fprintln(os.Stderr, "mutation:", err)
		os.Exit(1) //nolint:gocritic // stop only restores signals
	}
}

// run tries the mutants whose name contains only, and returns an error that
// names those that survived or could not be tried.
func run(ctx context.Context, only string) error {
	dir, err := os.MkdirTemp("", "mutation-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	var errs []error
	sound := map[check]error{}
	tried := 0
	for _, m := range mutants {
		if !strings.Contains(m.name, only) {
			continue
		}
		tried++
		began := time.Now()
		// A test that fails anyway would show nothing.
		if _, known := sound[m.caught]; !known {
			sound[m.caught] = m.caught.pass(ctx, dir, nil)
		}
		err := sound[m.caught]
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
		return fmt.Errorf("no mutant is called %q", only)
	}
	if len(errs) > 0 {
		return fmt.Errorf("%d of %d mutants were not noticed, or could not be tried:\n%w", len(errs), tried, errors.Join(errs...))
	}
	fmt.Printf("all %d mutants were noticed\n", tried)
	return nil
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
	switch err := m.caught.pass(ctx, dir, overlay); {
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

// pass builds the tests of a package, with some files replaced by others, and
// runs those of the check. It returns nil if they pass and errFailed if they
// do not.
func (c check) pass(ctx context.Context, dir string, overlay map[string]string) error {
	replace, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return err
	}
	overlayFile, tests := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "mutant.test")
	if err := os.WriteFile(overlayFile, replace, 0o600); err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "test", "-c", "-overlay", overlayFile, "-o", tests, c.pkg) //nolint:gosec // its arguments are listed here
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the tests: %w\n%s", err, out)
	}
	args := []string{"-test.run", c.run, "-test.timeout=2m"}
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
