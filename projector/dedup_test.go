package projector

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/replaytest"
	"github.com/badged/badged/internal/fold/keys"
	"github.com/badged/badged/internal/fold/logread"
	"github.com/badged/badged/internal/fold/store"
	"github.com/badged/badged/internal/fold/store/storetest"
)

// age makes the current generation of a partition old, so that the next batch of p
// begins another.
func (d *database) age(t testing.TB, p *partition) {
	t.Helper()
	d.exec(t, `UPDATE badged.dedup_generations SET begun_at = begun_at - interval '10 years' WHERE partition_id = $1`, p.id)
	d.tend(t, p)
}

// tend begins a generation of a partition if one is due.
func (d *database) tend(t testing.TB, p *partition) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := p.rotateGenerations(ctx); err != nil {
		t.Fatal(err)
	}
}

// smallSizes make merging a few keys take many steps.
var smallSizes = keys.Sizes{Blocks: 3, Segment: 5, Read: 2, Fanout: 2, Older: 1}

// mergeSome runs some steps of merging the keys of a partition, and makes p its
// owner. It reports whether there is more to do.
func (d *database) mergeSome(t testing.TB, p *partition, steps int) (more bool) {
	t.Helper()
	p.owned.Store(true)
	p.merger.Sizes = smallSizes
	for range steps {
		var err error
		if more, err = p.merger.Step(t.Context()); err != nil && !errors.Is(err, errNotOwned) && !errors.Is(err, keys.ErrOutdated) {
			t.Fatal(err)
		}
		if !more {
			break
		}
	}
	return more
}

// merge merges the keys of a partition until nothing is left to merge.
func (d *database) merge(t testing.TB, p *partition) {
	t.Helper()
	for d.mergeSome(t, p, 1) {
	}
}

// rotate folds an event of a user of its own, which begins a generation.
func (d *database) rotate(t testing.TB, p *partition) {
	t.Helper()
	before := d.present(t, p.id)
	d.age(t, p)
	d.append(t, foldtest.Deliver(fmt.Sprint("rotation after ", before), 1, foldtest.User(p.id, 99)))
	drain(t, p)
	if got := d.present(t, p.id); got != before+1 {
		t.Fatalf("generation %d is followed by %d", before, got)
	}
}

// present returns the generation that takes the keys of a partition.
func (d *database) present(t testing.TB, partition int) int {
	t.Helper()
	all := d.generations(t, partition)
	return all[len(all)-1].Number
}

