package keys

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// remembered is what a plain map remembers, by generation.
type remembered map[int]map[Entry]struct{}

// has reports whether an entry is remembered in a generation.
func (r remembered) has(generation int, e Entry) bool {
	for g := OldestProbed(generation); g <= generation; g++ {
		if _, ok := r[g][e]; ok {
			return true
		}
	}
	return false
}

// fold returns what owner.fold should.
func (r remembered) fold(generation int, events ...event) (counted [][]uint64) {
	if r[generation] == nil {
		r[generation] = map[Entry]struct{}{}
	}
	for _, e := range events {
		var left []uint64
		for _, user := range e.users {
			if !r.has(generation, EntryOf(e.key, user)) {
				left = append(left, user)
			}
		}
		for _, user := range left {
			r[generation][EntryOf(e.key, user)] = struct{}{}
		}
		counted = append(counted, left)
	}
	return counted
}

func (r remembered) clone() remembered {
	c := remembered{}
	for g, entries := range r {
		c[g] = maps.Clone(entries)
	}
	return c
}

// prefixes are few, so that events come again, and lie where an order of signed
// numbers is another one.
var prefixes = []uint64{0, 1, 2, 3, 1<<63 - 2, 1<<63 - 1, 1 << 63, 1<<63 + 1, math.MaxUint64 - 1, math.MaxUint64}

// drawEvent draws an event. Some keys share a prefix, and some users are many.
func drawEvent(t *rapid.T) event {
	prefix := rapid.OneOf(rapid.SampledFrom(prefixes), rapid.Uint64Range(0, 40), rapid.Map(rapid.Uint64Range(0, 60), func(n uint64) uint64 { return n << 58 })).Draw(t, "prefix")
	users := rapid.SliceOfNDistinct(rapid.Uint64Range(1, 3), 1, 3, rapid.ID[uint64]).Draw(t, "users")
	return event{keyOf(prefix, rapid.Uint64Range(0, 1).Draw(t, "rest")<<40), users}
}

