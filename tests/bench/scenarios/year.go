package scenarios

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/badged/badged/internal/pg/sqlfile"
	"github.com/badged/badged/internal/server/auth"
	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/load"
	"github.com/badged/badged/tests/bench/measure"
	"github.com/badged/badged/tests/bench/rig"
)

//go:embed year.sql
var yearText string

// year measures what a chat and its operators do on a database that has grown for a year,
// beside one that has not.
func year() contest.Scenario {
	const young, old = "a day old", "a year old"
	scenario := contest.Scenario{
		Name: "year",
		Says: "what a chat and its operators do, one thing after the other",
		Main: "message to a user",
		Open: func(ctx context.Context, r *rig.Rig, s contest.Scale) (*contest.Contest, error) {
			few := &grown{users: 1000, revocations: 1000, letters: 100, events: 10_000, ranges: 1}
			many := &grown{users: s.Pick(1_000_000, 2000), revocations: s.Pick(10_000_000, 2000), letters: s.Pick(1_000_000, 200), events: s.Pick(20_000_000, 20_000), ranges: s.Pick(52, 2)}
			closeAll := func(ctx context.Context) error { return errors.Join(few.close(ctx), many.close(ctx)) }
			if err := errors.Join(few.open(ctx, r), many.open(ctx, r)); err != nil {
				return nil, errors.Join(err, closeAll(ctx))
			}
			side := func(name string, g *grown) contest.Side {
				return contest.Side{Name: name, Says: g.String(), Run: func(ctx context.Context) ([]measure.Measure, error) { return g.run(ctx, r) }}
			}
			return &contest.Contest{Sides: []contest.Side{side(young, few), side(old, many)}, Close: closeAll}, nil
		},
	}
	for _, p := range yearPaths() {
		scenario.Aims = append(scenario.Aims, contest.Aim{Measure: p.name, Of: old, Over: young, AtMost: 2})
	}
	return scenario
}

// grown is a database with as many rows of each kind.
type grown struct {
	users, revocations, letters, events int
	// ranges are the complete ranges of each partition, which have the events.
	ranges int

	d      *rig.Deployment
	server *rig.Server
	api    *load.API
	tokens *auth.Tokens
	seq    int64
}

// String describes the rows.
func (g *grown) String() string {
	return fmt.Sprintf("%d users with 10 conversations and a room each, %d revocations, %d dead letters, %d events in %d complete ranges of each partition", g.users, g.revocations, g.letters, g.events, g.ranges)
}

// open makes the database.
func (g *grown) open(ctx context.Context, r *rig.Rig) (err error) {
	if g.tokens, err = auth.NewTokens(auth.TokenConfig{Keys: []string{rig.JWTKeys}}); err != nil {
		return err
	}
	if g.d, err = r.Deploy(ctx, rig.Deploy{}); err != nil {
		return err
	}
	g.api = load.NewAPI(g.d.API, 1)
	defer g.api.Close()
	err = g.publish(ctx, "room.joined", `"conversation_id":"template"`, "template")
	for i := 0; i < 10 && err == nil; i++ {
		err = g.publish(ctx, "message.delivered", fmt.Sprintf(`"conversation_id":"with %d","seq":%d`, i, 100+i), "template")
	}
	if err == nil { // a message to the user of a room is a dead letter, or refused if published over HTTP
		err = rig.ExecIn(ctx, g.d.Databases[0], `SELECT badged.publish('{"specversion":"1.0","id":"letter","source":"/bench","type":"message.delivered",
			"data":{"conversation_id":"template","seq":1,"user_ids":["template"]}}')`)
	}
	for i := 0; i < 100 && err == nil; i++ { // positions of all partitions are behind the copies
		err = g.publish(ctx, "message.delivered", `"conversation_id":"first","seq":1`, fmt.Sprint("first-", i))
	}
	if err == nil {
		err = g.d.StopServers()
	}
	if err != nil {
		return err
	}
	return g.fill(ctx)
}

// close drops the database.
func (g *grown) close(ctx context.Context) error {
	if g.d == nil {
		return nil
	}
	return g.d.Stop(ctx)
}

