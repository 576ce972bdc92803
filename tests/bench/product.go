package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/app"
	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/migrations"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/projector/outbound"
	"github.com/badged/badged/tests/bench/stream"
)

// eventSource is the source of all events here.
const eventSource = "bench"

// asEvent returns e as a chat backend would publish it.
func asEvent(e stream.Event) events.Event {
	out := events.Event{
		ID: e.ID(), Source: eventSource, Type: events.MessageDelivered,
		Data: events.Data{ConversationID: e.ConversationID(), UserIDs: []string{e.UserID()}},
	}
	if e.Read {
		out.Type, out.Data.UpToSeq = events.ConversationRead, e.Seq
	} else {
		out.Data.Seq, out.Data.SenderID = e.Seq, "somebody"
	}
	return out
}

// embedded is a server with all roles in this process. Events go to its log
// directly, which allows profiling and leaves out the cost of HTTP.
type embedded struct {
	*meteredAPI
	log    *events.Log
	reader *badges.Reader
	pool   *pgxpool.Pool
	wake   func(partitions []int)
	end    func(ctx context.Context) error
}

// embed starts the server on a database. Closing it keeps the database.
func embed(ctx context.Context, database string) (_ *embedded, err error) {
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
		Database: config.Database{DatabaseURL: database}, Tokens: config.Tokens{JWTKeys: []string{jwtKeys}},
		Roles:         []config.Role{config.RoleAPI, config.RoleProjector, config.RoleGateway, config.RoleNotifier},
		PublisherKeys: []string{"backend=" + publisherKey}, ReconcileInterval: 30 * time.Second, DrainTimeout: 5 * time.Second,
		VerifyInterval: time.Minute, VerifySample: 10, DedupWindow: 14 * 24 * time.Hour,
	}, l, slog.New(slog.DiscardHandler))
	if err != nil {
		pool.Close()
		return nil, errors.Join(err, l.Close())
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- a.Run(running, func() { close(ready) }) }()
	e := &embedded{
		meteredAPI: newMeteredAPI("http://"+l.Addr().String(), 1), log: a.Log(), wake: a.Wake,
		reader: badges.NewReader(pool, a.Log().Partitions()), pool: pool,
		end: func(context.Context) error {
			stop()
			err := <-ended
			a.Close()
			pool.Close()
			return ignoreClosed(errors.Join(err, l.Close()))
		},
	}
	<-ready
	return e, nil
}

// ignoreClosed drops the error of a listener that its server has closed.
func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Apply publishes events to the log.
func (e *embedded) Apply(ctx context.Context, evs []stream.Event) error {
	batch := make([]events.Event, len(evs))
	for i := range evs {
		batch[i] = asEvent(evs[i])
	}
	if err := e.await(ctx, ahead); err != nil {
		return err
	}
	receipt, err := e.log.Append(ctx, batch...)
	if err != nil {
		return err
	}
	e.published.Add(int64(len(batch))) // one user each, so one row each
	e.wake(receipt.Partitions)
	return nil
}

// stored implements keeper: the disk space of the log and of the keys of events, with indexes.
func (e *embedded) stored(ctx context.Context) (bytes int64, err error) {
	err = e.pool.QueryRow(ctx, `SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class AS c
WHERE c.relnamespace = 'badged'::regnamespace AND c.relkind = 'r' AND (c.relname ~ '^events_p[0-9]+_r[0-9]+$' OR c.relname LIKE 'dedup%')`).Scan(&bytes)
	return bytes, err
}

// registerDevices registers a device in every partition, for users without events.
func (e *embedded) registerDevices(ctx context.Context) error {
	targets := outbound.NewTargets(e.pool, e.log.Partitions())
	var strangers []string
	for i := range 100 * e.log.Partitions() { // more than enough
		strangers = append(strangers, fmt.Sprint("stranger ", i))
	}
	for _, user := range e.witnesses(strangers) {
		if _, err := targets.PutDevice(ctx, outbound.Registration{
			UserID: user, DeviceID: "phone", App: "bench", Platform: "fcm", Shows: outbound.ShowsTotal,
			Token: []byte(user), Fingerprint: []byte(user),
		}); err != nil {
			return err
		}
	}
	return nil
}

