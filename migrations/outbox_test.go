package migrations_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/migrations"
)

func installOutbox(t *testing.T, cfg *pgx.ConnConfig) []migrations.Migration {
	t.Helper()
	applied, err := migrations.InstallOutbox(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return applied
}

// Installing an outbox twice applies its migrations once, and CheckOutbox compares its version.
func TestInstallOutbox(t *testing.T) {
	t.Parallel()
	cfg := emptyDatabase(t)
	if err := migrations.CheckOutbox(t.Context(), cfg); !errors.Is(err, migrations.ErrNoOutbox) {
		t.Errorf("a database without an outbox: %v", err)
	}
	if got, want := names(installOutbox(t, cfg)), []string{"1 00001_rules.sql", "2 00002_outbox.sql"}; cmp.Diff(want, got) != "" {
		t.Errorf("migrations %q", got)
	}
	if again := installOutbox(t, cfg); len(again) > 0 {
		t.Errorf("applied again: %v", again)
	}
	if err := migrations.CheckOutbox(t.Context(), cfg); err != nil {
		t.Error(err)
	}
	for version, want := range map[int]string{1: "needs 2; run `badged relay install`", 3: "install a newer badged"} {
		column(t, cfg, fmt.Sprintf(`UPDATE badged.outbox_migrations SET version_id = %d WHERE version_id = (SELECT max(version_id) FROM badged.outbox_migrations) RETURNING ''`, version))
		if err := migrations.CheckOutbox(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("version %d: %v", version, err)
		}
	}
}

// A database can have a log or an outbox, but not both: their functions have the same names.
func TestOutboxOrLog(t *testing.T) {
	t.Parallel()
	withLog, withOutbox := emptyDatabase(t), emptyDatabase(t)
	up(t, withLog, 1)
	installOutbox(t, withOutbox)
	if _, err := migrations.InstallOutbox(t.Context(), withLog); !errors.Is(err, migrations.ErrHasLog) {
		t.Errorf("an outbox beside a log: %v", err)
	}
	if err := migrations.CheckOutbox(t.Context(), withLog); !errors.Is(err, migrations.ErrHasLog) {
		t.Errorf("a relay from a log: %v", err)
	}
	if _, err := migrations.Up(t.Context(), migrations.Config{Conn: withOutbox}); err == nil || !strings.Contains(err.Error(), "the database has an outbox") {
		t.Errorf("a log beside an outbox: %v", err)
	}
}

// Every function of an outbox equals the function of the same name beside a log, except the
// two that publish. So both accept and refuse the same events. If this test fails, a migration
// has changed the rules, and must become a migration of the outbox too.
func TestOutboxHasTheRulesOfTheLog(t *testing.T) {
	t.Parallel()
	withLog, withOutbox := emptyDatabase(t), emptyDatabase(t)
	up(t, withLog, 1)
	installOutbox(t, withOutbox)
	const functions = `SELECT p.oid::regprocedure || ' ' || CASE WHEN proname LIKE 'publish%' THEN '' ELSE pg_get_functiondef(p.oid) END
FROM pg_proc AS p WHERE pronamespace = 'badged'::regnamespace ORDER BY 1`
	has := map[string]bool{}
	for _, f := range column(t, withLog, functions) {
		has[f] = true
	}
	of := column(t, withOutbox, functions)
	if len(of) < 20 {
		t.Errorf("the outbox has %d functions", len(of))
	}
	for _, f := range of {
		if !has[f] {
			t.Errorf("differs from the log's, or is unknown there: %s", f)
		}
	}
}
