package admin_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/internal/admin"
)

// A page that polls is recorded once, another operator or user again. A read that
// cannot be recorded fails.
func TestReadsAreRecorded(t *testing.T) {
	d := newDatabase(t)
	s := d.service()
	read := func(by admin.Operator, user string) error {
		return s.Read(t.Context(), by, admin.ReadExplanation, map[string]string{"user": user})
	}
	d.exec(t, `ALTER TABLE badged.audit RENAME TO elsewhere`)
	if err := read(ops, "ada"); err == nil || !strings.Contains(err.Error(), "record user.explain in the audit trail; nothing was shown") {
		t.Errorf("without a trail it fails with %v", err)
	}
	d.exec(t, `ALTER TABLE badged.elsewhere RENAME TO audit`)
	for range 3 {
		for _, err := range []error{read(ops, "ada"), read(ops, "bob"), read(admin.Operator{Name: "root", Via: admin.ViaAPI}, "ada")} {
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
	expectFault(t, verifyAudit(t, d.pool, admin.AuditHead{}), "")
}
