package scenarios

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/badged/badged/internal/auth"
	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/load"
	"github.com/badged/badged/tests/bench/measure"
	"github.com/badged/badged/tests/bench/rig"
)

// The measures of restart that have aims.
const (
	timeUntilRight = "time until all are right"
	badgeP99       = "badge over HTTP p99"
	mostBackends   = "most backends at work"
)

// restart measures how long all clients take to reconnect after their process is
// replaced.
func restart() contest.Scenario {
	const ours, withRedis = "badged", "badged, Redis"
	return contest.Scenario{
		Name: "restart",
		Says: "all clients of a gateway come back after it was replaced, and missed a message meanwhile; from when the new one is ready",
		Main: timeUntilRight,
		Aims: []contest.Aim{
			{Measure: timeUntilRight, Of: ours, AtMost: 30},
			{Measure: timeUntilRight, Of: withRedis, AtMost: 30},
			{Measure: badgeP99, Of: ours, AtMost: 250},
			{Measure: badgeP99, Of: withRedis, AtMost: 250},
		},
		Open: func(_ context.Context, r *rig.Rig, s contest.Scale) (*contest.Contest, error) {
			h := herd{n: s.Pick(15_000, 100)}
			if err := (idleClients{n: h.n}).check(); err != nil {
				return nil, err
			}
			says := fmt.Sprintf("%d clients, each a user of its own, come back when bye told them to; ", h.n)
			run := func(t rig.Topology) func(context.Context) ([]measure.Measure, error) {
				return func(ctx context.Context) ([]measure.Measure, error) { return h.run(ctx, r, t) }
			}
			return contest.Of(
				contest.Side{Name: ours, Says: says + rig.OneProcess.String(), Run: run(rig.OneProcess)},
				contest.Side{Name: withRedis, Says: says + "the gateway's process of " + rig.ThreeProcesses.String(), Run: run(rig.ThreeProcesses)},
			)
		},
	}
}

// herd is the clients of a gateway.
type herd struct{ n int }

// returning is a client that reconnects.
type returning struct {
	user, token string
	over        *http.Client
	conn        *websocket.Conn
	epoch       string
	version     int64
	total       int64
	// due is when the server told it to reconnect.
	due time.Time
}

func (h herd) run(ctx context.Context, r *rig.Rig, t rig.Topology) (_ []measure.Measure, err error) {
	d, err := r.Deploy(ctx, t)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Stop(ctx)) }()
	if err := h.deliver(ctx, d, 1); err != nil {
		return nil, err
	}
	clients, err := h.connect(ctx, d)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, c := range clients {
			_ = c.conn.CloseNow() // it may have ended
		}
	}()

	var leaving errgroup.Group
	for _, c := range clients {
		leaving.Go(func() error { return c.awaitBye(ctx) })
	}
	if err := d.RestartFront(ctx, r); err != nil {
		return nil, err
	}
	if err := leaving.Wait(); err != nil {
		return nil, err
	}
	began := time.Now()
	watch, err := watchServer(ctx, d)
	if err != nil {
		return nil, err
	}
	if err := h.deliver(ctx, d, 2); err != nil {
		return nil, errors.Join(err, watch.stop(ctx))
	}
	var tries atomic.Int64
	back, backCtx := errgroup.WithContext(ctx)
	for _, c := range clients {
		back.Go(func() error {
			n, err := c.comeBack(backCtx, d.Gateway)
			tries.Add(int64(n))
			return err
		})
	}
	err = back.Wait()
	took := time.Since(began)
	if err := errors.Join(err, watch.stop(ctx)); err != nil {
		return nil, err
	}
	return append([]measure.Measure{
		measure.Of(timeUntilRight, "s", took.Seconds()),
		measure.Of("tries that failed", "tries", float64(tries.Load())-float64(h.n)),
	}, watch.measures(took)...), nil
}

