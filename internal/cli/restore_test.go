package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/badged/badged/projector/archiving"
)

func TestRestorePrints(t *testing.T) {
	done := archiving.Restored{Partitions: 4, Files: 8, Events: 327720}
	for want, cmd := range map[string]restoreCmd{
		"327,720 events of 4 partitions restored from 8 files; projectors fold them next, and badged lag shows how far they are\n": {},
		`{"partitions":4,"files":8,"events":327720}` + "\n":                                                                        {JSON: true},
	} {
		var out strings.Builder
		if err := cmd.print(&out, done); err != nil || out.String() != want {
			t.Errorf("it fails with %v and prints\n%s", err, out.String())
		}
		if err := cmd.print(full{}, done); !errors.Is(err, errFull) {
			t.Errorf("where nothing can be written: %v", err)
		}
	}
}
