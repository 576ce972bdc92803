package erasure

import (
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/log/eventbatch"
	"github.com/badged/badged/internal/log/tombstones"
	"github.com/badged/badged/internal/partition/replay"
)

// rewriter removes a user from events.
type rewriter struct {
	userID string
	// memberships has, for each event by which the user joined or left rooms, the ids of these
	// rooms. The tombstones that replace these events record that a member joined or left.
	memberships map[replay.MembershipChange][]string
	counts      Counts
	// keys are the event keys of those erased and changed events that listed the user as a
	// recipient.
	keys []uuid.UUID
}

// Counts counts the events that an erasure has removed, changed or kept.
type Counts struct {
	// Erased counts events that named only the user. Changed counts events that also named other
	// users; they now name only the other users.
	Erased  int64 `json:"erased" doc:"The number of events that named only the user, and were deleted."`
	Changed int64 `json:"changed" doc:"The number of events that named other users too, and now name only the other users."`
	// Kept counts events that contain the id with another meaning than the id of a user, such
	// as the id of a conversation. The erasure does not change the id there.
	Kept int64 `json:"kept" doc:"The number of events of other users that contain the same id with another meaning, such as the id of a conversation. These events were not changed."`
}

// row is a row of the log after the user was removed.
type row struct {
	events.Position
	payload []byte
	// whole is true if no event of the row remains.
	whole bool
}

// row removes the user from the records of one row of the log. It returns nil if the row does
// not name the user, and so does not change.
func (w *rewriter) row(records []events.Record) (*row, error) {
	texts, changed, whole := make([]string, len(records)), false, true
	for i := range records {
		rest, differs, err := w.record(&records[i])
		if err != nil {
			return nil, err
		}
		texts[i], changed = string(rest), changed || differs
		whole = whole && texts[i] == "null"
	}
	if !changed {
		return nil, nil //nolint:nilnil // it does not name the user
	}
	for i := range records { // the rewritten row counts as written by badged, which would make forged events valid
		if e, err := events.Decode(records[i].Payload); err == nil && forged(&records[i], &e) {
			texts[i] = "null"
		}
	}
	r := &row{Position: records[0].Position, payload: []byte(texts[0]), whole: whole}
	if len(records) > 1 {
		var err error
		if r.payload, err = eventbatch.Pack(texts); err != nil {
			return nil, fmt.Errorf("the row at %s without the user: %w", r.Position, err)
		}
	}
	return r, nil
}

// record removes the user from a record. changed reports whether the record named the user.
func (w *rewriter) record(r *events.Record) (rest []byte, changed bool, err error) {
	if !mayName(r.Payload, w.userID) {
		return r.Payload, false, nil
	}
	was := tombstones.Decode(r.Payload)
	left := was
	e, decodeErr := events.Decode(was.Event)
	switch {
	case was.Event == nil:
		return r.Payload, false, nil
	case decodeErr != nil || r.Damage != nil || forged(r, &e):
		if !namedIn(payloadOf(r.Payload), w.userID) {
			return r.Payload, false, nil
		}
		// A dead letter was never folded, so no number of a user depends on it.
		left = tombstones.Tombstone{}
	default:
		had, named := removeUser(&e, w.userID)
		if !named {
			w.countKept(was.Event)
			return r.Payload, false, nil
		}
		if had {
			w.keys = append(w.keys, e.Key())
			w.keepMemberships(r, &e, &left)
		}
		left.Event = nil
		if len(e.Data.UserIDs) > 0 || e.Type.ToRoom() {
			if left.Event, err = e.MarshalJSON(); err != nil {
				return nil, false, fmt.Errorf("encode the event at %s: %w", r.Place, err)
			}
			w.countKept(left.Event)
		}
	}
	if left.Event == nil {
		w.counts.Erased++
	} else {
		w.counts.Changed++
	}
	rest, err = left.Append(nil)
	return rest, true, err
}

// forged reports whether an event became a dead letter because its type is reserved for
// badged, but another program wrote the row.
func forged(r *events.Record, e *events.Event) bool { return !r.Own && e.CheckReserved() != nil }

// removeUser removes a user from an event. had reports whether the user was a recipient. named
// reports whether the event named the user in any role: recipient, mentioned user or sender.
func removeUser(e *events.Event, userID string) (had, named bool) {
	d := &e.Data
	without := func(ids []string) []string {
		return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id == userID })
	}
	had = slices.Contains(d.UserIDs, userID)
	named = had || slices.Contains(d.MentionedUserIDs, userID) || d.SenderID == userID
	d.UserIDs, d.MentionedUserIDs = without(d.UserIDs), without(d.MentionedUserIDs)
	if d.SenderID == userID {
		d.SenderID = ""
	}
	return had, named
}

// keepMemberships adds to a tombstone the rooms that the user joined or left by the erased event.
func (w *rewriter) keepMemberships(r *events.Record, e *events.Event, left *tombstones.Tombstone) {
	typ := e.Type
	if typ == events.UserLeftAll {
		typ = events.RoomLeft
	}
	left.Members = slices.Clone(left.Members)
	for _, room := range w.memberships[replay.ChangeAt(r)] {
		i := slices.IndexFunc(left.Members, func(m tombstones.Members) bool { return m.ConversationID == room })
		if i < 0 {
			i = len(left.Members)
			left.Members = append(left.Members, tombstones.Members{Type: typ, ConversationID: room})
		}
		left.Members[i].Users++
	}
}

// countKept counts an event that still contains the id, but not as the id of a user.
func (w *rewriter) countKept(event []byte) {
	if namedIn(payloadOf(event), w.userID) {
		w.counts.Kept++
	}
}

func (c *Counts) add(more Counts) {
	c.Erased += more.Erased
	c.Changed += more.Changed
	c.Kept += more.Kept
}
