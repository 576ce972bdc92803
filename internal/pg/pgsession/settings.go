package pgsession

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Setting is a setting of a session. Value has the syntax of the value in SET, for example 'ISO,
// YMD' with the quotes.
type Setting struct{ Name, Value string }

// Settings returns the settings on which badged depends. Each session sets them, since the
// database or the role may set other values. The values are the defaults of Postgres, except
// where a comment gives a reason.
//
// Operators may choose all other settings: settings that only affect resources, such as work_mem
// and random_page_cost, and the settings of commits: synchronous_commit and
// default_transaction_read_only.
func Settings() []Setting {
	all := []Setting{
		{"statement_timeout", "0"}, // first, since a short timeout could end the other statements
		// Statements qualify the names of tables, so the path needs only the schema of built-in
		// functions. With this path, no other schema can hide the built-in functions.
		{"search_path", "pg_catalog, pg_temp"},
		// These settings control how values are written as text, and how text is parsed.
		{"client_encoding", "'UTF8'"},
		{"bytea_output", "hex"},
		{"DateStyle", "'ISO, YMD'"}, // so that the order of day and month is unambiguous
		{"IntervalStyle", "postgres"},
		{"TimeZone", "'UTC'"}, // the default depends on the server
		{"timezone_abbreviations", "'Default'"},
		{"extra_float_digits", "1"},
		{"standard_conforming_strings", "on"},
		{"backslash_quote", "safe_encoding"},
		{"array_nulls", "on"},
		{"transform_null_equals", "off"},
		{"quote_all_identifiers", "off"},
		// These settings control what transactions see, and how long they may take. Where badged
		// needs time limits, it sets its own.
		{"default_transaction_isolation", "'read committed'"},
		{"default_transaction_deferrable", "off"},
		{"lock_timeout", "0"},
		{"idle_in_transaction_session_timeout", "0"},
		{"idle_session_timeout", "0"},
		{"exit_on_error", "off"},
		{"client_min_messages", "notice"},
		// Plans. JIT compilation of a plan takes a tenth of a second.
		{"jit", "off"},
		// Parallel workers would take processors from appends, which are more urgent.
		{"max_parallel_workers_per_gather", "0"},
		{"plan_cache_mode", "auto"},
		{"constraint_exclusion", "partition"},
		{"geqo", "off"}, // no statement joins enough tables to need it
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

// newerSQL sets settings that only some supported releases of Postgres have. It skips the
// settings that the server does not have.
const newerSQL = `SELECT count(set_config(name, value, false))
FROM (VALUES ('transaction_timeout', '0'), ('restrict_nonsystem_relation_kind', ''), ('force_parallel_mode', 'off'), ('debug_parallel_query', 'off')) AS v (name, value)
WHERE current_setting(name, true) IS NOT NULL`

// Configure makes the sessions of cfg independent of the settings of the database and the role:
// each new session first sets [Settings] and then the settings in `others`. It uses statements,
// because poolers refuse startup parameters. Configure replaces cfg.AfterConnect. If cfg checks new
// connections with ValidateConnect, set ValidateConnect before calling Configure: then the settings
// are set before the check runs.
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

// givenSQL lists the settings of the database, the role, or the role in the database.
const givenSQL = `SELECT given FROM pg_db_role_setting, unnest(setconfig) AS given
WHERE setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
  AND setrole IN (0, (SELECT oid FROM pg_roles WHERE rolname = session_user))
ORDER BY given`

// Overridden returns the settings of the session's database and role that [Configure] overrides,
// for example "bytea_output=escape".
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
