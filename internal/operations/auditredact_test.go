package operations_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/badged/badged/internal/operations"
)

// An erased user is nowhere in the trail, which is verified as before, also against a
// head that was kept. What a redaction has left cannot be changed.
func TestRedactAudit(t *testing.T) {
	d := newDatabase(t)
	if n, err := operations.RedactAudit(t.Context(), d.pool, ops, "zoe"); n != 0 || err != nil {
		t.Errorf("of an empty trail it redacts %d records, %v", n, err)
	}
	const zoe = `zoë "z" <1>`
	record := func(action string, arguments, result any, failure error) {
		t.Helper()
		if err := operations.Audited(t.Context(), d.pool, ops, action, arguments, func(context.Context) (any, error) { return result, failure }); !errors.Is(err, failure) {
			t.Fatal(err)
		}
	}
	record("user.explain", map[string]string{"user": zoe}, nil, nil)
	record("rebuild", map[string]string{"user": "ada"}, map[string]any{"first": []string{zoe, "ada"}}, nil)
	record("verify", struct{}{}, nil, fmt.Errorf("verify user %q: it is broken", zoe))
	record("verify", map[string]string{"user": zoe + "x"}, nil, nil)
	kept := verifyAudit(t, d.pool, operations.AuditHead{})

	if n, err := operations.RedactAudit(t.Context(), d.pool, ops, zoe); n != 3 || err != nil {
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
	if v.Count != kept.Count+2 || v.Redactions != 1 || v.RedactedSince != 1 {
		t.Errorf("afterwards the trail is %+v", v)
	}
	if r := v.NewestRedactions[0]; r.Record != v.Count || r.Who != ops.Name || r.Via != ops.Via || !slices.Equal(r.Redacted, []int64{1, 4, 6}) {
		t.Errorf("the redaction is %+v", r)
	}
	if n, err := operations.RedactAudit(t.Context(), d.pool, ops, zoe); n != 0 || err != nil {
		t.Errorf("again it redacts %d records, %v", n, err)
	}
	// Another user in the same record.
	if n, err := operations.RedactAudit(t.Context(), d.pool, ops, "ada"); n != 2 || err != nil {
		t.Errorf("of ada it redacts %d records, %v", n, err)
	}
	expectFault(t, verifyAudit(t, d.pool, kept.AuditHead), "")

	for name, tc := range map[string]struct{ sql, fault string }{
		"other arguments":                 {`UPDATE badged.audit SET arguments = '{"user":"eve"}' WHERE number = 1`, "record 1 of the audit trail was changed: action 1, user.explain has neither its original content nor the content that its redaction left"},
		"another operator":                {`UPDATE badged.audit SET who = 'eve' WHERE number = 1`, "record 1 of the audit trail was changed"},
		"another digest":                  {`UPDATE badged.audit SET digest = sha256('') WHERE number = 1`, "record 1 of the audit trail was changed"},
		"a redaction without a record":    {`UPDATE badged.audit_ends AS e SET digest = badged.audit_digest(badged.audit_content(e)), error = 'all is well' WHERE number = 8`, "record 8 of the audit trail was changed"},
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
			expectFault(t, verifyAudit(t, tx, operations.AuditHead{}), tc.fault)
		})
	}
}

