package keys

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Check finds the users who have already had the events of a batch. Call its methods in the
// order of their declaration.
type Check struct {
	window     *Window
	generation int
	oldest     int
	// runs and prefixes are the look-ups to do: prefixes[i] is the first half of an event key, and
	// runs[i] the number of a run that may have entries with this prefix. stored has the entries
	// found. added has the entries to store.
	runs, prefixes []int64
	stored         map[Entry]struct{}
	added          []Entry
}

// Check returns a Check for a batch that adds its entries to a generation: the present
// generation or the one after it.
func (w *Window) Check(generation int) *Check {
	return &Check{window: w, generation: generation, oldest: OldestProbed(generation)}
}

// Ask looks for an event key in the filters. For each run whose filter may contain the key, it
// requests a look-up in the pages of the run, which have its entries.
func (c *Check) Ask(key uuid.UUID) {
	prefix := binary.BigEndian.Uint64(key[:8])
	for _, r := range c.window.runs {
		if r.generation >= c.oldest && r.mayHave(prefix) {
			c.runs, c.prefixes = append(c.runs, r.number), append(c.prefixes, ordered(prefix))
		}
	}
}

// QueueLoads queues the statement that does the requested look-ups. The statement fails with
// [ErrOutdated] if one of the runs has been merged since the window was loaded.
func (c *Check) QueueLoads(loads *pgx.Batch) {
	if len(c.runs) == 0 {
		return
	}
	c.stored = map[Entry]struct{}{}
	loads.Queue(c.window.lookUpSQL, c.window.partition, c.runs, c.prefixes).Query(c.scan)
}

func (c *Check) scan(rows pgx.Rows) error {
	var number, at int64
	var page []byte
	var entries []Entry
	found := 0
	_, err := pgx.ForEachRow(rows, []any{&number, &at, &page}, func() (err error) {
		found++
		if page == nil { // the prefix is below the first prefix of the run
			return nil
		}
		if entries, err = decode(entries[:0], page); err != nil {
			return corruptRun(c.window.partition, number, err)
		}
		prefix := fromOrdered(at)
		i, _ := slices.BinarySearchFunc(entries, prefix, func(e Entry, p uint64) int { return cmp.Compare(e.Prefix, p) })
		for ; i < len(entries) && entries[i].Prefix == prefix; i++ {
			c.stored[entries[i]] = struct{}{}
		}
		return nil
	})
	if err == nil && found < len(c.runs) {
		return ErrOutdated
	}
	return err
}

// Has reports whether an entry is stored in a probed generation, or was added by this Check.
func (c *Check) Has(e Entry) bool {
	for _, r := range c.window.recent {
		if _, ok := r.entries[e]; ok && r.generation >= c.oldest {
			return true
		}
	}
	_, ok := c.stored[e]
	return ok
}

// Add adds an entry, to be stored with the batch.
func (c *Check) Add(e Entry) {
	recent := c.window.recentOf(c.generation)
	if _, ok := recent[e]; !ok { // an event may name a user twice
		recent[e] = struct{}{}
		c.added = append(c.added, e)
	}
}

// QueueWrites queues the statement that stores the added entries.
func (c *Check) QueueWrites(writes *pgx.Batch) {
	if len(c.added) == 0 {
		return
	}
	slices.SortFunc(c.added, compareEntries)
	blocks, _ := pack(c.added, blockBytes)
	if len(blocks) == 1 {
		writes.Queue(c.window.addBlockSQL, c.generation, blocks[0])
	} else {
		writes.Queue(c.window.addBlocksSQL, c.generation, blocks)
	}
}

// Commit ends the Check after the batch was committed.
func (c *Check) Commit() {
	if c.generation != c.window.present {
		c.window.begin(c.generation)
	}
}

// Abandon ends the Check after the batch has failed: it removes from the window the entries
// that the Check has added.
func (c *Check) Abandon() {
	recent := c.window.recentOf(c.generation)
	for _, e := range c.added {
		delete(recent, e)
	}
	c.added = nil
}
