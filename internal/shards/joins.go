package shards

import (
	"context"
	"errors"
	"slices"

	"github.com/badged/badged/events"
)

// ErrHeldBack: a shard lacks joins of a room, so the messages that follow them were appended to
// no shard.
var ErrHeldBack = errors.New("messages to a room follow joins that a shard lacks; none has them")

// SplitAtJoins splits a call at joins and returns where each stage ends. A stage ends before the
// first message to a room that was joined in the stage; the next begins once all shards have
// it. Otherwise a shard could get the message before the join, such as when a call is repeated
// after one shard failed: its new members would never count the message, while new members on
// other shards would. ADR 98 has the reasons.
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

// stages appends events stage by stage. If a shard lacks joins of a room, no shard gets the
// messages that follow them in the room.
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
		a.parts, a.has = nil, nil
		a.split(stage)
		if all, err = a.run(ctx); err == nil {
			continue
		}
		failed = append(failed, err)
		if a.cluster.Lacking(err) == nil {
			break // the error does not say who lacks events
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
