package scenarios

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/badged/badged/internal/auth"
	"github.com/badged/badged/internal/sqlfile"
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
		Open: func(ctx context.Context, r *rig.Rig, s contest.Scale) (_ *contest.Contest, err error) {
			few := grown{users: 1000, revocations: 1000, letters: 100, events: 10_000}
			many := grown{users: s.Pick(1_000_000, 2000), revocations: s.Pick(10_000_000, 2000), letters: s.Pick(1_000_000, 200), events: s.Pick(20_000_000, 20_000)}
			c := &contest.Contest{}
			var closers []func(context.Context) error
			c.Close = func(ctx context.Context) error {
				var errs []error
				for _, closer := range closers {
					errs = append(errs, closer(ctx))
				}
				return errors.Join(errs...)
			}
			for i, g := range []grown{few, many} {
				if err := g.open(ctx, r); err != nil {
					return nil, errors.Join(err, c.Close(ctx))
				}
				closers = append(closers, g.d.Stop)
				c.Sides = append(c.Sides, contest.Side{Name: []string{young, old}[i], Says: g.String(), Run: func(ctx context.Context) ([]measure.Measure, error) {
					return g.run(ctx, r)
				}})
			}
			return c, nil
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

	d      *rig.Deployment
	api    *load.API
	tokens *auth.Tokens
	seq    int64
}

// String describes the rows.
func (g *grown) String() string {
	return fmt.Sprintf("%d users with 10 conversations and a room each, %d revocations, %d dead letters, %d events", g.users, g.revocations, g.letters, g.events)
}

// open makes the database.
func (g *grown) open(ctx context.Context, r *rig.Rig) (err error) {
	if g.tokens, err = auth.NewTokens(auth.TokenConfig{Keys: []string{rig.JWTKeys}}); err != nil {
		return err
	}
	if g.d, err = r.Deploy(ctx, rig.OneProcess); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.d.Stop(ctx))
		}
	}()
	g.api = load.NewAPI(g.d.API, 1)
	if err := g.publish(ctx, "room.joined", `"conversation_id":"template"`, "template"); err != nil {
		return err
	}
	for i := range 10 {
		if err := g.publish(ctx, "message.delivered", fmt.Sprintf(`"conversation_id":"with %d","seq":%d`, i, 100+i), "template"); err != nil {
			return err
		}
	}
	// A message to the user of a room is a dead letter.
	if err := g.publish(ctx, "message.delivered", `"conversation_id":"template","seq":1`, "template"); err != nil {
		return err
	}
	for i := range 100 { // positions of all partitions are behind the copies
		if err := g.publish(ctx, "message.delivered", `"conversation_id":"first","seq":1`, fmt.Sprint("first-", i)); err != nil {
			return err
		}
	}
	if err := g.d.Front.Stop(); err != nil {
		return err
	}
	g.d.Servers = nil
	return g.fill(ctx)
}

// fill copies the rows of the template.
func (g *grown) fill(ctx context.Context) error {
	statements := sqlfile.Parse(yearText)
	number := strings.NewReplacer("USERS", fmt.Sprint(g.users), "REVOCATIONS", fmt.Sprint(g.revocations), "LETTERS", fmt.Sprint(g.letters),
		"EVENTS", fmt.Sprint(g.events/defaultPartitions), "TEMPLATE", "events_p00")
	all := []string{
		statements.Get("users"), statements.Get("conversations"), statements.Get("rooms"),
		statements.Get("revocations"), statements.Get("letters"),
	}
	for p := range defaultPartitions {
		all = append(all, statements.Of(p, "events"))
	}
	for i := range all {
		all[i] = number.Replace(all[i])
	}
	return rig.ExecIn(ctx, g.d.Database, append(all, statements.Get("analyze"))...)
}

// publish publishes an event about a user and waits until it counts.
func (g *grown) publish(ctx context.Context, typ, data, user string) error {
	g.seq++
	if typ != "room.posted" {
		data += fmt.Sprintf(`,"user_ids":[%q]`, user)
	}
	event := fmt.Sprintf(`{"specversion":"1.0","id":"year-%d","source":"/bench","type":%q,"data":{%s}}`, g.seq, typ, data)
	header, _, err := g.api.Call(ctx, http.MethodPost, "/v1/events", "application/cloudevents+json", []byte(event), http.StatusAccepted)
	if err != nil {
		return err
	}
	_, err = g.api.Do(ctx, http.MethodGet, "/v1/users/"+user+"/badge?at_least="+header.Get("Badged-Position"), "", nil, http.StatusOK)
	return err
}