// deliver sends a message to every client.
func (h herd) deliver(ctx context.Context, d *rig.Deployment, seq int) error {
	const most = 10_000
	a := load.NewAPI(d.API, 1)
	defer a.Close()
	users := make([]string, h.n)
	for i := range users {
		users[i] = load.UserOf(i)
	}
	for some := range slices.Chunk(users, most) {
		event, err := json.Marshal(map[string]any{
			"specversion": "1.0", "id": fmt.Sprintf("%d-%s", seq, some[0]), "source": "bench", "type": "message.delivered",
			"time": time.Now().UTC().Format(time.RFC3339), "data": map[string]any{"conversation_id": "all", "seq": seq, "user_ids": some},
		})
		if err != nil {
			return err
		}
		if err := a.Publish(ctx, event); err != nil {
			return err
		}
	}
	return nil
}

// connect connects all clients and returns when each has its first message.
func (h herd) connect(ctx context.Context, d *rig.Deployment) ([]*returning, error) {
	tokens, err := auth.NewTokens(auth.TokenConfig{Keys: []string{rig.JWTKeys}})
	if err != nil {
		return nil, err
	}
	clients := make([]*returning, h.n)
	sources := newSources()
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(load.ConnectAtOnce)
	for i := range clients {
		group.Go(func() error {
			token, err := tokens.Sign(load.UserOf(i), time.Hour, time.Now())
			if err != nil {
				return err
			}
			clients[i] = &returning{user: load.UserOf(i), token: token, over: sources.of(i)}
			if away, err := clients[i].try(groupCtx, d.Gateway, 1); err != nil || away > 0 {
				return fmt.Errorf("client %d is not let in: %w", i, err)
			}
			return nil
		})
	}
	return clients, group.Wait()
}

// told has the fields of a frame that reconnecting clients read.
type told struct {
	T           string `json:"t"`
	Epoch       string `json:"epoch"`
	Version     int64  `json:"version"`
	Total       int64  `json:"total"`
	ReconnectMS int64  `json:"reconnect_ms"`
}

func (c *returning) hear(ctx context.Context) (f told, err error) {
	_, b, err := c.conn.Read(ctx)
	if err != nil {
		return f, err
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return f, fmt.Errorf("frame %s: %w", b, err)
	}
	if f.T == "snapshot" || f.T == "changes" {
		c.epoch, c.version, c.total = f.Epoch, f.Version, f.Total
	}
	return f, nil
}

// awaitBye returns once the server has sent a bye.
func (c *returning) awaitBye(ctx context.Context) error {
	for {
		f, err := c.hear(ctx)
		if err != nil {
			return fmt.Errorf("%s lost its connection without a goodbye: %w", c.user, err)
		}
		if f.T == "bye" {
			c.due = time.Now().Add(time.Duration(f.ReconnectMS) * time.Millisecond)
			_ = c.conn.Close(websocket.StatusNormalClosure, "") // as the server does
			return nil
		}
	}
}

// comeBack reconnects until the client has the second message, and returns the
// number of attempts.
func (c *returning) comeBack(ctx context.Context, url string) (tries int, err error) {
	for {
		if err := pause(ctx, time.Until(c.due)); err != nil {
			return tries, err
		}
		tries++
		away, err := c.try(ctx, url, 2)
		if err != nil {
			return tries, fmt.Errorf("%s comes back: %w", c.user, err)
		}
		if away == 0 {
			return tries, nil
		}
		c.due = time.Now().Add(away)
	}
}

// try connects and returns once the client has total messages. If the server turns
// it away, try returns when to retry, by default after one to two seconds.
func (c *returning) try(ctx context.Context, url string, total int64) (away time.Duration, err error) {
	somewhen := time.Second + rand.N(time.Second) //nolint:gosec // spreads load
	c.conn, err = load.DialWebSocket(ctx, url, &websocket.DialOptions{
		HTTPHeader:   http.Header{"Authorization": {"Bearer " + c.token}},
		Subprotocols: []string{"badge.v1"}, HTTPClient: c.over,
	})
	if err != nil {
		return somewhen, ctx.Err()
	}
	hello, err := json.Marshal(map[string]any{"t": "hello", "epoch": c.epoch, "version": c.version})
	if err != nil {
		return 0, err
	}
	if err := c.conn.Write(ctx, websocket.MessageText, hello); err != nil {
		return somewhen, ctx.Err()
	}
	for c.total < total {
		f, err := c.hear(ctx)
		switch {
		case err != nil:
			return somewhen, ctx.Err()
		case f.T == "bye":
			_ = c.conn.CloseNow() // no more frames are needed
			return max(time.Duration(f.ReconnectMS)*time.Millisecond, time.Millisecond), nil
		case f.Total > total:
			return 0, fmt.Errorf("%s has %d messages of %d: %w", c.user, f.Total, total, measure.ErrWrong)
		}
	}
	return 0, nil
}

