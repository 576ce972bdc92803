package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/internal/pg/pgsession"
)

// MistakeError means that the command line or a setting is wrong, so that the same command fails
// again. It is for mistakes that a command finds while it runs; the method Validate of a command
// returns its errors without this type.
type MistakeError struct{ Err error }

// Error implements error.
func (e *MistakeError) Error() string { return e.Err.Error() }

// Unwrap returns the error that says what is wrong.
func (e *MistakeError) Unwrap() error { return e.Err }

// Mistake returns a [*MistakeError]. Its arguments are as of [fmt.Errorf].
func Mistake(format string, args ...any) error { return &MistakeError{fmt.Errorf(format, args...)} }

// Database configures the database, or several databases that share the partitions.
type Database struct {
	DatabaseURL string   `help:"The database, in a form that pgx understands: a URL or key=value pairs, with one host or several." placeholder:"URL"`
	Shards      []string `name:"shard" env:"BADGED_SHARDS" sep:"\n" help:"One of several databases that share the partitions, instead of --database-url: its name, and its URL or key=value pairs. Repeat the flag for each database. In the environment variable and the file, list all databases, one on each line or separated by commas." placeholder:"NAME=URL"`
}

// NamedDatabase is a database and its name.
type NamedDatabase struct {
	// Name is "" for the database of --database-url.
	Name string
	// URL is a URL or key=value pairs, as pgx accepts them.
	URL string
}

// Validate implements kong's validation.
func (d Database) Validate() error {
	switch {
	case d.DatabaseURL == "" && len(d.Shards) == 0:
		return errors.New("--database-url (BADGED_DATABASE_URL) is required, such as postgres://user@localhost/chat; or --shard (BADGED_SHARDS) for each of several databases")
	case d.DatabaseURL != "" && len(d.Shards) > 0:
		return errors.New("--database-url (BADGED_DATABASE_URL) and --shard (BADGED_SHARDS) exclude each other: name each of several databases with --shard")
	}
	_, err := d.All()
	return err
}

// Sharded reports whether --shard is set.
func (d Database) Sharded() bool { return len(d.Shards) > 0 }

var (
	shardName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)
	// nextShard matches the separator between two shards, and the name of the second shard. A comma
	// alone is not a separator, since URLs contain commas.
	nextShard = regexp.MustCompile(`\s*[,\n]\s*([A-Za-z0-9][A-Za-z0-9_-]{0,62}=)`)
)

// All returns the databases of --shard in the order given, or the database of --database-url.
func (d Database) All() ([]NamedDatabase, error) {
	if !d.Sharded() {
		return []NamedDatabase{{URL: d.DatabaseURL}}, nil
	}
	var all []NamedDatabase
	seen := map[string]bool{}
	for _, given := range strings.Split(nextShard.ReplaceAllString(strings.Join(d.Shards, "\n"), "\n$1"), "\n") {
		if given = strings.Trim(given, ", \t\r"); given == "" {
			continue
		}
		name, url, ok := strings.Cut(given, "=")
		switch {
		case !ok || !shardName.MatchString(name):
			return nil, fmt.Errorf("--shard (BADGED_SHARDS): item %d must be NAME=URL, such as a=postgres://user@localhost/chat; a name has up to 63 letters, digits, - and _", len(all)+1)
		case url == "":
			return nil, fmt.Errorf("--shard %s= (BADGED_SHARDS) has no URL", name)
		case seen[name]:
			return nil, fmt.Errorf("--shard %s (BADGED_SHARDS) is given twice", name)
		}
		seen[name] = true
		if _, err := (NamedDatabase{name, url}).PoolConfig(); err != nil {
			return nil, err
		}
		all = append(all, NamedDatabase{name, url})
	}
	return all, nil
}

// PoolConfig parses --database-url as [NamedDatabase.PoolConfig] does. It fails if there are several
// databases.
func (d Database) PoolConfig() (*pgxpool.Config, error) {
	if d.Sharded() {
		return nil, errors.New("this command works on one database: give --database-url of one shard instead of --shard")
	}
	return NamedDatabase{URL: d.DatabaseURL}.PoolConfig()
}

