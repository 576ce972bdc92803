package config

import (
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Outbox configures the database of a chat backend that has the outbox.
type Outbox struct {
	OutboxURL string `help:"The database of the chat backend, which has the outbox: a URL or key=value pairs, with one host or several." placeholder:"URL"`
}

// Validate implements kong's validation.
func (o Outbox) Validate() error {
	if o.OutboxURL == "" {
		return errors.New("--outbox-url (BADGED_OUTBOX_URL) is required: the database of the chat backend, such as postgres://user@localhost/chat")
	}
	return nil
}

// OutboxPoolConfig parses the URL, as [Database.PoolConfig] does.
func (o Outbox) OutboxPoolConfig() (*pgxpool.Config, error) {
	return poolConfig("--outbox-url (BADGED_OUTBOX_URL)", o.OutboxURL)
}

// Relay configures `badged relay`.
type Relay struct {
	Outbox       `embed:""`
	ProfileKeys  `embed:""`
	URL          string `name:"url" help:"URL of a running server to which the events are published." placeholder:"URL"`
	PublisherKey string `help:"Secret of a publisher's key, for --url." placeholder:"SECRET"`
	// DatabaseURL and Shards are the fields of Database. Database itself is not embedded, since its
	// validation requires one of the two fields, and a relay with --url has neither.
	DatabaseURL string   `help:"The database of badged, to append events directly, instead of --url." placeholder:"URL"`
	Shards      []string `name:"shard" env:"BADGED_SHARDS" sep:"\n" help:"One of several databases of badged, to append events directly, instead of --url: its name, and its URL or key=value pairs. Repeat the flag for each database. In the environment variable and the file, list all databases, one on each line or separated by commas." placeholder:"NAME=URL"`
}

// Database returns the databases of badged to append to directly, for a relay without URL.
func (r Relay) Database() Database { return Database{DatabaseURL: r.DatabaseURL, Shards: r.Shards} }

// Validate implements kong's validation.
func (r Relay) Validate() error {
	err := r.Outbox.Validate()
	direct := r.DatabaseURL != "" || len(r.Shards) > 0
	switch {
	case r.URL == "" && !direct:
		err = errors.Join(err, errors.New("a target is required: --url (BADGED_URL) with --publisher-key, --database-url (BADGED_DATABASE_URL), or --shard (BADGED_SHARDS) for each of several databases"))
	case r.URL != "" && direct:
		err = errors.Join(err, errors.New("--url (BADGED_URL) and --database-url (BADGED_DATABASE_URL) or --shard (BADGED_SHARDS) are two targets; give one"))
	case r.URL != "" && r.PublisherKey == "":
		err = errors.Join(err, errors.New("--url requires --publisher-key (BADGED_PUBLISHER_KEY)"))
	case direct:
		err = errors.Join(err, r.Database().Validate())
	}
	return err
}