// serverWatch measures how a server serves others while a herd reconnects.
type serverWatch struct {
	d       *rig.Deployment
	watched *pgx.Conn
	before  int64 // transactions
	after   int64
	cancel  context.CancelFunc
	looking errgroup.Group

	backends  int
	latencies []float64 // ms
}

func watchServer(ctx context.Context, d *rig.Deployment) (*serverWatch, error) {
	conn, err := pgx.Connect(ctx, d.Database)
	if err != nil {
		return nil, fmt.Errorf("watch Postgres: %w", err)
	}
	w := &serverWatch{d: d, watched: conn}
	if w.before, err = w.transactions(ctx); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	ctx, w.cancel = context.WithCancel(ctx)
	w.looking.Go(func() error { return w.countBackends(ctx) })
	w.looking.Go(func() error { return w.readBadges(ctx) })
	return w, nil
}

func (w *serverWatch) transactions(ctx context.Context) (n int64, err error) {
	err = w.watched.QueryRow(ctx, `SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()`).Scan(&n)
	return n, err
}

// countBackends records the maximum of busy backends of the product.
func (w *serverWatch) countBackends(ctx context.Context) error {
	for pause(ctx, lookInterval) == nil {
		var n int
		err := w.watched.QueryRow(context.WithoutCancel(ctx), `SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND state <> 'idle' AND pid <> pg_backend_pid()`).Scan(&n)
		if err != nil {
			return fmt.Errorf("count backends: %w", err)
		}
		w.backends = max(w.backends, n)
	}
	return nil
}

// readBadges reads badges one after another, as a push sender would.
func (w *serverWatch) readBadges(ctx context.Context) error {
	a := load.NewAPI(w.d.API, 1)
	defer a.Close()
	for i := 0; pause(ctx, lookInterval/5) == nil; i++ {
		began := time.Now()
		if _, err := a.Do(context.WithoutCancel(ctx), http.MethodGet, "/v1/users/"+load.UserOf(i%100)+"/badge", "", nil, http.StatusOK); err != nil {
			return err
		}
		w.latencies = append(w.latencies, float64(time.Since(began))/float64(time.Millisecond))
		if _, err := a.Do(context.WithoutCancel(ctx), http.MethodGet, "/readyz", "", nil, http.StatusOK); err != nil {
			return fmt.Errorf("the server is not ready while all come back: %w", err)
		}
	}
	return nil
}

// stop ends the watch.
func (w *serverWatch) stop(ctx context.Context) error {
	w.cancel()
	err := w.looking.Wait()
	if err == nil {
		// Sessions report their statistics with a delay of up to a second.
		if err = pause(ctx, time.Second); err == nil {
			w.after, err = w.transactions(ctx)
		}
	}
	return errors.Join(err, w.watched.Close(context.WithoutCancel(ctx)))
}

func (w *serverWatch) measures(took time.Duration) []measure.Measure {
	slices.Sort(w.latencies)
	return []measure.Measure{
		measure.Of(badgeP99, "ms", measure.Percentile(w.latencies, 99)),
		measure.Of("badge over HTTP p50", "ms", measure.Percentile(w.latencies, 50)),
		measure.Of("transactions in Postgres", "per s", float64(w.after-w.before)/took.Seconds()),
		measure.Of(mostBackends, "backends", float64(w.backends)),
	}
}
