// Package terminal has what commands print with.
//
// It does not know commands.
package terminal

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/badged/badged/internal/progress"
)

// Streams are the standard streams of a command.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// PrintJSON prints v as indented JSON.
func PrintJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// Counted returns a number with its noun, such as "1,000 users".
func Counted(n int64, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return progress.Count(n) + " " + thing
}

// Size returns a number of bytes for people.
func Size(bytes float64) string {
	units := []string{"B", "kB", "MB", "GB", "TB", "PB"}
	for bytes >= 1000 && len(units) > 1 {
		bytes, units = bytes/1000, units[1:]
	}
	return fmt.Sprintf("%.3g %s", bytes, units[0])
}
