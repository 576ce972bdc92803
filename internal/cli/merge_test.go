package cli

import (
	"strings"
	"testing"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
)

// A merge is in the audit trail, with the users only if badged knows the guest. One of
// unknown users moves nothing.
func TestUserMerge(t *testing.T) {
	url := pgtest.NewDB(t, migrated())
	database := "--database-url=" + url
	if out := mustDo(t, "user", "merge", "guest", "ada", database); out != "moved 0 conversations with 0 unread messages\n" {
		t.Errorf("it prints %s", out)
	}
	if list := mustDo(t, "audit", "list", "--json", database); !strings.Contains(list, `"action":"user.merge","arguments":{}`) {
		t.Errorf("the audit trail of a merge of an unknown guest is\n%s", list)
	}
	pgtest.Exec(t, poolOf(t, url), `INSERT INTO badged.users (partition_id, user_id, version, total, mentions, categories) VALUES ($1, 'guest', 1, 0, 0, '{}')`, events.PartitionOf("guest", partitions))
	mustDo(t, "user", "merge", "guest", "ada", database)
	if list := mustDo(t, "audit", "list", "--json", database); !strings.Contains(list, `"action":"user.merge","arguments":{"guest":"guest","into":"ada"}`) {
		t.Errorf("the audit trail of a merge of a known guest is\n%s", list)
	}
	for want, args := range map[string][]string{
		"badged: id of the guest must not be empty":           {"", "ada"},
		"badged: id of the account must not be empty":         {"guest", ""},
		"badged: the guest and the account are the same user": {"ada", "ada"},
	} {
		if r := badged(t, "user", "merge", args[0], args[1], database); r.code != exitUsage || !strings.HasPrefix(r.err, want) {
			t.Errorf("for %q it exits with %d: %s", args, r.code, r.err)
		}
	}
}
