package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/log/groupcommit"
	"github.com/badged/badged/internal/partition/copier"
	"github.com/badged/badged/internal/partition/moving"
	"github.com/badged/badged/internal/partition/replay"
	"github.com/badged/badged/internal/partition/splitting"
	"github.com/badged/badged/projector"
)

// hall is two shards with projectors, and members of rooms: a has the partitions 0 and 1, b
// has 2 and 3.
type hall struct {
	a, b *projectortest.Database
	all  []cluster.Candidate
	// cluster follows moves, and appender uses it.
	cluster  *cluster.Cluster
	appender *cluster.Appender

	mu sync.Mutex
	// seqs has the last message of each room.
	seqs map[string]int64
	// want has the total of each member.
	want map[string]int64
	// members has the members of each room.
	members map[string][]string
}

func newHall(t *testing.T) *hall {
	t.Helper()
	h := &hall{a: projectortest.New(t), b: projectortest.New(t), seqs: map[string]int64{}, want: map[string]int64{}, members: map[string][]string{}}
	for _, d := range []struct {
		name string
		of   *projectortest.Database
	}{{"a", h.a}, {"b", h.b}} {
		h.all = append(h.all, cluster.Candidate{Name: d.name, Pool: d.of.Pool})
	}
	form(t, h.all)
	for _, d := range []*projectortest.Database{h.a, h.b} {
		d.Start(t, func(cfg *projector.Config) {
			cfg.PollInterval, cfg.OwnershipInterval = 10*time.Millisecond, 100*time.Millisecond
		})
	}
	h.cluster = h.open(t)
	projectortest.Run(t, h.cluster.Run)
	h.appender = cluster.NewAppender(h.cluster, func(s *cluster.Database) events.Append {
		return groupcommit.New(s.Log, s.Log.Append, groupcommit.SmallAppend, 2).Append
	})
	return h
}

