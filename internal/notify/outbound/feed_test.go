package outbound_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/notify/outbound"
)

// A notifier in the process that folds reads from the log only what another process
// has folded.
func TestWhatTheProjectorSaysIsNotRead(t *testing.T) {
	b := newBench(t)
	registry := prometheus.NewRegistry()
	b.start(t, func(cfg *outbound.NotifierConfig) {
		cfg.PollInterval = time.Hour // it reads when it is told to only
		cfg.Metrics = outbound.NewMetrics(registry)
	})
	ada, ben := foldtest.User(0, 0), foldtest.User(0, 1)
	put(t, b.targets, phone(ada, "phone"))
	b.notifier.DeviceTold(b.next(t), 0)

	read := func() float64 { return counted(t, registry, "badged_notifier_events_read_total") }
	fold := func(by *outbound.Notifier, evs ...events.Event) {
		t.Helper()
		b.hears.Store(by)
		b.Happen(t, evs...)
		folded := b.Position(t, 0)
		projectortest.Until(t, "the projector says what it has folded", func() bool {
			said := b.said[0].Load()
			return said != nil && *said == folded
		})
	}
	told := func(number int64, alerts ...string) {
		t.Helper()
		p := b.next(t)
		expectNumber(t, p, ada, number)
		var got []string
		for _, a := range p.Alerts {
			got = append(got, a.Body)
		}
		if len(got) != len(alerts) || len(got) > 0 && got[0] != alerts[0] {
			t.Errorf("alerts %q, want %q", got, alerts)
		}
		b.notifier.DeviceTold(p, 0)
		b.awaitRest(t)
	}
	notifying := func(e events.Event, body string) events.Event {
		e.Data.Notification.Body = body
		return e
	}

	fold(b.notifier, foldtest.Deliver("chat", 1, ada))
	told(1)
	before := read()
	fold(b.notifier, foldtest.Deliver("chat", 2, ada, ben))
	told(2)
	fold(b.notifier, notifying(foldtest.Deliver("chat", 3, ada, ben), "Lunch?"), notifying(foldtest.Deliver("other", 1, ben), "Not for Ada"))
	told(3, "Lunch?")
	fold(b.notifier, foldtest.Event("join", events.RoomJoined, "room", nil, ada, ben))
	b.awaitQuiet(t) // her number is the same
	fold(b.notifier, notifying(foldtest.Event("post", events.RoomPosted, "room", func(d *events.Data) { d.Seq = 1 }), "To all"))
	told(4, "To all")
	if n := read() - before; n != 0 {
		t.Errorf("the notifier read %v events of which it was told", n)
	}

	fold(nil, foldtest.Deliver("chat", 4, ada)) // another process
	fold(b.notifier, foldtest.Deliver("chat", 5, ada))
	told(6)
	if n := read() - before; n != 2 {
		t.Errorf("the notifier read %v events after a gap, want both", n)
	}
	fold(b.notifier, foldtest.Deliver("chat", 6, ada))
	told(7)
	if n := read() - before; n != 2 {
		t.Errorf("the notifier read %v events, want 2 from before", n)
	}
}

// A notifier that starts after the first events of a partition were folded waits for no
// projector to tell it of them.
func TestFirstEventsBeforeTheNotifier(t *testing.T) {
	b := newBench(t)
	ada := foldtest.User(0, 0)
	put(t, b.targets, phone(ada, "phone"))
	b.notifier.DeviceTold(b.next(t), 0)
	b.awaitRest(t)
	b.stop()
	b.Happen(t, foldtest.Deliver("chat", 1, ada))
	b.start(t, func(cfg *outbound.NotifierConfig) { cfg.PollInterval = time.Hour })
	expectNumber(t, b.next(t), ada, 1)
}

// counted returns the value of a counter.
func counted(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
