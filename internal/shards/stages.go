package shards

import "github.com/badged/badged/events"

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
