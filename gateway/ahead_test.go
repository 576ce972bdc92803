package gateway

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/gateway/internal/view"
	"github.com/badged/badged/gateway/protocol"
	"github.com/badged/badged/pubsub"
)

// forge publishes an update that no projector made.
func (w *world) forge(version, base, total int64) {
	w.t.Helper()
	u := pubsub.Update{
		Badge: pubsub.Badge{
			UserID: "ann", Epoch: "e1", Version: version, Numbers: pubsub.Numbers{Total: total}, Categories: map[string]pubsub.Numbers{"chat": {Total: total}},
		},
		Partition: 3, BaseVersion: base,
		Conversations: []pubsub.Conversation{{ConversationID: "forged", Unread: total, LastSeq: total, Level: "all", Category: "chat", Version: version}},
	}
	if err := w.bus.Publish(context.Background(), []pubsub.Update{u}, nil); err != nil {
		w.t.Fatal(err)
	}
}

// counted returns the value of a labelled counter.
func (w *world) counted(name, label, value string) float64 {
	w.t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == label && l.GetValue() == value {
					return m.GetCounter().GetValue()
				}
			}
		}
	}
	w.t.Fatalf("no counter %s{%s=%q}", name, label, value)
	return 0
}

// A client with a state that the tables do not have gets a snapshot of the tables when it is
// compared, and later changes as usual.
func TestForgedStateIsCorrected(t *testing.T) {
	for _, tc := range []struct {
		name    string
		version int64
		// then runs after the forged update and before the comparison.
		then func(*world)
		want int64 // version of the snapshot
	}{
		{"far ahead", 9_000_000_000_000_000, nil, 1},
		{"far ahead, and updates that it hides", 9_000_000_000_000_000, func(w *world) { w.send("ann", "c1", 2) }, 2},
		{"of a version that the tables reach meanwhile", 2, func(w *world) { w.send("ann", "c1", 2) }, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, nil)
			c, _ := w.connect("ann")
			w.send("ann", "c1", 1)
			c.hear()
			eventually(func() bool { return !w.openSessions()[0].mailbox.Mark().Syncing })
			w.forge(tc.version, 1, 777)
			if f := c.hear(); f.Total != 777 {
				t.Fatalf("the forged update is not shown: %s", f.raw)
			}
			if tc.then != nil {
				tc.then(w)
			}
			w.gateway.hub.HandleGap()
			f := c.hear()
			if f.T != "snapshot" || f.Version != tc.want || f.Total != tc.want || f.unread("forged") != -1 {
				t.Fatalf("after the comparison: %s", f.raw)
			}
			w.send("ann", "c1", 5)
			if f := c.hear(); f.T != "changes" || f.Total != 5 {
				t.Errorf("after that: %s", f.raw)
			}
			// The comparison counts once all clients have their snapshots.
			eventually(func() bool {
				return w.counted("badged_gateway_clients_ahead_total", "found", "reconciliation") == 1
			})
		})
	}
}

// After the tables are restored from a backup, clients get the restored state and later changes.
func TestClientsFollowRewoundTables(t *testing.T) {
	w := newWorld(t, nil)
	c, _ := w.connect("ann")
	for i := range int64(5) {
		w.send("ann", "c1", i+1)
		c.hear()
	}
	w.tables.mu.Lock()
	w.tables.users["ann"] = nil
	w.tables.mu.Unlock()
	w.tables.commit("ann", "c2", 3)
	w.gateway.hub.HandleGap()
	if f := c.hear(); f.T != "snapshot" || f.Version != 1 || f.Total != 3 || f.unread("c1") != -1 {
		t.Errorf("after the comparison: %s", f.raw)
	}
}

// A read of the tables just before a commit does not undo an update that the client received
// after the commit.
func TestReadBeforeACommitDeniesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPipedWorld(t, nil)
		w.tables.commit("ann", "c1", 1)
		c, _ := w.connect("ann")
		synctest.Wait()
		mailbox := w.openSessions()[0].mailbox
		w.tables.mu.Lock()
		w.tables.afterVersions = func() {
			u := w.tables.commit("ann", "c1", 2)
			mailbox.Offer(&u)
		}
		w.tables.mu.Unlock()
		w.gateway.hub.HandleGap()
		if f := c.hear(); f.T != "changes" || f.Version != 2 {
			t.Errorf("the client got %s", f.raw)
		}
		synctest.Wait()
		w.send("ann", "c1", 3)
		if f := c.hear(); f.T != "changes" || f.Version != 3 {
			t.Errorf("the client also got %s", f.raw)
		}
		w.stop()
	})
}

// A forged update after a gap makes the gateway read the tables a single time, not until they
// have the forged version.
func TestForgedGapIsReadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPipedWorld(t, nil)
		w.tables.commit("ann", "c1", 1)
		c, _ := w.connect("ann")
		synctest.Wait()
		w.forge(1<<60, 1<<60-1, 777)
		synctest.Wait()
		time.Sleep(time.Hour / 2)
		synctest.Wait()
		w.tables.mu.Lock()
		reads := w.tables.reads
		w.tables.mu.Unlock()
		if reads != 2 { // the hello's, and one more
			t.Errorf("the tables were read %d times", reads)
		}
		if n := w.counted("badged_gateway_clients_ahead_total", "found", "update"); n != 1 {
			t.Errorf("%v clients are counted as ahead, want 1", n)
		}
		w.send("ann", "c1", 2)
		if f := c.hear(); f.T != "changes" || f.Version != 2 || f.Total != 2 {
			t.Errorf("after that: %s", f.raw)
		}
		w.stop()
	})
}

