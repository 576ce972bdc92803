package admin_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/badged/badged/internal/admin"
)

// An erased user is nowhere in the trail, which is verified as before, also against a
// head that was kept. What a redaction has left cannot be changed.
func TestRedactAudit(t *testing.T) {
	d := newDatabase(t)
	if n, err := admin.RedactAudit(t.Context(), d.pool, ops, "zoe"); n != 0 || err != nil {
		t.Errorf("of an empty trail it redacts %d records, %v", n, err)
	}
	const zoe = `zoë "z" <1>`
	record := func(action string, arguments, result any, failure error) {
		t.Helper()
		if err := admin.Audited(t.Context(), d.pool, ops, action, arguments, func(context.Context) (any, error) { return result, failure }); !errors.Is(err, failure) {
			t.Fatal(err)
		}
	}
	record("user.explain", map[string]string{"user": zoe}, nil, nil)
	record("rebuild", map[string]string{"user": "ada"}, map[string]any{"first": []string{zoe, "ada"}}, nil)
	record("verify", struct{}{}, nil, fmt.Errorf("verify user %q: it is broken", zoe))
	record("verify", map[string]string{"user": zoe + "x"}, nil, nil)
	kept := verifyAudit(t, d.pool, admin.AuditHead{})

	if n, err := admin.RedactAudit(t.Context(), d.pool, ops, zoe); n != 3 || err != nil {
		t.Errorf("it redacts %d records, %v", n, err)
	}
	trail := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(strings.Join(d.trail(t), "\n"))
	for _, want := range []string{`user.explain {"user":"(erased)"}`, `{"first":["(erased)","ada"]}`, `verify user "(erased)": it is broken`, `<1>x`, `audit.redact {}: {"records":[{"number":1,"digest":"`} {
		if !strings.Contains(trail, want) {
			t.Errorf("the trail has no %s:\n%s", want, trail)
		}
	}
	v := verifyAudit(t, d.pool, kept.AuditHead)
	expectFault(t, v, "")
	if v.Count != kept.Count+2 {
		t.Errorf("afterwards the trail is %+v", v)
	}
	if n, err := admin.RedactAudit(t.Context(), d.pool, ops, zoe); n != 0 || err != nil {
		t.Errorf("again it redacts %d records, %v", n, err)
	}
	// Another user in the same record.
	if n, err := admin.RedactAudit(t.Context(), d.pool, ops, "ada"); n != 2 || err != nil {
		t.Errorf("of ada it redacts %d records, %v", n, err)
	}
	expectFault(t, verifyAudit(t, d.pool, kept.AuditHead), "")

	for name, tc := range map[string]struct{ sql, fault string }{
		"other arguments":                 {`UPDATE badged.audit SET arguments = '{"user":"eve"}' WHERE number = 1`, "record 1 of the audit trail was changed: action 1, user.explain does not say"},
		"another operator":                {`UPDATE badged.audit SET who = 'eve' WHERE number = 1`, "record 1 of the audit trail was changed"},
		"another digest":                  {`UPDATE badged.audit SET digest = sha256('') WHERE number = 1`, "record 1 of the audit trail was changed"},
		"a redaction without a record":    {`UPDATE badged.audit_ends AS e SET digest = badged.audit_digest(badged.audit_fields(e)), error = 'all is well' WHERE number = 8`, "record 8 of the audit trail was changed"},
		"a redaction that says otherwise": {`UPDATE badged.audit_ends SET result = '{"records":[]}' WHERE number = 10`, "record 1 of the audit trail was changed"},
		"a redaction removed":             {`DELETE FROM badged.audit WHERE number = 9`, "record 1 of the audit trail was changed"},
	} {
		t.Run(name, func(t *testing.T) {
			tx, err := d.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
			if _, err := tx.Exec(t.Context(), tc.sql); err != nil {
				t.Fatal(err)
			}
			expectFault(t, verifyAudit(t, tx, admin.AuditHead{}), tc.fault)
		})
	}
}