// Owners fold events that come again, also for other users, begin generations,
// and take over from each other, at any time. Mergers of the present owner and of
// former ones merge, and crash before any statement and after any commit. Filters
// are damaged and lost, and may not fit into memory. Each decision is that of a
// plain map. In the end every entry is stored once, and nothing else is left.
func TestHistories(t *testing.T) {
	d := newDatabase(t)
	rapid.Check(t, func(t *rapid.T) {
		d.exec(t, `TRUNCATE badged.dedup_blocks_p00, badged.dedup_pages_p00, badged.dedup_runs, badged.dedup_filters`)
		want, generation := remembered{}, 1
		position, known := 0, [2]int{-1, -1} // of the log, and as each owner knows it
		limits := []int{0, 300, 1 << 20}
		owners := [2]*owner{d.newOwner(rapid.SampledFrom(limits).Draw(t, "memory")), d.newOwner(rapid.SampledFrom(limits).Draw(t, "memory"))}
		know := func(i int) *owner {
			o := owners[i]
			if known[i] != position { // its batch would be fenced
				o.window.Forget()
				known[i] = position
			}
			if !o.window.Loaded() {
				o.load(t, generation)
			}
			return o
		}
		// crash replaces an owner, whose process ends.
		crash := func(i int) {
			owners[i], known[i] = d.newOwner(rapid.SampledFrom(limits).Draw(t, "memory")), -1
		}
		merge := func(i int) {
			o := owners[i]
			for range rapid.IntRange(1, 12).Draw(t, "steps") {
				if rapid.IntRange(0, 3).Draw(t, "fault") == 0 {
					d.left.Store(int64(rapid.IntRange(0, 4).Draw(t, "statements")))
				}
				o.crash = rapid.SampledFrom([]int{-1, -1, -1, 0, 1, 1}).Draw(t, "crash in memory")
				more, err := o.merger.Step(context.Background())
				d.left.Store(-1)
				o.crash = -1
				if err != nil {
					if !errors.Is(err, context.Canceled) && !errors.Is(err, errCrash) && !errors.Is(err, ErrOutdated) {
						t.Fatal(err)
					}
					if rapid.Bool().Draw(t, "ends") {
						crash(i)
					}
					return
				}
				if !more {
					return
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"fold": func(t *rapid.T) {
				i := rapid.IntRange(0, 1).Draw(t, "owner")
				events := rapid.SliceOfN(rapid.Custom(drawEvent), 1, 12).Draw(t, "events")
				to := generation
				if rapid.IntRange(0, 7).Draw(t, "begin a generation") == 0 {
					to++
				}
				commit := rapid.IntRange(0, 5).Draw(t, "roll back") > 0
				after := want.clone()
				expected := after.fold(to, events...)
				got, err := know(i).fold(to, commit, events...)
				if errors.Is(err, ErrOutdated) { // the other has merged
					owners[i].window.Forget()
					got, err = know(i).fold(to, commit, events...)
				}
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(expected, got); diff != "" {
					t.Fatalf("in generation %d of %v the counted users are (-want +got):\n%s", to, events, diff)
				}
				if commit {
					want, generation = after, to
					position++
					known[i] = position
				}
			},
			"merge": func(t *rapid.T) { merge(rapid.IntRange(0, 1).Draw(t, "owner")) },
			"take over": func(t *rapid.T) {
				crash(rapid.IntRange(0, 1).Draw(t, "owner"))
			},
			"damage a filter": func(t *rapid.T) {
				d.exec(t, rapid.SampledFrom([]string{
					`DELETE FROM badged.dedup_filters WHERE (run, first) = (SELECT run, first FROM badged.dedup_filters ORDER BY run, first LIMIT 1)`,
					`UPDATE badged.dedup_filters SET filter = set_byte(filter, length(filter) - 1, 255 - get_byte(filter, length(filter) - 1))`,
					`UPDATE badged.dedup_filters SET filter = set_byte(filter, 0, 2)`,
					`UPDATE badged.dedup_filters SET filter = 'x'`,
				}).Draw(t, "damage"))
			},
		})

		last := d.newOwner(1 << 20)
		last.load(t, generation)
		last.merge(t)
		checkStored(t, d, want, generation)
		last = d.newOwner(1 << 20)
		last.load(t, generation)
		for g := OldestProbed(generation); g <= generation; g++ {
			for e := range want[g] {
				if got, err := last.fold(generation, false, event{keyOf(e.Prefix, e.Rest), []uint64{0}}); err != nil || got[0] != nil {
					t.Fatalf("%x is forgotten in generation %d of %d, error %v", e, g, generation, err)
				}
			}
		}
		if s := last.window.Stats(); s.Unloaded > 0 {
			t.Fatalf("filters were not built again: %+v", s)
		}
	})
}

// checkStored fails unless the tables have each wanted key of the probed
// generations exactly once, and pages and filters of live runs only.
func checkStored(t *rapid.T, d *database, want remembered, generation int) {
	t.Helper()
	stored := map[int][]Entry{}
	for _, sql := range []string{
		`SELECT generation, entries FROM badged.dedup_blocks_p00`,
		`SELECT generation, p.entries FROM badged.dedup_pages_p00 AS p LEFT JOIN badged.dedup_runs AS r ON r.run = p.run AND partition_id = 0 AND state = 'live'`,
	} {
		rows, err := d.pool.Query(context.Background(), sql)
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			var g *int
			var b []byte
			if err := rows.Scan(&g, &b); err != nil {
				t.Fatal(err)
			}
			if g == nil {
				t.Fatal("there is a page of no live run")
			}
			if stored[*g], err = decodeBlock(stored[*g], b); err != nil {
				t.Fatal(err)
			}
		}
		if rows.Err() != nil {
			t.Fatal(rows.Err())
		}
	}
	for g := range max(generation, len(stored)) + 1 {
		slices.SortFunc(stored[g], compareEntries)
		expected := slices.SortedFunc(maps.Keys(want[g]), compareEntries)
		if g < OldestProbed(generation) {
			expected = nil
		}
		if diff := cmp.Diff(fmt.Sprint(expected), fmt.Sprint(stored[g])); diff != "" {
			t.Fatalf("generation %d of %d has (-want +got):\n%s", g, generation, diff)
		}
	}
	if n := d.line(t, `SELECT count(*)::text FROM badged.dedup_runs WHERE state <> 'live'`); n != "0" {
		t.Fatalf("%s runs are not live", n)
	}
	if n := d.line(t, `SELECT count(*)::text FROM badged.dedup_filters LEFT JOIN badged.dedup_runs AS r USING (partition_id, run) WHERE r.run IS NULL`); n != "0" {
		t.Fatalf("there are %s filters of no run", n)
	}
}
