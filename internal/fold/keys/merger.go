package keys

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Merger merges the blocks of a partition into runs, and runs into larger runs, in short
// transactions. It is not safe for concurrent use. While a partition changes its owner,
// Mergers of two processes may work on it: if both merge the same blocks or runs, the
// transaction of one of them fails or changes nothing.
type Merger struct {
	Pool   *pgxpool.Pool
	Window *Window
	// Locked calls f while no batch uses the window. It returns an error without calling f if
	// this process does not own the partition or the window is not loaded.
	Locked func(ctx context.Context, f func() error) error
	Sizes  Sizes

	// loads and present are the values that the window's fields of the same names had at the last
	// step. If these fields have changed at the next step, that step discards the current merge and
	// the list of dropped runs.
	loads, present int
	current        *merge
	// dropped has the numbers of the runs whose rows are to be deleted. It is valid while
	// listed is true.
	dropped []int64
	listed  bool
}

// Sizes has the thresholds for merging.
type Sizes struct {
	// Blocks is a number of entries: when the blocks of a generation have that many entries, these
	// blocks are merged into a run.
	Blocks int
	// Segment is the number of entries in a segment, which one transaction writes. All entries
	// with the same prefix are in one segment.
	Segment int
	// Read is the number of pages of a run that one query reads.
	Read int
	// Fanout is a number of runs: if that many runs of the present generation have a similar size,
	// they are merged. With a greater value, each key is written less often, but each event probes
	// the filters of more runs.
	Fanout int
	// Older is the maximum number of runs of a completed generation. If there are more, the
	// smallest runs are merged into one, so that exactly this maximum remains.
	Older int
}

// SizesFor returns sizes for a window that may use about the given amount of memory, in bytes.
func SizesFor(bytes int) Sizes {
	return Sizes{Blocks: min(max(1024, bytes/8/recentBytes), 16_384), Segment: 1 << 18, Read: 256, Fanout: 8, Older: 4}
}

// Step does one unit of work, which takes some tens of milliseconds. It reports whether there
// may be more work to do now.
func (m *Merger) Step(ctx context.Context) (more bool, err error) {
	var oldest int
	var blocks bool
	var inputs []*run
	if err := m.Locked(ctx, func() error {
		w := m.Window
		if w.loads != m.loads || w.present != m.present {
			m.loads, m.present, m.current, m.listed = w.loads, w.present, nil, false
		}
		oldest = OldestProbed(w.present)
		blocks = m.due(w)
		inputs = m.Sizes.plan(w.runs, w.present)
		return nil
	}); err != nil {
		return false, err
	}
	switch {
	case blocks:
		return true, m.mergeBlocks(ctx, oldest)
	case m.current != nil:
		return true, m.continueMerge(ctx)
	case !m.listed:
		return true, m.expire(ctx, oldest)
	case len(m.dropped) > 0:
		return true, m.drop(ctx)
	case len(inputs) > 0:
		return true, m.beginMerge(ctx, inputs)
	}
	return false, nil
}

// due reports whether blocks should be merged now: they have enough entries, or their
// generation has ended.
func (m *Merger) due(w *Window) bool {
	for _, r := range w.recent {
		if len(r.entries) >= m.Sizes.Blocks || r.generation < w.present && len(r.entries) > 0 {
			return true
		}
	}
	return false
}

// plan returns the runs to merge next, nil if no merge is due. If a run is damaged, it returns
// only this run: writing it again rebuilds its filters.
func (s Sizes) plan(runs []*run, present int) []*run {
	var inputs []*run
	generations := map[int][]*run{}
	levels := map[int][]*run{} // of the present generation
	for _, r := range runs {
		switch {
		case r.damaged:
			return []*run{r}
		case r.generation == present:
			levels[s.level(r)] = append(levels[s.level(r)], r)
		default:
			generations[r.generation] = append(generations[r.generation], r)
		}
	}
	for _, level := range slices.Sorted(maps.Keys(levels)) {
		if len(levels[level]) >= s.Fanout {
			return levels[level]
		}
	}
	for _, generation := range slices.Sorted(maps.Keys(generations)) {
		if inputs = generations[generation]; len(inputs) > s.Older {
			slices.SortFunc(inputs, func(a, b *run) int { return int(a.entries - b.entries) })
			return inputs[:len(inputs)-s.Older+1]
		}
	}
	return nil
}

// level returns the size class of a run: the logarithm to the base Fanout of its number of
// entries divided by Blocks; at least 0.
func (s Sizes) level(r *run) int {
	return max(0, int(math.Log(float64(r.entries)/float64(s.Blocks))/math.Log(float64(s.Fanout))))
}

