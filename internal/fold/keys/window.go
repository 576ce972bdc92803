// Package keys records which users have had which events during the dedup window, to find
// repeated events. It stores an [Entry] for each pair of event and user.
//
// Each batch inserts its entries as a block, in the batch's own transaction. In the
// background, a [Merger] merges blocks into sorted runs, and runs into larger runs, as
// log-structured stores do. A run consists of pages; an index has the first prefix of each
// page. Many consecutive pages form a segment, and each segment has a filter.
//
// The owner of a partition has a [Window] in memory: the entries of the blocks that are not merged
// yet, and the filters of the runs. If neither contains an event, the event is new, and no query is
// needed. If the filter of a run may contain the event, a query looks the event up in the pages of
// that run.
//
// The fence of a batch proves that the window is complete, since each transaction that adds
// blocks also moves the position of the partition. A merge needs no fence: it changes only how
// entries are stored.
//
// The package does not know events, only their hashes. ADR 57 has the reasons.
package keys

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/pg/sqlfile"
)

//go:embed keys.sql
var statementsText string

var statements = sqlfile.Parse(statementsText)

// ProbedGenerations is the number of generations in which a batch looks for repeated events,
// including the present generation.
const ProbedGenerations = 3

// OldestProbed returns the oldest generation in which a batch looks for repeated events. The
// batch stores its keys in the given generation.
func OldestProbed(generation int) int { return max(1, generation-ProbedGenerations+1) }

// ErrOutdated means that another projector has merged blocks or runs of the window. The caller
// must load the window again.
var ErrOutdated = errors.New("another projector has merged the event keys; they are loaded again")

// Window is the index that the owner of a partition has in memory to find entries. It is not
// safe for concurrent use.
type Window struct {
	partition int
	// limit is the memory that the filters may use, in bytes.
	limit                                int
	addBlockSQL, addBlocksSQL, lookUpSQL string

	loaded bool
	// loads counts the calls of Load and Forget. A merge is abandoned if loads changes.
	loads   int
	present int
	// recent has the entries of unmerged blocks.
	recent []recent
	// runs has the live runs (complete and not dropped), the youngest first.
	runs []*run
	// filters is the size of all filters in memory, in bytes.
	filters int
}

// recent has the entries in the blocks of one generation.
type recent struct {
	generation int
	entries    map[Entry]struct{}
}

// run is a sorted run, which is immutable except that its filters may be unloaded.
type run struct {
	number     int64
	generation int
	entries    int64
	// segments has the segments in the order of their first prefixes. It is empty if the row
	// of a segment is missing; then every event is looked up in the run.
	segments []segment
	// damaged is true if a filter is missing or cannot be decoded. Merging this run alone
	// rebuilds its filters.
	damaged bool
}

// segment is a series of pages of a run.
type segment struct {
	first   uint64 // prefix
	entries int64
	filter  *filter // nil if it is not in memory; then each event with a prefix in the segment's range is looked up
}

// NewWindow returns a window that is not loaded. limit is the memory that its filters may use,
// in bytes.
func NewWindow(partition, limit int) *Window {
	return &Window{
		partition: partition, limit: limit,
		addBlockSQL:  statements.Of(partition, "add a block"),
		addBlocksSQL: statements.Of(partition, "add blocks"),
		lookUpSQL:    statements.Of(partition, "look up prefixes"),
	}
}

// Loaded reports whether w is loaded.
func (w *Window) Loaded() bool { return w.loaded }

// Forget unloads w. Call it when another projector may have folded events of the partition.
func (w *Window) Forget() {
	w.loaded, w.loads = false, w.loads+1
	w.recent, w.runs, w.filters = nil, nil, 0
}

// Load loads the window for the present generation. Read the position of the partition before: if
// another projector adds blocks after this read, the fence of the next batch fails.
func (w *Window) Load(ctx context.Context, conn *pgx.Conn, generation int) error {
	w.Forget()
	w.present = generation
	// Read the blocks first. If another process merges them before the second statement, the
	// second statement reads their entries in a run.
	var reads pgx.Batch
	reads.Queue(statements.Of(w.partition, "load the blocks"), OldestProbed(generation)).Query(w.scanBlocks)
	reads.Queue(statements.Get("load the runs"), w.partition, OldestProbed(generation), w.limit).Query(w.scanRuns)
	if err := conn.SendBatch(ctx, &reads).Close(); err != nil {
		w.Forget()
		return fmt.Errorf("load the event keys of partition %d: %w", w.partition, err)
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
		if n != r.entries { // the row of a segment is missing, and so is its first prefix
			r.damaged = true
			w.unload(r)
			r.segments = nil
		}
	}
	w.trim() // a filter uses a little more memory than its stored size, by which Postgres selected filters
	return err
}

// mayHave reports whether r may contain an entry with the prefix.
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

// trim unloads the filters of the oldest runs until the remaining filters fit into the limit.
func (w *Window) trim() {
	for i := len(w.runs) - 1; i >= 0 && w.filters > w.limit; i-- {
		w.unload(w.runs[i])
	}
}

// add adds a live run to the window.
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

// remove removes the runs for which gone returns true.
func (w *Window) remove(gone func(*run) bool) {
	w.runs = slices.DeleteFunc(w.runs, func(r *run) bool {
		if !gone(r) {
			return false
		}
		w.unload(r)
		return true
	})
}

// begin makes a generation the present generation, and removes the entries and runs of expired
// generations.
func (w *Window) begin(generation int) {
	oldest := OldestProbed(generation)
	w.present = generation
	w.recent = slices.DeleteFunc(w.recent, func(r recent) bool { return r.generation < oldest })
	w.remove(func(r *run) bool { return r.generation < oldest })
	for _, r := range w.runs {
		if slices.ContainsFunc(r.segments, func(s segment) bool { return s.filter == nil }) {
			w.Forget() // Load may have memory for this filter, now that expired filters are unloaded
			return
		}
	}
}

// Stats describes the size of a window.
type Stats struct {
	// Generation is the present generation.
	Generation int
	// Recent is the number of entries in blocks, Merged the number of entries in runs.
	Recent, Merged int
	Runs           int
	// FilterBytes is the memory used by the filters. Bytes is the approximate memory used by
	// the whole window.
	FilterBytes, Bytes int
	// Unloaded is the number of runs with a filter that is not in memory.
	Unloaded int
}

// recentBytes is the approximate memory used by an entry in a map.
const recentBytes = 32

// Stats returns the sizes of w.
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

// recentEntries returns the number of entries in blocks.
func (w *Window) recentEntries() (n int) {
	for _, r := range w.recent {
		n += len(r.entries)
	}
	return n
}
