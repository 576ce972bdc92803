package app

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/pubsub"
)

// wakeBus is a bus that only wakes.
type wakeBus struct {
	pubsub.Bus
	wakes chan []int
	err   error
}

func (b *wakeBus) Wake(ctx context.Context, partitions []int) error {
	select {
	case b.wakes <- partitions:
		return b.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestOtherProcessesAreWoken(t *testing.T) {
	bus := &wakeBus{wakes: make(chan []int), err: errors.New("Redis is away")}
	p := newPublisher(bus, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	p.remote = true
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := p.run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	// wakeAll does not wait for the bus.
	p.wakeAll([]int{3})
	p.wakeAll([]int{1, 2})
	p.wakeAll([]int{2, 1})
	woken := map[int]bool{}
	for len(woken) < 3 {
		for _, partition := range <-bus.wakes {
			woken[partition] = true
		}
	}
	// An error of the bus loses only the wake.
	for !woken[7] {
		p.wakeAll([]int{7})
		for _, partition := range <-bus.wakes {
			woken[partition] = true
		}
	}
	if len(woken) != 4 {
		t.Errorf("woken are %v", woken)
	}
	cancel()
	running.Wait()
}

func TestSingleProcessDoesNotWakeTheBus(t *testing.T) {
	p := newPublisher(&wakeBus{}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	p.wakeAll([]int{1})
	if len(p.wake) != 0 || len(p.woken) != 0 {
		t.Errorf("partitions waiting for the bus: %v", p.woken)
	}
}

// A failed append is counted, unless its events were invalid.
func TestFailedAppendsAreCounted(t *testing.T) {
	a := open(t, settings(pgtest.NewDB(t, migrated())))
	check := func(want float64) {
		t.Helper()
		if n := testutil.ToFloat64(a.publisher.failed); n != want {
			t.Errorf("%g appends are counted as failed, want %g", n, want)
		}
	}
	good := events.Event{
		ID: "1", Source: "test", Type: events.MessageDelivered,
		Data: events.Data{ConversationID: "lunch", Seq: 1, UserIDs: []string{"ada"}},
	}
	if _, err := a.publisher.Append(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	bad := good
	bad.Data.Seq = 0
	if _, err := a.publisher.Append(t.Context(), bad); err == nil {
		t.Error("a message before the first is accepted")
	}
	check(0)
	a.Pool().Close()
	if _, err := a.publisher.Append(t.Context(), good); err == nil {
		t.Error("something was appended nowhere")
	}
	check(1)
	if n := testutil.ToFloat64(a.publisher.appended); n != 1 {
		t.Errorf("%g events are counted as appended, want 1", n)
	}
}

// fixedState is the state of a connected bus.
type fixedState pubsub.Stats

func (s fixedState) Stats() pubsub.Stats { return pubsub.Stats(s) }

func (fixedState) Connected() bool { return true }

func TestBusMetrics(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	registerBusMetrics(r, fixedState{Reconnects: 1, Gaps: 2, Malformed: 3, PublishErrors: 4, CanariesMissed: 5})
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		got[f.GetName()] = f.GetMetric()[0].GetCounter().GetValue() + f.GetMetric()[0].GetGauge().GetValue()
	}
	for name, want := range map[string]float64{
		"badged_bus_reconnects_total": 1, "badged_bus_gaps_total": 2,
		"badged_bus_malformed_total": 3, "badged_bus_publish_errors_total": 4,
		"badged_bus_canaries_missed_total": 5, "badged_bus_connected": 1,
	} {
		if got[name] != want {
			t.Errorf("%s = %g, want %g", name, got[name], want)
		}
	}
}
