package cluster

import (
	"context"
	"errors"
	"slices"

	"github.com/badged/badged/events"
)

// ErrHeldBack means that a database failed to store the events by which users join a room, and
// that therefore the later messages to this room were appended to no database.
var ErrHeldBack = errors.New("messages to a room were appended to no database, since a database failed to store the joins before them")

// SplitAtJoins splits the events of a call into stages and returns the end index of each stage. A
// stage ends before the first message to a room that users join in the same stage. Every database
// must commit a stage before the next stage begins. Otherwise a database could fail to store the
// join; after the call is repeated, its log would have the join after the message. New members on
// this database would then never count the message, but new members on other databases would. ADR
// 98 has the reasons.
func SplitAtJoins(evs []events.Event) (ends []int) {
	var joined map[string]bool
	for i := range evs {
		switch room := evs[i].Data.ConversationID; {
		case evs[i].Type == events.RoomJoined:
			if joined == nil {
				joined = map[string]bool{}
			}
			joined[room] = true
		case joined[room] && len(evs[i].Data.UserIDs) == 0:
			ends = append(ends, i)
			clear(joined)
		}
	}
	return append(ends, len(evs))
}

// stages appends events in the stages of [SplitAtJoins]. If a database fails to store joins of a
// room, stages appends no later event of this room to any database.
func (a *appending) stages(ctx context.Context, evs []events.Event) (all events.Receipt, err error) {
	var failed []error
	began, joined := 0, map[string]bool{}
	for _, end := range SplitAtJoins(evs) {
		stage := evs[began:end]
		began = end
		if len(failed) > 0 {
			some := slices.DeleteFunc(slices.Clone(stage), func(e events.Event) bool { return joined[e.Data.ConversationID] })
			if len(some) < len(stage) {
				failed = append(failed, ErrHeldBack)
			}
			stage = some
		}
		if len(stage) == 0 {
			continue
		}
		a.parts, a.appended = nil, nil
		a.split(stage)
		if all, err = a.run(ctx); err == nil {
			continue
		}
		failed = append(failed, err)
		if _, known := errors.AsType[*PartialFailure](a.cluster.partialAppend(err)); !known {
			break // the error does not name the partitions that lack events
		}
		for i := range stage {
			if stage[i].Type == events.RoomJoined {
				joined[stage[i].Data.ConversationID] = true
			}
		}
	}
	if len(failed) > 0 {
		return events.Receipt{}, errors.Join(failed...)
	}
	return all, nil
}
