package keys

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

// random returns n events for a user each, the same for each seed.
func random(seed uint64, n int) []event {
	source := rand.New(rand.NewPCG(seed, 0))
	events := make([]event, n)
	for i := range events {
		events[i] = event{keyOf(source.Uint64(), source.Uint64()), []uint64{source.Uint64()}}
	}
	return events
}

// mustFold folds events and fails unless each counts or none does.
func (o *owner) mustFold(t fatal, generation int, counts bool, events ...event) {
	t.Helper()
	counted, err := o.fold(generation, true, events...)
	if err != nil {
		t.Fatal(err)
	}
	for i := range counted {
		if (counted[i] != nil) != counts {
			t.Fatalf("event %d counts for %v, want that it counts: %v", i, counted[i], counts)
		}
	}
}

// addRuns adds runs of that many events in a generation.
func (o *owner) addRuns(t fatal, generation int, sizes ...int) (events []event) {
	t.Helper()
	before := o.merger.Sizes
	defer func() { o.merger.Sizes = before }()
	o.merger.Sizes.Fanout, o.merger.Sizes.Older = 100, 100
	for i, n := range sizes {
		some := random(uint64(1000*generation+7*n+i), n)
		o.mustFold(t, generation, true, some...)
		o.merge(t)
		events = append(events, some...)
	}
	return events
}

func (d *database) runs(t fatal) string {
	t.Helper()
	return d.line(t, `SELECT state || ' ' || entries FROM badged.dedup_runs ORDER BY state, entries`)
}

