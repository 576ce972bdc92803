package cli

import (
	"strings"
	"testing"

	"github.com/badged/badged/internal/devtest/pgtest"
)

// The export of a user ends with a line that says that it is whole, and is in the audit
// trail. That is all that badged holds of an unknown user.
func TestUserExport(t *testing.T) {
	database := "--database-url=" + pgtest.NewDB(t, migrated())
	out := mustDo(t, "user", "export", "unknown", database)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], `{"kind":"action","record":{"action":"user.export","arguments":{"user":"unknown"}`) || lines[1] != `{"kind":"end","record":{"holdings":1}}` {
		t.Errorf("it prints\n%s", out)
	}
	if list := mustDo(t, "audit", "list", database); !strings.Contains(list, `user.export  {"user":"unknown"}  done: {"holdings":1}`) {
		t.Errorf("the audit trail is\n%s", list)
	}
	for user, want := range map[string]string{
		"":                       "badged: user id must not be empty",
		strings.Repeat("u", 129): "badged: user id",
	} {
		if r := badged(t, "user", "export", user, database); r.code == exitDone || !strings.HasPrefix(r.err, want) || r.out != "" {
			t.Errorf("for %q it exits with %d: %s%s", user, r.code, r.out, r.err)
		}
	}
	if r := badged(t, "user", "export", "ada", "--archive="+t.TempDir(), database); r.code != exitFailed || !strings.Contains(r.err, "not an archive") {
		t.Errorf("without an archive it exits with %d: %s", r.code, r.err)
	}
}