// open opens the cluster once more, without reading its map again.
func (h *hall) open(t *testing.T) *cluster.Cluster {
	t.Helper()
	c, err := cluster.Open(t.Context(), cluster.Config{Databases: again(t, h.all), Interval: 20 * time.Millisecond, Patience: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func (h *hall) join(t *testing.T, room string, users ...string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, err := h.appender.Append(t.Context(), foldtest.Event(fmt.Sprint("join", room, users), events.RoomJoined, room, nil, users...)); err != nil {
		t.Fatalf("join %s: %v", room, err)
	}
	h.members[room] = append(h.members[room], users...)
}

// next returns the next message of a room and adds it to the totals of its members.
func (h *hall) next(room string) events.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seqs[room]++
	for _, user := range h.members[room] {
		h.want[user]++
	}
	return message(room, h.seqs[room])
}

func message(room string, seq int64) events.Event {
	return foldtest.Event(fmt.Sprint(room, seq), events.RoomPosted, room, foldtest.Seq(seq))
}

// post posts once to each room, and fails if an append is retried until the appender gives up.
func (h *hall) post(t *testing.T, when string, rooms ...string) {
	t.Helper()
	for _, room := range rooms {
		if _, err := h.appender.Append(t.Context(), h.next(room)); err != nil {
			t.Errorf("%s, post to %s: %v", when, room, err)
		}
	}
}

// publish posts to rooms from several publishers until stop is called.
func (h *hall) publish(t *testing.T, rooms ...string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	g, run := errgroup.WithContext(context.WithoutCancel(ctx))
	for n := range 2 * len(rooms) {
		g.Go(func() error {
			pace := time.NewTicker(10 * time.Millisecond)
			defer pace.Stop()
			for ctx.Err() == nil {
				<-pace.C
				e := h.next(rooms[n%len(rooms)])
				for {
					_, err := h.appender.Append(run, e)
					if err == nil {
						break
					} else if !errors.Is(err, events.ErrNotHeld) && !errors.Is(err, cluster.ErrAway) || t.Failed() { // else as a publisher that gets 503
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

// check compares the badges of all members with what was posted.
func (h *hall) check(t *testing.T) {
	t.Helper()
	h.a.AwaitFolded(t)
	h.b.AwaitFolded(t)
	if err := h.cluster.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	reader := cluster.NewReader(h.cluster)
	for user, want := range h.want {
		if b, err := reader.Badge(t.Context(), user); err != nil || b.Total != want {
			t.Errorf("%s, who is in partition %d, has a total of %d, want %d (%v)", user, events.PartitionOf(user, foldtest.Partitions), b.Total, want, err)
		}
	}
}

// verifyPartition compares the tables of a partition with the log.
func verifyPartition(t *testing.T, d *projectortest.Database, partition int) {
	t.Helper()
	if _, err := replay.NewVerifier(d.Pool, d.Log).Verify(t.Context(), partition, replay.VerifyOptions{
		Found: func(d replay.Difference) { t.Errorf("partition %d: %s", partition, d) },
	}); err != nil {
		t.Error(err)
	}
}

func (h *hall) move(partition int, to string) moving.Config {
	const patience = 10 * time.Second // of a busy machine
	return moving.Config{Partition: partition, To: to, Options: copier.Options{Patience: patience}, Databases: []moving.Database{{Name: "a", Pool: h.a.Pool, Log: h.a.Log}, {Name: "b", Pool: h.b.Pool, Log: h.b.Log}}}
}

// heldUp runs a move until it pauses after its first rounds. goOn continues the move and returns
// its result; stop cancels it.
func (h *hall) heldUp(t *testing.T, partition int, to string) (goOn, stop func() error) {
	t.Helper()
	waits, release, done := make(chan bool), make(chan bool), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	cfg := h.move(partition, to)
	var once sync.Once
	cfg.Progress = func(step copier.Step, _ int64) {
		if step != copier.Switching {
			return
		}
		once.Do(func() {
			close(waits)
			select {
			case <-release:
			case <-ctx.Done():
			}
		})
	}
	go func() {
		_, err := moving.Move(ctx, cfg)
		done <- err
	}()
	select {
	case <-waits:
	case err := <-done:
		t.Fatalf("the move ended with %v", err)
	}
	return func() error { close(release); return <-done }, func() error { cancel(); return <-done }
}

// Messages to rooms are accepted and count once while a partition with members moves, however long
// that takes, after the move was stopped, after it was undone, and during its switch.
func TestRoomsOfAPartitionThatMoves(t *testing.T) {
	t.Parallel()
	h := newHall(t)
	all, pair := []string{"everywhere", "both", "mine"}, []string{foldtest.User(0, 1), foldtest.User(2, 1)}
	h.join(t, "everywhere", foldtest.User(0, 0), foldtest.User(1, 0), foldtest.User(2, 0), foldtest.User(3, 0))
	h.join(t, "both", pair...)
	h.join(t, "mine", foldtest.User(0, 2))
	stop := h.publish(t, all...)
	defer stop()
	h.post(t, "before the move", all...)

	_, interrupt := h.heldUp(t, 0, "b")
	h.post(t, "in the move", all...)
	h.join(t, "new", foldtest.User(0, 3), foldtest.User(3, 3))
	h.post(t, "in the move", "new")
	h.join(t, "new", foldtest.User(2, 3))
	h.post(t, "in the move", "new")
	if lacks, err := h.appender.AppendBestEffort(t.Context(), nil, h.next("new"), h.next("both")); err != nil || lacks != nil {
		t.Errorf("in the move, a relay's post: %+v, %v", lacks, err)
	}
	const publish = `SELECT badged.publish(jsonb_build_object('specversion', '1.0', 'id', 'sql' || $1, 'source', 'sql', 'type', 'room.posted', 'data', jsonb_build_object('conversation_id', 'everywhere', 'seq', 1000000 + $1::integer)))`
	// In SQL, messages reach the members of a shard.
	h.a.Exec(t, publish, "1")
	h.b.Exec(t, publish, "2")
	h.mu.Lock()
	for n := range 4 {
		h.want[foldtest.User(n, 0)]++
	}
	h.mu.Unlock()
	if err := interrupt(); err == nil {
		t.Error("the move was not stopped")
	}
	h.post(t, "after the mover has ended", append(all, "new")...)
	if _, _, err := moving.Undo(t.Context(), h.move(0, "")); err != nil {
		t.Fatal(err)
	}
	h.post(t, "after the move was undone", append(all, "new")...)

	for _, to := range []string{"b", "a", "b"} {
		goOn, _ := h.heldUp(t, 0, to)
		h.post(t, "in the move to "+to, append(all, "new")...)
		if err := goOn(); err != nil {
			t.Fatal(err)
		}
		h.post(t, "after the move to "+to, append(all, "new")...)
	}
	if _, err := h.appender.Append(t.Context(), foldtest.Event("leave", events.RoomLeft, "both", nil, pair...)); err != nil {
		t.Fatal(err)
	}
	stop()
	h.mu.Lock()
	for _, user := range pair {
		h.want[user] = 0
	}
	h.mu.Unlock()
	h.check(t)
	for p, d := range []*projectortest.Database{h.b, h.a, h.b, h.b} {
		verifyPartition(t, d, p)
	}
}

// A call reaches one shard before a switch and the other one long after it, by an old map. Its
// events still reach the partition that has moved.
func TestCallThatSpansASwitch(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		// others are more members, and remembered is true if calls before, and during the
		// move, have made the log remember the room.
		others     []string
		remembered bool
	}{
		{"a remembered room", []string{foldtest.User(1, 0)}, true},
		{"an unknown room", []string{foldtest.User(1, 0)}, false},
		{"a room without other members there", nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h := newHall(t)
			h.join(t, "r", append(tc.others, foldtest.User(0, 0), foldtest.User(2, 0))...)
			h.post(t, "before the move", "r")
			reaches, goesOn := make(chan bool), make(chan bool)
			var waits, told atomic.Bool
			told.Store(true)
			c := h.open(t)
			appender := cluster.NewAppender(c, func(s *cluster.Database) events.Append {
				return func(ctx context.Context, evs ...events.Event) (events.Receipt, error) {
					if s.Name == "a" && waits.CompareAndSwap(true, false) {
						<-goesOn
					}
					r, err := s.Log.Append(ctx, evs...)
					if s.Name == "b" && told.CompareAndSwap(false, true) {
						close(reaches)
					}
					return r, err
				}
			})
			if tc.remembered {
				if _, err := appender.Append(t.Context(), h.next("r")); err != nil {
					t.Fatal(err)
				}
			}
			waits.Store(true)
			told.Store(false)
			e, done := h.next("r"), make(chan error, 1)
			go func() {
				_, err := appender.Append(t.Context(), e)
				done <- err
			}()
			projectortest.Await(t, reaches, "the call to be in b")
			if _, err := moving.Move(t.Context(), h.move(0, "b")); err != nil {
				t.Fatal(err)
			}
			if tc.remembered { // by another call, which knows of the move
				if err := c.Reload(t.Context()); err != nil {
					t.Fatal(err)
				}
				if _, err := appender.Append(t.Context(), h.next("r")); err != nil {
					t.Fatal(err)
				}
			}
			close(goesOn)
			if err := projectortest.Await(t, done, "the call"); err != nil {
				t.Fatal(err)
			}
			h.check(t)
		})
	}
}

// AppendElsewhere's last append is refused if a partition has left its shard since the other shards
// got their parts.
func TestLastAppendExpectsWhatTheOthersDid(t *testing.T) {
	t.Parallel()
	h := newHall(t)
	h.join(t, "r", foldtest.User(0, 0), foldtest.User(1, 0), foldtest.User(2, 0))
	a := h.cluster.Database("a")
	e := h.next("r")
	if _, err := h.appender.AppendElsewhere(t.Context(), a, []events.Event{e}, func(ctx context.Context, mine ...events.Event) (events.Receipt, error) {
		if _, err := moving.Move(t.Context(), h.move(0, "b")); err != nil { //nolint:contextcheck // it is not part of the call
			t.Fatal(err)
		}
		return a.Log.Append(ctx, mine...)
	}); !errors.Is(err, events.ErrNotHeld) {
		t.Errorf("the append to the last shard gives %v", err)
	}
	if _, err := h.appender.Append(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	h.check(t)
}

// Between the commits of the two shards neither has the partition: messages to rooms wait.
func TestRoomsBetweenTheCommitsOfAMove(t *testing.T) {
	t.Parallel()
	h := newHall(t)
	h.join(t, "with", foldtest.User(0, 0), foldtest.User(1, 0), foldtest.User(2, 0))
	h.post(t, "before the move", "with")
	h.b.Exec(t, `CREATE FUNCTION refuse_hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now'; END $$;
CREATE TRIGGER refuse_hold BEFORE INSERT ON badged.partitions FOR EACH ROW EXECUTE FUNCTION refuse_hold()`)
	if _, err := moving.Move(t.Context(), h.move(0, "b")); err == nil {
		t.Fatal("the move was not interrupted")
	}
	refused := make(chan bool, 1)
	waiting := cluster.NewAppender(h.cluster, func(s *cluster.Database) events.Append {
		return func(ctx context.Context, evs ...events.Event) (events.Receipt, error) {
			r, err := s.Log.Append(ctx, evs...)
			if s.Name == "b" && errors.Is(err, events.ErrNotHeld) {
				select {
				case refused <- true:
				default:
				}
			}
			return r, err
		}
	})
	e, done := h.next("with"), make(chan error, 1)
	go func() {
		for {
			_, err := waiting.Append(t.Context(), e)
			if !errors.Is(err, events.ErrNotHeld) && !errors.Is(err, cluster.ErrAway) { // else the publisher gets 503
				done <- err
				return
			}
		}
	}()
	select {
	case <-refused:
	case err := <-done:
		t.Errorf("between the commits, posting to a room gives %v", err)
		done <- err
	}
	h.b.Exec(t, `DROP TRIGGER refuse_hold ON badged.partitions`)
	if _, err := moving.Move(t.Context(), h.move(0, "b")); err != nil {
		t.Fatal(err)
	}
	if err := projectortest.Await(t, done, "the message"); err != nil {
		t.Error(err)
	}
	h.check(t)
}

// Messages to rooms are accepted and count once while a partition with members is split. Its
// directory is copied before the switch.
func TestRoomsOfAPartitionThatIsSplit(t *testing.T) {
	t.Parallel()
	h := newHall(t)
	var users []string
	for n := range 8 { // of both parts
		users = append(users, foldtest.User(0, n))
	}
	h.join(t, "r", append(users, foldtest.User(1, 0), foldtest.User(2, 0))...)
	h.join(t, "mine", users[:2]...)
	stop := h.publish(t, "r", "mine")
	defer stop()
	var once sync.Once
	if _, err := splitting.Split(t.Context(), splitting.Config{
		Pool: h.a.Pool, Log: h.a.Log, Partition: 0, Options: copier.Options{Patience: 10 * time.Second, Progress: func(step copier.Step, _ int64) {
			if step == copier.Switching {
				once.Do(func() {
					h.post(t, "in the split", "r", "mine")
					h.join(t, "new", users[0], users[1], foldtest.User(3, 0))
					h.post(t, "in the split", "new")
				})
			}
		}},
	}); err != nil {
		t.Fatal(err)
	}
	h.post(t, "after the split", "r", "mine", "new")
	stop()
	h.check(t)
}
