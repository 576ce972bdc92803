package terminal

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/mattn/go-isatty"
)

// Confirmation is the flag of commands that change what cannot be changed back.
type Confirmation struct {
	Yes bool `short:"y" help:"Do not ask for confirmation. Without a terminal nothing is asked." env:"-"`
}

// ErrNotConfirmed is returned when a question was not answered with yes.
var ErrNotConfirmed = errors.New("not confirmed: nothing was changed")

// Ask asks whether to do what question says, and returns [ErrNotConfirmed] unless the
// answer is yes. It asks people only: if the input is not a terminal, or with --yes, it
// returns nil at once.
func (c Confirmation) Ask(streams Streams, question string) error {
	if c.Yes || !isTerminal(streams.In) {
		return nil
	}
	fmt.Fprintf(streams.Err, "%s [y/N] ", question)
	answer, err := bufio.NewReader(streams.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return ErrNotConfirmed
}

// isTerminal reports whether a person types the input.
func isTerminal(in io.Reader) bool {
	if t, ok := in.(interface{ IsTerminal() bool }); ok {
		return t.IsTerminal()
	}
	f, ok := in.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}
