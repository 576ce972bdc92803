package admin_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/admin"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/schematest"
	"github.com/badged/badged/projector"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

// partitions is the number of partitions of the test databases.
const partitions = 2

// database is a new, migrated database.
type database struct {
	pool *pgxpool.Pool
	log  *events.Log
}

func newDatabase(t *testing.T) *database {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(pgtest.NewDB(t, schematest.Migrated(partitions)))
	if err != nil {
		t.Fatal(err)
	}
	projector.ConfigurePool(cfg)
	cfg.MaxConns = 16
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	log, err := events.Open(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	return &database{pool, log}
}

func (d *database) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := d.pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

var ops = admin.Operator{Name: "ops", Via: admin.ViaAPI}

// trail returns the audit trail, newest first: who, action, arguments, end.
func (d *database) trail(t *testing.T) []string {
	t.Helper()
	entries, err := admin.Audit(t.Context(), d.pool, admin.Moment{}, 100)
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, e := range entries {
		end := "under way"
		if e.EndedAt != nil {
			end = string(e.Result)
		}
		if e.Error != nil {
			end += "failed: " + *e.Error
		}
		told = append(told, fmt.Sprintf("%s by %s: %s %s: %s", e.Via, e.Who, e.Action, e.Arguments, end))
	}
	return told
}

func TestAudited(t *testing.T) {
	d := newDatabase(t)
	errBroken := errors.New("it is broken")
	err := admin.Audited(t.Context(), d.pool, ops, "heal", map[string]int{"id": 1}, func(context.Context) (any, error) {
		if diff := cmp.Diff([]string{`api by ops: heal {"id":1}: under way`}, d.trail(t)); diff != "" { //nolint:contextcheck // the test's own
			t.Errorf("while it runs (-want +got):\n%s", diff)
		}
		return map[string]bool{"healed": true}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// If the action is interrupted, its end is recorded nevertheless.
	ctx, cancel := context.WithCancel(t.Context())
	err = admin.Audited(ctx, d.pool, admin.Operator{Name: "root", Via: admin.ViaCLI}, "heal", map[string]string{"user": "a\u2028\u0000"}, func(context.Context) (any, error) {
		cancel()
		return nil, errBroken
	})
	if !errors.Is(err, errBroken) {
		t.Errorf("it fails with %v", err)
	}
	if diff := cmp.Diff([]string{
		`cli by root: heal {"user":"a\u2028\u0000"}: failed: it is broken`,
		`api by ops: heal {"id":1}: {"healed":true}`,
	}, d.trail(t)); diff != "" {
		t.Errorf("the trail (-want +got):\n%s", diff)
	}
}

// An action that cannot be recorded does not run.
func TestUnrecordedActionsDoNotRun(t *testing.T) {
	d := newDatabase(t)
	d.exec(t, `ALTER TABLE badged.audit RENAME TO elsewhere`)
	err := admin.Audited(t.Context(), d.pool, ops, "heal", struct{}{}, func(context.Context) (any, error) {
		t.Error("it was done")
		return nil, nil //nolint:nilnil // nothing comes of it
	})
	if err == nil || !strings.Contains(err.Error(), "record heal in the audit trail; the action was not run") {
		t.Errorf("got error %v", err)
	}
}

func TestAuditPages(t *testing.T) {
	d := newDatabase(t)
	for i := range 5 {
		d.exec(t, `INSERT INTO badged.audit (who, via, action, arguments) VALUES ('ops', 'api', $1, '{}')`, fmt.Sprint(i))
	}
	var got []string
	for before := int64(0); ; {
		page, err := admin.Audit(t.Context(), d.pool, admin.Moment{ID: before}, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, e := range page {
			got = append(got, e.Action)
			before = e.ID
		}
	}
	if diff := cmp.Diff([]string{"4", "3", "2", "1", "0"}, got); diff != "" {
		t.Errorf("the pages (-want +got):\n%s", diff)
	}
}

func TestOSUser(t *testing.T) {
	if u := admin.OSUser(); u.Name == "" || u.Via != admin.ViaCLI {
		t.Errorf("it is %+v", u)
	}
}

// Pages are bounded in bytes, however large the entries are.
func TestAuditPagesAreBounded(t *testing.T) {
	d := newDatabase(t)
	for range 4 {
		d.exec(t, `INSERT INTO badged.audit (who, via, action, arguments) VALUES ('ops', 'api', 'deadletters.discard', json_build_object('payload', repeat('x', 3 << 20)))`)
	}
	before := int64(0)
	for _, want := range []int{2, 2, 0} {
		page, err := admin.Audit(t.Context(), d.pool, admin.Moment{ID: before}, 100)
		if err != nil || len(page) != want {
			t.Fatalf("before %d there are %d, %v, want %d", before, len(page), err, want)
		}
		for _, e := range page {
			before = e.ID
		}
	}
}
