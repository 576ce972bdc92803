package operations_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/badged/badged/internal/operations"
)

// act records an action with a result.
func act(t *testing.T, db operations.DB, action string, failure error) {
	t.Helper()
	err := operations.Audited(t.Context(), db, ops, action, map[string]string{"user": "zoë\u2028\u0000"}, func(context.Context) (any, error) {
		return map[string]int{"events": 12}, failure
	})
	if !errors.Is(err, failure) {
		t.Fatal(err)
	}
}

func verifyAudit(t *testing.T, db operations.DB, kept operations.AuditHead) operations.AuditVerified {
	t.Helper()
	v, err := operations.VerifyAudit(t.Context(), db, kept)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Each way to tamper with the trail in SQL is found, and the first record that it
// touches is named.
func TestTamperingIsFound(t *testing.T) {
	d := newDatabase(t)
	if v := verifyAudit(t, d.pool, operations.AuditHead{}); v.Fault != nil || v.Count != 0 {
		t.Errorf("an empty trail is %+v", v)
	}
	act(t, d.pool, "heal", nil)
	act(t, d.pool, "rebuild", errors.New("it is broken:\nfür alle"))
	act(t, d.pool, "archive", nil)
	before := verifyAudit(t, d.pool, operations.AuditHead{})
	if before.Fault != nil || before.Count != 6 || before.Records != 6 {
		t.Fatalf("the trail is %+v", before)
	}
	const (
		dropLastEnd  = `DELETE FROM badged.audit_ends WHERE number = 6`
		withoutRules = `SET LOCAL session_replication_role = replica; `
		rowOfTwo     = `INSERT INTO badged.audit_ends (audit_id, number, hash) VALUES (99, 3, '\x00')`
		rowBehind    = `INSERT INTO badged.audit (number, hash, who, via, action, arguments) VALUES (7, '\x00', 'eve', 'api', 'x', '{}')`
		forgedStart  = `UPDATE badged.audit_chain SET pruned = 2, pruned_head = (SELECT hash FROM badged.audit_ends WHERE number = 2); DELETE FROM badged.audit WHERE number = 1`
		forgedHead   = dropLastEnd + `; UPDATE badged.audit_chain SET records = 5, head = (SELECT hash FROM badged.audit WHERE number = 5)`
	)
	for _, test := range []struct{ name, sql, alone, withHead string }{
		{"nothing", `SELECT`, "", ""},
		{"another operator", `UPDATE badged.audit SET who = 'eve' WHERE number = 3`, "record 3 of the audit trail was changed: action 2, rebuild does not match", ""},
		{"arguments that mean the same", `UPDATE badged.audit SET arguments = replace(arguments::text, ':', ': ')::json WHERE number = 1`, "record 1 of the audit trail was changed", ""},
		{"a microsecond later", `UPDATE badged.audit_ends SET ended_at = ended_at + interval '1 microsecond' WHERE number = 4`, "record 4 of the audit trail was changed: the end of action 2", ""},
		{"a result moved to the error", `UPDATE badged.audit_ends SET result = NULL, error = result::text WHERE number = 2`, "record 2 of the audit trail was changed", ""},
		{"a record and its own hash", `UPDATE badged.audit SET who = 'eve', hash = sha256('eve') WHERE number = 3`, "record 3 of the audit trail was changed", ""},
		{"an action removed", `DELETE FROM badged.audit WHERE number = 3`, "record 3 of the audit trail was removed: records 3 to 4 are missing; action 3, archive follows", ""},
		{"the last end removed", dropLastEnd, "record 6 of the audit trail was removed: it is missing; 6 records were written", ""},
		{"all removed", `DELETE FROM badged.audit`, "record 1 of the audit trail was removed: records 1 to 6 are missing", ""},
		{"a second record 3", withoutRules + rowOfTwo, "record 3 of the audit trail was inserted: the end of action 99 has a number", ""},
		{"a record behind the last", withoutRules + rowBehind, "record 7 of the audit trail was inserted", ""},
		{"another head", `UPDATE badged.audit_chain SET head = sha256('')`, "record 6 of the audit trail was changed", ""},
		{"a start that no pruning made", forgedStart, "record 1 of the audit trail was removed: records 1 to 2 are missing; no record says", ""},
		// Only a head that was kept shows these.
		{"the end removed with the head", forgedHead, "", "record 6 of the audit trail was removed: it is missing; the given head has 6 records"},
		{"all written anew", `DELETE FROM badged.audit; DELETE FROM badged.audit_chain`, "", "record 6 of the audit trail was changed: the end of action"},
	} {
		t.Run(test.name, func(t *testing.T) {
			tx, err := d.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
			if _, err := tx.Exec(t.Context(), test.sql); err != nil {
				t.Fatal(err)
			}
			if test.name == "all written anew" {
				for range 3 {
					act(t, tx, "heal", nil)
				}
			}
			if test.withHead == "" {
				test.withHead = test.alone
			}
			expectFault(t, verifyAudit(t, tx, operations.AuditHead{}), test.alone)
			expectFault(t, verifyAudit(t, tx, before.AuditHead), test.withHead)
		})
	}
	act(t, d.pool, "heal", nil)
	expectFault(t, verifyAudit(t, d.pool, before.AuditHead), "") // grown since
}

// expectFault compares the beginning of a fault, "" for none.
func expectFault(t *testing.T, v operations.AuditVerified, want string) {
	t.Helper()
	switch {
	case v.Fault == nil && want != "":
		t.Errorf("no fault is found, want %q", want)
	case v.Fault != nil && (want == "" || !strings.HasPrefix(v.Fault.Error(), want)):
		t.Errorf("the fault is %q, want %q", v.Fault, want)
	}
}

// Operators who act at the same time extend one chain.
func TestConcurrentActionsExtendOneChain(t *testing.T) {
	d := newDatabase(t)
	const operators, actions = 8, 5
	var all sync.WaitGroup
	for range operators {
		all.Go(func() {
			for i := range actions {
				act(t, d.pool, fmt.Sprint("heal ", i), nil)
			}
		})
	}
	all.Wait()
	if v := verifyAudit(t, d.pool, operations.AuditHead{}); v.Fault != nil || v.Count != 2*operators*actions {
		t.Errorf("the trail is %+v", v)
	}
}

// What remains after pruning can be verified from the pruned record on.
func TestPruneAudit(t *testing.T) {
	d := newDatabase(t)
	begin := func(id int, at string) {
		d.exec(t, `INSERT INTO badged.audit (id, at, who, via, action, arguments) OVERRIDING SYSTEM VALUE VALUES ($1, now() - $2::interval, 'ops', 'api', 'rebuild', '{}')`, id, at)
	}
	end := func(id int, at string) {
		d.exec(t, `INSERT INTO badged.audit_ends (audit_id, ended_at) VALUES ($1, now() - $2::interval)`, id, at)
	}
	begin(101, "9 days")
	end(101, "8 days")
	begin(102, "7 days")
	begin(103, "6 days")
	end(102, "5 days")
	end(103, "1 day")
	prune := func(age time.Duration) (operations.AuditHead, error) {
		return operations.PruneAudit(t.Context(), d.pool, ops, time.Now().Add(-age))
	}
	if _, err := prune(1000 * time.Hour); !errors.Is(err, operations.ErrNothingToPrune) {
		t.Errorf("with nothing to prune it fails with %v", err)
	}
	if _, err := prune(23 * time.Hour); !errors.Is(err, operations.ErrYoung) {
		t.Errorf("of the last day it fails with %v", err)
	}
	full := verifyAudit(t, d.pool, operations.AuditHead{})
	// Action 103 ended later, and 102 while it ran.
	start, err := prune(48 * time.Hour)
	if err != nil || start.Count != 2 {
		t.Fatalf("it prunes up to %+v, %v; want record 2", start, err)
	}
	v := verifyAudit(t, d.pool, full.AuditHead)
	if v.Fault != nil || v.Pruned != 2 || v.Count != 8 || v.Records != 6 {
		t.Errorf("afterwards the trail is %+v", v)
	}
	expectFault(t, verifyAudit(t, d.pool, start), "")
	expectFault(t, verifyAudit(t, d.pool, operations.AuditHead{Count: 2, Head: full.Head}), "record 2 of the audit trail was changed: it was pruned")
	if _, err := operations.VerifyAudit(t.Context(), d.pool, operations.AuditHead{Count: 1, Head: full.Head}); err == nil || !strings.Contains(err.Error(), "records up to 2 were pruned since: keep a newer one") {
		t.Errorf("with the head of a pruned record it fails with %v", err)
	}

	d.exec(t, `UPDATE badged.audit SET who = 'eve' WHERE number = 3`)
	var fault *operations.AuditFault
	if _, err := prune(25 * time.Hour); !errors.As(err, &fault) || fault.Record != 3 {
		t.Errorf("pruning a changed trail fails with %v", err)
	}
	var left int
	if err := d.pool.QueryRow(t.Context(), `SELECT count(*) FROM badged.audit`).Scan(&left); err != nil || left != 3 {
		t.Errorf("%d actions are left, %v; want 3", left, err)
	}
}
