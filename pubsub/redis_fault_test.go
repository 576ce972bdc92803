package pubsub_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/badged/badged/internal/devtest/privateredis"
	"github.com/badged/badged/pubsub"
	"github.com/badged/badged/pubsub/pubsubtest"
)

// lossLog is a log handler that signals when a subscription logs the loss of
// its connection.
type lossLog struct {
	slog.Handler
	lost chan struct{} // a token for each time, as far as there is room
}

func (l lossLog) Handle(_ context.Context, r slog.Record) error {
	if r.Level == slog.LevelWarn {
		select {
		case l.lost <- struct{}{}:
		default:
		}
	}
	return nil
}

func (l lossLog) Enabled(context.Context, slog.Level) bool { return true }

// patient disables the timeouts of go-redis: the tests must not depend on
// them.
const patient = "?dial_timeout=1h&read_timeout=1h&write_timeout=1h&pool_timeout=1h"

// faulty is a bus on a Redis that a test disturbs.
type faulty struct {
	*pubsub.Redis
	srv  *privateredis.Server
	lost <-chan struct{}
}

// newFaulty returns a bus on its own Redis, and checks at the end that nothing
// is left of it.
func newFaulty(t *testing.T) *faulty {
	t.Helper()
	return newFaultyWith(t, pubsub.RedisConfig{})
}

// newHasty returns a bus that reconnects after a short silence.
func newHasty(t *testing.T) *faulty {
	t.Helper()
	return newFaultyWith(t, pubsub.RedisConfig{
		PingInterval: 50 * time.Millisecond,
		PongTimeout:  1500 * time.Millisecond,
	})
}

func newFaultyWith(t *testing.T, cfg pubsub.RedisConfig) *faulty {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	srv := startRedis(t)
	lost := make(chan struct{}, 1)
	cfg.URL = srv.URL() + patient
	cfg.Logger = slog.New(lossLog{Handler: slog.DiscardHandler, lost: lost})
	return &faulty{Redis: newRedis(t, cfg), srv: srv, lost: lost}
}

