package splitting_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/partition/copier"
	"github.com/badged/badged/internal/partition/splitting"
	"github.com/badged/badged/internal/pg/pgsession"
	"github.com/badged/badged/projector"
)

// Publishers in SQL go on while the partition is split: each event that was acknowledged is
// in the log of its user's partition, once.
func TestSplitUnderLoad(t *testing.T) {
	t.Parallel()
	d := projectortest.New(t)
	d.Start(t, func(cfg *projector.Config) {
		cfg.PollInterval, cfg.OwnershipInterval = 10*time.Millisecond, 100*time.Millisecond
	})
	var mu sync.Mutex
	published := map[string]string{} // by id, the user
	var count, again atomic.Int64
	var stop atomic.Bool
	enough := make(chan struct{})
	var g errgroup.Group
	for n := range 4 {
		g.Go(func() error {
			for i := 0; !stop.Load(); i++ {
				id, user := fmt.Sprintf("%d/%d", n, i), foldtest.User(0, i%10)
				for {
					_, err := d.Pool.Exec(t.Context(), fmt.Sprintf(`SELECT badged.publish('{"specversion":"1.0","id":"%s","source":"sql","type":"message.delivered","data":{"conversation_id":"c%d","seq":%d,"user_ids":["%s"]}}')`, id, n, i+1, user))
					if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "BD100" {
						again.Add(1)
						continue
					}
					if err != nil {
						return err
					}
					break
				}
				mu.Lock()
				published[id] = user
				mu.Unlock()
				if count.Add(1) == 200 {
					close(enough)
				}
			}
			return nil
		})
	}
	<-enough
	r, err := splitting.Split(t.Context(), splitting.Config{Pool: d.Pool, Log: d.Log, Partition: 0, Blocked: func(holder pgsession.Holder) { t.Logf("blocked by %s", holder) }})
	stop.Store(true)
	if groupErr := g.Wait(); err != nil || groupErr != nil {
		t.Fatal(err, groupErr)
	}
	t.Logf("%+v; %d events, %d calls had to be repeated", r, len(published), again.Load())
	found := map[string]int{}
	for _, p := range []int{4, 8} {
		for _, record := range d.Records(t, p) {
			e, err := events.Decode(record.Payload)
			if err != nil {
				t.Fatal(err)
			}
			if user := published[e.ID]; e.Data.UserIDs[0] != user || !eventlog.Belongs(user, p, foldtest.Partitions) {
				t.Errorf("event %s of %v is in partition %d", e.ID, e.Data.UserIDs, p)
			}
			found[e.ID]++
		}
	}
	for id := range published {
		if found[id] != 1 {
			t.Errorf("event %s is in the log %d times", id, found[id])
		}
	}
	verify(t, d)
}

// If no projector runs and events are not folded, the split fails and says so.
func TestSplitWithoutAProjector(t *testing.T) {
	t.Parallel()
	d := projectortest.New(t)
	d.Append(t, foldtest.Deliver("c", 1, foldtest.User(0, 0)))
	cfg := splitting.Config{Pool: d.Pool, Log: d.Log, Partition: 0, Options: copier.Options{Attempts: 1}}
	if _, err := splitting.Split(t.Context(), cfg); !errors.Is(err, copier.ErrBusy) || !strings.Contains(err.Error(), "rows of the log that are not folded: 1 (is a projector running?); ") {
		t.Errorf("the split fails with %v", err)
	}
	d.Fold(t)
	split(t, d, 0)
}

// If another transaction has locks that the switch needs, the split fails after Attempts attempts.
// The partition serves meanwhile, and a split succeeds after the transaction has ended.
func TestSplitGivesUp(t *testing.T) {
	t.Parallel()
	d := projectortest.New(t)
	user := foldtest.User(0, 0)
	other := d.Connect(t)
	cfg := splitting.Config{Pool: d.Pool, Log: d.Log, Partition: 0, Options: copier.Options{Attempts: 3}}
	attempts := 0
	cfg.Progress = func(step copier.Step, _ int64) {
		if step != copier.Switching {
			return
		}
		if attempts++; attempts == 1 {
			for _, sql := range []string{`SET application_name = 'a long report'`, `BEGIN`, `LOCK TABLE badged.partitions IN SHARE MODE`} {
				if _, err := other.Exec(t.Context(), sql); err != nil {
					t.Fatal(err)
				}
			}
		}
		d.Append(t, foldtest.Named(fmt.Sprint("event", attempts), foldtest.Deliver("c", int64(attempts), user)))
		d.Fold(t)
	}
	_, err := splitting.Split(t.Context(), cfg)
	if !errors.Is(err, copier.ErrBusy) || attempts != 3 {
		t.Fatalf("after %d attempts: %v", attempts, err)
	}
	for _, said := range []string{"split partition 0", "3 attempts of up to 800ms failed", fmt.Sprintf("\"a long report\" (Postgres process %d)", other.PgConn().PID()), "has locks; wait for it", "is served as before", "run the command again to continue", "`badged partition split 0 --undo` to undo the split"} {
		if !strings.Contains(err.Error(), said) {
			t.Errorf("the error says nothing of %q: %v", said, err)
		}
	}
	if got := d.Badge(t, user).Total; got != 3 {
		t.Errorf("the user has %d, want 3", got)
	}
	if _, err := other.Exec(t.Context(), `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	split(t, d, 0)
	if err := d.Log.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := d.Badge(t, user).Total; got != 3 {
		t.Errorf("after the split the user has %d, want 3", got)
	}
	verify(t, d)
}
