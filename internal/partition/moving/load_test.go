package moving_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/partition/moving"
	"github.com/badged/badged/internal/pg/pgsession"
	"github.com/badged/badged/projector"
)

var kills = flag.Int("kills", 3, "how often to kill a move")

// load publishes to the users of a partition, on whichever shard has it.
type load struct {
	shards [2]*projectortest.Database
	holder atomic.Int32
	users  []string

	mu sync.Mutex
	// delivered is how many messages were acknowledged, by user.
	delivered map[string]int64
	// longest is the longest call.
	longest time.Duration
	calls   int
}

func notHeld(err error) bool { return errors.Is(err, events.ErrNotHeld) }

// append appends events, and tries again until a shard takes them.
func (l *load) append(ctx context.Context, evs ...events.Event) error {
	began := time.Now()
	for {
		at := l.holder.Load()
		_, err := l.shards[at].Log.Append(ctx, evs...)
		if err == nil {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.longest = max(l.longest, time.Since(began))
			l.calls++
			for _, e := range evs {
				l.delivered[e.Data.UserIDs[0]]++
			}
			return nil
		}
		if !notHeld(err) {
			return err
		}
		l.holder.CompareAndSwap(at, 1-at)
	}
}

// publish publishes from several publishers until stop is called. It also ends after many batches:
// if folding cannot keep up, no move would end. A tenth of the events is published twice.
func (l *load) publish(t testing.TB, publishers int) (stop func()) {
	t.Helper()
	limit := 200 * *kills // of each publisher: 16 s for a move that is killed
	ctx, cancel := context.WithCancel(t.Context())
	g, run := errgroup.WithContext(context.WithoutCancel(ctx))
	for n := range publishers {
		g.Go(func() error {
			pace := time.NewTicker(time.Duration(publishers) * 20 * time.Millisecond) // 500 events a second
			defer pace.Stop()
			for batch := 0; ctx.Err() == nil && batch < limit; batch++ {
				<-pace.C
				var evs []events.Event
				for i := range 10 {
					user := l.users[rand.IntN(len(l.users))]
					evs = append(evs, foldtest.Deliver(fmt.Sprintf("c%d", n), int64(batch*10+i+1), user))
				}
				if err := l.append(run, evs...); err != nil {
					return err
				}
				if batch%10 == 0 { // with the same keys, to the same users
					if _, err := l.shards[l.holder.Load()].Log.Append(run, evs...); err != nil && !notHeld(err) {
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
			t.Error(err)
		}
	})
}

// check compares the badges with the acknowledged events, in the shard that holds the partition. A
// move after the last append may have changed this shard.
func (l *load) check(t testing.TB, partition int) {
	t.Helper()
	d := l.shards[0]
	if !holds(t, d.Pool, partition) {
		d = l.shards[1]
	}
	d.AwaitFolded(t)
	for _, user := range l.users {
		if got := d.Badge(t, user); got.Total != l.delivered[user] {
			t.Errorf("%s has a total of %d, want %d", user, got.Total, l.delivered[user])
		} else if got.Version != l.delivered[user] && got.Total > 0 {
			t.Errorf("%s has version %d after %d messages", user, got.Version, got.Total)
		}
	}
	verify(t, d, partition)
}

// running makes projectors fold in both shards.
func running(t testing.TB, shards ...*projectortest.Database) {
	t.Helper()
	for _, d := range shards {
		d.Start(t, func(cfg *projector.Config) {
			cfg.PollInterval, cfg.OwnershipInterval = 10*time.Millisecond, 100*time.Millisecond
		})
	}
}

func newLoad(a, b *projectortest.Database, partition, users int) *load {
	l := &load{shards: [2]*projectortest.Database{a, b}, delivered: map[string]int64{}}
	for n := range users {
		l.users = append(l.users, foldtest.User(partition, n))
	}
	return l
}

// Under load, there and back: no message is lost or counted twice, and versions go on.
func TestMoveUnderLoad(t *testing.T) {
	t.Parallel()
	a, b := newShards(t)
	running(t, a, b)
	l := newLoad(a, b, 0, 50)
	stop := l.publish(t, 4)
	defer stop()
	epoch := a.Badge(t, l.users[0]).Epoch
	for _, to := range []string{"b", "a", "b"} {
		cfg := config(a, b, 0, to)
		cfg.Blocked = func(shard string, holder pgsession.Holder) {
			t.Logf("blocked on %s by %s", shard, holder)
		}
		r := move(t, cfg)
		t.Logf("%+v", r)
	}
	stop()
	t.Logf("%d calls, the longest took %v", l.calls, l.longest)
	l.check(t, 0)
	if got := b.Badge(t, l.users[0]).Epoch; got != epoch {
		t.Errorf("the epoch is %s, was %s", got, epoch)
	}
}

const moveEnv = "BADGED_TEST_MOVE"

// Killed at any moment of the move, the command completes it when it is run again.
func TestKilledMoves(t *testing.T) {
	t.Parallel()
	a, b := newShards(t)
	running(t, a, b)
	l := newLoad(a, b, 0, 50)
	stop := l.publish(t, 4)
	defer stop()
	run := func(ctx context.Context, to string) (string, error) {
		cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^$") // kills with SIGKILL
		cmd.Env = append(os.Environ(), moveEnv+"="+a.URL+" "+b.URL+" "+to)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	began := time.Now()
	if out, err := run(t.Context(), "b"); err != nil { // to know how long it takes
		t.Fatalf("%v\n%s", err, out)
	}
	took := time.Since(began)
	for n := range *kills {
		to := []string{"a", "b"}[n%2]
		ctx, cancel := context.WithTimeout(t.Context(), took/10+time.Duration(rand.Int64N(int64(took))))
		_, killed := run(ctx, to)
		cancel()
		holders := 0
		for _, d := range l.shards {
			projectortest.Until(t, "the killed sessions have ended", func() bool {
				return len(d.Lines(t, `SELECT pid::text FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'badged partition move'`)) == 0
			})
			if holds(t, d.Pool, 0) {
				holders++
			}
		}
		if holders > 1 {
			t.Fatal("both shards have the partition")
		}
		out, err := run(t.Context(), to)
		if err != nil && !strings.Contains(out, moving.ErrSameShard.Error()) {
			t.Fatalf("%v\n%s", err, out)
		}
		t.Logf("killed: %v; then %s", killed, out)
	}
	stop()
	l.check(t, 0)
}