func (f *faulty) restart(t *testing.T) {
	t.Helper()
	if err := f.srv.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (f *faulty) pause(t *testing.T) {
	t.Helper()
	if err := f.srv.Pause(); err != nil {
		t.Fatal(err)
	}
}

func (f *faulty) resume(t *testing.T) {
	t.Helper()
	if err := f.srv.Resume(); err != nil {
		t.Fatal(err)
	}
}

// awaitLoss waits until a subscription has noticed that it has no connection.
func (f *faulty) awaitLoss(t *testing.T) {
	t.Helper()
	select {
	case <-f.lost:
	case <-time.After(pubsubtest.Patience):
		t.Fatal("no subscription has noticed that Redis is down")
	}
}

func usersOf(n int) []pubsub.Address {
	users := make([]pubsub.Address, n)
	for i := range users {
		users[i] = pubsub.Address{ID: fmt.Sprintf("user-%d", i), Partition: i % 16}
	}
	return users
}

func TestRedisKilledAndRestarted(t *testing.T) {
	f := newFaulty(t)
	u := usersOf(1)[0]
	_, r := subscribe(t, f, u)
	for round := range 3 {
		version := int64(round)
		publish(t, f, pubsubtest.NewUpdate(u, version))
		r.AwaitVersion(t, u, version)
		gaps := r.Gaps()
		f.srv.Kill()
		f.awaitLoss(t)
		if err := f.Publish(t.Context(), []pubsub.Update{pubsubtest.NewUpdate(u, -1)}, nil); err == nil {
			t.Error("Publish to a Redis that is down succeeded")
		}
		f.restart(t)
		r.AwaitGaps(t, gaps+1)
	}
	publish(t, f, pubsubtest.NewUpdate(u, 99))
	r.AwaitVersion(t, u, 99)
	stats := f.Stats()
	if stats.Reconnects < 3 || stats.Gaps < 3 || stats.PublishErrors != 3 {
		t.Errorf("after 3 losses and %d gaps: %+v", r.Gaps(), stats)
	}
}

// TestRedisGapComesAfterAllJoins has Redis close its subscribers' connections
// and stay up: go-redis would reconnect silently.
func TestRedisGapComesAfterAllJoins(t *testing.T) {
	f := newFaulty(t)
	client := newClient(t, f.srv)
	users := usersOf(5000) // several SUBSCRIBEs
	_, r := subscribe(t, f, users...)
	updates := make([]pubsub.Update, len(users))
	for round := range 3 {
		gaps := r.Gaps()
		if err := client.Do(t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Err(); err != nil {
			t.Fatal(err)
		}
		r.AwaitGaps(t, gaps+1)
		for i, u := range users {
			updates[i] = pubsubtest.NewUpdate(u, int64(round))
		}
		publish(t, f, updates...)
		r.AwaitUpdates(t, (round+1)*len(users))
	}
}

func TestRedisFrozen(t *testing.T) {
	f := newHasty(t)
	u := usersOf(1)[0]
	_, r := subscribe(t, f, u)
	f.pause(t)
	f.awaitLoss(t)
	f.awaitLoss(t) // a frozen Redis answers no new connection either
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := f.Publish(ctx, []pubsub.Update{pubsubtest.NewUpdate(u, 1)}, nil); err == nil {
		t.Error("Publish to a Redis that is frozen succeeded")
	}
	f.resume(t)
	r.AwaitGaps(t, 1)
	publish(t, f, pubsubtest.NewUpdate(u, 2))
	r.AwaitVersion(t, u, 2)
}

// TestRedisFrozenPublishGivesUp bounds a publish whose context has no
// deadline.
func TestRedisFrozenPublishGivesUp(t *testing.T) {
	srv := startRedis(t)
	bus := newRedis(t, pubsub.RedisConfig{URL: srv.URL() + patient, PublishTimeout: 10 * time.Millisecond})
	if err := srv.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := bus.Publish(context.Background(), make([]pubsub.Update, 1), nil); err == nil {
		t.Error("Publish to a Redis that is frozen succeeded")
	}
	if err := bus.Wake(context.Background(), []int{1}); err == nil {
		t.Error("Wake through a Redis that is frozen succeeded")
	}
	if got := bus.Stats().PublishErrors; got != 2 {
		t.Errorf("%d publish errors were counted, want 2", got)
	}
}

// TestRedisFrozenClose closes subscriptions that are stuck in a read, in a
// handshake, and in writes that fill the socket.
func TestRedisFrozenClose(t *testing.T) {
	f := newHasty(t)
	if _, err := f.Subscribe(pubsubtest.NewRecorder()); err != nil {
		t.Fatal(err)
	}
	s, _ := subscribe(t, f, usersOf(1)...)
	f.pause(t)
	crowd := make([]pubsub.Address, 100_000)
	for i := range crowd {
		crowd[i].ID = fmt.Sprintf("%0128d", i)
	}
	joined := make(chan error, 1)
	go func() { joined <- s.Join(context.Background(), crowd...) }()
	f.awaitLoss(t)
	if _, err := f.Subscribe(pubsubtest.NewRecorder()); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := <-joined; !errors.Is(err, pubsub.ErrClosed) {
		t.Errorf("Join of a subscription that was closed: %v, want %v", err, pubsub.ErrClosed)
	}
}

// TestRedisPings checks that an idle subscription stays connected. With
// canaries this frequent, two may be late on a busy machine, which ends a
// connection; nothing else may.
func TestRedisPings(t *testing.T) {
	f := newFaultyWith(t, pubsub.RedisConfig{PingInterval: time.Millisecond, PongTimeout: pubsubtest.Patience})
	client := newClient(t, f.srv)
	_, r := subscribe(t, f, usersOf(1)...)
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	patience := time.After(pubsubtest.Patience)
	calls := regexp.MustCompile(`cmdstat_ping:calls=\d{2}`) // 10 or more
	for {
		info, err := client.Info(t.Context(), "commandstats").Result()
		if err != nil {
			t.Fatal(err)
		}
		if calls.MatchString(info) {
			break
		}
		select {
		case <-look.C:
		case <-patience:
			t.Fatalf("no pings have come; Redis counted\n%s", info)
		}
	}
	if gaps, missed := r.Gaps(), f.Stats().CanariesMissed; uint64(gaps) > missed/2 {
		t.Errorf("HandleGap was called %d times, though Redis answers and %d canaries were late", gaps, missed)
	}
}

func TestRedisJoinWhileDown(t *testing.T) {
	f := newFaulty(t)
	f.srv.Kill()
	u := usersOf(3)
	r := pubsubtest.NewRecorder()
	s, err := f.Subscribe(r)
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan error, 1)
	go func() { gaveUp <- s.Join(ctx, u[0], u[1]) }()
	f.awaitLoss(t)
	cancel()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) {
		t.Errorf("Join while Redis is down: %v, want %v", err, context.Canceled)
	}
	waits := make(chan error, 1)
	go func() { waits <- s.Join(t.Context(), u[2]) }()
	if err := s.Leave(t.Context(), u[1]); err != nil {
		t.Errorf("Leave while Redis is down: %v", err)
	}

	f.restart(t)
	if err := <-waits; err != nil {
		t.Errorf("Join of a Redis that came back: %v", err)
	}
	publish(t, f, pubsubtest.NewUpdate(u[2], 1))
	r.AwaitVersion(t, u[2], 1)
	r.AwaitGaps(t, 1)
	for _, of := range []pubsub.Address{u[1], u[0]} {
		publish(t, f, pubsubtest.NewUpdate(of, 2))
	}
	r.AwaitVersion(t, u[0], 2)
	publish(t, f, pubsubtest.NewUpdate(u[2], 3))
	r.AwaitVersion(t, u[2], 3)
	if got := r.Versions(u[1]); len(got) > 0 {
		t.Errorf("versions %v of a user that was left while Redis was down arrived", got)
	}
}

