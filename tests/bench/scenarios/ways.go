package scenarios

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

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

// way is an implementation of unread counts with its own state, empty at first. It ends with the
// run that opened it.
//
// The other ways are written as their proponents would write them. All store applied events for as long
// as badged does, apply each event once, and update a user's total together with the conversation. A
// conversation is its last message and the read position, and the difference is the count. It is right in
// any order of events if messages are numbered without gaps. Unlike badged the other ways store no sets
// of messages, recalls, mentions, categories, levels or versions.
type way interface {
	// Apply applies events. It is safe for concurrent use.
	Apply(ctx context.Context, events []stream.Event) error
	// Settle returns once all applied events count.
	Settle(ctx context.Context) error
	// Totals returns the totals of users.
	Totals(ctx context.Context, users []string) (map[string]int64, error)
}

// storedMeasure is the disk space of data that grows with every event.
const storedMeasure = "log and keys on disk"

// driver is the number of workers that apply events, and the number of events that each applies at a
// time.
type driver struct{ workers, batch int }

var (
	// bulk publishes in batches, as a chat backend does in bulk.
	bulk = driver{workers: 4, batch: 1000}
	// oneAtATime is how single events are applied.
	oneAtATime = driver{workers: 64, batch: 1}
)

func (d driver) String() string {
	if d.batch == 1 {
		return fmt.Sprintf("%d at a time, one event each", d.workers)
	}
	return fmt.Sprintf("%d at a time, %d events each", d.workers, d.batch)
}

