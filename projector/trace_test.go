package projector

import (
	"slices"
	"testing"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/store"
	"github.com/badged/badged/pubsub"
)

func tracedItem(traceParent string, users ...string) store.Item {
	return store.Item{Event: events.Event{TraceParent: traceParent, Data: events.Data{UserIDs: users}}}
}

func updateOf(user string) pubsub.Update {
	return pubsub.Update{Badge: pubsub.Badge{UserID: user}}
}

func TestUpdateCarriesTheTraceOfTheLastEvent(t *testing.T) {
	var told TracedBatch
	p := &partition{id: 3, projector: &Projector{cfg: Config{Trace: func(b TracedBatch) []string {
		told = b
		contexts := make([]string, len(b.Events))
		for i, e := range b.Events {
			contexts[i] = "fold of " + e.TraceParent
		}
		return contexts
	}}}}
	began := time.Now()
	b := &store.Batch{Items: []store.Item{tracedItem("a", "ada", "ben"), tracedItem("", "ada"), tracedItem("b", "ben"), tracedItem("", "eve")}}
	r := store.Result{Updates: store.Updates{Users: []pubsub.Update{updateOf("ada"), updateOf("ben"), updateOf("eve")}}}
	p.trace(b, r, began)
	for i, want := range []string{"fold of a", "fold of b", ""} {
		if got := r.Updates.Users[i].TraceParent; got != want {
			t.Errorf("the update of %s carries %q, want %q", r.Updates.Users[i].UserID, got, want)
		}
	}
	if told.Partition != 3 || told.Size != 4 || len(told.Events) != 2 || told.Began != began || told.Ended.Before(began) {
		t.Errorf("told of %+v", told)
	}
}

func TestRoomUpdateCarriesTheTraceOfTheMessage(t *testing.T) {
	p := &partition{projector: &Projector{cfg: Config{Trace: func(b TracedBatch) []string { return []string{"fold of " + b.Events[0].TraceParent} }}}}
	posted := store.Item{Event: events.Event{TraceParent: "a", Data: events.Data{ConversationID: "hall", SenderID: "ada"}}}
	r := store.Result{Updates: store.Updates{
		Users: []pubsub.Update{updateOf("ada")},
		Rooms: []pubsub.RoomUpdate{{Room: pubsub.Room{ConversationID: "hall"}}, {Room: pubsub.Room{ConversationID: "lobby"}}},
	}}
	p.trace(&store.Batch{Items: []store.Item{posted}}, r, time.Now())
	got := []string{r.Updates.Users[0].TraceParent, r.Updates.Rooms[0].TraceParent, r.Updates.Rooms[1].TraceParent}
	if want := []string{"fold of a", "fold of a", ""}; !slices.Equal(got, want) {
		t.Errorf("the updates of the sender and of two rooms carry %q, want %q", got, want)
	}
}

func TestTracingCostsNothing(t *testing.T) {
	off := &partition{projector: &Projector{}}
	on := &partition{projector: &Projector{cfg: Config{Trace: func(TracedBatch) []string {
		t.Error("told of a batch without a traced event")
		return nil
	}}}}
	traced := &store.Batch{Items: []store.Item{tracedItem("a", "ada")}}
	untraced := &store.Batch{Items: []store.Item{tracedItem("", "ada")}}
	r := store.Result{Updates: store.Updates{Users: []pubsub.Update{updateOf("ada")}}}
	if n := testing.AllocsPerRun(100, func() {
		off.trace(traced, r, time.Time{})
		on.trace(untraced, r, time.Time{})
	}); n != 0 {
		t.Errorf("%v allocations where nothing is traced", n)
	}
}
