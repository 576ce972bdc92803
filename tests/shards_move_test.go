package tests

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/snippets"
)

// Loads for the tests of moves.
var (
	moveKills = flag.Int("move-kills", 3, "how often the test of moves kills the command")
	moveRate  = flag.Int("move-rate", 1000, "how many events a second are published during moves")
	movePause = flag.Duration("move-pause", 0, "fail if a move pauses a partition for longer; 0 is any time, since a busy machine cannot promise one")
)

// crowd publishes to many users of all partitions, and counts the acknowledged events.
type crowd struct {
	t     *testing.T
	p     *process
	users []string

	mu        sync.Mutex
	delivered map[string]int64
	// changes counts, by user, changes other than deliveries.
	changes   map[string]int64
	published int
	longest   time.Duration
}

func newCrowd(t *testing.T, p *process) *crowd {
	c := &crowd{t: t, p: p, delivered: map[string]int64{}, changes: map[string]int64{}}
	for n := range 40 * partitions {
		c.users = append(c.users, fmt.Sprintf("user-%d", n))
	}
	return c
}

// publish publishes at a rate until stop is called. It repeats a call that is answered with 503, and
// also every tenth call, with the same events.
func (c *crowd) publish(rate int) (stop func()) {
	c.t.Helper()
	const batch = 50
	// With this number the rate is reached even if an answer takes up to 200 ms.
	publishers := max(4, rate/250)
	interval := time.Second * time.Duration(publishers*batch) / time.Duration(rate)
	start := time.Now()
	ctx, cancel := context.WithCancel(c.t.Context())
	g, run := errgroup.WithContext(context.WithoutCancel(ctx))
	for n := range publishers {
		g.Go(func() error {
			pace := time.NewTicker(interval)
			defer pace.Stop()
			for call := 0; ctx.Err() == nil; call++ {
				// After a slow call, the next calls follow without a pause.
				for time.Since(start) < time.Duration(call)*interval {
					<-pace.C
				}
				users := make([]string, batch)
				sent := make([]string, batch)
				for i := range sent {
					users[i] = c.users[rand.IntN(len(c.users))]
					sent[i] = delivered(fmt.Sprintf("c%d", n), call*batch+i+1, fmt.Sprintf("%q", users[i]))
				}
				body := "[" + strings.Join(sent, ",") + "]"
				began := time.Now()
				if err := c.send(run, body); err != nil {
					return err
				}
				c.mu.Lock()
				c.longest = max(c.longest, time.Since(began))
				c.published += len(users)
				for _, u := range users {
					c.delivered[u]++
				}
				c.mu.Unlock()
				if call%10 == 0 {
					if err := c.send(run, body); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	return sync.OnceFunc(func() {
		cancel()
		if err := g.Wait(); err != nil {
			c.t.Error(err)
		}
	})
}

// send sends events until they are acknowledged.
func (c *crowd) send(ctx context.Context, body string) error {
	for {
		status, _, answer, err := exchangeOnce(ctx, publisherKey, http.MethodPost, c.p.url+"/v1/events", "application/cloudevents-batch+json", body)
		switch {
		case err != nil:
			return err
		case status == http.StatusAccepted:
			return nil
		case status != http.StatusServiceUnavailable && status != http.StatusTooManyRequests:
			return fmt.Errorf("publishing is answered with %d %s", status, answer)
		}
	}
}

// movedBadge has the fields of a badge that the tests of moves compare.
type movedBadge struct {
	Version int64  `json:"version"`
	Total   int64  `json:"total"`
	Epoch   string `json:"epoch"`
}

func (c *crowd) badge(user string) (b movedBadge) {
	c.t.Helper()
	get(c.t, c.p.url+"/v1/users/"+url.PathEscape(user)+"/badge", &b)
	return b
}

// check compares all badges with the acknowledged events, once all events are folded.
func (c *crowd) check() {
	c.t.Helper()
	for _, user := range c.users {
		want := c.delivered[user]
		for range polls(c.t, fmt.Sprintf("%s to have %d", user, want)) {
			if b := c.badge(user); b.Total >= want {
				if b.Total != want || b.Version != want+c.changes[user] {
					c.t.Errorf("%s has a total of %d in version %d, want %d and %d more", user, b.Total, b.Version, want, c.changes[user])
				}
				break
			}
		}
	}
}

// partitionOfA returns a partition that the first shard holds, and a user there.
func (c *crowd) partitionOfA(database string) (partition int, user string) {
	c.t.Helper()
	for p := range partitions {
		if isOn(c.t, database, p, 0) {
			for _, u := range c.users {
				if events.PartitionOf(u, partitions) == p {
					return p, u
				}
			}
		}
	}
	c.t.Fatal("the first shard holds nothing")
	return 0, ""
}

// onOneShard fails the test unless exactly one shard holds each partition, the shard that `partition
// list` names.
func (c *crowd) onOneShard(database string) {
	c.t.Helper()
	list := must(c.t, "partition", "list", "--database-url="+database)
	rows := regexp.MustCompile(`(?m)^(\d+) +([a-z]) .* serving$`).FindAllStringSubmatch(list, -1)
	if len(rows) != partitions {
		c.t.Errorf("list:\n%s", list)
	}
	for _, row := range rows {
		var holders string
		for i, shard := range stackOf(database) {
			if value[bool](c.t, shard, "SELECT EXISTS (SELECT FROM badged.partitions WHERE partition_id = $1::text::int)", row[1]) {
				holders += string(rune('a' + i))
			}
		}
		if holders != row[2] {
			c.t.Errorf("partition %s is on %q, and the list says %s", row[1], holders, row[2])
		}
	}
}

// isOn reports whether a shard of a stack holds a partition.
func isOn(t *testing.T, database string, partition, shard int) bool {
	t.Helper()
	return parsed(holderOf(t, database, partition)).Path == parsed(stackOf(database)[shard]).Path
}

// Partitions move between the shards of a running server while events are published. No message is lost
// or counted twice. The command is killed at random moments, and completes the move when it runs again.
func TestPartitionsMoveWhileServing(t *testing.T) {
	t.Parallel()
	database := stack(pgtest.NewDBs(t, sharded(3)))
	redis := newRedis(t)
	c := newCrowd(t, serve(t, database, "--redis-url="+redis.URL()))
	other := serve(t, database, "--redis-url="+redis.URL())
	p, user := c.partitionOfA(database)
	first := delivered("before", 1, fmt.Sprintf("%q", user))
	position := publish(t, c.p, first)
	c.delivered[user]++
	epoch := c.badge(user).Epoch
	apps := map[string][]*client{}
	for _, u := range append([]string{user}, c.users[:8]...) {
		for _, gateway := range []*process{c.p, other} {
			apps[u] = append(apps[u], connect(t, gateway.url, u))
		}
	}
	began := time.Now()
	stop := c.publish(*moveRate)
	defer stop()

	paused := regexp.MustCompile(`paused for (\S+) and folding it for (\S+)\n$`)
	var took time.Duration // duration of the last move that was not killed
	move := func(to string) string {
		t.Helper()
		began := time.Now()
		stdout, stderr, code := command(t, "partition", "move", fmt.Sprint(p), "--to="+to, "--database-url="+database)
		if code != 0 {
			t.Fatalf("the move to %s exited with %d:\n%s%s", to, code, stdout, stderr)
		}
		if m := paused.FindStringSubmatch(stdout); m != nil {
			if took == 0 { // the first move, to b
				snippets.ExpectShape(t, snippets.Output(t, "docs/cli.md", "badged partition move 1 --to b"), stderr+stdout)
			}
			took = time.Since(began)
			for _, text := range m[1:] {
				if pause, err := time.ParseDuration(text); err != nil || *movePause > 0 && pause > *movePause {
					t.Errorf("the partition was paused for %s", text)
				}
			}
		}
		t.Logf("%s", stdout)
		return stdout
	}
	if out := move("b"); !paused.MatchString(out) {
		t.Errorf("the move says %q", out)
	}
	if !isOn(t, database, p, 1) {
		t.Errorf("partition %d is on %s", p, holderOf(t, database, p))
	}
	if got := total(t, c.p, user, position); got == 0 {
		t.Error("a position from before the move gives no badge")
	}
	for n := range *moveKills {
		to := []string{"c", "a", "b"}[n%3]
		ctx, cancel := context.WithTimeout(t.Context(), took/10+time.Duration(rand.Int64N(int64(took))))
		cmd := exec.CommandContext(ctx, binary, withShards([]string{"partition", "move", fmt.Sprint(p), "--to=" + to, "--quiet", "--database-url=" + database})...)
		cmd.Env = environment()
		out, err := cmd.CombinedOutput() // killed by SIGKILL
		cancel()
		t.Logf("killed: %v %s", err, out)
		move(to)
	}
	stop()
	rate := float64(c.published) / time.Since(began).Seconds()
	t.Logf("%.0f events a second; the longest call took %v", rate, c.longest)
	if *movePause > 0 && rate < 0.9*float64(*moveRate) {
		t.Errorf("%.0f events a second were published, want %d: the pauses are those of a lower rate", rate, *moveRate)
	}
	c.check()
	for u, all := range apps {
		for _, app := range all {
			app.awaitTotal(c.delivered[u])
		}
	}
	before := c.badge(user)
	total(t, c.p, user, publish(t, c.p, first))
	if after := c.badge(user); after != before {
		t.Errorf("an event repeated after the moves makes %+v of %+v", after, before)
	}
	c.onOneShard(database)
	for _, server := range []*process{c.p, other} {
		server.saysNoError()
	}
	if got := c.badge(user).Epoch; got != epoch {
		t.Errorf("the epoch is %s, was %s", got, epoch)
	}
	if out := must(t, "verify", "--quiet", "--database-url="+database); strings.Contains(out, "differs") {
		t.Errorf("verify says\n%s", out)
	}
	prints(t, "no difference", "rebuild", "--quiet", "--database-url="+database)
}

func TestPartitionCommands(t *testing.T) {
	t.Parallel()
	database := stack(pgtest.NewDBs(t, sharded(2)))
	list := must(t, "partition", "list", "--database-url="+database)
	if !regexp.MustCompile(`(?m)^0 +a +\S+ [kM]?B +0 +serving$`).MatchString(list) {
		t.Errorf("list:\n%s", list)
	}
	if plan := must(t, "partition", "plan", "--by=events", "--database-url="+database); plan != "no move would even out the shards\n" {
		t.Errorf("plan:\n%s", plan)
	}
	writer := pgtest.Connect(t, stackOf(database)[0])
	pgtest.Exec(t, writer, `SELECT pg_advisory_lock_shared(1650552183, 0)`) // the mover cannot close the gate
	for _, tc := range []struct{ args, want string }{
		{"0 --to=c", `no such shard as "c": there are a, b`},
		{"8 --to=b", "there is no partition 8: they are numbered from 0 to 7"},
		{"0 --undo", "no move was begun of partition 0"},
		{"0", "give either --to or --undo"},
		{"0 --to=b --max-pause=1ms", "--max-pause must be from 100ms to 3s, is 1ms"},
		{"0 --to=b --max-pause=150ms", "10 attempts of up to 150ms failed"},
	} {
		args := append([]string{"partition", "move", "--database-url=" + database}, strings.Fields(tc.args)...)
		if _, stderr, code := command(t, args...); code == 0 || !strings.Contains(stderr, tc.want) {
			t.Errorf("%s: %d, %s", tc.args, code, stderr)
		}
	}
	if err := writer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	// A database that is not a shard.
	if _, stderr, code := command(t, "partition", "plan", "--database-url="+newDatabase(t)); *shardCount == 1 && (code == 0 || !strings.Contains(stderr, "not one of several shards")) {
		t.Errorf("one database: %d, %s", code, stderr)
	}
	must(t, "partition", "move", "0", "--to=b", "--database-url="+database)
	if out := must(t, "partition", "move", "0", "--to=b", "--database-url="+database); out != "partition 0 is on b already: nothing was moved\n" {
		t.Errorf("the second time, the move says %q", out)
	}
	if list := must(t, "partition", "list", "--database-url="+database); !regexp.MustCompile(`(?m)^0 +b `).MatchString(list) {
		t.Errorf("list after a move:\n%s", list)
	}
	prints(t, "partition.move", "audit", "list", "--database-url="+database)
}
