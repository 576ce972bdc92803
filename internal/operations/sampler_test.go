package operations_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/internal/operations"
)

// Other processes read what a process sampled.
func TestSampler(t *testing.T) {
	d := newDatabase(t)
	d.fold(t, "lunch", "ann")
	registry := prometheus.NewRegistry()
	connections := prometheus.NewGauge(prometheus.GaugeOpts{Name: "badged_gateway_connections"})
	streams := prometheus.NewGauge(prometheus.GaugeOpts{Name: "badged_gateway_event_streams"})
	frames := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "badged_gateway_frames_sent_total"}, []string{"type"})
	repairs := prometheus.NewCounter(prometheus.CounterOpts{Name: "badged_gateway_reconciliation_repairs_total"})
	registry.MustRegister(connections, streams, frames, repairs)
	connections.Set(7)
	streams.Set(2)
	frames.WithLabelValues("snapshot").Add(3)
	frames.WithLabelValues("changes").Add(4)
	repairs.Inc()
	d.exec(t, `INSERT INTO badged.samples VALUES (clock_timestamp() - interval '61 minutes', 'old/1', now(), '{api}', '{}'),
    (clock_timestamp() - interval '1 minute', 'gone/1', now(), '{api}', '{}')`)

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	for _, cfg := range []operations.SamplerConfig{
		{Process: "db1/1", Roles: []string{"gateway"}, Gatherer: registry, Limits: &operations.Limits{Connections: 10, UserConnections: 5, Connects: 2.5, Commands: 50}},
		{Process: "db1/2", Roles: []string{"api", "projector"}, Gatherer: prometheus.NewRegistry()},
	} {
		cfg.Pool, cfg.Interval = d.pool, time.Hour
		s, err := operations.NewSampler(cfg)
		if err != nil {
			t.Fatal(err)
		}
		go func() { done <- s.Run(ctx) }()
	}
	var got []operations.Process
	for len(got) < 2 {
		var err error
		if got, err = d.operations.Processes(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	want := []operations.Process{
		{Process: "db1/1", Roles: []string{"gateway"}, Connections: &operations.Connections{
			WebSockets: 5, EventStreams: 2, FramesSent: 7, Repairs: 1,
			Limits: operations.Limits{Connections: 10, UserConnections: 5, Connects: 2.5, Commands: 50},
		}},
		{Process: "db1/2", Roles: []string{"api", "projector"}},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreTypes(time.Time{})); diff != "" {
		t.Errorf("the processes (-want +got):\n%s", diff)
	}
	defer func() {
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}()
	var logged, folded int
	for old := 1; old > 0; {
		if err := d.pool.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE process = 'old/1'),
       max((counted ->> 'logged')::int), max((counted ->> 'folded')::int) FROM badged.samples`).Scan(&old, &logged, &folded); err != nil {
			t.Fatal(err)
		}
	}
	if logged != 1 || folded != 1 {
		t.Errorf("%d events are logged, %d folded", logged, folded)
	}
}

func TestReadRates(t *testing.T) {
	d := newDatabase(t)
	d.exec(t, `INSERT INTO badged.samples SELECT now() - make_interval(secs => seconds), 'db1/1', '2026-01-01', '{api}',
    json_build_object('logged', (60 - seconds) * 2, 'folded', 60 - seconds) FROM generate_series(5, 60, 5) AS seconds`)
	all, err := d.operations.Rates(t.Context(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if len(all.Points) < 4 || all.IntervalSeconds != 10 {
		t.Fatalf("it has %d points: %+v", len(all.Points), all)
	}
	for _, p := range all.Points[1:] {
		if p.Appended == nil || *p.Appended < 1.9 || *p.Appended > 2.1 || p.WebSockets != nil {
			t.Errorf("a point is %+v", p)
		}
	}
	some, err := d.operations.Rates(t.Context(), all.Points[1].At)
	if err != nil || len(some.Points) < len(all.Points)-2 || some.Points[0].At != all.Points[2].At {
		t.Errorf("later ones are %+v, %v", some, err)
	}
}
