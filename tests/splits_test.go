package tests

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/badged/badged/internal/devtest/pgtest"
)

// Partitions are split while servers accept events and apps are connected. No message is lost or counted
// twice, neither of conversations nor of rooms, and apps stay up to date.
func TestPartitionsSplitWhileServing(t *testing.T) {
	t.Parallel()
	t.Run("one database", func(t *testing.T) {
		t.Parallel()
		splitWhileServing(t, newDatabase(t))
	})
	t.Run("two shards", func(t *testing.T) {
		t.Parallel()
		splitWhileServing(t, stack(pgtest.NewDBs(t, sharded(2))))
	})
}

func splitWhileServing(t *testing.T, database string) {
	redis := newRedis(t)
	c := newCrowd(t, serve(t, database, "--redis-url="+redis.URL()))
	other := serve(t, database, "--redis-url="+redis.URL())
	members := c.users[:20]
	publish(t, c.p, joined("hall", `"`+strings.Join(members, `","`)+`"`))
	posts := 0
	post := func() (position string) {
		posts++
		return publish(t, other, posted("hall", posts, "bot"))
	}
	position := post()
	apps := map[string][]*client{}
	for _, u := range members[:6] {
		for _, gateway := range []*process{c.p, other} {
			apps[u] = append(apps[u], connect(t, gateway.url, u))
		}
	}
	epochs := map[string]string{}
	for _, u := range c.users {
		epochs[u] = c.badge(u).Epoch
	}
	start := time.Now()
	stop := c.publish(*moveRate)
	defer stop()

	paused := regexp.MustCompile(`(?m)^partition \d+ split into \d+ and \d+ in .* paused for (\S+) and folding it for (\S+)$`)
	split := func(args ...string) string {
		t.Helper()
		command := func() (stdout, stderr string, code int) {
			return command(t, append(append([]string{"partition", "split"}, args...), "--quiet", "--database-url="+database)...)
		}
		stdout, stderr, code := command()
		for code != 0 && strings.Contains(stderr, "run the command again") { // the command gave up because the machine is busy
			var more string
			more, stderr, code = command()
			stdout += more
		}
		if code != 0 {
			t.Fatalf("split %v exits with %d:\n%s%s", args, code, stdout, stderr)
		}
		for _, m := range paused.FindAllStringSubmatch(stdout, -1) {
			for _, text := range m[1:] {
				if pause, err := time.ParseDuration(text); err != nil || *movePause > 0 && pause > *movePause {
					t.Errorf("a partition was paused for %s", text)
				}
			}
		}
		t.Log(stdout)
		return stdout
	}
	began := time.Now()
	if out := split("0"); !strings.HasPrefix(out, "partition 0 split into 8 and 16 in ") || !paused.MatchString(out) {
		t.Fatalf("split says %q", out)
	}
	took := time.Since(began)
	if out := split("0"); out != "partition 0 is split into 8 and 16 already: nothing was done\n" {
		t.Errorf("the second time, split says %q", out)
	}
	post()
	if got := total(t, c.p, members[0], position); got == 0 {
		t.Error("a position from before the split gives no badge")
	}
	for n := range *moveKills {
		p := fmt.Sprint(1 + n)
		if n >= partitions-1 { // the partitions that came from splits
			p = fmt.Sprint(n + 2)
		}
		ctx, cancel := context.WithTimeout(t.Context(), took/10+time.Duration(rand.Int64N(int64(took))))
		cmd := exec.CommandContext(ctx, binary, withShards([]string{"partition", "split", p, "--quiet", "--database-url=" + database})...)
		cmd.Env = environment()
		said, err := cmd.CombinedOutput() // killed by SIGKILL
		cancel()
		t.Logf("killed: %v %s", err, said)
		split(p)
		post()
	}
	// Split the other partitions, and one of their children.
	split()
	split("8")
	post()
	stop()
	t.Logf("%.0f events a second; the longest call took %v", float64(c.published)/time.Since(start).Seconds(), c.longest)

	for _, u := range members {
		c.delivered[u] += int64(posts)
		c.changes[u]++ // the join is a change
	}
	c.check()
	for u, all := range apps {
		for _, app := range all {
			app.awaitTotal(c.delivered[u])
		}
	}
	post() // and is told
	for _, u := range members {
		c.delivered[u]++
	}
	for u, all := range apps {
		for _, app := range all {
			app.awaitTotal(c.delivered[u])
		}
	}
	c.check()
	for _, u := range c.users {
		if got := c.badge(u).Epoch; got != epochs[u] {
			t.Errorf("the epoch of %s is %s, was %s", u, got, epochs[u])
		}
	}
	prints(t, "no difference", "verify", "--quiet", "--database-url="+database)
	prints(t, "no difference", "rebuild", "--quiet", "--database-url="+database)
	prints(t, fmt.Sprint(c.delivered[members[0]]), "user", "explain", members[0], "--database-url="+database)
	if _, stderr, code := command(t, "verify", "--partition=0", "--database-url="+database); code == 0 || !strings.Contains(stderr, "partition 0 was split into 8 and 16") {
		t.Errorf("verify of a partition that was split: %d, %s", code, stderr)
	}
	for _, app := range apps[members[1]] {
		app.close() // a version of the app would otherwise decrease, which the client refuses
	}
	must(t, "user", "erase", members[1], "--database-url="+database)
	if got := c.badge(members[1]); got.Total != 0 {
		t.Errorf("an erased user has %+v", got)
	}
	prints(t, "no difference", "verify", "--quiet", "--database-url="+database)
}

// Programs that read or write the log directly use the new partitions after a split: a relay that runs
// during the split, an import, and a load of recorded traffic.
func TestPartitionsThatWereSplitAreFound(t *testing.T) {
	t.Parallel()
	outbox, database := newOutbox(t, pgtest.Borrow(t)), newDatabase(t)
	p := serve(t, database)
	db := "--database-url=" + database
	launch(t, nil, "relay", "--listen=127.0.0.1:0", "--outbox-url="+outbox, db)
	backend := pgtest.Connect(t, outbox)
	publishIn(t, backend, delivered("c", 1, `"ann","ben","carl"`))
	awaitTotalOf(t, p, "ann", 1)
	must(t, "partition", "split", "--quiet", db)
	publishIn(t, backend, delivered("c", 2, `"ann","ben","carl"`))
	for _, user := range []string{"ann", "ben", "carl"} {
		awaitTotalOf(t, p, user, 2)
	}
	states := filepath.Join(t.TempDir(), "states.csv")
	writeFile(t, states, "user_id,conversation_id,last_seq,read_seq,level\ndora,tea,9,6,all\nemil,tea,9,9,all\nemil,crew,4,2,none\n")
	if out := must(t, "import", "--quiet", states, db); !strings.HasSuffix(out, "compared       no difference\n") {
		t.Errorf("the import prints\n%s", out)
	}
	awaitTotalOf(t, p, "dora", 3)
	file, _ := makeTraffic(t)
	must(t, "load", file, "--quiet", db)
	prints(t, "no difference", "verify", "--quiet", db)
}
