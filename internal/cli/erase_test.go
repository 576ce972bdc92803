package cli

import (
	"strings"
	"testing"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/snippets"
	"github.com/badged/badged/internal/user/erasure"
)

// An erasure is in the audit trail, without the id, and one of an unknown user succeeds.
func TestUserErase(t *testing.T) {
	database := "--database-url=" + pgtest.NewDB(t, migrated())
	if out := mustDo(t, "user", "erase", "unknown", database); out != "badged had no data of this user\n" {
		t.Errorf("it prints %s", out)
	}
	mustDo(t, "user", "export", "unknown", database) // which the trail says
	mustDo(t, "user", "erase", "unknown", database)
	mustDo(t, "audit", "verify", database)
	mustDo(t, "user", "merge", "unknown", "ada", database)
	mustDo(t, "rebuild", "--user=unknown", database)
	if list := mustDo(t, "audit", "list", "--json", database); strings.Contains(list, "unknown") || !strings.Contains(list, `"action":"user.erase","arguments":{},`) {
		t.Errorf("the audit trail is\n%s", list)
	}
	if r := badged(t, "user", "erase", "ada", "--archive="+t.TempDir(), database); r.code != exitFailed || !strings.Contains(r.err, "not an archive") {
		t.Errorf("without an archive it exits with %d: %s", r.code, r.err)
	}
	for user, want := range map[string]string{"": "badged: user id must not be empty", strings.Repeat("u", 129): "badged: user id"} {
		if r := badged(t, "user", "erase", user, database); r.code != exitUsage || !strings.HasPrefix(r.err, want) || r.out != "" {
			t.Errorf("for %q it exits with %d: %s%s", user, r.code, r.out, r.err)
		}
	}
}

func TestPrintErasure(t *testing.T) {
	var none strings.Builder
	if err := printErasure(&none, erasure.Erased{Partition: 3}, false); err != nil || none.String() != "" {
		t.Errorf("of an erasure that was refused it prints %s, %v", &none, err)
	}
	for want, r := range map[string]erasure.Erased{
		snippets.Output(t, "docs/cli.md", "badged user erase ada"): {
			Partition: 3, Conversations: 3, Devices: 1, Actions: 2, Counts: erasure.Counts{Erased: 41, Changed: 12},
		},
		"badged had no data of this user\nthe id stays in 1 event of other users, where it names something else, such as a conversation\n": {
			Partition: 3, Counts: erasure.Counts{Kept: 1},
		},
	} {
		var out strings.Builder
		if err := printErasure(&out, r, true); err != nil || out.String() != want {
			t.Errorf("it prints %s, %v\nwant %s", &out, err, want)
		}
	}
}
