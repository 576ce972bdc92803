// Package keys remembers which users have had which events, for as long as
// events may come again: an [Entry] for each event and user.
//
// A batch writes its entries as a block, in its own transaction. In the
// background a [Merger] writes blocks to sorted runs, and runs to larger ones, as
// log-structured stores do. A run is stored as pages, found by their first prefix,
// and as segments of many pages with a filter each. The owner of a partition keeps
// a [Window] in memory: the entries of blocks that are not merged yet, and the
// filters. An event that neither knows is new, without a look-up; one that a
// filter knows is looked up in the pages of its run.
//
// The window is complete, as the position that the batch's fence compares proves:
// all who add blocks move it. Merging changes only how entries are stored.
//
// It does not know events, only their hashes. ADR 57 has the reasons.
package keys

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/sqlfile"
)

//go:embed keys.sql
var statementsText string

var statements = sqlfile.Parse(statementsText)

// ProbedGenerations is how many generations are probed for duplicates, the
// present one included.
const ProbedGenerations = 3

// OldestProbed returns the oldest generation that is probed in a generation.
func OldestProbed(generation int) int { return max(1, generation-ProbedGenerations+1) }

// ErrOutdated means that another projector has merged what the window describes.
// Load it again.
var ErrOutdated = errors.New("another projector has merged the remembered events; they are read again")

// Window is what the owner of a partition knows of the remembered events. Its
// methods must not be called concurrently.
type Window struct {
	partition int
	// limit is how many bytes the filters may take.
	limit                                int
	addBlockSQL, addBlocksSQL, lookUpSQL string

	loaded bool
	// loads counts how often the window was loaded or forgotten, by which a merge
	// notices.
	loads   int
	present int
	// recent are the entries in blocks.
	recent []recent
	// runs are live, the youngest first.
	runs []*run
	// filters is what the filters of runs take, in bytes.
	filters int
}

// recent are the entries in the blocks of a generation.
type recent struct {
	generation int
	entries    map[Entry]struct{}
}

// run is a sorted run. It does not change, except that filters are unloaded.
type run struct {
	number     int64
	generation int
	entries    int64
	// segments are in the order of their first prefixes. If the run has none, all
	// of its filters are lost.
	segments []segment
	// damaged is set if filters are missing or cannot be read. The run is merged
	// alone, which builds them again.
	damaged bool
}

// segment is some neighboring pages of a run.
type segment struct {
	first   uint64 // prefix
	entries int64
	filter  *filter // nil if it is not in memory: the pages are probed
}

// NewWindow returns a window of a partition that is not loaded, whose filters
// may take that many bytes.
func NewWindow(partition, limit int) *Window {
	return &Window{
		partition: partition, limit: limit,
		addBlockSQL:  statements.Of(partition, "add a block"),
		addBlocksSQL: statements.Of(partition, "add blocks"),
		lookUpSQL:    statements.Of(partition, "look up prefixes"),
	}
}

// Loaded reports whether w was loaded and not forgotten since.
func (w *Window) Loaded() bool { return w.loaded }

// Forget empties w. Call it whenever another projector may have folded events.
func (w *Window) Forget() {
	w.loaded, w.loads = false, w.loads+1
	w.recent, w.runs, w.filters = nil, nil, 0
}

// Load reads the window in a generation. The position of the partition must have
// been read before.
func (w *Window) Load(ctx context.Context, conn *pgx.Conn, generation int) error {
	w.Forget()
	w.present = generation
	// Blocks come first: if they are merged meanwhile, the runs have them.
	var reads pgx.Batch
	reads.Queue(statements.Of(w.partition, "load the blocks"), OldestProbed(generation)).Query(w.scanBlocks)
	reads.Queue(statements.Get("load the runs"), w.partition, OldestProbed(generation), w.limit).Query(w.scanRuns)
	if err := conn.SendBatch(ctx, &reads).Close(); err != nil {
		w.Forget()
		return fmt.Errorf("load the remembered events of partition %d: %w", w.partition, err)
	}
	w.loaded = true
	return nil
}

func (w *Window) scanBlocks(rows pgx.Rows) error {
	var generation int
	var block []byte
	var entries []Entry
	_, err := pgx.ForEachRow(rows, []any{&generation, &block}, func() (err error) {
		if entries, err = decode(entries[:0], block); err != nil {
			return corruptBlock(w.partition, generation, err)
		}
		to := w.recentOf(generation)
		for _, e := range entries {
			to[e] = struct{}{}
		}
		return nil
	})
	return err
}

func corruptBlock(partition, generation int, err error) error {
	return fmt.Errorf("a block of generation %d in badged.dedup_blocks_p%02d is corrupt: %w", generation, partition, err)
}

func corruptRun(partition int, run int64, err error) error {
	return fmt.Errorf("run %d in badged.dedup_pages_p%02d is corrupt: %w", run, partition, err)
}