func (d *database) generations(t testing.TB, partition int) []store.Generation {
	t.Helper()
	all, err := store.LoadGenerations(t.Context(), d.pool, partition)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// stored returns the generations of partition 0 that have keys.
func (d *database) stored(t testing.TB) string {
	t.Helper()
	return strings.Join(d.lines(t, `SELECT generation::text FROM (
    SELECT generation FROM badged.dedup_blocks_p00
    UNION SELECT generation FROM badged.dedup_runs JOIN badged.dedup_pages_p00 USING (run) JOIN badged.dedup_filters USING (partition_id, run) WHERE partition_id = 0
) AS g ORDER BY generation`), " ")
}

// records returns what is in the log of a partition after a position.
func (d *database) records(t testing.TB, partition int, after events.Position) []events.Record {
	t.Helper()
	end := logread.Cursor{Position: events.Position{TransactionID: math.MaxInt64}}
	records, err := logread.Folded(t.Context(), d.pool, partition, after, end, &logread.Size{Events: 10_000, Bytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	return records
}

// replay folds the log of a partition after a position again, one by one, with
// the keys in memory.
func (d *database) replay(t testing.TB, partition int, after events.Position) *storetest.Memory {
	t.Helper()
	m := storetest.NewMemory(d.generations(t, partition)...)
	for _, r := range d.records(t, partition, after) {
		item, err := store.NewItem(&r, partition, foldtest.Partitions)
		if err != nil {
			t.Fatal(err)
		}
		m.CommitAt(t, []events.Event{item.Event}, func(int) events.Position { return r.Position })
	}
	return m
}

// generationsOf returns in which generation each event of a history is, if it
// is in a partition at all; the history is what follows a position there.
func (d *database) generationsOf(t testing.TB, history []events.Event, partition int, after events.Position) []int {
	t.Helper()
	generations, records := d.generations(t, partition), d.records(t, partition, after)
	of := make([]int, len(history))
	for i := range history {
		here := func(user string) bool { return events.PartitionOf(user, foldtest.Partitions) == partition }
		if !slices.ContainsFunc(history[i].Data.UserIDs, here) {
			continue
		}
		for _, g := range generations {
			if g.After.Before(records[0].Position) {
				of[i] = g.Number
			}
		}
		records = records[1:]
	}
	return of
}

// checkReplay compares users in the tables with what the log of partition 0
// gives when it is folded again, here, in verifying and in explaining.
func (d *database) checkReplay(t *testing.T, users ...string) {
	t.Helper()
	again := d.replay(t, 0, events.Position{})
	for _, user := range users {
		if diff := cmp.Diff(again.Describe(user), d.describe(t, user)); diff != "" {
			t.Errorf("%s has (-folded again +tables):\n%s", user, diff)
		}
		if diff := cmp.Diff(storetest.Versions(again.Users[user]), d.versions(t, user)); diff != "" {
			t.Errorf("versions of %s (-folded again +tables):\n%s", user, diff)
		}
	}
	replaytest.Verify(t, d.pool, d.log, users...)
}

// A repeated event changes nothing while its key is remembered: in its own
// generation and the two that follow. After that it counts as new, and is
// remembered again. A replay decides the same.
func TestKeysAreRememberedForThreeGenerations(t *testing.T) {
	d := newDatabase(t)
	p, ann := d.projector.partitions[0], foldtest.User(0, 0)
	mark := foldtest.Event("mark", events.ConversationMarkedUnread, "c", nil, ann)
	check := func(when string, total, version int64) {
		t.Helper()
		d.append(t, mark)
		drain(t, p)
		if b := d.badge(t, ann); b.Total != total || b.Version != version {
			t.Errorf("%s: total %d at version %d, want %d at %d", when, b.Total, b.Version, total, version)
		}
	}
	read := func(n int) {
		d.append(t, foldtest.Event(fmt.Sprint("read ", n), events.ConversationRead, "c", foldtest.UpTo(1), ann))
	}
	d.append(t, foldtest.Deliver("c", 1, ann), mark)
	read(1)
	check("at once", 0, 3)
	for rotations := 1; rotations <= 2; rotations++ {
		d.rotate(t, p)
		check(fmt.Sprint(rotations, " rotations later"), 0, 3)
	}
	d.rotate(t, p)
	check("beyond the window", 1, 4) // though it came again within it
	read(2)
	check("remembered anew", 0, 5)
	d.rotate(t, p)
	check("and for as long", 0, 5)
	if n := count(d.projector.metrics.duplicates); n != 5 {
		t.Errorf("%d events were taken for duplicates, want 5", n)
	}
	d.checkReplay(t, ann)
	if got, want := d.stored(t), "1 2 3 4 5"; got != want {
		t.Errorf("there are keys of the generations %s, want %s", got, want)
	}
	d.merge(t, p)
	if got, want := d.stored(t), "3 4 5"; got != want {
		t.Errorf("after merging there are keys of the generations %s, want %s", got, want)
	}
}

// A generation ends by the clock of the database, even if no projector ran for
// long. The next one gets a whole span.
func TestGenerationsHaveTheirSpan(t *testing.T) {
	d := newDatabase(t)
	p := d.newProjector(t, func(cfg *Config) { cfg.DedupWindow = 2 * time.Hour }).partitions[0]
	for _, tc := range []struct {
		age  string
		next int
	}{{"0s", 1}, {"59 minutes", 1}, {"61 minutes", 2}, {"0s", 2}, {"10 years", 3}, {"0s", 3}} {
		d.exec(t, `UPDATE badged.dedup_generations SET begun_at = now() - $1::text::interval
WHERE (partition_id, generation) = (0, $2)`, tc.age, d.present(t, 0))
		for i := range 3 {
			d.tend(t, p)
			d.append(t, foldtest.Deliver(fmt.Sprint(tc, i), 1, foldtest.User(0, 0)))
			drain(t, p)
		}
		if got := d.present(t, 0); got != tc.next {
			t.Errorf("after %s it is generation %d, want %d", tc.age, got, tc.next)
		}
	}
}

// Cutting batches and beginning generations are independent: with generations at
// the same positions, any cut gives the same rows and versions.
func TestBatchCutsDoNotShowAcrossRotations(t *testing.T) {
	ann, bob := foldtest.User(0, 0), foldtest.User(0, 1)
	var history []events.Event
	for i := range 40 {
		seq := int64(i%17 + 1)
		history = append(history, foldtest.Deliver("c", seq, ann, bob),
			foldtest.Event(fmt.Sprint("mark ", i%5), events.ConversationMarkedUnread, "c", nil, ann),
			foldtest.Event(fmt.Sprint("read ", i%7), events.ConversationRead, "c", foldtest.UpTo(seq), ann))
	}
	rotations := []int{10, 25, 26, 60, 90, len(history)}
	var want string
	for _, size := range []int{1, 2, 7, 1000} {
		d := newDatabase(t)
		p := d.projector.partitions[0]
		for _, e := range history {
			d.append(t, e)
		}
		d.awaitSettled(t, 0)
		done := 0
		for _, next := range rotations {
			for ; done < next; done += min(size, next-done) {
				step(t, p, min(size, next-done))
			}
			d.age(t, p)
		}
		if got := d.present(t, 0); got != len(rotations) {
			t.Errorf("in batches of %d it is generation %d, want %d", size, got, len(rotations))
		}
		d.checkReplay(t, ann, bob)
		if n := count(d.projector.metrics.duplicates); n == 0 || n > len(history)-17-5-7-1 {
			t.Errorf("%d of %d events were duplicates: none was forgotten, or all were", n, len(history))
		}
		if want == "" {
			want = d.dump(t)
		}
		if diff := cmp.Diff(want, d.dump(t)); diff != "" {
			t.Errorf("in batches of %d the tables are (-one by one +got):\n%s", size, diff)
		}
	}
}

// If a batch that begins a generation is interrupted, at any place, nothing of it
// is kept, the generation included, and the batches that follow are right.
func TestInterruptedRotation(t *testing.T) {
	want := uninterrupted(t)
	for _, place := range []string{
		`BEFORE INSERT ON badged.dedup_generations`,
		`AFTER INSERT ON badged.dedup_generations`,
		`AFTER INSERT ON badged.dedup_blocks_p00`,
		``, // in the commit
	} {
		for _, how := range interruptions {
			t.Run(place+"/"+how.name, func(t *testing.T) {
				d := startCrashHistory(t)
				p := d.projector.partitions[0]
				d.age(t, p)
				before, position, generations := d.dump(t), d.position(t, 0), d.generations(t, 0)
				d.arm(t, place, how.statements)

				_, _, err := p.step(t.Context())
				var pgErr *pgconn.PgError
				if !errors.As(err, &pgErr) || pgErr.Code != how.code || d.fired(t) != 1 {
					t.Errorf("the batch ended with %v, want %s", err, how.code)
				}
				if diff := cmp.Diff(before, d.dump(t)); diff != "" || d.position(t, 0) != position {
					t.Errorf("the position was at %v and is at %v; of the batch was kept (-before +after):\n%s", position, d.position(t, 0), diff)
				}
				if diff := cmp.Diff(generations, d.generations(t, 0), cmp.AllowUnexported(store.Generation{})); diff != "" {
					t.Errorf("generations (-before +after):\n%s", diff)
				}

				d.tend(t, p)
				drain(t, p)
				if got := d.generations(t, 0); len(got) != 2 || got[1].After != position {
					t.Errorf("the generations are %v, want the second after %v", got, position)
				}
				if diff := cmp.Diff(want, d.dump(t)); diff != "" {
					t.Errorf("the tables are (-uninterrupted +interrupted):\n%s", diff)
				}
			})
		}
	}
}
