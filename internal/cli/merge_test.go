package cli

import (
	"strings"
	"testing"

	"github.com/badged/badged/internal/devtest/pgtest"
)

// A merge is in the audit trail. One of unknown users moves nothing.
func TestUserMerge(t *testing.T) {
	database := "--database-url=" + pgtest.NewDB(t, migrated())
	if out := mustDo(t, "user", "merge", "guest", "ada", database); out != "moved 0 conversations with 0 unread messages\n" {
		t.Errorf("it prints %s", out)
	}
	if list := mustDo(t, "audit", "list", "--json", database); !strings.Contains(list, `"action":"user.merge","arguments":{"guest":"guest","into":"ada"}`) {
		t.Errorf("the audit trail is\n%s", list)
	}
	for want, args := range map[string][]string{
		"badged: id of the guest must not be empty":           {"", "ada"},
		"badged: id of the account must not be empty":         {"guest", ""},
		"badged: the guest and the account are the same user": {"ada", "ada"},
	} {
		if r := badged(t, "user", "merge", args[0], args[1], database); r.code != exitFailed || !strings.HasPrefix(r.err, want) {
			t.Errorf("for %q it exits with %d: %s", args, r.code, r.err)
		}
	}
}
