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
)

// entry is one event of the log as the page shows it.
type entry struct {
	Position string    `json:"position"`
	Type     string    `json:"type"`
	Source   string    `json:"source"`
	ID       string    `json:"id"`
	Summary  string    `json:"summary"`
	Time     time.Time `json:"time"`
	// Users are the users of the event.
	Users []string `json:"users"`

	transactionID int64
	key           string
}

// tail reads the end of the log across partitions. A message to a group is a
// row in several partitions, and one entry.
type tail struct {
	pool       *pgxpool.Pool
	partitions int
	// after is the last transaction read.
	after int64
}

const (
	firstEntries = 30
	moreEntries  = 500
)

// next returns the entries appended since the last call; the first call
// returns the latest entries.
func (t *tail) next(ctx context.Context) ([]entry, error) {
	order, limit := "", moreEntries
	if t.after == 0 {
		order, limit = "DESC", firstEntries
	}
	var parts []string
	for p := range t.partitions {
		parts = append(parts, fmt.Sprintf(`(SELECT transaction_id, "offset", payload FROM badged.%[1]s
WHERE transaction_id > $1::bigint::text::xid8 AND transaction_id < pg_snapshot_xmin(pg_current_snapshot())
ORDER BY transaction_id %[2]s, "offset" %[2]s LIMIT $2)`, events.Topic(p), order))
	}
	rows, _ := t.pool.Query(ctx, `SELECT transaction_id::text::bigint, "offset", payload::text FROM (`+
		strings.Join(parts, "\nUNION ALL\n")+`) AS l ORDER BY l.transaction_id `+order+`, "offset" `+order+` LIMIT $2`, t.after, limit)
	entries, err := pgx.CollectRows(rows, scanEntry)
	if err != nil {
		return nil, fmt.Errorf("read the end of the log: %w", err)
	}
	if order != "" {
		slices.Reverse(entries)
	}
	if len(entries) > 0 {
		t.after = entries[len(entries)-1].transactionID
	}
	return merged(entries), nil
}

// merged joins the entries of one event from several partitions.
func merged(entries []entry) []entry {
	all := entries[:0]
	places := map[string]int{}
	for _, e := range entries {
		name := fmt.Sprint(e.transactionID, " ", e.key)
		if i, again := places[name]; again {
			all[i].Users = append(all[i].Users, e.Users...)
			continue
		}
		places[name] = len(all)
		all = append(all, e)
	}
	return all
}

func scanEntry(row pgx.CollectableRow) (entry, error) {
	var e entry
	var offset int64
	var payload []byte
	if err := row.Scan(&e.transactionID, &offset, &payload); err != nil {
		return e, err
	}
	e.Position = events.Position{TransactionID: e.transactionID, Offset: offset}.String()
	ev, err := events.Decode(payload)
	if err != nil {
		e.Summary, e.key, e.Users = "not understood: "+err.Error(), e.Position, []string{}
		return e, nil
	}
	e.Type, e.Source, e.ID, e.Time = string(ev.Type), ev.Source, ev.ID, ev.Time
	e.Summary, e.key, e.Users = summarize(&ev), ev.Key().String(), ev.Data.UserIDs
	return e, nil
}

// summarize describes an event in a few words, with the demo's names.
func summarize(e *events.Event) string {
	d := &e.Data
	names := make([]string, len(d.UserIDs))
	for i, id := range d.UserIDs {
		names[i] = personName(id)
	}
	who, where := strings.Join(names, ", "), roomName(d.ConversationID)
	switch e.Type {
	case events.MessageDelivered:
		if sender := personName(d.SenderID); sender != d.SenderID {
			return fmt.Sprintf("%s wrote message %d in %s", sender, d.Seq, where)
		}
		return fmt.Sprintf("Message %d in %s", d.Seq, where)
	case events.ConversationRead:
		return fmt.Sprintf("%s read %s up to %d", who, where, d.UpToSeq)
	case events.MessageRecalled:
		return fmt.Sprintf("Message %d in %s recalled", d.Seq, where)
	case events.ConversationMarkedUnread:
		return fmt.Sprintf("%s marked %s unread", who, where)
	case events.ConversationLevelSet:
		return fmt.Sprintf("%s set %s to %s", who, where, d.Level)
	case events.ConversationLeft:
		return fmt.Sprintf("%s left %s", who, where)
	case events.UserReadAll:
		if d.Category != "" {
			return fmt.Sprintf("%s read all of %s", who, d.Category)
		}
		return who + " read everything"
	case events.ConversationExpired:
		return fmt.Sprintf("%s up to %d expired for %s", where, d.UpToSeq, who)
	}
	return string(e.Type)
}

// personName returns the name of a user of the demo, or the id of another
// user.
func personName(id string) string {
	for _, p := range people() {
		if p.UserID == id {
			return p.Name
		}
	}
	return id
}

// roomName returns the name of a conversation of the demo, or the id of
// another.
func roomName(id string) string {
	if r, err := findRoom(id); err == nil {
		return r.Name
	}
	return id
}
