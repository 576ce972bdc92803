package ways

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/notify/outbound"
	"github.com/badged/badged/internal/server/app"
	"github.com/badged/badged/internal/server/config"
	"github.com/badged/badged/migrations"
	"github.com/badged/badged/tests/bench/load"
	"github.com/badged/badged/tests/bench/measure"
	"github.com/badged/badged/tests/bench/rig"
	"github.com/badged/badged/tests/bench/stream"
)

// asEvents returns events as a chat backend would publish them.
func asEvents(evs []stream.Event) []events.Event {
	all := make([]events.Event, len(evs))
	for i, e := range evs {
		all[i] = events.Event{
			ID: e.ID(), Source: "bench", Type: events.MessageDelivered,
			Data: events.Data{ConversationID: e.ConversationID(), UserIDs: []string{e.UserID()}},
		}
		if e.Read {
			all[i].Type, all[i].Data.UpToSeq = events.ConversationRead, e.Seq
		} else {
			all[i].Data.Seq, all[i].Data.SenderID = e.Seq, "somebody"
		}
	}
	return all
}

// Embedded is a server with all roles in this process. Events are appended to its log directly, so that
// a profile includes the server and the cost of HTTP is excluded.
type Embedded struct {
	*metered
	log  *events.Log
	pool *pgxpool.Pool
	wake func(partitions []int)
	end  func(ctx context.Context) error
}

// NewEmbedded starts the server on a new database.
func NewEmbedded(ctx context.Context, r *rig.Rig) (*Embedded, error) {
	url, drop, err := r.Database(ctx)
	if err != nil {
		return nil, err
	}
	e, err := Embed(ctx, url)
	if err != nil {
		return nil, errors.Join(err, drop(ctx))
	}
	end := e.end
	e.end = func(ctx context.Context) error { return errors.Join(end(ctx), drop(ctx)) }
	return e, nil
}

// Embed starts the server on a database. Closing it keeps the database.
func Embed(ctx context.Context, database string) (_ *Embedded, err error) {
	poolConfig, err := pgx.ParseConfig(database)
	if err != nil {
		return nil, err
	}
	if _, err := migrations.Up(ctx, migrations.Config{Conn: poolConfig}); err != nil {
		return nil, err
	}
	pool, err := pgxpool.New(ctx, database)
	if err != nil {
		return nil, err
	}
	l, err := app.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		pool.Close()
		return nil, err
	}
	// The intervals are those of `badged serve` by default.
	a, err := app.Open(ctx, config.Server{
		Database: config.Database{DatabaseURL: database}, Tokens: config.Tokens{JWTKeys: []string{rig.JWTKeys}},
		Roles:         []config.Role{config.RoleAPI, config.RoleProjector, config.RoleGateway, config.RoleNotifier},
		PublisherKeys: []string{"backend=" + rig.PublisherKey}, ReconcileInterval: 30 * time.Second, DrainTimeout: 5 * time.Second,
		VerifyInterval: time.Minute, VerifySample: 10, DedupWindow: 14 * 24 * time.Hour,
	}, l, slog.New(slog.DiscardHandler))
	if err != nil {
		pool.Close()
		return nil, errors.Join(err, l.Close())
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- a.Run(running, func() { close(ready) }) }()
	e := &Embedded{
		metered: &metered{API: load.NewAPI("http://"+l.Addr().String(), 2)}, log: a.Log(), wake: a.Wake, pool: pool,
		end: func(context.Context) error {
			stop()
			err := <-ended
			a.Close()
			pool.Close()
			if closed := l.Close(); !errors.Is(closed, net.ErrClosed) { // the server may have
				err = errors.Join(err, closed)
			}
			return err
		},
	}
	<-ready
	return e, nil
}

// Apply publishes events to the log.
func (e *Embedded) Apply(ctx context.Context, evs []stream.Event) error {
	batch := asEvents(evs)
	if err := e.await(ctx, ahead); err != nil {
		return err
	}
	receipt, err := e.log.Append(ctx, batch...)
	if err != nil {
		return err
	}
	e.published.Add(int64(len(batch))) // each event has one user, so it is one row
	e.wake(receipt.Partitions)
	return nil
}

