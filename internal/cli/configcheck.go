package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kong"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/cli/connect"
	"github.com/badged/badged/internal/cli/terminal"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/pg/pgneeds"
	"github.com/badged/badged/internal/pg/pgsession"
	"github.com/badged/badged/internal/pg/pooler"
	"github.com/badged/badged/internal/server/app"
	"github.com/badged/badged/internal/server/config"
	"github.com/badged/badged/migrations"
	"github.com/badged/badged/pubsub"
)

type configCmd struct {
	Check configCheckCmd `cmd:"" help:"Report all mistakes in the settings of a server together, and the source of each setting."`
}

// configCheckCmd is `badged config check`. It parses its flags itself, since kong stops at the
// first mistake and the command must report all mistakes.
type configCheckCmd struct {
	Connect       bool `help:"Also connect to Postgres and Redis, and check that badged can work with them." env:"-"`
	JSON          bool `name:"json" help:"Print JSON." env:"-"`
	config.Server `embed:""`
	config.Log    `embed:""`
}

// configReport is the output of `badged config check`.
type configReport struct {
	config.Report
	// Found has the results of --connect.
	Found []finding `json:"found,omitempty"`
}

// finding is the result of one check of Postgres or Redis.
type finding struct {
	// State is "ok", "warning" or "failure".
	State string `json:"state"`
	Text  string `json:"text"`
}

const (
	isOK      = "ok"
	isRisk    = "warning"
	isFailure = "failure"
)

// asksForConfigCheck reports whether args run `badged config check`. It returns false if args ask
// for the help of this command.
func asksForConfigCheck(parser *kong.Kong, args []string) bool {
	traced, err := kong.Trace(parser, args)
	return err == nil && traced.Command() == "config check" && !slices.Contains(args, "--help") && !slices.Contains(args, "-h")
}

// run checks settings and prints the report. It returns exitUsage if a setting is wrong, and
// exitFailed if the settings are right but Postgres or Redis fails a check.
func (c *configCheckCmd) run(ctx context.Context, parser *kong.Kong, args []string, streams Streams) int {
	report := configReport{Report: config.Check(parser, args, &c.Server)}
	for _, err := range app.Check(c.Server) {
		report.Mistakes = append(report.Mistakes, oneLine(err))
	}
	report.Warnings = append(report.Warnings, app.LimitRisks(c.Server)...)
	if c.Connect {
		report.Found = lookAround(ctx, &c.Server)
	}
	if err := report.print(streams.Out, c.JSON); err != nil {
		say(streams.Err, err, "")
		return exitFailed
	}
	failures := 0
	for _, f := range report.Found {
		if f.State == isFailure {
			failures++
		}
	}
	switch {
	case len(report.Mistakes) > 0:
		say(streams.Err, errors.New(terminal.Counted(int64(len(report.Mistakes)), "mistake")+" in the settings: a server would not start, or not behave as intended"), "")
		return exitUsage
	case failures > 0:
		say(streams.Err, errors.New(terminal.Counted(int64(failures), "failed check")+" of Postgres and Redis"), "")
		return exitFailed
	}
	return exitDone
}

func (r *configReport) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return terminal.PrintJSON(w, r)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SETTING\tVALUE\tFROM")
	for _, s := range r.Settings {
		fmt.Fprintf(table, "%s\t%s\t%s\n", s.Name, s.Value, s.Source)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, part := range []struct {
		title string
		lines []string
	}{{"Mistakes", r.Mistakes}, {"Warnings", r.Warnings}} {
		if len(part.lines) > 0 {
			fmt.Fprintf(w, "\n%s:\n  %s\n", part.title, strings.Join(part.lines, "\n  "))
		}
	}
	if len(r.Found) > 0 {
		fmt.Fprintln(w)
	}
	for _, f := range r.Found {
		fmt.Fprintf(w, "%-8s %s\n", f.State, f.Text)
	}
	return nil
}

// lookTimeout limits the time to check each database, and the time to check Redis.
const lookTimeout = 10 * time.Second

// findings has the results in the order of the checks.
type findings []finding

func (f *findings) add(state, format string, args ...any) {
	*f = append(*f, finding{state, fmt.Sprintf(format, args...)})
}

