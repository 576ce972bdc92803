package projector

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/badged/badged/events"
)

// Whatever the order of deliveries, reads and recalls, a conversation was
// delivered to last when it was.
func TestDeliveredHourDoesNotDependOnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := drawHistory(t, commuting, users)
		last := map[string]int64{}
		for i := range history {
			e := &history[i]
			e.ID = fmt.Sprint("event ", i) // one that comes twice is not looked at
			hour := rapid.Int64Range(1, 5).Draw(t, "hour")
			e.AppendedAt = time.Unix(3600*hour+rapid.Int64Range(0, 3599).Draw(t, "second"), 0)
			for _, id := range e.Data.UserIDs {
				if e.Type == events.MessageDelivered && e.Data.SenderID != id {
					key := id + " " + e.Data.ConversationID
					last[key] = max(last[key], hour)
				}
			}
		}
		m := newMemory()
		m.commit(t, rapid.Permutation(history).Draw(t, "shuffled"))
		got := map[string]int64{}
		for id, u := range m.rows {
			for _, c := range u.Conversations {
				if c.DeliveredHour > 0 {
					got[id+" "+c.ID] = c.DeliveredHour
				}
			}
		}
		if diff := cmp.Diff(last, got); diff != "" {
			t.Fatalf("after\n%sthe hours are (-want +got):\n%s", story(history), diff)
		}
	})
}

// The index does not cost every message: in the same hour a second message is a
// heap-only update, and so is it to read all there is.
func TestMessagesOfAnHourAreHeapOnlyUpdates(t *testing.T) {
	d := newDatabase(t)
	ann := userIn(0, 0)
	d.appendAgo(t, time.Hour, deliver("c", 1, ann))
	d.fold(t)
	d.appendAgo(t, time.Hour, deliver("c", 2, ann), deliver("c", 3, ann))
	d.fold(t)
	d.appendAgo(t, time.Hour, event("read", events.ConversationRead, "c", upTo(3), ann))
	d.fold(t)
	// Heap-only versions of a row have no entries of their own in indexes: the
	// first version's tells where to begin.
	d.exec(t, `CREATE EXTENSION pageinspect`)
	same(t, "entries in the index", []string{"1"},
		d.lines(t, `SELECT live_items::text FROM bt_page_stats('badged.conversations_p00_pkey', 1)`))
	d.appendAgo(t, 0, deliver("c", 4, ann))
	d.fold(t)
	same(t, "entries in the index, an hour later", []string{"2"},
		d.lines(t, `SELECT live_items::text FROM bt_page_stats('badged.conversations_p00_pkey', 1)`))
}
