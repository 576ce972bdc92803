package tests

import (
	"context"
	"encoding/json"
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
)

// Loads for the tests of moves.
var (
	moveKills = flag.Int("move-kills", 3, "how often the test of moves kills the command")
	moveRate  = flag.Int("move-rate", 1000, "how many events a second are published during moves")
	movePause = flag.Duration("move-pause", 0, "fail if a move pauses a partition for longer; 0 is any time, since a busy machine cannot promise one")
)

// crowd publishes to many users of all partitions, and counts what was acknowledged.
type crowd struct {
	t     *testing.T
	p     *process
	users []string

	mu        sync.Mutex
	delivered map[string]int64
	longest   time.Duration
}

func newCrowd(t *testing.T, p *process) *crowd {
	c := &crowd{t: t, p: p, delivered: map[string]int64{}}
	for n := range 40 * partitions {
		c.users = append(c.users, fmt.Sprintf("user-%d", n))
	}
	return c
}

// publish publishes at a rate until stop is called. A call that is answered with 503 is
// repeated, with the same events; so is every tenth.
func (c *crowd) publish(rate int) (stop func()) {
	c.t.Helper()
	const publishers, batch = 4, 50
	ctx, cancel := context.WithCancel(c.t.Context())
	g, run := errgroup.WithContext(context.WithoutCancel(ctx))
	for n := range publishers {
		g.Go(func() error {
			pace := time.NewTicker(time.Second * publishers * batch / time.Duration(rate))
			defer pace.Stop()
			for call := 0; ctx.Err() == nil; call++ {
				<-pace.C
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
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.p.url+"/v1/events", strings.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+publisherKey)
		req.Header.Set("Content-Type", "application/cloudevents-batch+json")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		_ = res.Body.Close() // nothing of it is used
		switch res.StatusCode {
		case http.StatusAccepted:
			return nil
		case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		default:
			return fmt.Errorf("publishing is answered with %s", res.Status)
		}
	}
}

// movedBadge is what a test compares of a badge.
type movedBadge struct {
	Version int64  `json:"version"`
	Total   int64  `json:"total"`
	Epoch   string `json:"epoch"`
}

func (c *crowd) badge(user string) (b movedBadge) {
	c.t.Helper()
	status, _, answer := request(c.t, http.MethodGet, c.p.url+"/v1/users/"+url.PathEscape(user)+"/badge", "", "")
	if status != http.StatusOK {
		c.t.Fatalf("the badge of %s is answered with %d: %s", user, status, answer)
	}
	if err := json.Unmarshal([]byte(answer), &b); err != nil {
		c.t.Fatal(err)
	}
	return b
}

// check compares all badges with what was acknowledged, once all is folded.
func (c *crowd) check() {
	c.t.Helper()
	for _, user := range c.users {
		want := c.delivered[user]
		for range polls(c.t, fmt.Sprintf("%s to have %d", user, want)) {
			if b := c.badge(user); b.Total >= want {
				if b.Total != want || b.Version != want {
					c.t.Errorf("%s has a total of %d in version %d, want %d", user, b.Total, b.Version, want)
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

// isOn reports whether a shard of a stack holds a partition.
func isOn(t *testing.T, database string, partition, shard int) bool {
	t.Helper()
	return parsed(holderOf(t, database, partition)).Path == parsed(stackOf(database)[shard]).Path
}

// Partitions move between the shards of a running server, with publishers at work, and no
// message is lost or counted twice. The command is killed at any moment; run again, it
// finishes.
func TestPartitionsMoveWhileServing(t *testing.T) {
	t.Parallel()
	database := stack(pgtest.NewDBs(t, sharded(2)))
	c := newCrowd(t, serve(t, database))
	p, user := c.partitionOfA(database)
	position := publish(t, c.p, delivered("before", 1, fmt.Sprintf("%q", user)))
	c.delivered[user]++
	epoch := c.badge(user).Epoch
	stop := c.publish(*moveRate)
	defer stop()

	paused := regexp.MustCompile(`paused for (\S+)\n$`)
	move := func(to string) string {
		t.Helper()
		stdout, stderr, code := command(t, "partition", "move", fmt.Sprint(p), "--to="+to, "--database-url="+database)
		if code != 0 && !strings.Contains(stderr, "is there already") {
			t.Fatalf("the move to %s exited with %d:\n%s%s", to, code, stdout, stderr)
		}
		if m := paused.FindStringSubmatch(stdout); m != nil {
			if took, err := time.ParseDuration(m[1]); err != nil || *movePause > 0 && took > *movePause {
				t.Errorf("the partition was paused for %s", m[1])
			}
		}
		t.Logf("%s", stdout)
		return stdout
	}
	began := time.Now()
	if out := move("b"); !paused.MatchString(out) {
		t.Errorf("the move says %q", out)
	}
	took := time.Since(began)
	if !isOn(t, database, p, 1) {
		t.Errorf("partition %d is on %s", p, holderOf(t, database, p))
	}
	if got := total(t, c.p, user, position); got == 0 {
		t.Error("a position from before the move gives no badge")
	}
	for n := range *moveKills {
		to := []string{"a", "b"}[n%2]
		ctx, cancel := context.WithTimeout(t.Context(), took/10+time.Duration(rand.Int64N(int64(took))))
		cmd := exec.CommandContext(ctx, binary, withShards([]string{"partition", "move", fmt.Sprint(p), "--to=" + to, "--quiet", "--database-url=" + database})...)
		cmd.Env = environment()
		out, err := cmd.CombinedOutput() // killed by SIGKILL
		cancel()
		t.Logf("killed: %v %s", err, out)
		move(to)
	}
	stop()
	c.check()
	t.Logf("the longest call took %v", c.longest)
	if got := c.badge(user).Epoch; got != epoch {
		t.Errorf("the epoch is %s, was %s", got, epoch)
	}
	if out := must(t, "verify", "--quiet", "--database-url="+database); strings.Contains(out, "differs") {
		t.Errorf("verify says\n%s", out)
	}
	if out := must(t, "rebuild", "--quiet", "--database-url="+database); !strings.Contains(out, "no difference") {
		t.Errorf("rebuild says\n%s", out)
	}
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
	for _, tc := range []struct{ args, want string }{
		{"0 --to=c", `no such shard as "c": there are a, b`},
		{"0 --to=a", "partition 0 is on a"},
		{"16 --to=b", "no such partition as 16: they are numbered from 0 to 15"},
		{"0 --undo", "no move was begun of partition 0"},
		{"0", "give either --to or --undo"},
	} {
		args := append([]string{"partition", "move", "--database-url=" + database}, strings.Fields(tc.args)...)
		if _, stderr, code := command(t, args...); code == 0 || !strings.Contains(stderr, tc.want) {
			t.Errorf("%s: %d, %s", tc.args, code, stderr)
		}
	}
	// A database by itself.
	if _, stderr, code := command(t, "partition", "list", "--database-url="+newDatabase(t)); *shardCount == 1 && (code == 0 || !strings.Contains(stderr, "not one of several shards")) {
		t.Errorf("one database: %d, %s", code, stderr)
	}
	must(t, "partition", "move", "0", "--to=b", "--database-url="+database)
	if list := must(t, "partition", "list", "--database-url="+database); !regexp.MustCompile(`(?m)^0 +b `).MatchString(list) {
		t.Errorf("list after a move:\n%s", list)
	}
	if audit := must(t, "audit", "list", "--database-url="+database); !strings.Contains(audit, "partition.move") {
		t.Errorf("audit:\n%s", audit)
	}
}
