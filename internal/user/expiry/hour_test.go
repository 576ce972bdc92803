package expiry

import (
	"testing"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
)

// Most messages do not write to the index: a second message in the same hour is a heap-only
// update, and so is a read of all messages.
func TestMessagesOfAnHourAreHeapOnlyUpdates(t *testing.T) {
	d := projectortest.New(t)
	ann := foldtest.User(0, 0)
	d.AppendAgo(t, time.Hour, foldtest.Deliver("c", 1, ann))
	d.Fold(t)
	d.AppendAgo(t, time.Hour, foldtest.Deliver("c", 2, ann), foldtest.Deliver("c", 3, ann))
	d.Fold(t)
	d.AppendAgo(t, time.Hour, foldtest.Event("read", events.ConversationRead, "c", foldtest.UpTo(3), ann))
	d.Fold(t)
	// Heap-only versions of a row have no entries of their own in indexes: the entry of the first
	// version leads to them.
	d.Exec(t, `CREATE EXTENSION pageinspect`)
	projectortest.Same(t, "entries in the index", []string{"1"},
		d.Lines(t, `SELECT live_items::text FROM bt_page_stats('badged.conversations_p00_pkey', 1)`))
	d.AppendAgo(t, 0, foldtest.Deliver("c", 4, ann))
	d.Fold(t)
	projectortest.Same(t, "entries in the index, an hour later", []string{"2"},
		d.Lines(t, `SELECT live_items::text FROM bt_page_stats('badged.conversations_p00_pkey', 1)`))
}
