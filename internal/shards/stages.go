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
// a message to the room follows, and the next begins once all shards have it. Otherwise a
// shard could get the message before the join, as when a call is repeated that one shard has
// and another lacks: its new members would never count it, and new members elsewhere would.
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

// stages appends events, one of the [Stages] after the other. What follows joins that a
// shard lacks in their room is for no shard.
func (a *appending) stages(ctx context.Context, evs []events.Event) (all events.Receipt, err error) {
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
