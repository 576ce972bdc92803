package erasure_test

import (
	"fmt"
	"testing"

	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/devtest/replaytest"
	"github.com/badged/badged/internal/partition/archive"
	"github.com/badged/badged/internal/user/erasure"
)

// If an erasure from shared files is killed at any point, the next one completes it: each child
// has files of its own, and no file is lost or left over.
func TestKilledErasureFromSharedFiles(t *testing.T) {
	t.Parallel()
	d, dir := projectortest.New(t), t.TempDir()
	users := []string{foldtest.User(0, 0), foldtest.User(0, 1)} // of either partition
	for seq := int64(1); seq <= 2; seq++ {
		d.Append(t, foldtest.Deliver("c", seq, users...))
		d.Fold(t)
		archived(t, d, dir)
	}
	d.StopFolding()
	splitPartition(t, d, 0)
	folding(t, d)
	before := ofOthers(t, d, users[1])
	replaytest.RunKilled(t, d.Pool, dir, func(store archive.Store) error {
		a, err := archive.Continue(t.Context(), store)
		if err != nil {
			return err
		}
		defer a.Close()
		_, err = erasure.Erase(t.Context(), erasure.Config{Pool: d.Pool, Log: d.Log, Settle: -1, UserID: users[1], Archive: a})
		return err
	})
	if left := inFiles(t, dir, fmt.Sprintf("%q", users[1])); left != nil {
		t.Errorf("the id is still in %v", left)
	}
	projectortest.Same(t, "rows of others", before, ofOthers(t, d, users[1]))
	replaytest.VerifyArchive(t, d.Pool, d.Log, dir, users...)
}
