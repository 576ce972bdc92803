// Package terminal has functions for the input and output of commands.
//
// It does not know the commands.
package terminal

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/badged/badged/internal/base/progress"
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

// Counted returns a number with its noun in the right form, such as "1 user" or "1,000 users".
func Counted(n int64, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return progress.Count(n) + " " + thing
}

// Size formats a number of bytes in decimal units, such as "1.5 GB".
func Size(bytes float64) string {
	units := []string{"B", "kB", "MB", "GB", "TB", "PB"}
	for bytes >= 1000 && len(units) > 1 {
		bytes, units = bytes/1000, units[1:]
	}
	return fmt.Sprintf("%.3g %s", bytes, units[0])
}