// mergeBlocks merges blocks into one run for each generation, in one transaction.
func (m *Merger) mergeBlocks(ctx context.Context, oldest int) error {
	var made []*run
	var taken map[int][]Entry
	if err := pgx.BeginFunc(ctx, m.Pool, func(tx pgx.Tx) (err error) {
		if taken, err = m.take(ctx, tx); err != nil {
			return err
		}
		for _, generation := range slices.Sorted(maps.Keys(taken)) {
			if generation < oldest {
				continue
			}
			r, err := m.writeRun(ctx, tx, generation, taken[generation])
			if err != nil {
				return err
			}
			made = append(made, r)
		}
		return nil
	}); err != nil {
		return fmt.Errorf("merge the blocks of event keys: %w", err)
	}
	return m.Locked(ctx, func() error {
		w := m.Window
		switch {
		case w.loads != m.loads:
			return nil
		case len(taken) == 0: // another projector has merged the blocks
			w.Forget()
			return nil
		}
		for _, r := range made {
			if r.generation >= OldestProbed(w.present) {
				w.add(r)
			}
		}
		for generation, entries := range taken {
			recent := w.recentOf(generation)
			for _, e := range entries {
				delete(recent, e)
			}
		}
		return nil
	})
}

// take deletes blocks, and returns their entries by generation, sorted and without duplicates.
func (m *Merger) take(ctx context.Context, tx pgx.Tx) (map[int][]Entry, error) {
	taken := map[int][]Entry{}
	rows, _ := tx.Query(ctx, statements.Of(m.Window.partition, "take blocks"), 2*entryBytes*m.Sizes.Blocks)
	var generation int
	var block []byte
	if _, err := pgx.ForEachRow(rows, []any{&generation, &block}, func() (err error) {
		if taken[generation], err = decodeBlock(taken[generation], block); err != nil {
			return corruptBlock(m.Window.partition, generation, err)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	for generation, entries := range taken {
		slices.SortFunc(entries, compareEntries)
		taken[generation] = slices.Compact(entries)
	}
	return taken, nil
}

// decodeBlock appends the entries of a block to `entries`. Unlike decode, it does not require that
// the new entries sort after those in `entries`.
func decodeBlock(entries []Entry, block []byte) ([]Entry, error) {
	more, err := decode(nil, block)
	return append(entries, more...), err
}

// writeRun writes sorted entries as a run, which becomes live when tx commits.
func (m *Merger) writeRun(ctx context.Context, tx pgx.Tx, generation int, entries []Entry) (*run, error) {
	r, err := m.beginRun(ctx, tx, generation)
	if err != nil {
		return nil, err
	}
	for len(entries) > 0 {
		n := min(m.Sizes.Segment, len(entries))
		for n < len(entries) && entries[n].Prefix == entries[n-1].Prefix {
			n++
		}
		if err := m.writeSegment(ctx, tx, r, entries[:n]); err != nil {
			return nil, err
		}
		entries = entries[n:]
	}
	return r, m.replace(ctx, tx, nil, r)
}

// beginRun inserts the row of an empty run.
func (m *Merger) beginRun(ctx context.Context, tx pgx.Tx, generation int) (*run, error) {
	r := &run{generation: generation}
	if err := tx.QueryRow(ctx, statements.Get("begin a run"), m.Window.partition, generation).Scan(&r.number); err != nil {
		return nil, fmt.Errorf("begin a run: %w", err)
	}
	return r, nil
}

// writeSegment writes sorted entries as the next segment of r. It fails with [ErrOutdated] if
// another projector has abandoned r.
func (m *Merger) writeSegment(ctx context.Context, tx pgx.Tx, r *run, entries []Entry) error {
	pages, counts := pack(entries, pageBytes)
	firsts, at := make([]int64, len(pages)), 0
	for i, n := range counts {
		firsts[i] = ordered(entries[at].Prefix)
		at += n
	}
	prefixes := make([]uint64, 0, len(entries))
	for i, e := range entries {
		if i == 0 || e.Prefix != entries[i-1].Prefix {
			prefixes = append(prefixes, e.Prefix)
		}
	}
	f, stored, err := newFilter(prefixes)
	if err != nil {
		return err
	}
	var writes pgx.Batch
	writes.Queue(statements.Get("extend a run"), m.Window.partition, r.number, len(entries)).Exec(mustBeOne)
	writes.Queue(statements.Of(m.Window.partition, "add pages"), r.number, firsts, pages)
	writes.Queue(statements.Get("add a filter"), m.Window.partition, r.number, firsts[0], len(entries), stored)
	if err := tx.SendBatch(ctx, &writes).Close(); err != nil {
		return fmt.Errorf("write %d entries of run %d: %w", len(entries), r.number, err)
	}
	r.segments = append(r.segments, segment{entries[0].Prefix, int64(len(entries)), f})
	r.entries += int64(len(entries))
	return nil
}

// replace makes r live and drops the inputs. It fails with [ErrOutdated] if another projector
// has dropped an input or abandoned r.
func (m *Merger) replace(ctx context.Context, tx pgx.Tx, inputs []*run, r *run) error {
	numbers := make([]int64, len(inputs))
	for i := range inputs {
		numbers[i] = inputs[i].number
	}
	var replaced, finished int
	if err := tx.QueryRow(ctx, statements.Get("replace runs"), m.Window.partition, numbers, r.number).Scan(&replaced, &finished); err != nil {
		return fmt.Errorf("finish run %d: %w", r.number, err)
	}
	if replaced != len(inputs) || finished != 1 {
		return ErrOutdated
	}
	return nil
}
