package operations_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/schematest"
	"github.com/badged/badged/internal/operations"
	"github.com/badged/badged/projector"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

// partitions is the number of partitions of the test databases.
const partitions = 2

// database is a new, migrated database.
type database struct {
	pool       *pgxpool.Pool
	log        *events.Log
	cluster    *cluster.Cluster
	operations *operations.Operations
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
	dbs, err := cluster.Open(t.Context(), cluster.Config{Databases: []cluster.Candidate{{Pool: pool}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dbs.Close)
	return &database{pool, dbs.Databases()[0].Log, dbs, operations.New(operations.Config{Cluster: dbs, Process: "host/1", Interval: time.Millisecond})}
}

func (d *database) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := d.pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

var ops = operations.Operator{Name: "ops", Via: operations.ViaAPI}

// trail returns the audit trail, newest first: who, action, arguments, end.
func (d *database) trail(t *testing.T) []string {
	t.Helper()
	entries, err := d.operations.Audit(t.Context(), 0, 100)
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
	err := operations.Audited(t.Context(), d.pool, ops, "heal", map[string]int{"id": 1}, func(context.Context) (any, error) {
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
	err = operations.Audited(ctx, d.pool, operations.Operator{Name: "root", Via: operations.ViaCLI}, "heal", map[string]string{"user": "a\u2028\u0000"}, func(context.Context) (any, error) {
		cancel()
		return nil, errBroken
	})
	if !errors.Is(err, errBroken) {
		t.Errorf("it fails with %v", err)
	}
	if diff := cmp.Diff([]string{
		`cli by root: heal {"user":"a\u2028\ufffd"}: failed: it is broken`,
		`api by ops: heal {"id":1}: {"healed":true}`,
	}, d.trail(t)); diff != "" {
		t.Errorf("the trail (-want +got):\n%s", diff)
	}
}

// An action that cannot be recorded does not run.
func TestUnrecordedActionsDoNotRun(t *testing.T) {
	d := newDatabase(t)
	d.exec(t, `ALTER TABLE badged.audit RENAME TO elsewhere`)
	err := operations.Audited(t.Context(), d.pool, ops, "heal", struct{}{}, func(context.Context) (any, error) {
		t.Error("it was done")
		return nil, nil //nolint:nilnil // nothing comes of it
	})
	if err == nil || !strings.Contains(err.Error(), "record heal in the audit trail; the action was not run") {
		t.Errorf("got error %v", err)
	}
}

func TestOSUser(t *testing.T) {
	if u := operations.OSUser(); u.Name == "" || u.Via != operations.ViaCLI {
		t.Errorf("it is %+v", u)
	}
}
