package relay

import (
	"context"
	"crypto/tls"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/internal/pg/pgfault"
	"github.com/badged/badged/internal/pg/pgsession"
	"github.com/badged/badged/internal/pg/sqlfile"
	"github.com/badged/badged/migrations"
)

//go:embed relay.sql
var statementsText string

var statements = sqlfile.Parse(statementsText)

// Outbox is the outbox of a database. It is safe for concurrent use.
type Outbox struct {
	pool *pgxpool.Pool
}

// OpenOutbox connects to the outbox of a database. It returns the errors of [Outbox.Check].
func OpenOutbox(ctx context.Context, cfg *pgxpool.Config) (*Outbox, error) {
	o, err := NewOutbox(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := o.Check(ctx); err != nil {
		o.Close()
		return nil, err
	}
	return o, nil
}

// NewOutbox returns the outbox of a database, without connecting. A connection attempt times out
// after 5s unless cfg sets another timeout.
func NewOutbox(ctx context.Context, cfg *pgxpool.Config) (*Outbox, error) {
	cfg = cfg.Copy()
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, statements.Get("set up a session"))
		return err
	}
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = "badged relay"
	}
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = 5 * time.Second
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to the outbox: %w", err)
	}
	return &Outbox{pool}, nil
}

// Check returns an error if the database has no outbox, if the outbox has another version than this
// program needs, or if the role lacks the privileges to carry events. If the database cannot be
// reached, [Away] recognizes the error.
func (o *Outbox) Check(ctx context.Context) error {
	conn := o.pool.Config().ConnConfig
	if err := migrations.CheckOutbox(ctx, conn); err != nil {
		return explained(err, conn.User)
	}
	var role string
	var may bool
	if err := o.pool.QueryRow(ctx, statements.Get("check rights")).Scan(&role, &may); err != nil {
		return fmt.Errorf("check the rights on the outbox: %w", explained(err, conn.User))
	}
	if !may {
		return lacksRights(role)
	}
	return nil
}

// Away reports whether an error means that the database is unavailable at present. It returns
// false for a refused login, such as a wrong password, and for an untrusted TLS certificate.
func Away(err error) bool {
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	f := pgfault.FaultOf(err)
	return !untrusted && f != pgfault.None && !f.OfLogin()
}

// explained adds advice to an error about missing privileges: the command that grants the
// privileges to the role.
func explained(err error, role string) error {
	const insufficientPrivilege = "42501"
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == insufficientPrivilege {
		return fmt.Errorf("%w (%s)", lacksRights(role), pgErr.Message)
	}
	return err
}

func lacksRights(role string) error {
	return fmt.Errorf("role %s may not read and delete the events of the outbox; as the owner of its schema run `badged relay install --relay-role %s`", role, role)
}

// Close closes the connections.
func (o *Outbox) Close() { o.pool.Close() }

// Pool returns the connections to the database.
func (o *Outbox) Pool() *pgxpool.Pool { return o.pool }

// maxCounted is the number of events in the outbox at which counting stops.
const maxCounted = 1_000_000

// Backlog describes the events in an outbox.
type Backlog struct {
	// Events is the number of events to carry, at most a million, because counting stops there.
	Events int64
	// Age is the age of the oldest event, 0 if there is none.
	Age time.Duration
	// Refused is the number of events that badged refused, and that were moved to
	// badged.outbox_refused.
	Refused int64
}

// Backlog measures the outbox.
func (o *Outbox) Backlog(ctx context.Context) (b Backlog, err error) {
	var seconds float64
	if err := o.pool.QueryRow(ctx, statements.Get("measure"), maxCounted).Scan(&b.Events, &seconds, &b.Refused); err != nil {
		return b, fmt.Errorf("measure the outbox: %w", err)
	}
	b.Age = time.Duration(seconds * float64(time.Second))
	return b, nil
}

// Carrier returns the application name of the process that carries events now, "" if no process
// does.
func (o *Outbox) Carrier(ctx context.Context) (name string, err error) {
	var pid int
	err = o.pool.QueryRow(ctx, pgsession.OwnerSQL, lockClass, 0).Scan(&pid, &name)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look for the relay: %w", err)
	}
	return name, nil
}

// Refusal is an event that badged has refused.
type Refusal struct {
	Offset    int64     `json:"offset"`
	RefusedAt time.Time `json:"refused_at"`
	Reason    string    `json:"reason"`
	Payload   string    `json:"payload"`
}

// Refusals returns up to limit refused events, the newest first.
func (o *Outbox) Refusals(ctx context.Context, limit int) ([]Refusal, error) {
	rows, _ := o.pool.Query(ctx, statements.Get("list refusals"), limit)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Refusal])
	if err != nil {
		return nil, fmt.Errorf("read the refused events: %w", err)
	}
	return all, nil
}

// Retry moves all refused events back to the end of the outbox and returns their number.
func (o *Outbox) Retry(ctx context.Context) (int64, error) {
	done, err := o.pool.Exec(ctx, statements.Get("retry refusals"))
	if err != nil {
		return 0, fmt.Errorf("retry the refused events: %w", explained(err, o.pool.Config().ConnConfig.User))
	}
	return done.RowsAffected(), nil
}
