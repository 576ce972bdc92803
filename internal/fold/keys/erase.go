package keys

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Erase makes entries of a partition unusable: it replaces the second half of each entry with
// a random value, which matches no user. Deleting the entries would change the sizes of
// blocks, pages and filters.
//
// Before the call, lock the row of the partition's position in tx. Raise the revision in tx,
// so that the owner loads its window again. Merges of runs are blocked in all partitions until
// tx ends.
func Erase(ctx context.Context, tx pgx.Tx, partition int, entries []Entry) error {
	e := eraser{tx: tx, partition: partition, gone: make(map[Entry]struct{}, len(entries))}
	prefixes := make([]int64, 0, len(entries))
	for _, entry := range entries {
		e.gone[entry] = struct{}{}
		prefixes = append(prefixes, ordered(entry.Prefix))
	}
	if len(entries) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, statements.Of(partition, "keep merges away"), pgx.QueryExecModeSimpleProtocol); err != nil {
		return fmt.Errorf("wait for merges of event keys: %w", err)
	}
	if _, err := tx.Exec(ctx, statements.Get("give up merges"), partition); err != nil {
		return fmt.Errorf("cancel merges of event keys: %w", err)
	}
	if err := e.blocks(ctx); err != nil {
		return fmt.Errorf("erase entries of blocks: %w", err)
	}
	slices.Sort(prefixes)
	for part := range slices.Chunk(slices.Compact(prefixes), erasedAtOnce) {
		if err := e.pages(ctx, part); err != nil {
			return fmt.Errorf("erase entries of pages: %w", err)
		}
	}
	return nil
}

// erasedAtOnce is the maximum number of prefixes for which one query reads pages.
const erasedAtOnce = 1000

// eraser is the state of one call of Erase.
type eraser struct {
	tx        pgx.Tx
	partition int
	gone      map[Entry]struct{}
}

func (e *eraser) blocks(ctx context.Context) error {
	var place pgtype.TID
	var block []byte
	var writes pgx.Batch
	rows, _ := e.tx.Query(ctx, statements.Of(e.partition, "read blocks to erase from"))
	if _, err := pgx.ForEachRow(rows, []any{&place, &block}, func() error {
		changed, err := e.replaced(block)
		if err != nil {
			return corruptBlock(e.partition, 0, err)
		}
		if changed != nil {
			writes.Queue(statements.Of(e.partition, "replace a block"), place, changed)
		}
		return nil
	}); err != nil {
		return err
	}
	return e.tx.SendBatch(ctx, &writes).Close()
}

func (e *eraser) pages(ctx context.Context, prefixes []int64) error {
	var run, first int64
	var page []byte
	var writes pgx.Batch
	rows, _ := e.tx.Query(ctx, statements.Of(e.partition, "find pages"), e.partition, prefixes)
	if _, err := pgx.ForEachRow(rows, []any{&run, &first, &page}, func() error {
		changed, err := e.replaced(page)
		if err != nil {
			return corruptRun(e.partition, run, err)
		}
		if changed != nil {
			writes.Queue(statements.Of(e.partition, "replace a page"), run, first, changed)
		}
		return nil
	}); err != nil {
		return err
	}
	return e.tx.SendBatch(ctx, &writes).Close()
}

// replaced returns a block or page in which the entries to erase are replaced, or nil if it
// contains none of these entries.
func (e *eraser) replaced(part []byte) ([]byte, error) {
	entries, err := decode(nil, part)
	if err != nil {
		return nil, err
	}
	changed := false
	for i, entry := range entries {
		if _, gone := e.gone[entry]; !gone {
			continue
		}
		changed = true
		var random [8]byte
		_, _ = rand.Read(random[:]) // it never fails
		entries[i].Rest = binary.BigEndian.Uint64(random[:])
	}
	if !changed {
		return nil, nil
	}
	slices.SortFunc(entries, compareEntries)
	return encode(entries), nil
}
