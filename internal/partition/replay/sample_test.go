package replay

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/devtest/snippets"
	"github.com/badged/badged/pubsub"
)

func TestSampleTellsWhatIsWrong(t *testing.T) {
	d, ann := projectortest.NewForCorruptions(t)
	var log bytes.Buffer
	owner := &recordingOwner{}
	s, err := NewSampler(SamplerConfig{
		Pool: d.Pool, Log: d.Log, Owner: owner, Interval: time.Hour, Users: 16,
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	since := time.Hour
	verifySome := func(partition int) (ran bool) {
		t.Helper()
		ran, err := s.verifySome(t.Context(), NewVerifier(d.Pool, d.Log), partition, since)
		if err != nil {
			t.Fatal(err)
		}
		return ran
	}
	m := s.cfg.Metrics
	counts := func() [4]int {
		return [4]int{projectortest.Count(m.users), projectortest.Count(m.mismatches), projectortest.Count(m.healed), projectortest.Count(m.putOff)}
	}
	if !verifySome(0) { // three users there
		t.Error("a short log was put off")
	}
	verifySome(2) // it has no users
	if got := counts(); got != [4]int{3, 0, 0, 0} || log.Len() > 0 {
		t.Errorf("counts are %v, it says %s", got, log.String())
	}

	d.Exec(t, `UPDATE badged.users SET total = 99, mentions = 9 WHERE user_id = $1`, ann)
	verifySome(0)
	if got := counts(); got != [4]int{6, 1, 0, 0} || d.Badge(t, ann).Total != 99 {
		t.Errorf("counts are %v, the total is %d", got, d.Badge(t, ann).Total)
	}
	_, said, _ := strings.Cut(strings.ReplaceAll(log.String(), ann, "ada"), " ") // without the time
	snippets.ExpectShape(t, snippets.With(t, "docs/admin.md", "the badge of a user differs from the log", "").Text, said)
	for _, want := range []string{"level=ERROR", ann, "total is 99 in the table, 4 by the log", "mentions is 9 in the table, 1 by the log"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("it does not say %s: %s", want, log.String())
		}
	}

	s.cfg.SelfHeal = true
	verifySome(0)
	if got := counts(); got != [4]int{9, 2, 1, 0} || d.Badge(t, ann).Total != 4 {
		t.Errorf("counts are %v, the total is %d", got, d.Badge(t, ann).Total)
	}
	if updates := owner.told; len(updates) != 1 || updates[0].UserID != ann || updates[0].Version != 9 {
		t.Errorf("the bus is told %+v", updates)
	}

	d.Exec(t, `ALTER TABLE badged.events_p00 ALTER payload SET STORAGE EXTERNAL`)
	d.Exec(t, `INSERT INTO badged.events_p00 (transaction_id, uuid, payload)
VALUES (pg_current_xact_id(), gen_random_uuid(), convert_to(repeat('x', $1), 'UTF8'))`, sampleFloor/searchPasses)
	since = time.Millisecond
	if ran := verifySome(0); ran || counts() != [4]int{9, 2, 1, 1} {
		t.Errorf("in a long log, soon after the last run: %t, counts are %v", ran, counts())
	}
	since = time.Hour
	if ran := verifySome(0); !ran || counts() != [4]int{12, 2, 1, 1} {
		t.Errorf("in a long log, long after the last run: %t, counts are %v", ran, counts())
	}
}

func TestSampleSize(t *testing.T) {
	const MiB = 1 << 20
	for _, tc := range []struct {
		wanted   int
		since    time.Duration
		logBytes int64
		want     int
	}{
		{10, time.Minute, 0, 10},
		{10, time.Minute, 100 * MiB, 10},
		{16, time.Minute, 100 * MiB, 16},
		{99, time.Minute, 0, maxSought},
		{10, time.Minute, 400 * MiB, 5},
		{10, time.Minute, 760 * MiB, 1},
		{10, time.Minute, 800 * MiB, 0},
		{10, time.Hour, 7000 * MiB, 10},
		{10, time.Millisecond, MiB, 10},
		{10, time.Millisecond, 12 * MiB, 1},
		{10, time.Millisecond, 16 * MiB, 0},
	} {
		if got := sampleSize(tc.wanted, tc.since, tc.logBytes); got != tc.want {
			t.Errorf("of %d users %s after others in %d MiB, %d are verified, want %d", tc.wanted, tc.since, tc.logBytes/MiB, got, tc.want)
		}
	}
}

// recordingOwner owns the first partition, and keeps what it is to tell.
type recordingOwner struct{ told []pubsub.Update }

func (o *recordingOwner) OwnedPartitions() []int         { return []int{0} }
func (o *recordingOwner) Notify(updates []pubsub.Update) { o.told = append(o.told, updates...) }

// A sampler that runs counts and logs a failure.
func TestSamplerFailureIsCounted(t *testing.T) {
	d := projectortest.New(t)
	d.Exec(t, `ALTER TABLE badged.users_p00 RENAME TO mislaid`)
	log := projectortest.NewLogRecorder()
	s, err := NewSampler(SamplerConfig{Pool: d.Pool, Log: d.Log, Owner: &recordingOwner{}, Interval: time.Millisecond, Logger: log.Logger()})
	if err != nil {
		t.Fatal(err)
	}
	projectortest.Run(t, s.Run)
	log.Await(t, "cannot verify a sample of users")
	if projectortest.Count(s.cfg.Metrics.failed) == 0 {
		t.Error("the failure to verify is not counted")
	}
}

// A running sampler finds and heals a wrong badge, and publishes it with a greater version on the
// bus.
func TestSamplerHeals(t *testing.T) {
	d, ann := projectortest.NewForCorruptions(t)
	before := d.Badge(t, ann)
	d.Exec(t, `UPDATE badged.users SET total = 99 WHERE user_id = $1`, ann)
	r := prometheus.NewRegistry()
	d.StopFolding()
	p := d.Start(t, nil)
	wrong := make(chan string, 1)
	s, err := NewSampler(SamplerConfig{
		Pool: d.Pool, Log: d.Log, Owner: p, Interval: time.Millisecond, SelfHeal: true, Metrics: NewSamplerMetrics(r),
		Found: func(_ context.Context, partition int, users []string) { wrong <- fmt.Sprint(partition, users) },
	})
	if err != nil {
		t.Fatal(err)
	}
	projectortest.Run(t, s.Run)
	for len(d.Bus.Of(ann)) < 2 {
		projectortest.Await(t, d.Bus.Published, "an update")
	}
	if got, want := <-wrong, fmt.Sprint(events.PartitionOf(ann, foldtest.Partitions), []string{ann}); got != want {
		t.Errorf("found %s, want %s", got, want)
	}
	if updates := d.Bus.Of(ann); len(updates) != 2 || updates[1].Version <= before.Version {
		t.Errorf("version %d was followed by %+v", before.Version, updates)
	}
	if b := d.Badge(t, ann); b.Total != before.Total || b.Version <= before.Version {
		t.Errorf("the badge is %+v, it was %+v", b, before)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, f := range families {
		found[f.GetName()] = f.GetMetric()[0].GetCounter().GetValue()
	}
	if found["badged_verify_users_total"] == 0 || found["badged_verify_mismatches_total"] != 1 || found["badged_verify_healed_total"] != 1 {
		t.Errorf("metrics are %v", found)
	}
}

// Users are drawn from some pages of the table, not from all of them, and any may be drawn.
func TestSampleReadsSomePages(t *testing.T) {
	d := projectortest.New(t)
	d.Exec(t, `INSERT INTO badged.users (partition_id, user_id, version, total, mentions, categories) SELECT 0, 'user ' || n, 1, 0, 0, '{}' FROM generate_series(1, 30000) AS n`)
	v := NewVerifier(d.Pool, d.Log)
	drawn := map[string]bool{}
	for range 20 {
		users, err := v.Sample(t.Context(), 0, 16)
		if err != nil || len(users) != 16 {
			t.Fatalf("%d users are drawn, want 16: %v", len(users), err)
		}
		for _, user := range users {
			drawn[user] = true
		}
	}
	if len(drawn) < 200 {
		t.Errorf("in 20 samples of 16, %d users are drawn", len(drawn))
	}
	plan := strings.Join(d.Lines(t, `EXPLAIN (ANALYZE, BUFFERS, COSTS OFF) `+strings.NewReplacer("$1", "16", "$2", "50").Replace(statements.Of(0, "sample users"))), "\n")
	if !strings.Contains(plan, "Sample Scan") {
		t.Errorf("users are drawn by\n%s", plan)
	}
}
