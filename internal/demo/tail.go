package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/log/eventbatch"
)

// entry is an event of the log, as the page shows it.
type entry struct {
	Position string    `json:"position"`
	Type     string    `json:"type"`
	Source   string    `json:"source"`
	ID       string    `json:"id"`
	Summary  string    `json:"summary"`
	Time     time.Time `json:"time"`
	// Users has the users of the event who are people of the demo, and up to othersShown other
	// users of the event. If the event is about a whole room, Users has the people in the room
	// except the sender.
	Users []string `json:"users"`
	// Others is the number of users of the event that are not in Users.
	Others int `json:"others,omitempty"`

	key   string
	event events.Event
}

// tail reads the newest events of the log from all partitions. If an event is in several
// partitions, tail returns one entry for it.
type tail struct {
	pool       *pgxpool.Pool
	partitions int
	// ended is the id of a transaction. This transaction and all transactions with lower ids have
	// ended, and the tail has read their events.
	ended int64
	// shown and shownBefore have the rows that the tail has read most recently. When shown is full,
	// it becomes shownBefore, and a new shown is begun. If the tail reads one of these rows again,
	// it skips the row. It reads a row again if the id of the row's transaction is above ended. It
	// also reads late rows again, since the projector assigns them a new position when it folds
	// them.
	shown, shownBefore map[row]struct{}
}

// row identifies a row of the log. It stays the same if the row gets a new position.
type row struct {
	uuid       [16]byte
	appendedAt int64 // in microseconds since 1970
}

const (
	firstEntries = 30
	moreEntries  = 500
	// rowsKept is the minimum number of rows that the tail remembers.
	rowsKept = 10 * moreEntries
	// othersShown is the maximum number of users in an entry who are not people of the demo.
	othersShown = 3
)

