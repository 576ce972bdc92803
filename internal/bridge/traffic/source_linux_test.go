package traffic

import (
	"fmt"
	"os"
	"testing"
)

// A shell's <(command) makes such a file: a pipe with a path.
func TestSourceReadsOfAPipeWithAPathEndWithTheContext(t *testing.T) {
	silent, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = silent.Close(), writer.Close() }()
	checkReadEnds(t, fmt.Sprintf("/dev/fd/%d", silent.Fd()), nil)
}