// drive applies the next events of s to w while more returns true, and returns their number once they
// count. All workers call more before each batch.
func (d driver) drive(ctx context.Context, w way, s *stream.Stream, more func() bool) (events int, err error) {
	var count atomic.Int64
	group, groupCtx := errgroup.WithContext(ctx)
	for range d.workers {
		group.Go(func() error {
			chunk := make([]stream.Event, d.batch)
			for more() {
				s.Next(chunk)
				if err := w.Apply(groupCtx, chunk); err != nil {
					return err
				}
				count.Add(int64(len(chunk)))
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	return int(count.Load()), w.Settle(ctx)
}

// upTo returns a condition that is true until n events are applied.
func (d driver) upTo(n int) func() bool {
	var batches atomic.Int64
	return func() bool { return int(batches.Add(1)) <= (n+d.batch-1)/d.batch }
}

// counting makes sides that count events of a stream.
type counting struct {
	rig    *rig.Rig
	stream stream.Config
	// warmUp is how many events are counted before the measurement, and events how many are
	// measured. If it is 0, the measurement takes the duration.
	warmUp, events int
	duration       time.Duration
	// category returns the category of a conversation; nil means none.
	category func(conversation int) string
}

// side returns a side whose rounds begin at the start of the stream with an empty state. Each round checks
// the totals.
func (c counting) side(name, says string, d driver, open func(*contest.Run) way) contest.Side {
	return contest.Side{Name: name, Says: fmt.Sprintf("%s; %s; %s", says, d, c.stream), Run: func(run *contest.Run) []contest.Measure {
		w, s := open(run), stream.New(c.stream)
		contest.Must(d.drive(run.Context(), w, s, d.upTo(c.warmUp)))
		var events int
		measures := c.rig.Meter(run, func() int {
			deadline := time.Now().Add(c.duration)
			more := func() bool { return time.Now().Before(deadline) }
			if c.events > 0 {
				more = d.upTo(c.events)
			}
			events = contest.Must(d.drive(run.Context(), w, s, more))
			return events
		})
		if e, ok := w.(*embedded); ok {
			measures = append(measures, contest.Of(storedMeasure, "bytes/event", float64(e.stored(run))/float64(events)))
		}
		contest.Check(checkTotals(run.Context(), w, s))
		return measures
	}}
}

// remote returns a side that publishes to the binary over HTTP.
func (c counting) remote(name string, d driver, deploy rig.Deploy) contest.Side {
	return c.side(name, "the binary over HTTP, NDJSON, "+deploy.String(), d, func(run *contest.Run) way {
		return newRemote(run, c.rig.Deploy(run, deploy).API.URL, d.workers, c.category)
	})
}

// checkTotals compares the totals of all users with the totals that follow from the stream.
func checkTotals(ctx context.Context, w way, s *stream.Stream) error {
	want := s.Totals()
	got, err := w.Totals(ctx, slices.Collect(maps.Keys(want)))
	if err != nil {
		return err
	}
	return contest.CheckTotals(got, want)
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
func newRemote(run *contest.Run, url string, connections int, category func(int) string) *metered {
	m := &metered{API: load.NewAPI(run, url, connections+1), category: category}
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
	category  func(conversation int) string // nil for none
	published atomic.Int64                  // rows of the log

	mu     sync.Mutex
	folded int64 // at the last look
}

// Apply publishes events, as a chat backend would.
func (m *metered) Apply(ctx context.Context, evs []stream.Event) error {
	all := make([]events.Event, len(evs))
	for i, e := range evs {
		all[i] = event(e.ID(), events.MessageDelivered, events.Data{ConversationID: e.ConversationID(), UserIDs: []string{e.UserID()}})
		if m.category != nil {
			all[i].Data.Category = m.category(int(e.Conversation))
		}
		if e.Read {
			all[i].Type, all[i].Data.UpToSeq = events.ConversationRead, e.Seq
		} else {
			all[i].Data.Seq, all[i].Data.SenderID = e.Seq, "somebody"
		}
	}
	if err := m.await(ctx, ahead, 100*time.Millisecond); err != nil {
		return err
	}
	if err := m.publish(ctx, all); err != nil {
		return err
	}
	m.published.Add(int64(len(evs))) // each event has one user, so it is one row
	return nil
}

// Settle returns once all published events are folded.
func (m *metered) Settle(ctx context.Context) error { return m.await(ctx, 0, 5*time.Millisecond) }

// await returns once at most the given number of published events are unfolded. One caller at a time
// reads how many are folded.
func (m *metered) await(ctx context.Context, limit int64, interval time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.published.Load()-m.folded > limit {
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
		m.folded = int64(counts[0] + counts[1])
	}
	return nil
}

// lua applies an event by one call of a script in a new Redis. Redis has one hash per user, with the
// total in the field t, and for every conversation a field for the last message and a field for the read
// position.
type lua struct {
	client *redis.Client
	hash   string // of the script
}

// applyLua returns the new total, or nothing if the event changes nothing.
// KEYS are the event and the user. ARGV are the fields of the last message and
// of the read position, which of the two the event raises (1 or 2), its new
// value, and for how many seconds to remember the event.
const applyLua = `
if not redis.call('SET', KEYS[1], '', 'NX', 'EX', ARGV[5]) then return false end
local was = redis.call('HMGET', KEYS[2], ARGV[1], ARGV[2])
local now = {tonumber(was[1] or '0'), tonumber(was[2] or '0')}
local before = math.max(0, now[1] - now[2])
local raised, seq = tonumber(ARGV[3]), tonumber(ARGV[4])
if seq <= now[raised] then return false end
now[raised] = seq
redis.call('HSET', KEYS[2], ARGV[raised], ARGV[4])
return redis.call('HINCRBY', KEYS[2], 't', math.max(0, now[1] - now[2]) - before)
`

// remembered is how long an event is remembered, in seconds, the same as in badged.
const remembered = 14 * 24 * 60 * 60

// newLua starts Redis and loads the script.
func newLua(run *contest.Run) way {
	l := &lua{client: rig.NewRedis(run)}
	l.hash = contest.Must(l.client.ScriptLoad(run.Context(), applyLua).Result())
	return l
}

// Apply applies several events in one pipeline, or a single one directly.
func (l *lua) Apply(ctx context.Context, events []stream.Event) error {
	_, err := l.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, e := range events {
			raised := 1
			if e.Read {
				raised = 2
			}
			c := e.ConversationID()
			p.EvalSha(ctx, l.hash, []string{"seen:" + e.ID(), "user:" + e.UserID()}, "l:"+c, "r:"+c, raised, e.Seq, remembered)
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) { // Nil means no change
		return fmt.Errorf("apply %d events: %w", len(events), err)
	}
	return nil
}

// Settle returns at once: applied events count immediately.
func (*lua) Settle(context.Context) error { return nil }

// Totals returns the totals of users.
func (l *lua) Totals(ctx context.Context, users []string) (map[string]int64, error) {
	return redisTotals(ctx, l.client, "t", users)
}

// redisTotals returns the totals of users, which are a field of their hashes.
func redisTotals(ctx context.Context, client *redis.Client, field string, users []string) (map[string]int64, error) {
	totals := map[string]int64{}
	for some := range slices.Chunk(users, 1000) {
		var answers []*redis.StringCmd
		_, _ = client.Pipelined(ctx, func(p redis.Pipeliner) error { // each answer has its error
			for _, u := range some {
				answers = append(answers, p.HGet(ctx, "user:"+u, field))
			}
			return nil
		})
		for i, u := range some {
			n, err := answers[i].Int64()
			if err != nil && !errors.Is(err, redis.Nil) { // Nil means no messages
				return nil, fmt.Errorf("read totals: %w", err)
			}
			totals[u] = n
		}
	}
	return totals, nil
}
