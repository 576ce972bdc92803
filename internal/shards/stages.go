package shards

import (
	"context"
	"errors"
	"slices"

	"github.com/badged/badged/events"
)

// ErrHeldBack: a shard lacks joins of a room, so no shard got the messages that follow them.
var ErrHeldBack = errors.New("messages to a room follow joins that a shard lacks; none has them")

// Stages returns where the stages of a call end. A stage ends behind the joins of a room that
// a message to the room follows, and the next begins once all shards have it: a shard that
// gets its first members of a room asks the others for the last message, from which these
// count. If another had messages of behind the join by then, as when a call is repeated that
// one shard has and another lacks, the new members would never count them.
func Stages(evs []events.Event) (ends []int) {
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

// readBefore returns events with the last messages before joins in their rooms, up to which
// the new members have read: neither the stage of a join nor its shard need have them.
func readBefore(evs []events.Event) []events.Event {
	posted, all := map[string]int64{}, evs
	for i := range evs {
		room := evs[i].Data.ConversationID
		switch evs[i].Type {
		case events.RoomPosted:
			posted[room] = max(posted[room], evs[i].Data.Seq)
		case events.RoomReset:
			posted[room] = evs[i].Data.Seq
		case events.RoomJoined:
			if posted[room] == 0 {
				continue
			}
			if &all[0] == &evs[0] {
				all = slices.Clone(evs)
			}
			all[i].Data.Seq = posted[room]
		}
	}
	return all
}

// stages appends events, one of the [Stages] after the other. What follows joins that a
// shard lacks in their room is for no shard.
func (a *appending) stages(ctx context.Context, evs []events.Event) (all events.Receipt, err error) {
	evs = readBefore(evs)
	var failed []error
	began, joined := 0, map[string]bool{}
	for _, end := range Stages(evs) {
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
		a.parts, a.has = nil, nil
		a.split(stage)
		if all, err = a.run(ctx); err == nil {
			continue
		}
		failed = append(failed, err)
		if a.cluster.Lacking(err) == nil {
			break // who lacks what is not known
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
