package terminal

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

// typed is input that a person types.
type typed struct{ io.Reader }

func (typed) IsTerminal() bool { return true }

func TestAsk(t *testing.T) {
	for _, test := range []struct {
		name  string
		in    io.Reader
		yes   bool
		asked bool
		want  error
	}{
		{"a script", strings.NewReader("n\n"), false, false, nil},
		{"--yes", typed{strings.NewReader("n\n")}, true, false, nil},
		{"yes", typed{strings.NewReader("Yes\n")}, false, true, nil},
		{"y", typed{strings.NewReader(" y \n")}, false, true, nil},
		{"no", typed{strings.NewReader("no\n")}, false, true, ErrNotConfirmed},
		{"return", typed{strings.NewReader("\n")}, false, true, ErrNotConfirmed},
		{"end of input", typed{strings.NewReader("")}, false, true, ErrNotConfirmed},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out bytes.Buffer
			err := Confirmation{Yes: test.yes}.Ask(Streams{In: test.in, Err: &out}, "Erase everything?")
			if !errors.Is(err, test.want) {
				t.Errorf("returns %v, want %v", err, test.want)
			}
			if asked := out.String() == "Erase everything? [y/N] "; asked != test.asked {
				t.Errorf("it prints %q", out.String())
			}
		})
	}
}