// next returns the entries that were appended since the last call, but at most the latest 500. The
// first call returns the latest 30 entries.
func (t *tail) next(ctx context.Context) ([]entry, error) {
	limit := moreEntries
	if t.ended == 0 {
		limit = firstEntries
	}
	var parts []string
	for p := range t.partitions {
		parts = append(parts, fmt.Sprintf(`(SELECT transaction_id, "offset", uuid, created_at, %s AS payload FROM badged.%s
WHERE transaction_id > $1::bigint::text::xid8 ORDER BY transaction_id DESC, "offset" DESC LIMIT $2)`, eventbatch.PayloadSQL, events.Topic(p)))
	}
	rows, _ := t.pool.Query(ctx, `SELECT transaction_id::text::bigint, "offset", uuid, created_at, payload,
       pg_snapshot_xmin(pg_current_snapshot())::text::bigint - 1
FROM (`+strings.Join(parts, "\nUNION ALL\n")+`) AS l ORDER BY l.transaction_id DESC, "offset" DESC LIMIT $2`, t.ended, limit)
	var entries []entry
	var position events.Position
	var r row
	var at time.Time
	var payload []byte
	_, err := pgx.ForEachRow(rows, []any{&position.TransactionID, &position.Offset, &r.uuid, &at, &payload, &t.ended}, func() error {
		if r.appendedAt = at.UnixMicro(); !t.isNew(r) {
			return nil
		}
		all, err := eventbatch.Unpack(payload)
		if err != nil {
			entries = append(entries, notUnderstood(events.Place{Position: position}, err))
		}
		for i := len(all) - 1; i >= 0 && len(entries) < limit; i-- {
			entries = append(entries, newEntry(events.Place{Position: position, Index: i}, all[i]))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the end of the log: %w", err)
	}
	slices.Reverse(entries)
	return merged(entries), nil
}

// isNew reports whether a row was not read before, and stores the row in shown.
func (t *tail) isNew(r row) bool {
	_, shown := t.shown[r]
	_, before := t.shownBefore[r]
	if shown || before {
		return false
	}
	if t.shown == nil || len(t.shown) == rowsKept {
		t.shown, t.shownBefore = map[row]struct{}{}, t.shown
	}
	t.shown[r] = struct{}{}
	return true
}

// merged combines the parts of an event in several partitions into one entry. Each user is in only
// one of the parts. The transaction ids of the parts may differ, since the projector moves late
// rows to new positions. If an event was published twice, the second event has the same users as
// the first, and becomes another entry.
func merged(entries []entry) []entry {
	all := entries[:0]
	places := map[string]int{}
	for _, e := range entries {
		i, known := places[e.key]
		users := e.event.Data.UserIDs
		// It suffices to compare one user, since no user is in two parts of the same event.
		again := known && len(users) > 0 && slices.Contains(all[i].event.Data.UserIDs, users[0])
		if known && !again {
			all[i].event.Data.UserIDs = append(all[i].event.Data.UserIDs, users...)
			continue
		}
		places[e.key] = len(all)
		all = append(all, e)
	}
	for i := range all {
		if all[i].Type != "" {
			all[i].describe()
		}
	}
	return all
}

func notUnderstood(place events.Place, err error) entry {
	return entry{
		Position: place.String(),
		Summary:  "not understood: " + err.Error(), key: place.String(), Users: []string{},
	}
}

func newEntry(place events.Place, payload []byte) entry {
	ev, err := events.Decode(payload)
	if err != nil {
		return notUnderstood(place, err)
	}
	e := entry{Position: place.String(), key: ev.Key().String(), event: ev}
	e.Type, e.Source, e.ID, e.Time = string(ev.Type), ev.Source, ev.ID, ev.Time
	return e
}

// describe sets the fields that depend on all users of the event.
func (e *entry) describe() {
	d := &e.event.Data
	e.Summary, e.Users = summarize(&e.event), []string{}
	for _, p := range people() {
		if slices.Contains(d.UserIDs, p.UserID) {
			e.Users = append(e.Users, p.UserID)
		}
	}
	if e.event.Type.ToRoom() {
		if c, err := findConversation(d.ConversationID); err == nil {
			e.Users = without(c.Members, d.SenderID)
		}
		return
	}
	others := slices.DeleteFunc(d.UserIDs, func(id string) bool { return slices.Contains(e.Users, id) })
	shown := min(len(others), othersShown)
	e.Users, e.Others = append(e.Users, others[:shown]...), len(others)-shown
}

// summarize describes an event in a few words, with the names of people and conversations.
func summarize(e *events.Event) string {
	d := &e.Data
	who, where := listed(d.UserIDs), conversationName(d.ConversationID)
	switch e.Type {
	case events.MessageDelivered, events.RoomPosted:
		if sender := personName(d.SenderID); sender != d.SenderID {
			return fmt.Sprintf("%s wrote message %d in %s", sender, d.Seq, where)
		}
		return fmt.Sprintf("Message %d in %s", d.Seq, where)
	case events.ConversationRead:
		return fmt.Sprintf("%s read %s up to %d", who, where, d.UpToSeq)
	case events.MessageRecalled, events.RoomRecalled:
		return fmt.Sprintf("Message %d in %s recalled", d.Seq, where)
	case events.ConversationMarkedUnread:
		if n := len(d.Seqs); n > 0 {
			return fmt.Sprintf("%s marked %d messages of %s unread", who, n, where)
		}
		return fmt.Sprintf("%s marked %s unread", who, where)
	case events.ConversationLevelSet:
		text := fmt.Sprintf("%s set %s to %s", who, where, d.Level)
		if !d.Until.IsZero() {
			text += " until " + d.Until.Format(time.RFC3339)
		}
		return text
	case events.CategoryLevelSet:
		return fmt.Sprintf("%s set %s to %s", who, d.Category, d.Level)
	case events.ConversationLevelEnded:
		return fmt.Sprintf("the level of %s ended for %s", where, who)
	case events.ConversationLeft, events.RoomLeft:
		return fmt.Sprintf("%s left %s", who, where)
	case events.RoomJoined:
		return fmt.Sprintf("%s joined %s", who, where)
	case events.UserLeftAll:
		return fmt.Sprintf("%s left all of %s", who, d.Category)
	case events.UserReadAll:
		return who + " read " + allOf(d.Category)
	case events.ConversationSeen:
		return fmt.Sprintf("%s saw %s up to %d", who, where, d.UpToSeq)
	case events.UserSeenAll:
		return who + " saw " + allOf(d.Category)
	case events.ConversationExpired:
		return fmt.Sprintf("%s up to %d expired for %s", where, d.UpToSeq, who)
	}
	return string(e.Type)
}

// allOf describes the conversations that an event about a category concerns. An empty category
// means all conversations.
func allOf(category string) string {
	if category == "" {
		return "everything"
	}
	return "all of " + category
}

// listed returns the names of users, or only their number if there are more than five.
func listed(ids []string) string {
	const limit = 5
	if len(ids) > limit {
		return fmt.Sprintf("%d users", len(ids))
	}
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = personName(id)
	}
	return strings.Join(names, ", ")
}

// personName returns the name of a person or guest of the demo, or the id of any other user.
func personName(id string) string {
	if number, ok := strings.CutPrefix(id, guestPrefix); ok {
		return "Guest " + number
	}
	for _, p := range people() {
		if p.UserID == id {
			return p.Name
		}
	}
	return id
}

// conversationName returns the name of a conversation of the demo, or the id of any other
// conversation.
func conversationName(id string) string {
	if c, err := findConversation(id); err == nil {
		return c.Name
	}
	return id
}
