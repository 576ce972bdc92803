package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// loadScenario measures how fast `badged load` publishes a file over HTTP and
// the projector folds it.
func loadScenario() scenario {
	const one, three = "one process", "three processes"
	return scenario{
		name: "load",
		says: "badged load over HTTP, until all is folded",
		main: loadRate,
		aims: []aim{
			{Measure: loadRate, Of: one, AtLeast: 10_000},
			{Measure: loadRate, Of: three, AtLeast: 10_000},
		},
		open: func(_ context.Context, r *rig, _ scale) (*contest, error) {
			run := func(t topology) func(context.Context) ([]measure, error) {
				return func(ctx context.Context) ([]measure, error) { return loadRound(ctx, r, t) }
			}
			return contestOf(
				side{one, oneProcess.String() + "; " + r.traffic.says, run(oneProcess)},
				side{three, threeProcesses.String(), run(threeProcesses)},
			)
		},
	}
}

// loadRate is the measure that compares the topologies.
const loadRate = "published and folded"

// loaded is what `badged load --json` prints.
type loaded struct {
	Events             int     `json:"events"`
	Messages           int64   `json:"messages"`
	Reads              int64   `json:"reads"`
	PublishSeconds     float64 `json:"publish_seconds"`
	FoldSeconds        float64 `json:"fold_seconds"`
	PublishedPerSecond float64 `json:"published_per_second"`
	FoldedPerSecond    float64 `json:"folded_per_second"`
	Users              int64   `json:"users"`
	UsersWithUnread    int64   `json:"users_with_unread"`
	TotalUnread        int64   `json:"total_unread"`
}

func loadRound(ctx context.Context, r *rig, t topology) (_ []measure, err error) {
	d, err := r.deploy(ctx, t)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.stop(ctx)) }()

	before, began := readCPU(), time.Now()
	out, client, err := r.runBinary(ctx, "load", r.traffic.file, "--url="+d.api, "--json", "--quiet")
	took, after := time.Since(began), readCPU()
	if err != nil {
		return nil, err
	}
	var done loaded
	if err := json.Unmarshal(out, &done); err != nil {
		return nil, fmt.Errorf("read what badged load printed: %w\n%s", err, out)
	}
	measures := append([]measure{
		{"published", "events/s", done.PublishedPerSecond},
		{loadRate, "events/s", done.FoldedPerSecond},
	}, cpuMeasures(before, after, client, done.Events)...)
	if err := done.check(r.traffic.want, took); err != nil {
		return measures, err
	}
	a := newAPI(d.api, 1)
	defer a.close()
	totals, err := a.totals(ctx, r.traffic.want.users())
	if err != nil {
		return measures, err
	}
	return measures, check(totals, r.traffic.want.unread)
}

// check compares what the command printed with the expected totals. took is
// how long the command ran.
func (p loaded) check(want tally, took time.Duration) error {
	unread, withUnread := want.total()
	got := []int64{int64(p.Events), p.Messages, p.Reads, p.Users, p.UsersWithUnread, p.TotalUnread}
	must := []int64{want.messages + want.reads, want.messages, want.reads, int64(len(want.unread)), withUnread, unread}
	for i, name := range []string{"events", "messages", "reads", "users", "users with unread", "unread"} {
		if got[i] != must[i] {
			return fmt.Errorf("badged load reports %d %s, want %d: %w", got[i], name, must[i], errWrong)
		}
	}
	if p.PublishSeconds <= 0 || p.FoldSeconds < p.PublishSeconds || p.FoldSeconds > took.Seconds() {
		return fmt.Errorf("badged load reports %.3f s until published and %.3f s until folded, but ran for %.3f s: %w",
			p.PublishSeconds, p.FoldSeconds, took.Seconds(), errWrong)
	}
	return nil
}
