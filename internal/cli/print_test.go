package cli

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var errFull = errors.New("no space left")

// full is a writer that fails.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

// expectPrinted checks what a command prints, part by part, and that each part
// returns the error of a writer.
func expectPrinted(t *testing.T, want string, parts ...func(io.Writer) error) {
	t.Helper()
	var out strings.Builder
	for _, print := range parts {
		if err := print(&out); err != nil {
			t.Error(err)
		}
		if err := print(full{}); !errors.Is(err, errFull) {
			t.Errorf("where nothing can be written: %v", err)
		}
	}
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("it prints (-want +got):\n%s", diff)
	}
}

// expectUsage checks the errors of command lines that are used wrongly.
func expectUsage(t *testing.T, wrong map[string]string) {
	t.Helper()
	for args, want := range wrong {
		if r := badged(t, strings.Fields(args)...); r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%s exits with %d:\n%s", args, r.code, r.err)
		}
	}
}