// TestRedisLeaveWhileDown leaves all users that missed updates, so no gap is
// reported.
func TestRedisLeaveWhileDown(t *testing.T) {
	f := newFaulty(t)
	u := usersOf(2)
	s, r := subscribe(t, f, u[0])
	f.srv.Kill()
	f.awaitLoss(t)
	if err := s.Leave(t.Context(), u[0]); err != nil {
		t.Fatal(err)
	}
	f.restart(t)
	if err := s.Join(t.Context(), u[1]); err != nil {
		t.Fatal(err)
	}
	publish(t, f, pubsubtest.NewUpdate(u[1], 1))
	r.AwaitVersion(t, u[1], 1)
	if gaps := r.Gaps(); gaps != 0 {
		t.Errorf("HandleGap was called %d times, though no joined user missed an update", gaps)
	}
}

func TestRedisWakesOutliveTheConnection(t *testing.T) {
	f := newFaulty(t)
	ctx, cancel := context.WithCancel(t.Context())
	w := pubsubtest.Listen(ctx, f)
	w.AwaitWake(t, f, 1)
	f.restart(t)
	f.awaitLoss(t)
	w.AwaitWake(t, f, 1)
	cancel()
	if err := w.Wait(t); err != nil {
		t.Error(err)
	}
}

// TestRedisLosesNothingSilently restarts Redis while updates flow, and checks
// that a gap follows every lost update.
func TestRedisLosesNothingSilently(t *testing.T) {
	f := newFaulty(t)
	users := usersOf(50)
	_, r := subscribe(t, f, users...)
	stop := make(chan struct{})
	published := make(chan int64)
	go func() {
		version := int64(0)
		for {
			select {
			case <-stop:
				published <- version
				return
			default:
			}
			version++
			for _, u := range users {
				_ = f.Publish(t.Context(), []pubsub.Update{{
					Badge: pubsub.Badge{UserID: u.ID, Version: version}, Partition: u.Partition,
				}}, nil) // fails while Redis is down
			}
		}
	}()
	for round := range 3 {
		r.AwaitUpdates(t, len(r.Updates())+500)
		f.restart(t)
		r.AwaitGaps(t, round+1)
	}
	close(stop)
	last := <-published
	for _, u := range users {
		publish(t, f, pubsub.Update{Badge: pubsub.Badge{UserID: u.ID, Version: last + 1}, Partition: u.Partition})
	}
	for _, u := range users {
		r.AwaitVersion(t, u, last+1)
		if got := r.Versions(u); !slices.IsSorted(got) {
			t.Errorf("%s: versions went back: %v", u.ID, got)
		}
	}
	if !r.Serial() {
		t.Error("calls of the handler overlapped")
	}
}
