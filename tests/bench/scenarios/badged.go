package scenarios

import (
	"context"
	"fmt"
	"log/slog"
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
	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/load"
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

// embedded is a server with all roles in this process. Events are appended to its log directly, so that
// a profile includes the server and the cost of HTTP is excluded.
type embedded struct {
	*metered
	log  *events.Log
	pool *pgxpool.Pool
}

// embed starts the server on a database until the end of the run.
func embed(run *contest.Run, database string) *embedded {
	ctx := run.Context()
	contest.Must(migrations.Up(ctx, migrations.Config{Conn: contest.Must(pgx.ParseConfig(database))}))
	pool := contest.Must(pgxpool.New(ctx, database))
	run.Cleanup(func(context.Context) error { pool.Close(); return nil })
	l := contest.Must(app.Listen(ctx, "127.0.0.1:0"))
	run.Cleanup(func(context.Context) error { _ = l.Close(); return nil }) // the server may have closed it
	// The intervals are those of `badged serve` by default.
	a := contest.Must(app.Open(ctx, config.Server{
		Database: config.Database{DatabaseURL: database}, Tokens: config.Tokens{JWTKeys: []string{rig.JWTKeys}},
		Roles:         []config.Role{config.RoleAPI, config.RoleProjector, config.RoleGateway, config.RoleNotifier},
		PublisherKeys: []string{"backend=" + rig.PublisherKey}, ReconcileInterval: 30 * time.Second, DrainTimeout: 5 * time.Second,
		VerifyInterval: time.Minute, VerifySample: 10, DedupWindow: 14 * 24 * time.Hour,
	}, l, slog.New(slog.DiscardHandler)))
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- a.Run(running, func() { close(ready) }) }()
	run.Cleanup(func(context.Context) error {
		stop()
		defer a.Close()
		return <-ended
	})
	<-ready
	m := &metered{API: load.NewAPI(run, "http://"+l.Addr().String(), 2)}
	m.publish = func(ctx context.Context, evs []events.Event) error {
		receipt, err := a.Log().Append(ctx, evs...)
		if err == nil {
			a.Wake(receipt.Partitions)
		}
		return err
	}
	return &embedded{m, a.Log(), pool}
}

// stored returns the disk space of the log and of the keys of events, with indexes.
func (e *embedded) stored(run *contest.Run) (bytes int64) {
	contest.Check(e.pool.QueryRow(run.Context(), `SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class AS c
WHERE c.relnamespace = 'badged'::regnamespace AND c.relkind = 'r' AND (c.relname ~ '^events_p[0-9]+_r[0-9]+$' OR c.relname LIKE 'dedup%')`).Scan(&bytes))
	return bytes
}

// registerDevices registers a device in every partition, for users without events.
func (e *embedded) registerDevices(ctx context.Context) {
	targets := outbound.NewTargets(e.pool, e.log)
	var strangers []string
	for i := range 100 * e.log.Partitions() { // more than enough
		strangers = append(strangers, fmt.Sprint("stranger ", i))
	}
	for _, user := range load.Witnesses(strangers, e.log.Partitions()) {
		contest.Must(targets.PutDevice(ctx, outbound.Registration{
			UserID: user, DeviceID: "phone", App: "bench", Platform: "fcm", Shows: outbound.ShowsTotal,
			Token: []byte(user), Fingerprint: []byte(user),
		}))
	}
}

// newRemote returns a way that publishes to a server over HTTP.
func newRemote(run *contest.Run, url string, connections int) *metered {
	m := &metered{API: load.NewAPI(run, url, connections+1)}
	m.publish = func(ctx context.Context, evs []events.Event) error {
		_, err := m.Publish(ctx, evs...)
		return err
	}
	return m
}

// ahead is how many published events may be unfolded: enough for full batches, and so few that a run
// measures publishing and folding together.
const ahead = 100_000

// metered is a server with a limit on unfolded events.
type metered struct {
	*load.API
	publish   func(context.Context, []events.Event) error
	published atomic.Int64 // rows of the log
	folded    atomic.Int64 // at the last look
	looking   sync.Mutex
}

// Apply publishes events.
func (m *metered) Apply(ctx context.Context, evs []stream.Event) error {
	if err := m.await(ctx, ahead); err != nil {
		return err
	}
	if err := m.publish(ctx, asEvents(evs)); err != nil {
		return err
	}
	m.published.Add(int64(len(evs))) // each event has one user, so it is one row
	return nil
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
		return fmt.Errorf("%v events became dead letters: %w", dead, contest.ErrWrong)
	}
	m.folded.Store(int64(counts[0] + counts[1]))
	return nil
}