// witnesses returns one of users for each of their partitions.
func (e *embedded) witnesses(users []string) []string {
	byPartition := map[int]string{}
	for _, u := range users {
		byPartition[e.log.PartitionOf(u)] = u
	}
	return slices.Collect(maps.Values(byPartition))
}

// deliver publishes events and returns once they count for the witnesses, and so
// for all users. It reads the tables, which costs less than reading metrics.
func (e *embedded) deliver(ctx context.Context, batch []events.Event, witnesses []string) error {
	receipt, err := e.log.Append(ctx, batch...)
	if err != nil {
		return err
	}
	e.wake(receipt.Partitions)
	tick := time.NewTicker(nearInterval)
	defer tick.Stop()
	for {
		folded, err := e.reader.Folded(ctx, witnesses, receipt.TransactionID)
		if err != nil || folded {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close stops the server.
func (e *embedded) Close(ctx context.Context) error {
	e.close()
	return e.end(ctx)
}

// remote is the binary with all roles in one process. Events are published
// over HTTP.
type remote struct {
	*meteredAPI
	deployment *deployment
}

// remote starts the binary on a new database.
func (r *rig) remote(ctx context.Context, connections int) (*remote, error) {
	d, err := r.deploy(ctx, oneProcess)
	if err != nil {
		return nil, err
	}
	return &remote{newMeteredAPI(d.api, connections), d}, nil
}

// Apply publishes events in one request.
func (r *remote) Apply(ctx context.Context, evs []stream.Event) error {
	if err := r.await(ctx, ahead); err != nil {
		return err
	}
	var body bytes.Buffer
	for i := range evs {
		b, err := asEvent(evs[i]).MarshalJSON()
		if err != nil {
			return err
		}
		body.Write(b)
		body.WriteByte('\n')
	}
	if _, err := r.do(ctx, http.MethodPost, "/v1/events", "application/x-ndjson", body.Bytes(), http.StatusAccepted); err != nil {
		return err
	}
	r.published.Add(int64(len(evs)))
	return nil
}

// Close stops the binary and drops its database.
func (r *remote) Close(ctx context.Context) error {
	r.close()
	return r.deployment.stop(ctx)
}

// ahead is how many published events may be unfolded: enough for full batches, and
// few enough that a run measures publishing and folding together.
const ahead = 100_000

// How often to read the folding progress.
const (
	farInterval  = 100 * time.Millisecond
	nearInterval = 5 * time.Millisecond
)

// meteredAPI is a server with a limit on unfolded events.
type meteredAPI struct {
	*api
	published atomic.Int64 // rows of the log
	folded    atomic.Int64 // as last seen
	looking   chan struct{}
}

func newMeteredAPI(url string, connections int) *meteredAPI {
	return &meteredAPI{api: newAPI(url, connections+1), looking: make(chan struct{}, 1)}
}

// await returns once at most the given number of published events are unfolded.
// One caller at a time reads the metrics.
func (m *meteredAPI) await(ctx context.Context, most int64) error {
	for m.published.Load()-m.folded.Load() > most {
		select {
		case m.looking <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		err := m.look(ctx, most)
		<-m.looking
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *meteredAPI) look(ctx context.Context, most int64) error {
	if m.published.Load()-m.folded.Load() <= most {
		return nil // another caller has read them
	}
	interval := farInterval
	if most == 0 {
		interval = nearInterval
	}
	timer := time.NewTimer(interval)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	counts, err := m.counters(ctx, "badged_projector_events_folded_total", "badged_projector_events_deduplicated_total",
		"badged_projector_dead_letters_total")
	if err != nil {
		return err
	}
	if dead := counts[2]; dead > 0 {
		return fmt.Errorf("%v events became dead letters: %w", dead, errWrong)
	}
	m.folded.Store(int64(counts[0] + counts[1]))
	return nil
}

// Settle returns once all published events are folded.
func (m *meteredAPI) Settle(ctx context.Context) error { return m.await(ctx, 0) }

// Totals returns the totals of users.
func (m *meteredAPI) Totals(ctx context.Context, users []string) ([]int64, error) {
	byUser, err := m.totals(ctx, users)
	totals := make([]int64, len(users))
	for i, u := range users {
		totals[i] = byUser[u]
	}
	return totals, err
}
