package ways

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
	"github.com/badged/badged/tests/bench/load"
	"github.com/badged/badged/tests/bench/measure"
	"github.com/badged/badged/tests/bench/rig"
	"github.com/badged/badged/tests/bench/stream"
)

// EventSource is the source of all events here.
const EventSource = "bench"

// AsEvent returns e as a chat backend would publish it.
func AsEvent(e stream.Event) events.Event {
	out := events.Event{
		ID: e.ID(), Source: EventSource, Type: events.MessageDelivered,
		Data: events.Data{ConversationID: e.ConversationID(), UserIDs: []string{e.UserID()}},
	}
	if e.Read {
		out.Type, out.Data.UpToSeq = events.ConversationRead, e.Seq
	} else {
		out.Data.Seq, out.Data.SenderID = e.Seq, "somebody"
	}
	return out
}

// Embedded is a server with all roles in this process. Events go to its log
// directly, which allows profiling and leaves out the cost of HTTP.
type Embedded struct {
	*MeteredAPI
	Log    *events.Log
	reader *badges.Reader
	pool   *pgxpool.Pool
	wake   func(partitions []int)
	end    func(ctx context.Context) error
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
		MeteredAPI: NewMeteredAPI("http://"+l.Addr().String(), 1), Log: a.Log(), wake: a.Wake,
		reader: badges.NewReader(pool, a.Log()), pool: pool,
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
func (e *Embedded) Apply(ctx context.Context, evs []stream.Event) error {
	batch := make([]events.Event, len(evs))
	for i := range evs {
		batch[i] = AsEvent(evs[i])
	}
	if err := e.await(ctx, ahead); err != nil {
		return err
	}
	receipt, err := e.Log.Append(ctx, batch...)
	if err != nil {
		return err
	}
	e.Published.Add(int64(len(batch))) // one user each, so one row each
	e.wake(receipt.Partitions)
	return nil
}

// stored implements keeper: the disk space of the log and of the keys of events, with indexes.
func (e *Embedded) stored(ctx context.Context) (bytes int64, err error) {
	err = e.pool.QueryRow(ctx, `SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class AS c
WHERE c.relnamespace = 'badged'::regnamespace AND c.relkind = 'r' AND (c.relname ~ '^events_p[0-9]+_r[0-9]+$' OR c.relname LIKE 'dedup%')`).Scan(&bytes)
	return bytes, err
}

// registerDevices registers a device in every partition, for users without events.
func (e *Embedded) registerDevices(ctx context.Context) error {
	targets := outbound.NewTargets(e.pool, e.Log)
	var strangers []string
	for i := range 100 * e.Log.Partitions() { // more than enough
		strangers = append(strangers, fmt.Sprint("stranger ", i))
	}
	for _, user := range e.Witnesses(strangers) {
		if _, err := targets.PutDevice(ctx, outbound.Registration{
			UserID: user, DeviceID: "phone", App: "bench", Platform: "fcm", Shows: outbound.ShowsTotal,
			Token: []byte(user), Fingerprint: []byte(user),
		}); err != nil {
			return err
		}
	}
	return nil
}

// Witnesses returns one of users for each of their partitions.
func (e *Embedded) Witnesses(users []string) []string {
	byPartition := map[int]string{}
	for _, u := range users {
		byPartition[e.Log.PartitionOf(u)] = u
	}
	return slices.Collect(maps.Values(byPartition))
}

// Deliver publishes events and returns once they count for the witnesses, and so
// for all users. It reads the tables, which costs less than reading metrics.
func (e *Embedded) Deliver(ctx context.Context, batch []events.Event, witnesses []string) error {
	receipt, err := e.Log.Append(ctx, batch...)
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
func (e *Embedded) Close(ctx context.Context) error {
	e.API.Close()
	return e.end(ctx)
}

// Remote is the binary with all roles in one process. Events are published
// over HTTP.
type Remote struct {
	*MeteredAPI
	Deployment *rig.Deployment
}

// NewRemote starts the binary on a new database.
func NewRemote(ctx context.Context, r *rig.Rig, connections int) (*Remote, error) {
	d, err := r.Deploy(ctx, rig.OneProcess)
	if err != nil {
		return nil, err
	}
	return &Remote{NewMeteredAPI(d.API, connections), d}, nil
}

// Apply publishes events in one request.
func (r *Remote) Apply(ctx context.Context, evs []stream.Event) error {
	if err := r.await(ctx, ahead); err != nil {
		return err
	}
	var body bytes.Buffer
	for i := range evs {
		b, err := AsEvent(evs[i]).MarshalJSON()
		if err != nil {
			return err
		}
		body.Write(b)
		body.WriteByte('\n')
	}
	if _, err := r.Do(ctx, http.MethodPost, "/v1/events", "application/x-ndjson", body.Bytes(), http.StatusAccepted); err != nil {
		return err
	}
	r.Published.Add(int64(len(evs)))
	return nil
}

// Close stops the binary and drops its database.
func (r *Remote) Close(ctx context.Context) error {
	r.API.Close()
	return r.Deployment.Stop(ctx)
}

// ahead is how many published events may be unfolded: enough for full batches, and
// few enough that a run measures publishing and folding together.
const ahead = 100_000

// How often to read the folding progress.
const (
	farInterval  = 100 * time.Millisecond
	nearInterval = 5 * time.Millisecond
)

// MeteredAPI is a server with a limit on unfolded events.
type MeteredAPI struct {
	*load.API
	Published atomic.Int64 // rows of the log
	Folded    atomic.Int64 // as last seen
	looking   chan struct{}
}

// NewMeteredAPI returns a client with a limit on connections.
func NewMeteredAPI(url string, connections int) *MeteredAPI {
	return &MeteredAPI{API: load.NewAPI(url, connections+1), looking: make(chan struct{}, 1)}
}

// await returns once at most the given number of published events are unfolded.
// One caller at a time reads the metrics.
func (m *MeteredAPI) await(ctx context.Context, most int64) error {
	for m.Published.Load()-m.Folded.Load() > most {
		select {
		case m.looking <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		err := m.Look(ctx, most)
		<-m.looking
		if err != nil {
			return err
		}
	}
	return nil
}

// Look reads how many events are folded, unless at most the given number are unfolded.
func (m *MeteredAPI) Look(ctx context.Context, most int64) error {
	if m.Published.Load()-m.Folded.Load() <= most {
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
	counts, err := m.Counters(ctx, "badged_projector_events_folded_total", "badged_projector_events_deduplicated_total",
		"badged_projector_dead_letters_total")
	if err != nil {
		return err
	}
	if dead := counts[2]; dead > 0 {
		return fmt.Errorf("%v events became dead letters: %w", dead, measure.ErrWrong)
	}
	m.Folded.Store(int64(counts[0] + counts[1]))
	return nil
}

// Settle returns once all published events are folded.
func (m *MeteredAPI) Settle(ctx context.Context) error { return m.await(ctx, 0) }

// Totals returns the totals of users.
func (m *MeteredAPI) Totals(ctx context.Context, users []string) ([]int64, error) {
	byUser, err := m.API.Totals(ctx, users)
	totals := make([]int64, len(users))
	for i, u := range users {
		totals[i] = byUser[u]
	}
	return totals, err
}
