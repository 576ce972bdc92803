package replay

import (
	"cmp"
	"maps"
	"slices"

	"github.com/badged/badged/events"
)

// UncountedKind counts the events of one type that changed no count for one reason.
type UncountedKind struct {
	Type   events.Type `json:"type,omitempty" doc:"The type of the events; absent for events that cannot be decoded."`
	Why    Why         `json:"why" enum:"duplicate,dead_letter,own_message,already_read,recalled,already_delivered,not_delivered,already_marked,left,same_level,same_state,nothing_unread,already_member,no_member" doc:"The reason."`
	Events int64       `json:"events" minimum:"1" doc:"The number of events."`
}

// kind is the type and the reason of an uncounted event.
type kind struct {
	eventType events.Type
	cause     Why
}

// uncountedEvents stores the newest events that changed no count, and counts all such events, in
// bounded memory. A kind of events has one type and one reason. If there are too many events,
// uncountedEvents deletes old events of the most frequent kinds. So a large number of repeated
// events does not displace a single late message.
type uncountedEvents struct {
	// kept are the stored events in the order of the log, at most twice maxUncounted.
	kept  []UncountedEvent
	kinds map[kind]int64
}

// add adds an event, which must come after all added events in the log.
func (u *uncountedEvents) add(e UncountedEvent) {
	if u.kinds == nil {
		u.kinds = map[kind]int64{}
	}
	u.kinds[kind{e.Type, e.Why}]++
	if u.kept = append(u.kept, e); len(u.kept) > 2*maxUncounted {
		u.kept = thinned(u.kept, maxUncounted)
	}
}

// newest returns the events to list, newest first. `more` is the number of events that are not
// listed. `kinds` has the number of events of each kind, the most frequent kind first.
func (u *uncountedEvents) newest() (list []UncountedEvent, more int64, kinds []UncountedKind) {
	list = append([]UncountedEvent{}, thinned(u.kept, maxUncounted)...)
	slices.Reverse(list)
	kinds = []UncountedKind{}
	for k, n := range u.kinds {
		kinds = append(kinds, UncountedKind{k.eventType, k.cause, n})
		more += n
	}
	slices.SortFunc(kinds, func(a, b UncountedKind) int {
		return cmp.Or(cmp.Compare(b.Events, a.Events), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Why, b.Why))
	})
	return list, more - int64(len(list)), kinds
}

// thinned returns at most `limit` of the events, in the same order: the newest events of each kind.
// Each kind may have an equal part of the limit. If a kind has fewer events than its part, the rest
// of this part goes to more frequent kinds.
func thinned(all []UncountedEvent, limit int) []UncountedEvent {
	if len(all) <= limit {
		return all
	}
	counts := map[kind]int{}
	for _, e := range all {
		counts[kind{e.Type, e.Why}]++
	}
	room, left := map[kind]int{}, limit
	for _, k := range slices.SortedFunc(maps.Keys(counts), func(a, b kind) int {
		return cmp.Or(cmp.Compare(counts[a], counts[b]), cmp.Compare(a.eventType, b.eventType), cmp.Compare(a.cause, b.cause))
	}) {
		room[k] = min(counts[k], left/(len(counts)-len(room)))
		left -= room[k]
	}
	return slices.DeleteFunc(slices.Clone(all), func(e UncountedEvent) bool {
		k := kind{e.Type, e.Why}
		counts[k]-- // now the number of newer events of this kind
		return counts[k] >= room[k]
	})
}
