package pgsession

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Setting is a setting of a session. Its value is as SET takes it, such as 'ISO, YMD' in
// quotes.
type Setting struct{ Name, Value string }

// Settings returns the settings that badged depends on, which a database or a role may have
// others of. They are Postgres's defaults, except where a comment says why not.
//
// What only costs or saves resources is left to operators, such as work_mem and
// random_page_cost, and so are synchronous_commit and default_transaction_read_only,
// with which they choose what a commit means.
func Settings() []Setting {
	all := []Setting{
		{"statement_timeout", "0"}, // first: the others take time
		// Names are qualified; nothing may take the place of built-in functions.
		{"search_path", "pg_catalog, pg_temp"},
		// Texts of values, and how texts are read.
		{"client_encoding", "'UTF8'"},
		{"bytea_output", "hex"},
		{"DateStyle", "'ISO, YMD'"}, // no order of day and month to guess
		{"IntervalStyle", "postgres"},
		{"TimeZone", "'UTC'"}, // of any server
		{"timezone_abbreviations", "'Default'"},
		{"extra_float_digits", "1"},
		{"standard_conforming_strings", "on"},
		{"backslash_quote", "safe_encoding"},
		{"array_nulls", "on"},
		{"transform_null_equals", "off"},
		{"quote_all_identifiers", "off"},
		// What transactions see, and how long they may take. badged limits its own.
		{"default_transaction_isolation", "'read committed'"},
		{"default_transaction_deferrable", "off"},
		{"lock_timeout", "0"},
		{"idle_in_transaction_session_timeout", "0"},
		{"idle_session_timeout", "0"},
		{"exit_on_error", "off"},
		{"client_min_messages", "notice"},
		// Plans. Compiling one takes a tenth of a second.
		{"jit", "off"},
		// Parallel workers would take processors from appends, which are more urgent.
		{"max_parallel_workers_per_gather", "0"},
		{"plan_cache_mode", "auto"},
		{"constraint_exclusion", "partition"},
		{"geqo", "off"}, // no statement joins as many tables as it is for
		{"from_collapse_limit", "8"},
		{"join_collapse_limit", "8"},
		{"cursor_tuple_fraction", "0.1"},
	}
	for _, method := range []string{
		"bitmapscan", "gathermerge", "hashagg", "hashjoin", "incremental_sort", "indexonlyscan", "indexscan", "material",
		"memoize", "mergejoin", "nestloop", "partition_pruning", "seqscan", "sort", "tidscan",
	} {
		all = append(all, Setting{"enable_" + method, "on"})
	}
	return all
}

// newerSQL does the same with settings that not every release of Postgres has.
const newerSQL = `SELECT count(set_config(name, value, false))
FROM (VALUES ('transaction_timeout', '0'), ('restrict_nonsystem_relation_kind', ''), ('force_parallel_mode', 'off'), ('debug_parallel_query', 'off')) AS v (name, value)
WHERE current_setting(name, true) IS NOT NULL`

// Configure makes the sessions of cfg independent of the settings of the database and the
// role: each begins with [Settings], and then has the others given. It replaces
// AfterConnect. If cfg checks new connections, call Configure afterwards: the settings then
// come before the checks. It runs statements because poolers refuse startup parameters.
func Configure(cfg *pgx.ConnConfig, others ...Setting) {
	var text strings.Builder
	for _, s := range append(Settings(), others...) {
		fmt.Fprintf(&text, "SET %s = %s; ", s.Name, s.Value)
	}
	text.WriteString(newerSQL)
	set := func(ctx context.Context, conn *pgconn.PgConn) error {
		if err := conn.Exec(ctx, text.String()).Close(); err != nil {
			return fmt.Errorf("set up the session: %w", err)
		}
		return nil
	}
	check := cfg.ValidateConnect
	if check == nil {
		cfg.AfterConnect = set
		return
	}
	cfg.AfterConnect = nil
	cfg.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if err := set(ctx, conn); err != nil {
			return err
		}
		return check(ctx, conn)
	}
}

// givenSQL lists what the database, the role, or the role in the database sets.
const givenSQL = `SELECT given FROM pg_db_role_setting, unnest(setconfig) AS given
WHERE setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
  AND setrole IN (0, (SELECT oid FROM pg_roles WHERE rolname = session_user))
ORDER BY given`

// Overridden returns what the database and the role of a session set, and sessions that
// were set up by [Configure] do not have, such as "bytea_output=escape".
func Overridden(ctx context.Context, conn *pgx.Conn) ([]string, error) {
	rows, _ := conn.Query(ctx, givenSQL)
	given, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("read the settings of the database and the role: %w", err)
	}
	return slices.DeleteFunc(given, func(setting string) bool {
		name, _, _ := strings.Cut(setting, "=")
		return !strings.Contains(newerSQL, "('"+name+"'") &&
			!slices.ContainsFunc(Settings(), func(s Setting) bool { return strings.EqualFold(s.Name, name) })
	}), nil
}
