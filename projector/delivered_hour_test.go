package projector

import (
	"testing"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
)

// A second message in the same hour is a heap-only update in spite of the
// index, and so is reading everything.
func TestMessagesOfAnHourAreHeapOnlyUpdates(t *testing.T) {
	d := newDatabase(t)
	ann := foldtest.User(0, 0)
	d.appendAgo(t, time.Hour, foldtest.Deliver("c", 1, ann))
	d.fold(t)
	d.appendAgo(t, time.Hour, foldtest.Deliver("c", 2, ann), foldtest.Deliver("c", 3, ann))
	d.fold(t)
	d.appendAgo(t, time.Hour, foldtest.Event("read", events.ConversationRead, "c", foldtest.UpTo(3), ann))
	d.fold(t)
	// Heap-only versions of a row have no index entries: the entry of the
	// first version leads to them.
	d.exec(t, `CREATE EXTENSION pageinspect`)
	same(t, "entries in the index", []string{"1"},
		d.lines(t, `SELECT live_items::text FROM bt_page_stats('badged.conversations_p00_pkey', 1)`))
	d.appendAgo(t, 0, foldtest.Deliver("c", 4, ann))
	d.fold(t)
	same(t, "entries in the index, an hour later", []string{"2"},
		d.lines(t, `SELECT live_items::text FROM bt_page_stats('badged.conversations_p00_pkey', 1)`))
}
