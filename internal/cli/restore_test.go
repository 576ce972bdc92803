package cli

import (
	"io"
	"testing"

	"github.com/badged/badged/internal/devtest/snippets"
	"github.com/badged/badged/internal/partition/archiving"
)

func TestRestorePrints(t *testing.T) {
	done := archiving.Restored{Partitions: 4, Files: 8, Events: 327720}
	for want, cmd := range map[string]restoreCmd{
		snippets.Output(t, "docs/cli.md", "badged restore --from /var/backups/badged/log"): {},
		`{"partitions":4,"files":8,"events":327720}` + "\n":                                {JSON: true},
	} {
		expectPrinted(t, want, func(w io.Writer) error { return cmd.print(w, done) })
	}
}
