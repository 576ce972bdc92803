package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/snippets"
)

// The audit trail is listed and verified, also against a head that was kept, and
// a record that is changed in SQL is named.
func TestAudit(t *testing.T) {
	url := pgtest.NewDB(t, migrated())
	database := "--database-url=" + url
	conn := pgtest.Connect(t, url)
	exec := func(sql string) {
		t.Helper()
		pgtest.Exec(t, conn, sql)
	}
	if out := mustDo(t, "audit", "verify", database); out != "0 records verified: none was changed, removed or inserted\n" {
		t.Errorf("an empty trail: %s", out)
	}
	badged(t, "deadletters", "discard", "7", database) // there is none, which is recorded too
	exec(`INSERT INTO badged.audit (at, who, via, action, arguments) VALUES ('2096-01-31', 'ops', 'api', 'rebuild.start', '{"partition":3}')`)

	list := mustDo(t, "audit", "list", database)
	if lines := strings.Split(list, "\n"); len(lines) != 4 || !strings.HasPrefix(lines[0], "ID  AT ") ||
		!strings.Contains(lines[1], `2096-01-31T00:00:00.000Z  ops`) || !strings.HasSuffix(lines[1], `rebuild.start        {"partition":3}  none`) ||
		!strings.Contains(lines[2], `deadletters.discard  {"id":7}         failed: `) {
		t.Errorf("the list is:\n%s", list)
	}
	var entry struct{ ID int64 }
	if err := json.Unmarshal([]byte(mustDo(t, "audit", "list", "--json", "--before=2", "--limit=1", database)), &entry); err != nil || entry.ID != 1 {
		t.Errorf("before action 2 there is %+v, %v", entry, err)
	}

	all := mustDo(t, "audit", "verify", database)
	snippets.ExpectShape(t, snippets.Output(t, "docs/admin.md", "badged audit verify"), all)
	out, kept, _ := strings.Cut(all, "\n")
	if out != "3 records verified: none was changed, removed or inserted" || !strings.HasPrefix(kept, "--count=3 --head=") {
		t.Fatalf("it prints %s\n%s", out, kept)
	}
	again := append([]string{"audit", "verify", database}, strings.Fields(kept)...)
	snippets.ExpectShape(t, snippets.Output(t, "docs/admin.md", "badged audit verify --count=1204 --head=9b1f0c6e…"), mustDo(t, again...))

	exec(`UPDATE badged.audit SET arguments = '{"partition":2}' WHERE action = 'rebuild.start'`)
	r := badged(t, "audit", "verify", database)
	const fault = "record 3 of the audit trail was changed: action 2, rebuild.start does not match its hash"
	if r.code != exitFailed || r.out != "" || !strings.HasPrefix(r.err, "badged: "+fault) {
		t.Errorf("a changed record: exit code %d\n%s%s", r.code, r.out, r.err)
	}
	r = badged(t, "audit", "verify", "--json", database)
	var verified struct {
		Count int64
		Fault struct {
			Record int64
			Kind   string
		}
	}
	if err := json.Unmarshal([]byte(r.out), &verified); err != nil || r.code != exitFailed || verified.Count != 2 || verified.Fault.Record != 3 || verified.Fault.Kind != "changed" {
		t.Errorf("as JSON: exit code %d, %+v, %v", r.code, verified, err)
	}

	exec(`UPDATE badged.audit SET arguments = '{"partition":3}' WHERE action = 'rebuild.start'`)
	exec(`DELETE FROM badged.audit WHERE id = 2; UPDATE badged.audit_chain SET records = 2, head = (SELECT hash FROM badged.audit_ends WHERE number = 2)`)
	mustDo(t, "audit", "verify", database)
	if r := badged(t, again...); r.code != exitFailed || !strings.Contains(r.err, "record 3 of the audit trail was removed: it is missing; the given head has 3 records") {
		t.Errorf("the end is removed with the head: exit code %d, %s", r.code, r.err)
	}
	if out := mustDo(t, "audit", "prune", "--audit-age=200000h", database); !strings.HasPrefix(out, "nothing to do: ") {
		t.Errorf("pruning nothing prints %s", out)
	}
}

// A server records wrong keys in the audit trail, and the last ones when it stops.
func TestAuditOfFailedSignIns(t *testing.T) {
	url := pgtest.NewDB(t, migrated())
	server := startServer(t, url, "--admin-keys=ops=secret")
	for range 2 {
		fetch(t, "GET", server.url+"/admin/v1/audit", "guessed", "", "")
	}
	fetch(t, "POST", server.url+"/v1/events", "guessed", "application/json", "{}")
	server.stop()
	list := mustDo(t, "audit", "list", "--database-url="+url)
	for _, want := range []string{`{"key_of":"admin","times":2,`, `{"key_of":"publisher","times":1,`, "127.0.0.1/32", "signin.failed", "refused"} {
		if !strings.Contains(list, want) {
			t.Errorf("the trail has no %s:\n%s", want, list)
		}
	}
}