// A client that names a version that the tables do not have gets a snapshot; the user's other
// clients are not affected.
func TestClaimedVersionAffectsOnlyItsClient(t *testing.T) {
	w := newWorld(t, nil)
	w.tables.commit("ann", "c1", 1)
	honest, _ := w.connect("ann")
	liar := w.dial(http.Header{"Authorization": {"Bearer ann"}}, protocol.Subprotocol)
	liar.say(fmt.Sprintf(`{"t":"hello","epoch":"e1","version":%d}`, int64(9e15)))
	if f := liar.hear(); f.T != "snapshot" || f.Version != 1 {
		t.Errorf("the answer is %s", f.raw)
	}
	w.send("ann", "c1", 2)
	for name, c := range map[string]*client{"the one that claimed it": liar, "another of the user": honest} {
		if f := c.hear(); f.T != "changes" || f.Version != 2 || f.Epoch != "e1" {
			t.Errorf("%s got %s", name, f.raw)
		}
	}
	if n := w.counted("badged_gateway_clients_ahead_total", "found", "hello"); n != 1 {
		t.Errorf("%v claims are counted, want 1", n)
	}
	if n := w.counted("badged_gateway_clients_ahead_total", "found", "reconciliation"); n != 0 {
		t.Errorf("%v clients are counted as ahead, want none", n)
	}
}

// staleness returns how many frames were measured, and their sum in seconds.
func (w *world) staleness() (frames uint64, sum float64) {
	w.t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "badged_gateway_staleness_seconds" {
			h := family.GetMetric()[0].GetHistogram()
			return h.GetSampleCount(), h.GetSampleSum()
		}
	}
	w.t.Fatal("no staleness is measured")
	return 0, 0
}

// Staleness is measured by the clock of the database, from the oldest of the
// changes that a frame shows.
func TestStaleness(t *testing.T) {
	const ahead = 42 * time.Minute
	appended := func(u pubsub.Update, age time.Duration) pubsub.Update {
		u.Partition, u.AppendedAt = 3, time.Now().Add(ahead-age).UnixMicro()
		return u
	}
	for _, tc := range []struct {
		name   string
		happen func(w *world)
		frames uint64
		want   float64
	}{
		{"an update", func(w *world) {
			u := appended(w.tables.commit("ann", "c1", 1), 3*time.Second)
			_ = w.bus.Publish(context.Background(), []pubsub.Update{u}, nil)
		}, 1, 3},
		{"two updates in a frame", func(w *world) {
			s := w.openSessions()[0]
			s.taskMu.Lock()
			s.busy = true // so that the worker takes both at once
			s.taskMu.Unlock()
			for _, age := range []time.Duration{3, 9} {
				u := appended(w.tables.commit("ann", "c1", int64(age)), age*time.Second)
				s.mailbox.Offer(&u)
			}
			s.begin()
		}, 1, 9},
		{"an append of the future", func(w *world) {
			u := appended(w.tables.commit("ann", "c1", 1), -time.Hour)
			_ = w.bus.Publish(context.Background(), []pubsub.Update{u}, nil)
		}, 1, 0},
		{"an update that leaves a gap", func(w *world) {
			w.tables.commit("ann", "c1", 1) // lost
			u := appended(w.tables.commit("ann", "c1", 2), 5*time.Second)
			_ = w.bus.Publish(context.Background(), []pubsub.Update{u}, nil)
		}, 1, 5},
		{"an update that is lost without a trace", func(w *world) { w.send("ann", "c1", 1) }, 0, 0},
		// Staleness counts from the time when the client was last known to be up to date.
		{"a lost update", func(w *world) {
			w.gateway.hub.HandleGap()
			synctest.Wait()
			time.Sleep(20 * time.Second)
			w.tables.commit("ann", "c1", 1)
			w.gateway.hub.HandleGap()
			synctest.Wait()
			time.Sleep(reconcileGrace)
		}, 1, 20 + reconcileGrace.Seconds()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newPipedWorld(t, func(c *Config) { c.Badges.(*tables).ahead = ahead })
				synctest.Wait() // until the clocks have been compared
				c, _ := w.connect("ann")
				go func() {
					for _, err := c.listen(); err == nil; _, err = c.listen() {
					}
				}()
				synctest.Wait()
				tc.happen(w)
				synctest.Wait()
				frames, sum := w.staleness()
				if frames != tc.frames || sum < tc.want-0.001 || sum > tc.want+0.001 {
					t.Errorf("%d frames were measured, of %v s; want %d, of %v s", frames, sum, tc.frames, tc.want)
				}
				w.stop()
			})
		})
	}
}

func BenchmarkObserveStale(b *testing.B) {
	g := &Gateway{metrics: NewMetrics(prometheus.NewRegistry())}
	since := view.DBTimeOf(g.clock.Now())
	for b.Loop() {
		g.observeStale(since)
	}
}