// recentOf returns the entries in the blocks of a generation.
func (w *Window) recentOf(generation int) map[Entry]struct{} {
	for _, r := range w.recent {
		if r.generation == generation {
			return r.entries
		}
	}
	entries := map[Entry]struct{}{}
	w.recent = append(w.recent, recent{generation, entries})
	return entries
}

func (w *Window) scanRuns(rows pgx.Rows) error {
	var number, entries int64
	var generation int
	var first, inSegment *int64
	var stored []byte
	_, err := pgx.ForEachRow(rows, []any{&number, &generation, &entries, &first, &inSegment, &stored}, func() error {
		if n := len(w.runs); n == 0 || w.runs[n-1].number != number {
			w.runs = append(w.runs, &run{number: number, generation: generation, entries: entries})
		}
		r := w.runs[len(w.runs)-1]
		if first == nil {
			return nil
		}
		s := segment{first: fromOrdered(*first), entries: *inSegment}
		if stored != nil {
			f, err := loadFilter(stored)
			if err != nil {
				r.damaged = true
			} else {
				s.filter = f
				w.filters += filterBytes(f)
			}
		}
		r.segments = append(r.segments, s)
		return nil
	})
	for _, r := range w.runs {
		var n int64
		for _, s := range r.segments {
			n += s.entries
		}
		if n != r.entries { // the segments do not tell where the missing ones were
			r.damaged = true
			w.unload(r)
			r.segments = nil
		}
	}
	w.trim() // they take a little more than they are stored in
	return err
}

// mayHave reports whether r may have entries with a prefix.
func (r *run) mayHave(prefix uint64) bool {
	if len(r.segments) == 0 {
		return true
	}
	i, found := slices.BinarySearchFunc(r.segments, prefix, func(s segment, p uint64) int { return cmp.Compare(s.first, p) })
	if !found {
		i--
	}
	return i >= 0 && (r.segments[i].filter == nil || r.segments[i].filter.Contains(prefix))
}

// unload unloads the filters of r.
func (w *Window) unload(r *run) {
	for i := range r.segments {
		if s := &r.segments[i]; s.filter != nil {
			w.filters -= filterBytes(s.filter)
			s.filter = nil
		}
	}
}

// trim unloads the filters of the oldest runs that do not fit into memory.
func (w *Window) trim() {
	for i := len(w.runs) - 1; i >= 0 && w.filters > w.limit; i-- {
		w.unload(w.runs[i])
	}
}

// add adds a run that was written.
func (w *Window) add(r *run) {
	for i := range r.segments {
		w.filters += filterBytes(r.segments[i].filter)
	}
	w.runs = append(w.runs, r)
	slices.SortFunc(w.runs, func(a, b *run) int {
		return cmp.Or(cmp.Compare(b.generation, a.generation), cmp.Compare(b.number, a.number))
	})
	w.trim()
}

// remove removes runs.
func (w *Window) remove(gone func(*run) bool) {
	w.runs = slices.DeleteFunc(w.runs, func(r *run) bool {
		if !gone(r) {
			return false
		}
		w.unload(r)
		return true
	})
}

// begin notes that a generation has begun.
func (w *Window) begin(generation int) {
	oldest := OldestProbed(generation)
	w.present = generation
	w.recent = slices.DeleteFunc(w.recent, func(r recent) bool { return r.generation < oldest })
	w.remove(func(r *run) bool { return r.generation < oldest })
	for _, r := range w.runs {
		if slices.ContainsFunc(r.segments, func(s segment) bool { return s.filter == nil }) {
			w.Forget() // there may be room for the filter now
			return
		}
	}
}

// Stats describes a window.
type Stats struct {
	// Generation is the present one.
	Generation int
	// Recent is how many entries are in blocks, and Merged how many in runs.
	Recent, Merged int
	Runs           int
	// FilterBytes is the memory that filters take, and Bytes all memory, roughly.
	FilterBytes, Bytes int
	// Unloaded is how many runs have filters that are not in memory.
	Unloaded int
}

// recentBytes is roughly what an entry takes in a map.
const recentBytes = 32

// Stats returns what w has.
func (w *Window) Stats() Stats {
	s := Stats{Generation: w.present, Runs: len(w.runs), FilterBytes: w.filters, Recent: w.recentEntries()}
	for _, r := range w.runs {
		s.Merged += int(r.entries)
		if len(r.segments) == 0 || slices.ContainsFunc(r.segments, func(s segment) bool { return s.filter == nil }) {
			s.Unloaded++
		}
	}
	s.Bytes = s.FilterBytes + recentBytes*s.Recent
	return s
}

// recentEntries returns how many entries are in blocks.
func (w *Window) recentEntries() (n int) {
	for _, r := range w.recent {
		n += len(r.entries)
	}
	return n
}
