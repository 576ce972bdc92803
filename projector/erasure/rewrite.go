package erasure

import (
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/eventbatch"
	"github.com/badged/badged/internal/remains"
	"github.com/badged/badged/projector/replay"
)

// rewriter takes a user out of events.
type rewriter struct {
	userID string
	// memberships are the joins and leaves that had an effect: of these the log keeps
	// that a member came or went.
	memberships map[replay.MembershipChange][]string
	counts      Counts
	// keys are those of the events that the user had.
	keys []uuid.UUID
}

// Counts are the events that an erasure has changed, or left.
type Counts struct {
	// Erased events named only the user. Changed ones named others too, and are theirs
	// now.
	Erased  int64 `json:"erased" doc:"Events that named only the user: nothing is left of them."`
	Changed int64 `json:"changed" doc:"Events of others that named the user too: they name the others only."`
	// Kept events have the id, but not as that of a user: perhaps a conversation has the
	// same.
	Kept int64 `json:"kept" doc:"Events of others that have the id as something else, such as the id of a conversation: there it stays."`
}

// row is a row of the log without the user.
type row struct {
	events.Position
	payload []byte
	// whole is set if nothing is left of any event of the row.
	whole bool
}

// row takes the user out of a row, which records are. It returns nil if the row is as
// before.
func (w *rewriter) row(records []events.Record) (*row, error) {
	texts, changed, whole := make([]string, len(records)), false, true
	size := 2
	for i := range records {
		rest, differs, err := w.record(&records[i])
		if err != nil {
			return nil, err
		}
		texts[i], changed = string(rest), changed || differs
		whole = whole && texts[i] == "null"
		size += len(rest) + 1
	}
	if !changed {
		return nil, nil //nolint:nilnil // it does not name the user
	}
	for i := range records { // badged writes the row now
		if e, err := events.Decode(records[i].Payload); err == nil && forged(&records[i], &e) {
			texts[i] = "null"
		}
	}
	r := &row{Position: records[0].Position, payload: []byte(texts[0]), whole: whole}
	if len(records) > 1 {
		if size > eventbatch.MaxBytes {
			return nil, fmt.Errorf("without the user the row at %s would have %d bytes; at most %d are read", r.Position, size, eventbatch.MaxBytes)
		}
		r.payload = eventbatch.Pack(texts)
	}
	return r, nil
}

// record takes the user out of a record, and reports whether that changed it.
func (w *rewriter) record(r *events.Record) (rest []byte, changed bool, err error) {
	if !mayName(r.Payload, w.userID) {
		return r.Payload, false, nil
	}
	was, isRemains := remains.Parse(r.Payload)
	if !isRemains {
		was.Event = r.Payload
	}
	left := was
	e, decodeErr := events.Decode(was.Event)
	switch {
	case was.Event == nil:
		return r.Payload, false, nil
	case decodeErr != nil || r.Damage != nil || forged(r, &e):
		if !namedIn(payloadOf(r.Payload), w.userID) {
			return r.Payload, false, nil
		}
		// It became a dead letter: it counts for no user.
		left = remains.Remains{}
	default:
		had, named := take(&e, w.userID)
		if !named {
			w.keep(was.Event)
			return r.Payload, false, nil
		}
		if had {
			w.keys = append(w.keys, e.Key())
			w.follow(r, &e, &left)
		}
		left.Event = nil
		if len(e.Data.UserIDs) > 0 || e.Type.ToRoom() {
			if left.Event, err = e.MarshalJSON(); err != nil {
				return nil, false, fmt.Errorf("encode the event at %s: %w", r.Place, err)
			}
			w.keep(left.Event)
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

// forged reports whether an event became a dead letter since only badged may write it.
func forged(r *events.Record, e *events.Event) bool { return !r.Own && e.CheckReserved() != nil }

// take takes a user out of an event, and reports whether the user had it, and whether it
// named the user at all.
func take(e *events.Event, userID string) (had, named bool) {
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

// follow keeps that a member came or went by an event.
func (w *rewriter) follow(r *events.Record, e *events.Event, left *remains.Remains) {
	typ := e.Type
	if typ == events.UserLeftAll {
		typ = events.RoomLeft
	}
	left.Members = slices.Clone(left.Members)
	for _, room := range w.memberships[replay.ChangeAt(r)] {
		i := slices.IndexFunc(left.Members, func(m remains.Members) bool { return m.ConversationID == room })
		if i < 0 {
			i = len(left.Members)
			left.Members = append(left.Members, remains.Members{Type: typ, ConversationID: room})
		}
		left.Members[i].Users++
	}
}

// keep counts an event that still has the id.
func (w *rewriter) keep(event []byte) {
	if namedIn(payloadOf(event), w.userID) {
		w.counts.Kept++
	}
}

func (c *Counts) add(more Counts) {
	c.Erased += more.Erased
	c.Changed += more.Changed
	c.Kept += more.Kept
}