// fill copies the rows of the template, with as many sessions as there are processors.
// Autovacuum would lock the ranges of the log that are to be indexed.
func (g *grown) fill(ctx context.Context) error {
	statements := sqlfile.Parse(yearText)
	run := func(ctx context.Context, values map[string]int, all ...string) error {
		for i := range all {
			for name, n := range values {
				all[i] = strings.ReplaceAll(all[i], name, fmt.Sprint(n))
			}
		}
		return rig.ExecIn(ctx, g.d.Databases[0], all...)
	}
	together := func(n int, do func(ctx context.Context, i int) error) error {
		jobs, ctx := errgroup.WithContext(ctx)
		jobs.SetLimit(runtime.NumCPU())
		for i := range n {
			jobs.Go(func() error { return do(ctx, i) })
		}
		return jobs.Wait()
	}
	const parts = 10
	err := run(ctx, nil, `ALTER SYSTEM SET autovacuum = off`, `SELECT pg_reload_conf()`)
	if err == nil {
		err = together(parts, func(ctx context.Context, i int) error {
			first, last := g.users*i/parts+1, g.users*(i+1)/parts
			return run(ctx, map[string]int{"FIRST": first, "LAST": last}, statements.Get("users"), statements.Get("conversations"), statements.Get("rooms"))
		})
	}
	if err == nil {
		err = run(ctx, map[string]int{"REVOCATIONS": g.revocations, "LETTERS": g.letters}, statements.Get("revocations"), statements.Get("letters"))
	}
	for p := 0; p < defaultPartitions && err == nil; p++ {
		err = run(ctx, map[string]int{"RANGES": g.ranges, "NUMBER": p}, statements.Of(p, "ranges"))
	}
	if err == nil {
		err = together(defaultPartitions, func(ctx context.Context, p int) error {
			values := map[string]int{"EVENTS": g.events / defaultPartitions, "RANGES": g.ranges, "NUMBER": p}
			return run(ctx, values, statements.Of(p, "events"), statements.Of(p, "index"))
		})
	}
	if err == nil {
		err = run(ctx, nil, statements.Get("analyze"), `ALTER SYSTEM RESET autovacuum`, `SELECT pg_reload_conf()`)
	}
	return err
}

// publish publishes an event about a user and waits until it counts.
func (g *grown) publish(ctx context.Context, typ, data, user string) error {
	g.seq++
	if typ != "room.posted" {
		data += fmt.Sprintf(`,"user_ids":[%q]`, user)
	}
	position, err := g.api.PublishJSON(ctx, fmt.Appendf(nil, `{"specversion":"1.0","id":"year-%d","source":"/bench","type":%q,"data":{%s}}`, g.seq, typ, data))
	if err != nil {
		return err
	}
	return g.get(ctx, "/v1/users/"+user+"/badge?at_least="+position)
}

func (g *grown) get(ctx context.Context, path string) error {
	_, err := g.api.Do(ctx, http.MethodGet, path, "", http.StatusOK)
	return err
}

// activeUsers are how many use the chat now: Postgres has their pages in memory.
const activeUsers = 5000

// user draws a user, and active one of those who use the chat now. They are spread over the
// tables.
func (g *grown) user() string { return fmt.Sprint("year-", 1+rand.IntN(g.users)) } //nolint:gosec // not a secret
func (g *grown) active() string {
	return g.numbered(rand.IntN(g.activeCount())) //nolint:gosec // not a secret
}
func (g *grown) activeCount() int { return min(activeUsers, g.users) }
func (g *grown) numbered(i int) string {
	return fmt.Sprint("year-", 1+i*(g.users/g.activeCount()))
}

// warm reads what the active users have.
func (g *grown) warm(ctx context.Context) error {
	for i := range g.activeCount() {
		for _, path := range []string{"/badge", "/conversations?limit=50"} {
			if err := g.get(ctx, "/v1/users/"+g.numbered(i)+path); err != nil {
				return fmt.Errorf("warm up: %w", err)
			}
		}
	}
	return nil
}

// yearPath is something that is done, how often in a round.
type yearPath struct {
	name  string
	times int
	do    func(ctx context.Context, g *grown, r *rig.Rig) error
}

