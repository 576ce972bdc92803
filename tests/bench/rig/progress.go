package rig

import (
	"fmt"
	"io"
)

// Progress prints progress, a line at a time.
type Progress struct{ W io.Writer }

// Say prints a line.
func (p Progress) Say(format string, args ...any) {
	_, _ = fmt.Fprintf(p.W, "bench: "+format+"\n", args...) // progress is not essential
}
