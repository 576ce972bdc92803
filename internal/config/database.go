package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Database configures the database.
type Database struct {
	DatabaseURL string `help:"Postgres, as pgx understands it: a URL or key=value pairs; several hosts may be given." placeholder:"URL"`
}

// Validate implements kong's validation.
func (d Database) Validate() error {
	if d.DatabaseURL == "" {
		return errors.New("--database-url (BADGED_DATABASE_URL) is required, such as postgres://user@localhost/chat")
	}
	return nil
}

// PoolConfig parses the URL, which may hold settings of pgxpool (pool_…) and
// pgx. Its error holds no secrets.
func (d Database) PoolConfig() (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(d.DatabaseURL)
	if err != nil {
		return nil, fmt.Errorf("--database-url (BADGED_DATABASE_URL): %s; want a URL such as "+
			"postgres://user:password@localhost:5432/chat (special characters of the password as %%XX), "+
			"or pairs such as host=localhost dbname=chat", reasonOf(err))
	}
	return cfg, nil
}

// reasonOf returns the reason of a pgx error without its quotes from the URL: in
// a malformed URL the password cannot be located.
func reasonOf(err error) string {
	const quotes, unknown = "`\"'", "cannot be read"
	text := err.Error()
	end := strings.LastIndex(text, "`: ") // of the URL
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