func yearPaths() []yearPath {
	get := func(path string) func(context.Context, *grown, *rig.Rig) error {
		return func(ctx context.Context, g *grown, _ *rig.Rig) error { return g.get(ctx, "/v1/users/"+g.active()+path) }
	}
	publish := func(typ, format string) func(context.Context, *grown, *rig.Rig) error {
		return func(ctx context.Context, g *grown, _ *rig.Rig) error {
			user := g.active()
			data := strings.NewReplacer("USER", user, "SEQ", fmt.Sprint(1000+g.seq)).Replace(format)
			return g.publish(ctx, typ, data, user)
		}
	}
	command := func(args ...string) func(context.Context, *grown, *rig.Rig) error {
		return func(ctx context.Context, g *grown, r *rig.Rig) error {
			all := slices.Clone(args)
			for i := range all {
				all[i] = strings.ReplaceAll(all[i], "USER", g.active())
			}
			return rig.RunBinary(ctx, r.Binary, append(all, "--database-url="+g.d.Databases[0])...)
		}
	}
	return []yearPath{
		{"read a badge", 100, get("/badge")},
		{"read a badge of a user who was away", 100, func(ctx context.Context, g *grown, _ *rig.Rig) error {
			return g.get(ctx, "/v1/users/"+g.user()+"/badge")
		}},
		{"read a page of conversations", 100, get("/conversations?limit=50")},
		{"read the badges of 100 users", 20, func(ctx context.Context, g *grown, _ *rig.Rig) error {
			users := make([]string, 100)
			for i := range users {
				users[i] = g.active()
			}
			query, err := json.Marshal(map[string]any{"user_ids": users})
			if err != nil {
				return err
			}
			_, err = g.api.Do(ctx, http.MethodPost, "/v1/badges/query", string(query), http.StatusOK)
			return err
		}},
		{"connect", 50, func(ctx context.Context, g *grown, _ *rig.Rig) error {
			token, err := g.tokens.Sign(g.active(), time.Hour, time.Now())
			if err != nil {
				return err
			}
			c, _, err := load.Connect(ctx, g.server.URL, token, nil)
			if err != nil {
				return err
			}
			return c.Conn.CloseNow()
		}},
		{"message to a user", 100, publish("message.delivered", `"conversation_id":"with 1","seq":SEQ`)},
		{"message to a room", 100, publish("room.posted", `"conversation_id":"room of USER","seq":SEQ`)},
		{"read", 50, publish("conversation.read", `"conversation_id":"with 1","up_to_seq":100`)},
		{"revoke tokens", 20, func(ctx context.Context, g *grown, _ *rig.Rig) error {
			_, err := g.api.Do(ctx, http.MethodPost, "/v1/users/"+g.active()+"/disconnect", `{"revoke":true}`, http.StatusAccepted)
			return err
		}},
		{"badged user show", 3, command("user", "show", "template")},
		{"badged user export", 3, command("user", "export", "USER")},
		{"badged user erase", 3, command("user", "erase", "USER", "--yes")},
	}
}

// run starts the server and does everything, and returns the median of what each took.
func (g *grown) run(ctx context.Context, r *rig.Rig) (all []measure.Measure, err error) {
	began := time.Now()
	if g.server, err = rig.Serve(ctx, r.Binary, nil, "--database-url="+g.d.Databases[0]); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.server.Stop()) }()
	all = append(all, measure.Of("start", "ms", measure.Milliseconds(time.Since(began))))
	g.api = load.NewAPI(g.server.URL, 1)
	defer g.api.Close()
	if err := g.warm(ctx); err != nil {
		return nil, err
	}
	for _, p := range yearPaths() {
		took := make([]float64, p.times)
		for i := range took {
			began := time.Now()
			if err := p.do(ctx, g, r); err != nil {
				return nil, fmt.Errorf("%s: %w", p.name, err)
			}
			took[i] = measure.Milliseconds(time.Since(began))
		}
		slices.Sort(took)
		all = append(all, measure.Of(p.name, "ms", took[len(took)/2]))
	}
	return all, nil
}