// PoolConfig parses the URL, which may contain settings of pgxpool (pool_…) and of pgx. Its
// errors do not show secrets.
func (s NamedDatabase) PoolConfig() (*pgxpool.Config, error) {
	if s.Name == "" {
		return poolConfig(s.flag()+" (BADGED_DATABASE_URL)", s.URL)
	}
	cfg, err := poolConfig(s.flag()+" (BADGED_SHARDS)", s.URL)
	if err == nil && cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = shardPatience
	}
	return cfg, err
}

// flag returns the flag that gives the URL.
func (s NamedDatabase) flag() string {
	if s.Name == "" {
		return "--database-url"
	}
	return "--shard " + s.Name
}

// shardPatience is the default timeout for connecting to one of several shards. It is short, since
// a shard that is unavailable must not delay the start: the process serves the other shards
// meanwhile.
const shardPatience = 5 * time.Second

func poolConfig(setting, text string) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(text)
	if err != nil {
		return nil, Mistake("%s: %s; want a URL such as "+
			"postgres://user:password@localhost:5432/chat (special characters of the password as %%XX), "+
			"or pairs such as host=localhost dbname=chat", setting, reasonOf(err))
	}
	if err := renewPassword(cfg.ConnConfig, text); err != nil {
		return nil, fmt.Errorf("%s: %w", setting, err)
	}
	pgsession.Configure(cfg.ConnConfig)
	return cfg, nil
}

// ServerOf returns the hosts and ports in a URL, in the order of the URL, as
// HOST:PORT,HOST:PORT.
func ServerOf(cfg *pgxpool.Config) string {
	server := fmt.Sprintf("%s:%d", cfg.ConnConfig.Host, cfg.ConnConfig.Port)
	for _, f := range cfg.ConnConfig.Fallbacks {
		server += fmt.Sprintf(",%s:%d", f.Host, f.Port)
	}
	return server
}

// OnServer returns how many of the databases, including s, are on the same server as s. It
// compares the hosts and ports in their URLs.
func (d Database) OnServer(s NamedDatabase) int {
	all, err := d.All()
	if err != nil {
		return 1
	}
	own, err := s.PoolConfig()
	if err != nil {
		return 1
	}
	n := 0
	for _, other := range all {
		if cfg, err := other.PoolConfig(); err == nil && ServerOf(cfg) == ServerOf(own) {
			n++
		}
	}
	return max(1, n)
}

// leastConns is the smallest size of a pool, unless the URL sets a smaller size.
const leastConns = 3

// PoolSize returns the maximum size of a pool to s. If the URL of s sets pool_max_conns, PoolSize
// returns that. Otherwise it divides `limit` by the number of databases on the same server, since
// these databases share max_connections of the server. The result is at least leastConns, or
// `limit` if that is less.
func (d Database) PoolSize(s NamedDatabase, limit int32) int32 {
	if limit < leastConns {
		return limit
	}
	if strings.Contains(s.URL, "pool_max_conns") {
		if cfg, err := s.PoolConfig(); err == nil {
			return cfg.MaxConns
		}
	}
	return max(limit/int32(d.OnServer(s)), min(limit, leastConns)) //nolint:gosec // there are few databases
}

// Label names the database in messages: "shard b" or "database".
func (s NamedDatabase) Label() string {
	if s.Name == "" {
		return "database"
	}
	return "shard " + s.Name
}

// reasonOf returns the reason in an error of pgx, without the part that quotes the URL. The quoted
// URL may contain the password, which cannot be located if the URL is malformed.
func reasonOf(err error) string {
	const quotes, unknown = "`\"'", "cannot be read"
	text := err.Error()
	end := strings.LastIndex(text, "`: ") // the end of the quoted URL
	if end < 0 {
		return unknown
	}
	reason := text[end+len("`: "):]
	if strings.ContainsAny(reason, quotes) {
		reason, _, _ = strings.Cut(reason, " (")
	}
	if strings.ContainsAny(reason, quotes) {
		return unknown
	}
	return reason
}
