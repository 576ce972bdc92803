package scenarios

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/load"
	"github.com/badged/badged/tests/bench/measure"
	"github.com/badged/badged/tests/bench/rig"
)

// loadScenario measures how fast `badged load` publishes a file over HTTP and
// the projector folds it.
func loadScenario() contest.Scenario {
	const one, three = "one process", "three processes"
	return contest.Scenario{
		Name: "load",
		Says: "badged load over HTTP, until all is folded",
		Main: loadRate,
		Aims: []contest.Aim{
			{Measure: loadRate, Of: one, AtLeast: 10_000},
			{Measure: loadRate, Of: three, AtLeast: 10_000},
		},
		Open: func(_ context.Context, r *rig.Rig, _ contest.Scale) (*contest.Contest, error) {
			run := func(t rig.Topology) func(context.Context) ([]measure.Measure, error) {
				return func(ctx context.Context) ([]measure.Measure, error) { return loadRound(ctx, r, t) }
			}
			return contest.Of(
				contest.Side{Name: one, Says: rig.OneProcess.String() + "; " + r.Traffic.Says, Run: run(rig.OneProcess)},
				contest.Side{Name: three, Says: rig.ThreeProcesses.String(), Run: run(rig.ThreeProcesses)},
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

func loadRound(ctx context.Context, r *rig.Rig, t rig.Topology) (_ []measure.Measure, err error) {
	d, err := r.Deploy(ctx, t)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Stop(ctx)) }()

	before, began := rig.ReadCPU(), time.Now()
	out, client, err := r.RunBinary(ctx, "load", r.Traffic.File, "--url="+d.API, "--json", "--quiet")
	took, after := time.Since(began), rig.ReadCPU()
	if err != nil {
		return nil, err
	}
	var done loaded
	if err := json.Unmarshal(out, &done); err != nil {
		return nil, fmt.Errorf("read what badged load printed: %w\n%s", err, out)
	}
	measures := append([]measure.Measure{
		measure.Of("published", "events/s", done.PublishedPerSecond),
		measure.Of(loadRate, "events/s", done.FoldedPerSecond),
	}, rig.CPUMeasures(before, after, client, done.Events)...)
	if err := done.check(r.Traffic.Want, took); err != nil {
		return measures, err
	}
	a := load.NewAPI(d.API, 1)
	defer a.Close()
	totals, err := a.Totals(ctx, r.Traffic.Want.Users())
	if err != nil {
		return measures, err
	}
	return measures, measure.Check(totals, r.Traffic.Want.Unread)
}

// check compares what the command printed with the expected totals. took is
// how long the command ran.
func (p loaded) check(want rig.Tally, took time.Duration) error {
	unread, withUnread := want.Total()
	got := []int64{int64(p.Events), p.Messages, p.Reads, p.Users, p.UsersWithUnread, p.TotalUnread}
	must := []int64{want.Messages + want.Reads, want.Messages, want.Reads, int64(len(want.Unread)), withUnread, unread}
	for i, name := range []string{"events", "messages", "reads", "users", "users with unread", "unread"} {
		if got[i] != must[i] {
			return fmt.Errorf("badged load reports %d %s, want %d: %w", got[i], name, must[i], measure.ErrWrong)
		}
	}
	if p.PublishSeconds <= 0 || p.FoldSeconds < p.PublishSeconds || p.FoldSeconds > took.Seconds() {
		return fmt.Errorf("badged load reports %.3f s until published and %.3f s until folded, but ran for %.3f s: %w",
			p.PublishSeconds, p.FoldSeconds, took.Seconds(), measure.ErrWrong)
	}
	return nil
}
