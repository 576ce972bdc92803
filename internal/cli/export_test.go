package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/badged/badged/internal/devtest/pgtest"
)

// The export of a user ends with a line that says that it is whole, and is in the audit
// trail, which does not name a user that badged has no data of.
func TestUserExport(t *testing.T) {
	url := pgtest.NewDB(t, migrated())
	database := "--database-url=" + url
	if out := mustDo(t, "user", "export", "unknown", database); out != `{"kind":"end","record":{"holdings":0}}`+"\n" {
		t.Errorf("of an unknown user it prints\n%s", out)
	}
	conn := pgtest.Connect(t, url)
	pgtest.Exec(t, conn, `SELECT badged.publish('{"specversion":"1.0","id":"1","source":"chat","type":"message.delivered","data":{"conversation_id":"c","seq":1,"user_ids":["ada"]}}')`)
	out := mustDo(t, "user", "export", "ada", database)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if last := lines[len(lines)-1]; len(lines) < 2 || last != fmt.Sprintf(`{"kind":"end","record":{"holdings":%d}}`, len(lines)-1) || !strings.Contains(out, `"user_ids":["ada"]`) {
		t.Errorf("of ada it prints\n%s", out)
	}
	if list := mustDo(t, "audit", "list", database); strings.Contains(list, "unknown") || !strings.Contains(list, `user.export  {}`) || !strings.Contains(list, `user.export  {"user":"ada"}`) {
		t.Errorf("the audit trail is\n%s", list)
	}
	for user, want := range map[string]string{
		"":                       "badged: user id must not be empty",
		strings.Repeat("u", 129): "badged: user id",
	} {
		if r := badged(t, "user", "export", user, database); r.code != exitUsage || !strings.HasPrefix(r.err, want) || r.out != "" {
			t.Errorf("for %q it exits with %d: %s%s", user, r.code, r.out, r.err)
		}
	}
	if r := badged(t, "user", "export", "ada", "--archive="+t.TempDir(), database); r.code != exitFailed || !strings.Contains(r.err, "not an archive") {
		t.Errorf("without an archive it exits with %d: %s", r.code, r.err)
	}
}
