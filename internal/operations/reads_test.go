package operations_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/internal/operations"
)

// A page that polls is recorded once, another operator or user again. A read that
// cannot be recorded fails.
func TestReadsAreRecorded(t *testing.T) {
	d := newDatabase(t)
	read := func(operator operations.Operator, user string) error {
		return d.operations.Read(t.Context(), operator, operations.ReadExplanation, map[string]string{"user": user})
	}
	d.exec(t, `ALTER TABLE badged.audit RENAME TO elsewhere`)
	if err := read(ops, "ada"); err == nil || !strings.Contains(err.Error(), "record user.explain in the audit trail; nothing was shown") {
		t.Errorf("without a trail it fails with %v", err)
	}
	d.exec(t, `ALTER TABLE badged.elsewhere RENAME TO audit`)
	for range 3 {
		for _, err := range []error{read(ops, "ada"), read(ops, "bob"), read(operations.Operator{Name: "root", Via: operations.ViaAPI}, "ada")} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if diff := cmp.Diff([]string{
		`api by root: user.explain {"user":"ada"}: `, `api by ops: user.explain {"user":"bob"}: `, `api by ops: user.explain {"user":"ada"}: `,
	}, d.trail(t)); diff != "" {
		t.Errorf("the trail (-want +got):\n%s", diff)
	}
	expectFault(t, verifyAudit(t, d.pool, operations.AuditHead{}), "")
}

// The command line records reads too, unless its role may not write. A disconnect that
// cannot be recorded does not happen.
func TestReadsOfTheCommandLine(t *testing.T) {
	d := newDatabase(t)
	arguments := map[string]string{"user": "ada"}
	if recorded, err := operations.RecordRead(t.Context(), d.pool, operations.ReadUser, arguments); !recorded || err != nil {
		t.Errorf("recorded %t, error %v", recorded, err)
	}
	tx, err := d.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }() // nothing is to be kept
	if _, err := tx.Exec(t.Context(), `SET TRANSACTION READ ONLY`); err != nil {
		t.Fatal(err)
	}
	if recorded, err := operations.RecordRead(t.Context(), tx, operations.ReadUser, arguments); recorded || err != nil {
		t.Errorf("in a transaction that only reads: recorded %t, error %v", recorded, err)
	}
	if err := operations.RecordDisconnect(t.Context(), d.pool, ops, "bob", time.Date(2027, 1, 31, 0, 0, 0, 0, time.UTC)); err != nil {
		t.Fatal(err)
	}
	trail := d.trail(t)
	if len(trail) != 2 || trail[0] != `api by ops: user.disconnect {"user":"bob","revoke_before":"2027-01-31T00:00:00Z"}: ` ||
		!strings.HasPrefix(trail[1], "cli by ") || !strings.HasSuffix(trail[1], `: user.show {"user":"ada"}: `) {
		t.Errorf("the trail is\n%s", strings.Join(trail, "\n"))
	}
	expectFault(t, verifyAudit(t, d.pool, operations.AuditHead{}), "")
	d.exec(t, `ALTER TABLE badged.audit RENAME TO elsewhere`)
	if err := operations.RecordDisconnect(t.Context(), d.pool, ops, "bob", time.Time{}); err == nil || !strings.Contains(err.Error(), "no connection was ended") {
		t.Errorf("without a trail: %v", err)
	}
	if _, err := operations.RecordRead(t.Context(), d.pool, operations.ReadUser, arguments); err == nil || !strings.Contains(err.Error(), "nothing was shown") {
		t.Errorf("without a trail: %v", err)
	}
}