// lookAround connects to Postgres and Redis as a server would, and checks them. It changes no data.
func lookAround(ctx context.Context, cfg *config.Server) []finding {
	var found findings
	databases, err := cfg.All()
	if err != nil || cfg.Database.Validate() != nil {
		databases = nil // already reported
	}
	failed := false
	of := make([]findings, len(databases))
	reached := make([]bool, len(databases))
	_ = connect.AtOnce(databases, func(i int, s config.NamedDatabase) error {
		timeout, cancel := context.WithTimeout(ctx, lookTimeout)
		defer cancel()
		reached[i] = of[i].postgres(timeout, cfg, s)
		return nil
	})
	var present config.Database
	for i, s := range databases {
		for _, f := range of[i] {
			failed = failed || f.State == isFailure
			found = append(found, finding{f.State, connect.Prefix(s.Name) + f.Text})
		}
		if reached[i] {
			present.Shards = append(present.Shards, s.Name+"="+s.URL)
		}
	}
	switch {
	case !cfg.Sharded() || len(present.Shards) == 0:
	case failed:
		found.names(ctx, present)
	default:
		found.cluster(ctx, cfg.Database)
	}
	if cfg.RedisURL != "" {
		timeout, cancel := context.WithTimeout(ctx, lookTimeout)
		found.redis(timeout, cfg.RedisURL)
		cancel()
	}
	return found
}

// names checks that the databases have the names in the configuration. It is called instead of the
// method cluster, which checks more, if a database is unavailable or has failed a check.
func (f *findings) names(ctx context.Context, present config.Database) {
	databases, err := connect.Separate(ctx, present, true)
	if err != nil {
		f.add(isFailure, "shards: %s", oneLine(err))
		return
	}
	connect.Close(databases)
}

// cluster checks that the databases form one cluster, and adds a finding with the partitions of
// each database.
func (f *findings) cluster(ctx context.Context, d config.Database) {
	c, err := connect.Databases(ctx, d, io.Discard) // the findings about each database have reported its version already
	if err != nil {
		f.add(isFailure, "shards: %s", oneLine(err))
		return
	}
	defer c.Close()
	for _, s := range c.Databases() {
		if len(s.Held()) == 0 {
			f.add(isOK, "shard %s: holds no partitions", s.Name)
		} else {
			f.add(isOK, "shard %s: holds %s", s.Name, cluster.Named(s.Held()))
		}
	}
}

func (f *findings) redis(ctx context.Context, url string) {
	p, err := pubsub.ProbeRedis(ctx, url)
	if p.Version != "" {
		sharded := "without sharded pub/sub"
		if p.Sharded {
			sharded = "with sharded pub/sub"
		}
		f.add(isOK, "Redis %s, %s, %s", p.Version, p.Mode, sharded)
	}
	if err != nil {
		f.add(isFailure, "Redis: %s", oneLine(err))
		return
	}
	if p.Version == "" {
		f.add(isOK, "Redis denies this user INFO, which a server does not need")
	}
	f.add(isOK, "Redis delivers messages")
}

// minPostgres is the oldest major version of Postgres that badged supports.
const minPostgres = 14

