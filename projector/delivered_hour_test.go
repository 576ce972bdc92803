package projector

import (
	"testing"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
)

// The index does not cost every message: in the same hour a second message is a
// heap-only update, and so is it to read all there is.
func TestMessagesOfAnHourAreHeapOnlyUpdates(t *testing.T) {
	d := newDatabase(t)
	ann := foldtest.User(0, 0)
	d.appendAgo(t, time.Hour, foldtest.Deliver("c", 1, ann))
	d.fold(t)
	d.appendAgo(t, time.Hour, foldtest.Deliver("c", 2, ann), foldtest.Deliver("c", 3, ann))
	d.fold(t)
	d.appendAgo(t, time.Hour, foldtest.Event("read", events.ConversationRead, "c", foldtest.UpTo(3), ann))
	d.fold(t)
	// Heap-only versions of a row have no entries of their own in indexes: the
	// first version's tells where to begin.
	d.exec(t, `CREATE EXTENSION pageinspect`)
	same(t, "entries in the index", []string{"1"},
		d.lines(t, `SELECT live_items::text FROM bt_page_stats('badged.conversations_p00_pkey', 1)`))
	d.appendAgo(t, 0, foldtest.Deliver("c", 4, ann))
	d.fold(t)
	same(t, "entries in the index, an hour later", []string{"2"},
		d.lines(t, `SELECT live_items::text FROM bt_page_stats('badged.conversations_p00_pkey', 1)`))
}