// user draws a user.
func (g *grown) user() string { return fmt.Sprint("year-", 1+rand.IntN(g.users)) } //nolint:gosec // not a secret

// yearPath is something that is done, how often in a round.
type yearPath struct {
	name  string
	times int
	do    func(ctx context.Context, g *grown, r *rig.Rig) error
}

func yearPaths() []yearPath {
	get := func(path string) func(context.Context, *grown, *rig.Rig) error {
		return func(ctx context.Context, g *grown, _ *rig.Rig) error {
			_, err := g.api.Do(ctx, http.MethodGet, "/v1/users/"+g.user()+path, "", nil, http.StatusOK)
			return err
		}
	}
	command := func(args ...string) func(context.Context, *grown, *rig.Rig) error {
		return func(ctx context.Context, g *grown, r *rig.Rig) error {
			all := slices.Clone(args)
			for i := range all {
				all[i] = strings.ReplaceAll(all[i], "USER", g.user())
			}
			_, _, err := r.RunBinary(ctx, append(all, "--database-url="+g.d.Database)...)
			return err
		}
	}
	return []yearPath{
		{"read a badge", 100, get("/badge")},
		{"read a page of conversations", 100, get("/conversations?limit=50")},
		{"read the badges of 100 users", 20, func(ctx context.Context, g *grown, _ *rig.Rig) error {
			users := make([]string, 100)
			for i := range users {
				users[i] = g.user()
			}
			query, err := json.Marshal(map[string]any{"user_ids": users})
			if err != nil {
				return err
			}
			_, err = g.api.Do(ctx, http.MethodPost, "/v1/badges/query", "application/json", query, http.StatusOK)
			return err
		}},
		{"connect", 50, func(ctx context.Context, g *grown, _ *rig.Rig) error {
			token, err := g.tokens.Sign(g.user(), time.Hour, time.Now())
			if err != nil {
				return err
			}
			conn, err := load.DialWebSocket(ctx, g.d.Gateway, &websocket.DialOptions{
				HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}, Subprotocols: []string{"badge.v1"},
			})
			if err != nil {
				return err
			}
			defer func() { _ = conn.CloseNow() }()
			if err := conn.Write(ctx, websocket.MessageText, []byte(`{"t":"hello"}`)); err != nil {
				return err
			}
			_, _, err = conn.Read(ctx)
			return err
		}},
		{"message to a user", 100, func(ctx context.Context, g *grown, _ *rig.Rig) error {
			return g.publish(ctx, "message.delivered", fmt.Sprintf(`"conversation_id":"with 1","seq":%d`, 1000+g.seq), g.user())
		}},
		{"message to a room", 100, func(ctx context.Context, g *grown, _ *rig.Rig) error {
			user := g.user()
			return g.publish(ctx, "room.posted", fmt.Sprintf(`"conversation_id":"room of %s","seq":%d`, user, 1000+g.seq), user)
		}},
		{"read", 50, func(ctx context.Context, g *grown, _ *rig.Rig) error {
			return g.publish(ctx, "conversation.read", `"conversation_id":"with 1","up_to_seq":100`, g.user())
		}},
		{"revoke tokens", 20, func(ctx context.Context, g *grown, _ *rig.Rig) error {
			_, err := g.api.Do(ctx, http.MethodPost, "/v1/users/"+g.user()+"/disconnect", "application/json", []byte(`{"revoke":true}`), http.StatusAccepted)
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
	server, err := r.Serve(ctx, g.d.FrontArgs...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	all = append(all, measure.Of("start", "ms", measure.Milliseconds(time.Since(began))))
	g.d.API, g.d.Gateway, g.d.Front = server.URL, server.URL, server
	g.api = load.NewAPI(server.URL, 1)
	defer g.api.Close()
	for _, p := range yearPaths() {
		took := make([]time.Duration, p.times)
		for i := range took {
			began := time.Now()
			if err := p.do(ctx, g, r); err != nil {
				return nil, fmt.Errorf("%s: %w", p.name, err)
			}
			took[i] = time.Since(began)
		}
		slices.Sort(took)
		all = append(all, measure.Of(p.name, "ms", measure.Milliseconds(took[len(took)/2])))
	}
	return all, nil
}