// postgres checks one database. It returns false if the database could not be reached.
func (f *findings) postgres(ctx context.Context, cfg *config.Server, s config.NamedDatabase) (reached bool) {
	pool, err := s.PoolConfig()
	if err != nil {
		return false // already reported
	}
	failed := func(err error) {
		f.add(isFailure, "Postgres: %s", strings.TrimSuffix(oneLine(err)+"; "+pgsession.Advice(err), "; "))
	}
	mode, err := pooler.Find(ctx, pool.ConnConfig)
	if err != nil {
		failed(err)
		return false
	}
	conn, err := pgx.ConnectConfig(ctx, pool.ConnConfig)
	if err != nil {
		failed(err)
		return false
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var version, user, database string
	var number int
	var standby bool
	if err := conn.QueryRow(ctx, `SELECT current_setting('server_version'), current_setting('server_version_num')::int / 10000,
       current_user, current_database(), pg_is_in_recovery()`).Scan(&version, &number, &user, &database, &standby); err != nil {
		f.add(isFailure, "Postgres: %s", oneLine(err))
		return true
	}
	if mode == pooler.Session {
		f.add(isOK, "Postgres is behind a session pooler: allow %d sessions for this process", cfg.PostgresConnections())
	}
	state := isOK
	if number < minPostgres {
		state = isFailure
	}
	f.add(state, "Postgres %s, database %s, role %s; version %d or later is needed", version, database, user, minPostgres)
	if standby {
		f.add(isFailure, "Postgres is a standby and cannot store events: add target_session_attrs=read-write to the URL, and name the other hosts in it")
	}
	if _, err := pgsession.AgreedNow(ctx, conn); err != nil {
		f.add(isFailure, "Postgres: %s", oneLine(err))
	}
	f.needs(ctx, conn)
	f.settings(ctx, conn, cfg, s)
	f.openTransactions(ctx, conn)
	if f.schema(ctx, conn, pool) {
		f.privileges(ctx, conn)
		if !cfg.Migrate && pgsession.CheckOwner(ctx, conn, "serve") == nil {
			f.add(isRisk, "privileges: the role %s has the rights of the schema's owner, so none of the limits of docs/postgres.md applies; serve as a role of kind server", user)
		}
	}
	return true
}

// needs checks whether the server has the features that badged needs. It tries each feature.
func (f *findings) needs(ctx context.Context, conn *pgx.Conn) {
	met := 0
	for _, n := range pgneeds.All() {
		switch err := n.Try(ctx, conn); {
		case errors.Is(err, pgneeds.ErrNotTried):
			f.add(isOK, "Postgres: the role lacks the privilege to test whether the server supports %s", n.Name)
		case err != nil:
			f.add(isFailure, "Postgres: the server does not support %s as badged needs it: %s", n.Name, oneLine(err))
		default:
			met++
		}
	}
	f.add(isOK, "Postgres: the server meets %s of badged, which docs/postgres.md lists", terminal.Counted(int64(met), "need"))
}

// settings checks the settings of Postgres that docs/postgres.md requires.
func (f *findings) settings(ctx context.Context, conn *pgx.Conn, cfg *config.Server, s config.NamedDatabase) {
	var fsync, fullPages, commit, readOnly, replication, damaged, checksums string
	var buffers int64
	if err := conn.QueryRow(ctx, `SELECT current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'),
       current_setting('default_transaction_read_only'), current_setting('session_replication_role'), current_setting('zero_damaged_pages'), current_setting('ignore_checksum_failure'),
       pg_size_bytes(current_setting('shared_buffers'))`).
		Scan(&fsync, &fullPages, &commit, &readOnly, &replication, &damaged, &checksums, &buffers); err != nil {
		f.add(isFailure, "Postgres: read its settings: %s", oneLine(err))
		return
	}
	if fsync != "on" || fullPages != "on" {
		f.add(isFailure, "fsync is %s and full_page_writes is %s: a crash may corrupt the database; set both to on", fsync, fullPages)
	}
	if commit == "off" {
		f.add(isRisk, "synchronous_commit is off: a crash of Postgres may lose events that publishers were told are durable")
	}
	if readOnly == "on" {
		f.add(isFailure, "default_transaction_read_only is on for this role or database: badged cannot store events")
	}
	if replication != "origin" {
		f.add(isFailure, "session_replication_role is %s for this role or database: triggers do not fire, so badged would miss what they record", replication)
	}
	if damaged == "on" || checksums == "on" {
		f.add(isRisk, "zero_damaged_pages is %s and ignore_checksum_failure is %s: damaged rows are lost or read without an error", damaged, checksums)
	}
	if buffers < 512<<20 {
		f.add(isRisk, "shared_buffers is %d MB: 512 MB or more folds up to twice as fast", buffers>>20)
	}
	if given, err := pgsession.Overridden(ctx, conn); err != nil {
		f.add(isFailure, "Postgres: %s", oneLine(err))
	} else if len(given) > 0 {
		f.add(isOK, "the database or the role sets %s: sessions of badged set these themselves, those of publishers and other programs have them", strings.Join(given, ", "))
	}
	f.connections(ctx, conn, cfg, s)
}

// connections compares the number of connections that a process may open with the limits of the
// database, the role and the server.
func (f *findings) connections(ctx context.Context, conn *pgx.Conn, cfg *config.Server, s config.NamedDatabase) {
	limits, err := pgsession.Limits(ctx, conn)
	if err != nil {
		f.add(isFailure, "Postgres: %s", oneLine(err))
		return
	}
	conns := cfg.Connections(s)
	for _, l := range limits {
		need, least := conns.Sum(), conns.Least().Sum()
		if l.Shared { // the limit of the server applies to all its databases together
			need, least = need*cfg.OnServer(s), least*cfg.OnServer(s)
		}
		switch {
		case l.Max < least:
			f.add(isFailure, "%s, but this process may open %d, and needs %d at least to fold: raise the limit (%s), or give the process fewer roles", l, need, least, l.Setting)
		case l.Max < need:
			f.add(isRisk, "%s, but this process may open %d: its pools will be smaller, and no connection is left for another process; raise the limit (%s), or set pool_max_conns in the database URL", l, need, l.Setting)
		default:
			f.add(isOK, "%s; this process may open %d: enough for %d such processes", l, need, l.Max/need)
		}
	}
}

// openTransactions adds a warning for each transaction that has been open for long.
func (f *findings) openTransactions(ctx context.Context, conn *pgx.Conn) {
	open, err := pgsession.OpenTransactions(ctx, conn, pgsession.StaysOpen)
	if err != nil {
		f.add(isFailure, "Postgres: %s", oneLine(err))
		return
	}
	for _, h := range open {
		if !h.Since.IsZero() { // zero: the start is unknown
			f.add(isRisk, "a transaction is open, and the log after it cannot be archived until it ends: %s, %s; %s", h, h.Open(), h.Remedy())
		}
	}
}

// schema checks that no migrations are pending and that the log can be opened. It returns
// whether the schema exists.
func (f *findings) schema(ctx context.Context, conn *pgx.Conn, cfg *pgxpool.Config) bool {
	state, err := migrations.StateOf(ctx, conn)
	if err != nil {
		f.add(isFailure, "schema: %s", oneLine(err))
		return false
	}
	if lacks := state.Lacks(); lacks != "" {
		var may bool
		if err := conn.QueryRow(ctx, `SELECT to_regnamespace('badged') IS NOT NULL OR has_database_privilege(current_database(), 'CREATE')`).Scan(&may); err == nil && !may {
			f.add(isRisk, "schema: %s may not create it: migrate as the owner of the database, or as a role with CREATE on it", conn.Config().User)
		}
		f.add(isFailure, "schema: %s; run `badged migrate up`, or serve with --migrate", lacks)
		return state.Version > 0
	}
	f.add(isOK, "schema: version %d is applied", state.Wanted)
	if state.Version > state.Wanted {
		f.add(isRisk, "schema: migration %d of a newer release is applied: finish the upgrade", state.Version)
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		f.add(isFailure, "log: %s", oneLine(err))
		return true
	}
	defer pool.Close()
	log, err := events.Open(ctx, pool)
	if err != nil {
		f.add(isFailure, "log: %s", oneLine(err))
		return true
	}
	f.add(isOK, "log: %d partitions", log.Partitions())
	return true
}

// privilegesSQL lists the privileges on tables that a server of badged needs and that the current
// role does not have.
const privilegesSQL = `SELECT n.privilege || ' on badged.' || c.relname
FROM pg_class AS c
JOIN (VALUES ('.', 'SELECT'),
    ('^events_p[0-9]+$', 'INSERT'), ('^events_p[0-9]+_offsets$', 'UPDATE'),
    ('^(users|conversations)_p[0-9]+$', 'INSERT'), ('^(users|conversations)_p[0-9]+$', 'UPDATE'),
    ('^dedup_(blocks|pages)_p[0-9]+$', 'INSERT'), ('^dedup_(blocks|pages)_p[0-9]+$', 'DELETE'), ('^(dedup_runs|partitions)$', 'UPDATE'),
    ('^(audit|audit_ends|dead_letters|dedup_filters|dedup_generations|dedup_runs|expiry_progress|jobs|healed_users|samples|settled_letters)$', 'INSERT'),
    ('^ingest_(positions|places)$', 'INSERT'), ('^ingest_(positions|places)$', 'UPDATE'),
    ('^timeline_ends$', 'INSERT'), ('^timeline_ends$', 'UPDATE'),
    ('^(dead_letters|dedup_filters|dedup_runs|expiry_progress|healed_users|jobs|samples)$', 'DELETE'),
    ('^revocations$', 'INSERT'), ('^revocations$', 'DELETE'), ('^revocation(s|_counter)$', 'UPDATE')) AS n (tables, privilege)
  ON c.relname ~ n.tables
WHERE c.relnamespace = 'badged'::regnamespace AND c.relkind IN ('r', 'p')
  AND c.relname NOT IN ('schema_migrations', 'granted_roles', 'log_home')
  AND NOT CASE n.privilege
      WHEN 'DELETE' THEN has_table_privilege(c.oid, 'DELETE')
      ELSE has_any_column_privilege(c.oid, n.privilege)
  END
ORDER BY c.relname, n.privilege`

func (f *findings) privileges(ctx context.Context, conn *pgx.Conn) {
	rows, err := conn.Query(ctx, privilegesSQL)
	if err != nil {
		f.add(isFailure, "privileges: %s", oneLine(err))
		return
	}
	missing, err := pgx.CollectRows(rows, pgx.RowTo[string])
	var usage bool
	var kind migrations.RoleKind // empty if the role got no kind by `migrate grant`, or may not read the table
	_ = conn.QueryRow(ctx, `SELECT kind FROM badged.granted_roles WHERE role = current_user`).Scan(&kind)
	if err == nil {
		err = conn.QueryRow(ctx, `SELECT has_schema_privilege('badged', 'USAGE')`).Scan(&usage)
	}
	switch {
	case err != nil:
		f.add(isFailure, "privileges: %s", oneLine(err))
		return
	case !usage:
		f.add(isFailure, "privileges: GRANT USAGE ON SCHEMA badged is missing")
	case len(missing) > 0 && kind != "" && kind != migrations.RoleServer:
		f.add(isFailure, "privileges: %s is a role of kind %s; serve as a role of kind server", conn.Config().User, kind)
	case len(missing) > 0:
		f.add(isFailure, "privileges: %s missing, such as %s: run `badged migrate grant server %s` as the owner of the schema",
			terminal.Counted(int64(len(missing)), "privilege"), missing[0], conn.Config().User)
	default:
		f.add(isOK, "privileges: the role has all privileges that serving needs")
	}
}
