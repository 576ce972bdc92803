package scenarios

import (
	"context"
	_ "embed"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/pg/sqlfile"
	"github.com/badged/badged/internal/server/auth"
	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/load"
	"github.com/badged/badged/tests/bench/rig"
)

//go:embed year.sql
var yearText string

func year(r *rig.Rig, s contest.Scale) contest.Scenario {
	const young, old = "a day old", "a year old"
	few := &grown{rig: r, users: 1000, revocations: 1000, letters: 100, events: 10_000, ranges: 1}
	many := &grown{rig: r, users: s.Pick(1_000_000, 2000), revocations: s.Pick(10_000_000, 2000), letters: s.Pick(1_000_000, 200), events: s.Pick(20_000_000, 20_000), ranges: s.Pick(52, 2)}
	scenario := contest.Scenario{
		Name: "year",
		Says: "what a chat and its operators do, one thing after the other",
		Main: "message to a user",
		Open: func(run *contest.Run) { few.open(run); many.open(run) },
		Sides: []contest.Side{
			{Name: young, Says: few.String(), Run: few.run},
			{Name: old, Says: many.String(), Run: many.run},
		},
	}
	for _, p := range few.paths() {
		scenario.Aims = append(scenario.Aims, contest.Aim{Measure: p.name, Of: old, Over: young, AtMost: 2})
	}
	return scenario
}

// grown is a database with as many rows of each kind.
type grown struct {
	rig                                 *rig.Rig
	users, revocations, letters, events int
	// ranges are the complete ranges of each partition, which have the events.
	ranges int

	database string
	server   *rig.Server
	api      *load.API
	seq      int64
}

func (g *grown) String() string {
	return fmt.Sprintf("%d users with 10 conversations and a room each, %d revocations, %d dead letters, %d events in %d complete ranges of each partition", g.users, g.revocations, g.letters, g.events, g.ranges)
}

// open makes the database.
func (g *grown) open(run *contest.Run) {
	ctx, d := run.Context(), g.rig.Deploy(run, rig.Deploy{})
	g.database, g.api = d.Databases[0], load.NewAPI(run, d.API.URL, 1)
	g.publish(ctx, "template", events.RoomJoined, events.Data{ConversationID: "template"})
	for i := range 10 {
		g.publish(ctx, "template", events.MessageDelivered, events.Data{ConversationID: fmt.Sprint("with ", i), Seq: int64(100 + i)})
	}
	// A message to the user of a room is a dead letter, or refused if published over HTTP.
	contest.Check(rig.ExecIn(ctx, g.database, `SELECT badged.publish('{"specversion":"1.0","id":"letter","source":"/bench","type":"message.delivered",
		"data":{"conversation_id":"template","seq":1,"user_ids":["template"]}}')`))
	for i := range 100 { // positions of all partitions are behind the copies
		g.publish(ctx, fmt.Sprint("first-", i), events.MessageDelivered, events.Data{ConversationID: "first", Seq: 1})
	}
	contest.Check(d.API.Stop())
	g.fill(ctx)
}

// fill copies the rows of the template, with as many sessions as there are processors.
// Autovacuum would lock the ranges of the log that are to be indexed.
func (g *grown) fill(ctx context.Context) {
	statements := sqlfile.Parse(yearText)
	exec := func(ctx context.Context, values map[string]int, all ...string) error {
		for i := range all {
			for name, n := range values {
				all[i] = strings.ReplaceAll(all[i], name, fmt.Sprint(n))
			}
		}
		return rig.ExecIn(ctx, g.database, all...)
	}
	together := func(n int, do func(ctx context.Context, i int) error) {
		jobs, ctx := errgroup.WithContext(ctx)
		jobs.SetLimit(runtime.NumCPU())
		for i := range n {
			jobs.Go(func() error { return do(ctx, i) })
		}
		contest.Check(jobs.Wait())
	}
	const parts = 10
	contest.Check(exec(ctx, nil, `ALTER SYSTEM SET autovacuum = off`, `SELECT pg_reload_conf()`))
	together(parts, func(ctx context.Context, i int) error {
		first, last := g.users*i/parts+1, g.users*(i+1)/parts
		return exec(ctx, map[string]int{"FIRST": first, "LAST": last}, statements.Get("users"), statements.Get("conversations"), statements.Get("rooms"))
	})
	contest.Check(exec(ctx, map[string]int{"REVOCATIONS": g.revocations, "LETTERS": g.letters}, statements.Get("revocations"), statements.Get("letters")))
	for p := range defaultPartitions {
		contest.Check(exec(ctx, map[string]int{"RANGES": g.ranges, "NUMBER": p}, statements.Of(p, "ranges")))
	}
	together(defaultPartitions, func(ctx context.Context, p int) error {
		values := map[string]int{"EVENTS": g.events / defaultPartitions, "RANGES": g.ranges, "NUMBER": p}
		return exec(ctx, values, statements.Of(p, "events"), statements.Of(p, "index"))
	})
	contest.Check(exec(ctx, nil, statements.Get("analyze"), `ALTER SYSTEM RESET autovacuum`, `SELECT pg_reload_conf()`))
}

