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

// Confirmation has the flag --yes, for commands whose changes cannot be undone.
type Confirmation struct {
	Yes bool `short:"y" help:"Do not ask for confirmation. Without a terminal, the command never asks." env:"-"`
}

// ErrNotConfirmed is returned if the operator did not answer yes.
var ErrNotConfirmed = errors.New("not confirmed: nothing was changed")

// Ask prints a question, and returns [ErrNotConfirmed] if the answer is not yes. With --yes, or if
// the input is not a terminal, Ask does not print the question and returns nil.
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

// isTerminal reports whether the input is a terminal.
func isTerminal(in io.Reader) bool {
	if t, ok := in.(interface{ IsTerminal() bool }); ok {
		return t.IsTerminal()
	}
	f, ok := in.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}