// The owner of the tables takes a record for a redacted one, changes it and records a
// redaction of it. What a redaction may not replace stays covered by the hash, and what it
// may is told by the redaction.
func TestForgedRedactions(t *testing.T) {
	d := newDatabase(t)
	act(t, d.pool, "user.export", nil)
	act(t, d.pool, "heal", nil)
	kept := verifyAudit(t, d.pool, operations.AuditHead{})
	const (
		beginning = `UPDATE badged.audit AS r SET digest = badged.audit_digest(badged.audit_content(r)), %s WHERE number = 1`
		end       = `UPDATE badged.audit_ends AS r SET digest = badged.audit_digest(badged.audit_content(r)), %s WHERE number = 2`
	)
	for _, tc := range []struct{ record, change, fault string }{
		{beginning, `who = 'eve'`, "record 1 of the audit trail was changed: action 1, user.export does not match its hash"},
		{beginning, `via = 'cli'`, "record 1 of the audit trail was changed"},
		{beginning, `action = 'heal'`, "record 1 of the audit trail was changed"},
		{beginning, `at = at - interval '1 day'`, "record 1 of the audit trail was changed"},
		{beginning, `number = 9`, "record 1 of the audit trail was removed"},
		{beginning, `arguments = '{"user":"eve"}'`, ""},
		{end, `ended_at = ended_at + interval '1 day'`, "record 2 of the audit trail was changed"},
		{end, `error = 'it failed', result = NULL`, ""},
	} {
		t.Run(tc.change, func(t *testing.T) {
			tx, err := d.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
			var number int64
			var digest string
			forge := fmt.Sprintf(tc.record, tc.change) + ` RETURNING number, encode(badged.audit_digest(badged.audit_content(r)), 'hex')`
			if err := tx.QueryRow(t.Context(), forge).Scan(&number, &digest); err != nil {
				t.Fatal(err)
			}
			if err := operations.Audited(t.Context(), tx, ops, "audit.redact", struct{}{}, func(context.Context) (any, error) {
				return map[string]any{"records": []any{map[string]any{"number": number, "digest": digest}}}, nil
			}); err != nil {
				t.Fatal(err)
			}
			for _, head := range []operations.AuditHead{{}, kept.AuditHead} {
				v := verifyAudit(t, tx, head)
				expectFault(t, v, tc.fault)
				if v.Redactions != 1 || v.NewestRedactions[0].Record != kept.Count+2 || v.NewestRedactions[0].Redacted[0] != number {
					t.Errorf("it is no redaction: %+v", v)
				}
			}
		})
	}
}

// The ids of users may be the names of fields. Erasing such a user leaves what the trail
// says about itself.
func TestRedactNamesOfFields(t *testing.T) {
	d := newDatabase(t)
	if err := operations.Audited(t.Context(), d.pool, ops, "user.explain", map[string]string{"user": "zoe"}, func(context.Context) (any, error) {
		return map[string]int{"count": 1, "records": 2}, nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"zoe", "records", "number", "digest", "count", "user"} {
		if _, err := operations.RedactAudit(t.Context(), d.pool, ops, user); err != nil {
			t.Fatal(err)
		}
		expectFault(t, verifyAudit(t, d.pool, operations.AuditHead{}), "")
	}
	if v := verifyAudit(t, d.pool, operations.AuditHead{}); v.Redactions != 4 {
		t.Errorf("the trail is %+v", v)
	}
}

// A trail whose rows are copied into another database is a chain there, also what was
// redacted.
func TestCopiedRedactions(t *testing.T) {
	d := newDatabase(t)
	if err := operations.Audited(t.Context(), d.pool, ops, "user.explain", map[string]string{"user": "zoe"}, func(context.Context) (any, error) { return nil, nil }); err != nil {
		t.Fatal(err)
	}
	if n, err := operations.RedactAudit(t.Context(), d.pool, ops, "zoe"); n != 1 || err != nil {
		t.Fatalf("it redacts %d records, %v", n, err)
	}
	if _, err := d.pool.Exec(t.Context(), `
		CREATE TEMP TABLE begun AS TABLE badged.audit;
		CREATE TEMP TABLE ended AS TABLE badged.audit_ends;
		DELETE FROM badged.audit;
		DELETE FROM badged.audit_chain;
		INSERT INTO badged.audit OVERRIDING SYSTEM VALUE TABLE begun ORDER BY number;
		INSERT INTO badged.audit_ends TABLE ended ORDER BY number;`); err != nil {
		t.Fatal(err)
	}
	expectFault(t, verifyAudit(t, d.pool, operations.AuditHead{}), "")
}