// stored implements keeper: the disk space of the log and of the keys of events, with indexes.
func (e *Embedded) stored(ctx context.Context) (bytes int64, err error) {
	err = e.pool.QueryRow(ctx, `SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class AS c
WHERE c.relnamespace = 'badged'::regnamespace AND c.relkind = 'r' AND (c.relname ~ '^events_p[0-9]+_r[0-9]+$' OR c.relname LIKE 'dedup%')`).Scan(&bytes)
	return bytes, err
}

// RegisterDevices registers a device in every partition, for users without events.
func (e *Embedded) RegisterDevices(ctx context.Context) error {
	targets := outbound.NewTargets(e.pool, e.log)
	var strangers []string
	for i := range 100 * e.log.Partitions() { // more than enough
		strangers = append(strangers, fmt.Sprint("stranger ", i))
	}
	for _, user := range load.Witnesses(strangers, e.log.Partitions()) {
		if _, err := targets.PutDevice(ctx, outbound.Registration{
			UserID: user, DeviceID: "phone", App: "bench", Platform: "fcm", Shows: outbound.ShowsTotal,
			Token: []byte(user), Fingerprint: []byte(user),
		}); err != nil {
			return err
		}
	}
	return nil
}

// Close stops the server.
func (e *Embedded) Close(ctx context.Context) error {
	e.API.Close()
	return e.end(ctx)
}

// Remote is the binary. Events are published over HTTP.
type Remote struct {
	*metered
	deployment *rig.Deployment
}

// NewRemote starts the binary on new databases.
func NewRemote(ctx context.Context, r *rig.Rig, c rig.Deploy, connections int) (*Remote, error) {
	d, err := r.Deploy(ctx, c)
	if err != nil {
		return nil, err
	}
	return &Remote{&metered{API: load.NewAPI(d.API, connections+1)}, d}, nil
}

// Apply publishes events in one request.
func (r *Remote) Apply(ctx context.Context, evs []stream.Event) error {
	if err := r.await(ctx, ahead); err != nil {
		return err
	}
	if _, err := r.Publish(ctx, asEvents(evs)...); err != nil {
		return err
	}
	r.published.Add(int64(len(evs)))
	return nil
}

// Close stops the binary and drops its databases.
func (r *Remote) Close(ctx context.Context) error {
	r.API.Close()
	return r.deployment.Stop(ctx)
}

// ahead is how many published events may be unfolded: enough for full batches, and so few that a run
// measures publishing and folding together.
const ahead = 100_000

// metered is a server with a limit on unfolded events.
type metered struct {
	*load.API
	published atomic.Int64 // rows of the log
	folded    atomic.Int64 // at the last look
	looking   sync.Mutex
}

// Settle returns once all published events are folded.
func (m *metered) Settle(ctx context.Context) error { return m.await(ctx, 0) }

// await returns once at most the given number of published events are unfolded.
func (m *metered) await(ctx context.Context, most int64) error {
	for m.published.Load()-m.folded.Load() > most {
		if err := m.look(ctx, most); err != nil {
			return err
		}
	}
	return nil
}

// look reads how many events are folded. Only one caller reads at a time.
func (m *metered) look(ctx context.Context, most int64) error {
	m.looking.Lock()
	defer m.looking.Unlock()
	if m.published.Load()-m.folded.Load() <= most {
		return nil // another caller has read it
	}
	interval := 100 * time.Millisecond
	if most == 0 {
		interval = 5 * time.Millisecond
	}
	if err := wait.For(ctx, interval); err != nil {
		return err
	}
	counts, err := m.Counters(ctx, "badged_projector_events_folded_total", "badged_projector_events_deduplicated_total",
		"badged_projector_dead_letters_total")
	if err != nil {
		return err
	}
	if dead := counts[2]; dead > 0 {
		return fmt.Errorf("%v events became dead letters: %w", dead, measure.ErrWrong)
	}
	m.folded.Store(int64(counts[0] + counts[1]))
	return nil
}
