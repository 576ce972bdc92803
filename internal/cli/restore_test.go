package cli

import (
	"io"
	"testing"

	"github.com/badged/badged/internal/partition/archiving"
)

func TestRestorePrints(t *testing.T) {
	done := archiving.Restored{Partitions: 4, Files: 8, Events: 327720}
	for want, cmd := range map[string]restoreCmd{
		"327,720 events of 4 partitions restored from 8 files; projectors fold them next, and badged lag shows how far they are\n": {},
		`{"partitions":4,"files":8,"events":327720}` + "\n":                                                                        {JSON: true},
	} {
		expectPrinted(t, want, func(w io.Writer) error { return cmd.print(w, done) })
	}
}
