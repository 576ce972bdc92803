package pubsubtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/badged/badged/pubsub"
)

// Waker records the wakes that a bus delivers.
type Waker struct {
	ended chan error // receives the error of Wakes

	state
	woken map[int]int // calls by partition
}

// Listen calls Wakes of bus in a goroutine until ctx is done.
func Listen(ctx context.Context, bus pubsub.Bus) *Waker {
	w := &Waker{ended: make(chan error, 1), state: newState(), woken: make(map[int]int)}
	go func() {
		w.ended <- bus.Wakes(ctx, func(partition int) {
			w.change(func() { w.woken[partition]++ })
		})
	}()
	return w
}

// Wait waits until Wakes has returned, and returns its error.
func (w *Waker) Wait(t testing.TB) error {
	t.Helper()
	select {
	case err := <-w.ended:
		return err
	case <-time.After(Patience):
		t.Fatal("Wakes has not returned")
		return nil
	}
}

// AwaitWake calls Wake for the partition repeatedly until w has received a wake of the
// partition. One call would not suffice, since no method reports when Wakes has subscribed.
func (w *Waker) AwaitWake(t testing.TB, bus pubsub.Bus, partition int) {
	t.Helper()
	before := w.Woken(partition)
	for began := time.Now(); time.Since(began) < Patience; {
		_ = bus.Wake(t.Context(), []int{partition}) // may fail while the bus is down
		if w.await(10*time.Millisecond, func() bool { return w.woken[partition] > before }) {
			return
		}
	}
	t.Fatalf("no wake of partition %d has arrived", partition)
}

// Woken returns how many wakes of the partition have arrived so far.
func (w *Waker) Woken(partition int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.woken[partition]
}

func testWakes(t *testing.T, bus pubsub.Bus) {
	const listening, last = 1000, 1001
	ctx, cancel := context.WithCancel(t.Context())
	listeners := []*Waker{Listen(ctx, bus), Listen(ctx, bus)}
	for _, w := range listeners {
		w.AwaitWake(t, bus, listening)
	}
	partitions := []int{0, 3, 3, 15, 255}
	for _, wake := range [][]int{partitions, {7}, {last}} {
		if err := bus.Wake(t.Context(), wake); err != nil {
			t.Errorf("Wake: %v", err)
		}
	}
	for _, w := range listeners {
		for _, p := range []int{0, 3, 7, 15, 255, last} {
			if !w.await(Patience, func() bool { return w.woken[p] > 0 }) {
				t.Fatalf("no wake of partition %d has arrived", p)
			}
		}
		for p, n := range map[int]int{0: 1, 1: 0, 3: 2, 7: 1, 15: 1, 255: 1} {
			if got := w.Woken(p); got > n {
				t.Errorf("partition %d was woken %d times, want at most %d", p, got, n)
			}
		}
	}
	cancel()
	for _, w := range listeners {
		if err := w.Wait(t); err != nil {
			t.Errorf("Wakes: %v", err)
		}
	}
}

func testWakesContext(t *testing.T, bus pubsub.Bus) {
	if err := bus.Wakes(done(t), func(int) {}); err != nil {
		t.Errorf("Wakes with a context that is done: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := Listen(ctx, bus)
	ended.AwaitWake(t, bus, 1)
	cancel()
	if err := ended.Wait(t); err != nil {
		t.Errorf("Wakes: %v", err)
	}
	before := ended.Woken(1)

	still, stop := context.WithCancel(t.Context())
	other := Listen(still, bus)
	other.AwaitWake(t, bus, 1)
	if got := ended.Woken(1); got != before {
		t.Error("wake was called after Wakes had returned")
	}
	stop()
	if err := other.Wait(t); err != nil {
		t.Errorf("Wakes: %v", err)
	}
}

func testWakesClose(t *testing.T, bus pubsub.Bus) {
	w := Listen(t.Context(), bus)
	w.AwaitWake(t, bus, 1)
	if err := bus.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := w.Wait(t); !errors.Is(err, pubsub.ErrClosed) {
		t.Errorf("Wakes of a closed bus: %v, want %v", err, pubsub.ErrClosed)
	}
}
