package wait_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/badged/badged/internal/base/wait"
)

// Files uses a change once two reads return the same contents. If Use refuses it, Files calls
// Use again after a pause.
func TestFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
		write := func(path, text string) {
			t.Helper()
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var used []string
		f := &wait.Files{
			Paths: []string{one, two}, Interval: time.Second, Retry: 3 * time.Second,
			Use: func(_ context.Context, contents [][]byte, err error) error {
				if err != nil {
					used = append(used, "missing")
					return nil
				}
				used = append(used, string(slices.Concat(contents...)))
				if used[len(used)-1] == "bad" {
					return errEnd
				}
				return nil
			},
		}
		expect := func(after time.Duration, changing bool, want ...string) {
			t.Helper()
			time.Sleep(after) // in the fake time of synctest
			synctest.Wait()
			if f.Changing() != changing || !slices.Equal(used, want) {
				t.Errorf("changing %t, used %q; want %t, %q", !changing, used, changing, want)
			}
			used = nil
		}
		write(one, "a")
		write(two, "b")
		if contents, err := f.Read(); err != nil || string(slices.Concat(contents...)) != "ab" {
			t.Fatalf("%q, %v", contents, err)
		}
		expect(0, false)
		write(two, "B")
		expect(3*time.Second, true) // no Look in between: Changing reads the files itself
		write(two, "b")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = f.Run(ctx) }()
		expect(1500*time.Millisecond, false)
		write(two, "half")
		expect(time.Second, true)
		write(two, "ad")
		write(one, "b")
		expect(time.Second, true)
		expect(time.Second, false, "bad")
		expect(5*time.Second, false, "bad")
		if err := os.Remove(two); err != nil {
			t.Fatal(err)
		}
		expect(10*time.Second, false, "missing")
		f.Reload(ctx)
		expect(0, false, "missing")
	})
}