// publish publishes an event about a user and waits until it counts.
func (g *grown) publish(ctx context.Context, user string, typ events.Type, data events.Data) {
	g.seq++
	if typ != events.RoomPosted {
		data.UserIDs = []string{user}
	}
	contest.Check(g.api.Settle(ctx, []string{user}, event(fmt.Sprint("year-", g.seq), typ, data)))
}

func (g *grown) get(ctx context.Context, path string) {
	contest.Must(g.api.Do(ctx, http.MethodGet, path, nil, http.StatusOK))
}

// active returns one of the users who use the chat now: Postgres has their pages in memory. They are
// spread over the tables.
func (g *grown) active() string {
	return g.numbered(rand.IntN(g.activeUsers())) //nolint:gosec // not a secret
}

func (g *grown) activeUsers() int      { return min(5000, g.users) }
func (g *grown) numbered(i int) string { return fmt.Sprint("year-", 1+i*(g.users/g.activeUsers())) }

// yearPath is something that is done, how often in a round.
type yearPath struct {
	name  string
	times int
	do    func(ctx context.Context)
}

func (g *grown) paths() []yearPath {
	get := func(path string) func(context.Context) {
		return func(ctx context.Context) { g.get(ctx, "/v1/users/"+g.active()+path) }
	}
	command := func(format string) func(context.Context) {
		return func(ctx context.Context) {
			args := strings.Fields(strings.ReplaceAll(format, "USER", g.active()))
			contest.Check(rig.RunBinary(ctx, g.rig.Binary, append(args, "--database-url="+g.database)...))
		}
	}
	return []yearPath{
		{"read a badge", 100, get("/badge")},
		{"read a badge of a user who was away", 100, func(ctx context.Context) {
			g.get(ctx, fmt.Sprintf("/v1/users/year-%d/badge", 1+rand.IntN(g.users))) //nolint:gosec // as above
		}},
		{"read a page of conversations", 100, get("/conversations?limit=50")},
		{"read the badges of 100 users", 20, func(ctx context.Context) {
			users := make([]string, 100)
			for i := range users {
				users[i] = g.active()
			}
			contest.Must(g.api.Totals(ctx, users))
		}},
		{"connect", 50, func(ctx context.Context) {
			tokens := contest.Must(auth.NewTokens(auth.TokenConfig{Keys: []string{rig.JWTKeys}}))
			c, _, err := load.Connect(ctx, g.server.URL, contest.Must(tokens.Sign(g.active(), time.Hour, time.Now())), nil)
			contest.Check(err)
			contest.Check(c.Conn.CloseNow())
		}},
		{"message to a user", 100, func(ctx context.Context) {
			g.publish(ctx, g.active(), events.MessageDelivered, events.Data{ConversationID: "with 1", Seq: 1000 + g.seq})
		}},
		{"message to a room", 100, func(ctx context.Context) {
			user := g.active()
			g.publish(ctx, user, events.RoomPosted, events.Data{ConversationID: "room of " + user, Seq: 1000 + g.seq})
		}},
		{"read", 50, func(ctx context.Context) {
			g.publish(ctx, g.active(), events.ConversationRead, events.Data{ConversationID: "with 1", UpToSeq: 100})
		}},
		{"revoke tokens", 20, func(ctx context.Context) {
			contest.Must(g.api.Do(ctx, http.MethodPost, "/v1/users/"+g.active()+"/disconnect", map[string]bool{"revoke": true}, http.StatusAccepted))
		}},
		{"badged user show", 3, command("user show template")},
		{"badged user export", 3, command("user export USER")},
		{"badged user erase", 3, command("user erase USER --yes")},
	}
}

// run starts the server and does everything, and returns the median of what each took.
func (g *grown) run(run *contest.Run) []contest.Measure {
	ctx, began := run.Context(), time.Now()
	g.server = rig.Serve(run, g.rig.Binary, nil, "--database-url="+g.database)
	all := []contest.Measure{contest.Of("start", "ms", contest.Milliseconds(time.Since(began)))}
	g.api = load.NewAPI(run, g.server.URL, 1)
	for i := range g.activeUsers() { // warm up
		g.get(ctx, "/v1/users/"+g.numbered(i)+"/badge")
		g.get(ctx, "/v1/users/"+g.numbered(i)+"/conversations?limit=50")
	}
	for _, p := range g.paths() {
		took := make([]float64, p.times)
		for i := range took {
			began := time.Now()
			p.do(ctx)
			took[i] = contest.Milliseconds(time.Since(began))
		}
		all = append(all, contest.Of(p.name, "ms", contest.Median(took)))
	}
	return all
}