// Two projectors merge the same runs: the first output is live, and the other projector reloads
// the window.
func TestRunsAreMergedOnce(t *testing.T) {
	d := newDatabase(t)
	first, second := d.newOwner(1<<20), d.newOwner(1<<20)
	first.load(t, 1)
	events := first.addRuns(t, 1, 4, 5)
	second.load(t, 1)
	step := func(o *owner) error {
		more, err := o.merger.Step(t.Context())
		if !more {
			t.Fatal("there is nothing to merge")
		}
		return err
	}
	if err := step(second); err != nil { // it gives up what it finds unfinished
		t.Fatal(err)
	}
	for range 3 { // both begin, and write all segments
		for _, o := range []*owner{first, second} {
			if o.merger.current == nil || o.merger.current.read < 9 {
				if err := step(o); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if got, want := d.runs(t), "building 9 building 9 live 4 live 5"; got != want {
		t.Fatalf("the runs are %s, want %s", got, want)
	}
	if err := step(first); err != nil {
		t.Fatal(err)
	}
	if err := step(second); !errors.Is(err, ErrOutdated) {
		t.Errorf("the second ended with %v, want %v", err, ErrOutdated)
	}
	first.merge(t)
	if got, want := d.runs(t), "live 9"; got != want {
		t.Errorf("the runs are %s, want %s", got, want)
	}
	second.load(t, 1)
	second.mustFold(t, 1, false, events...)
}

// A merge has no effect once another projector has given up its output, even if all pages were
// written.
func TestRunThatWasGivenUpIsNotFinished(t *testing.T) {
	d := newDatabase(t)
	slow, other := d.newOwner(1<<20), d.newOwner(1<<20)
	slow.load(t, 1)
	events := slow.addRuns(t, 1, 4, 5)
	for slow.merger.current == nil || slow.merger.current.read < 9 {
		if _, err := slow.merger.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	other.load(t, 1)
	if _, err := other.merger.Step(t.Context()); err != nil { // it gives up what it finds unfinished
		t.Fatal(err)
	}
	if _, err := slow.merger.Step(t.Context()); !errors.Is(err, ErrOutdated) {
		t.Errorf("the merge ended with %v, want %v", err, ErrOutdated)
	}
	if got, want := d.runs(t), "dropped 9 live 4 live 5"; got != want {
		t.Errorf("the runs are %s, want %s", got, want)
	}
	slow.load(t, 1)
	slow.mustFold(t, 1, false, events...)
}

// Concurrent projectors merge each block once.
func TestBlocksAreMergedOnce(t *testing.T) {
	d := newDatabase(t)
	owners := []*owner{d.newOwner(1 << 20), d.newOwner(1 << 20), d.newOwner(1 << 20)}
	for round := range 20 {
		d.exec(t, `TRUNCATE badged.dedup_blocks_p00, badged.dedup_pages_p00, badged.dedup_runs, badged.dedup_filters`)
		owners[0].load(t, 1)
		events := random(uint64(round), 30)
		for _, e := range events {
			owners[0].mustFold(t, 1, true, e)
		}
		var merging sync.WaitGroup
		for _, o := range owners {
			o.load(t, 1)
			merging.Go(func() {
				if _, err := o.merger.Step(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
		merging.Wait()
		stored := d.line(t, `SELECT ((SELECT coalesce(sum(entries), 0) FROM badged.dedup_runs) + (SELECT count(*) FROM badged.dedup_blocks_p00))::text`)
		if stored != "30" {
			t.Fatalf("in round %d %s entries are stored, want 30", round, stored)
		}
		owners[0].load(t, 1)
		owners[0].mustFold(t, 1, false, events...)
	}
}

// An owner whose run another projector has merged does not count its keys as new.
func TestLookUpInAMergedRun(t *testing.T) {
	d := newDatabase(t)
	former, next := d.newOwner(1<<20), d.newOwner(1<<20)
	former.load(t, 1)
	events := former.addRuns(t, 1, 8, 8)
	next.load(t, 1)
	next.merge(t)
	if _, err := former.fold(1, true, events[0]); !errors.Is(err, ErrOutdated) {
		t.Errorf("the look-up ended with %v, want %v", err, ErrOutdated)
	}
	former.load(t, 1)
	former.mustFold(t, 1, false, events...)
}

// With filters in memory new events need no look-up, but for one of 256 that a
// filter lets pass.
func TestNewEventsNeedNoLookUp(t *testing.T) {
	d := newDatabase(t)
	o := d.newOwner(1 << 20)
	o.merger.Sizes.Blocks, o.merger.Sizes.Segment = 3000, 1<<18
	o.load(t, 1)
	known := o.addRuns(t, 1, 5000, 5000, 5000)
	const asked = 5000
	count := func(events []event) int {
		check := o.window.Check(1)
		for _, e := range events {
			check.Ask(e.key)
		}
		return len(check.runs)
	}
	if n := count(random(99, asked)); n < asked*3/256/2 || n > asked*3/256*2 {
		t.Errorf("%d new events need %d look-ups in three runs, want about %d", asked, n, asked*3/256)
	}
	if n := count(known[:asked]); n < asked || n > asked+asked*2/256*2 {
		t.Errorf("%d known events need %d look-ups", asked, n)
	}
	o.mustFold(t, 1, false, known...)
}

// Corrupt rows cause an error that names the row. Nothing is dropped or counted twice meanwhile.
func TestDamage(t *testing.T) {
	for _, tc := range []struct{ name, sql, says string }{
		{"a block", `UPDATE badged.dedup_blocks_p00 SET entries = '\x0100'`, "a block of generation 1 in badged.dedup_blocks_p00 is corrupt: 2 bytes are too few"},
		{"a block of a newer release", `UPDATE badged.dedup_blocks_p00 SET entries = set_byte(entries, 0, 9)`, "unknown layout 9"},
		{"a page", `UPDATE badged.dedup_pages_p00 SET entries = substr(entries, 1, length(entries) - 3)`, "RUN in badged.dedup_pages_p00 is corrupt"},
		{"a page out of order", `UPDATE badged.dedup_pages_p00 SET entries = set_byte(entries, 1, 255)`, "entry 1 is not above"},
		{"a missing page", `DELETE FROM badged.dedup_pages_p00 WHERE first = (SELECT min(first) FROM badged.dedup_pages_p00)`, "RUN have 0 entries, want 4"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDatabase(t)
			o := d.newOwner(1 << 20)
			o.load(t, 1)
			events := o.addRuns(t, 1, 4)
			run := d.line(t, `SELECT 'run ' || run FROM badged.dedup_runs`)
			if strings.Contains(tc.says, "RUN have") {
				run = strings.TrimPrefix(run, "run ")
			}
			o.mustFold(t, 1, true, random(1, 2)...)
			o.load(t, 1)
			d.exec(t, tc.sql)
			o.window.runs[0].damaged = true // has it merged
			next := d.newOwner(1 << 20)
			err := next.tryLoad(1)
			if err == nil {
				_, err = next.fold(1, true, events...)
			}
			for merging := o; err == nil; {
				_, err = merging.merger.Step(t.Context())
			}
			if want := strings.ReplaceAll(tc.says, "RUN", run); !strings.Contains(err.Error(), want) {
				t.Errorf("the error is %v, want one with %q", err, want)
			}
		})
	}
}

// A run whose filters are damaged is probed by page until it is written again.
func TestDamagedFiltersAreBuiltAgain(t *testing.T) {
	for _, sql := range []string{
		`UPDATE badged.dedup_filters SET filter = set_byte(filter, 40, 255 - get_byte(filter, 40))`,
		`UPDATE badged.dedup_filters SET filter = ''`,
		`DELETE FROM badged.dedup_filters WHERE first = (SELECT max(first) FROM badged.dedup_filters)`,
		`DELETE FROM badged.dedup_filters`,
	} {
		d := newDatabase(t)
		o := d.newOwner(1 << 20)
		o.load(t, 1)
		events := o.addRuns(t, 1, 20)
		d.exec(t, sql)
		o.load(t, 1)
		o.mustFold(t, 1, false, events...)
		o.merge(t)
		o.load(t, 1)
		o.mustFold(t, 1, false, events...)
		if s := o.window.Stats(); s.Unloaded != 0 || s.Runs != 1 || s.Merged != 20 {
			t.Errorf("after %s there are %+v", sql, s)
		}
	}
}

// Filters that do not fit into memory are not loaded, the oldest first, and
// their runs are probed by page.
func TestFiltersKeepToTheirMemory(t *testing.T) {
	d := newDatabase(t)
	o := d.newOwner(1 << 20)
	o.merger.Sizes.Segment = 1 << 18
	o.load(t, 1)
	events := append(o.addRuns(t, 1, 300, 300), o.addRuns(t, 2, 300, 300)...)
	all := o.window.Stats().FilterBytes
	for _, limit := range []int{0, all / 4, all / 2, all - 1, all} {
		tight := d.newOwner(limit)
		tight.merger.Sizes = o.merger.Sizes
		tight.load(t, 2)
		s := tight.window.Stats()
		if s.FilterBytes > limit || (s.Unloaded == 0) != (limit == all) {
			t.Errorf("with %d of %d bytes it has %+v", limit, all, s)
		}
		for i, r := range tight.window.runs {
			if loaded := r.segments[0].filter != nil; loaded != (i < s.Runs-s.Unloaded) {
				t.Errorf("with %d of %d bytes the filter of run %d is loaded: %v", limit, all, i, loaded)
			}
		}
		tight.mustFold(t, 2, false, events...)
		tight.addRuns(t, 2, 301) // keeps to it when a run is added
		if s := tight.window.Stats(); s.FilterBytes > limit {
			t.Errorf("with %d bytes it has %+v after a merge", limit, s)
		}
		d.exec(t, `DELETE FROM badged.dedup_runs WHERE entries = 301`)
	}
}

// Runs of one size are merged when there are Fanout of them, and runs of a completed generation
// until Older are left.
func TestPlan(t *testing.T) {
	sizes := Sizes{Blocks: 10, Segment: 100, Read: 2, Fanout: 3, Older: 2}
	for _, tc := range []struct {
		name    string
		present []int64
		older   []int64
		want    []int64
	}{
		{name: "nothing"},
		{name: "too few of one size", present: []int64{10, 12, 30, 89, 90, 200}},
		{"the smallest first", []int64{10, 12, 3, 30, 89, 31}, nil, []int64{10, 12, 3}},
		{"larger ones", []int64{10, 12, 30, 89, 31}, nil, []int64{30, 89, 31}},
		{"an older generation keeps its largest", []int64{10}, []int64{500, 20, 3, 400}, []int64{3, 20, 400}},
		{"an older generation of few runs", nil, []int64{500, 20}, nil},
	} {
		var runs []*run
		for i, entries := range append(tc.present, tc.older...) {
			r := &run{generation: 5, entries: entries}
			if i >= len(tc.present) {
				r.generation = 4
			}
			runs = append(runs, r)
		}
		var got []int64
		for _, r := range sizes.plan(runs, 5) {
			got = append(got, r.entries)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: merged are (-want +got):\n%s", tc.name, diff)
		}
	}
}

// However many keys there are, a generation has few runs, each key is written a
// few times, and merging ends.
func TestRunsStayFew(t *testing.T) {
	d := newDatabase(t)
	o := d.newOwner(1 << 24)
	o.merger.Sizes = Sizes{Blocks: 10, Segment: 50, Read: 2, Fanout: 4, Older: 2}
	o.load(t, 1)
	limit := 0
	for batch := range 200 {
		o.mustFold(t, 1, true, random(uint64(batch), 10)...)
		o.merge(t)
		limit = max(limit, o.window.Stats().Runs)
	}
	if limit > 3*5 { // levels of 10, 40, 160, 640 and 2,560 entries
		t.Errorf("2,000 entries were in up to %d runs", limit)
	}
	o.mustFold(t, 2, true, event{uuid.UUID{1}, []uint64{1}})
	o.merge(t)
	if s := o.window.Stats(); s.Runs != 2 || s.Merged != 2000 || s.Recent != 1 {
		t.Errorf("after the generation it has %+v, want two runs", s)
	}
	for batch := range 200 {
		o.mustFold(t, 2, false, random(uint64(batch), 10)...)
	}
}
