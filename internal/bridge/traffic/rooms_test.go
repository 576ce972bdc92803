package traffic

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/events"
)

func TestLoadOfGeneratedRooms(t *testing.T) {
	target := newModel()
	rooms := RoomTraffic{Rooms: 3, Members: 12, Messages: 5000, Seed: 7}
	var first Summary
	for run := range 2 { // the second run changes nothing
		got, err := Load(t.Context(), Config{Rooms: &rooms, Target: target, BatchSize: 100})
		if err != nil {
			t.Fatal(err)
		}
		if run == 0 {
			first = got
		} else if diff := cmp.Diff(withoutTimes(first), withoutTimes(got)); diff != "" {
			t.Errorf("summary of the second run (-first +second):\n%s", diff)
		}
	}
	if first.File != "generated rooms" || first.Messages != 5000 || int(first.Events) != len(target.appended) || target.repeated != len(target.appended) {
		t.Errorf("summary %+v; %d events arrived, %d of them repeated", first, len(target.appended), target.repeated)
	}

	// What happens is what the type promises.
	members := map[string]map[string]bool{}
	count := map[events.Type]int{}
	var mentions, all, early, backAgain int
	recalled, left := map[string]int64{}, map[string]bool{}
	for i := range target.appended {
		e := &target.appended[i]
		room := e.Data.ConversationID
		if err := e.Validate(); err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
		count[e.Type]++
		if members[room] == nil {
			members[room] = map[string]bool{}
		}
		named := slices.Concat(e.Data.UserIDs, e.Data.MentionedUserIDs)
		if e.Type == events.RoomPosted {
			named = append(named, e.Data.SenderID)
		}
		for _, user := range named {
			if members[room][user] == (e.Type == events.RoomJoined) {
				t.Fatalf("event %d, %s of %s: %s is a member: %v", i, e.Type, room, user, members[room][user])
			}
		}
		switch e.Type {
		case events.RoomJoined:
			for _, user := range e.Data.UserIDs {
				members[room][user] = true
				if left[room+user] {
					backAgain++
				}
			}
		case events.RoomLeft:
			delete(members[room], e.Data.UserIDs[0])
			left[room+e.Data.UserIDs[0]] = true
		case events.RoomPosted:
			if recalled[room] == e.Data.Seq {
				early++
			}
			if len(e.Data.MentionedUserIDs) > 0 {
				mentions++
			}
			if e.Data.MentionsAll {
				all++
			}
		case events.RoomRecalled:
			recalled[room] = e.Data.Seq
		}
	}
	for _, c := range []struct {
		what        string
		n, min, max int
	}{
		{"messages", count[events.RoomPosted], 5000, 5000},
		{"recalls", count[events.RoomRecalled], 30, 70},
		{"recalls before the message", early, 3, 30},
		{"joins and leaves", count[events.RoomJoined] + count[events.RoomLeft], 400, 600},
		{"members who come back", backAgain, 20, 300},
		{"messages that mention members", mentions, 70, 130},
		{"messages that mention all", all, 30, 70},
		{"reads", count[events.ConversationRead], 2400, 2600},
	} {
		if c.n < c.min || c.n > c.max {
			t.Errorf("%d %s, want %d to %d", c.n, c.what, c.min, c.max)
		}
	}
	if diff := cmp.Diff([]int{12, 6, 4}, roomSizes(RoomTraffic{Rooms: 3, Members: 12, Messages: 1})); diff != "" {
		t.Errorf("sizes (-want +got):\n%s", diff)
	}
}

func roomSizes(t RoomTraffic) (sizes []int) {
	for _, r := range newRoomGenerator(t).rooms {
		sizes = append(sizes, len(r.members))
	}
	return sizes
}

// Another seed gives other traffic in other rooms.
func TestGeneratedRoomsDependOnTheSeed(t *testing.T) {
	first := func(seed uint64) events.Event {
		r, err := newRoomGenerator(RoomTraffic{Rooms: 1, Members: 100, Messages: 1, Seed: seed}).Next()
		if err != nil {
			t.Fatal(err)
		}
		return r.Event
	}
	if one, two := first(1), first(2); one.Data.ConversationID == two.Data.ConversationID || slices.Equal(one.Data.UserIDs, two.Data.UserIDs) {
		t.Errorf("seeds 1 and 2 both begin with %+v", one)
	}
}

// All members of a large room join, in as many events as that takes.
func TestGeneratedRoomOfManyMembers(t *testing.T) {
	g := newRoomGenerator(RoomTraffic{Rooms: 1, Members: 2*events.MaxUsers + 1, Messages: 1})
	var named []int
	for range 3 {
		r, err := g.Next()
		if err != nil || r.Event.Type != events.RoomJoined {
			t.Fatal(r, err)
		}
		named = append(named, len(r.Event.Data.UserIDs))
	}
	if diff := cmp.Diff([]int{events.MaxUsers, events.MaxUsers, 1}, named); diff != "" {
		t.Errorf("users of the joins (-want +got):\n%s", diff)
	}
}

func TestLoadRefusesBadRooms(t *testing.T) {
	good := RoomTraffic{Rooms: 1, Members: 2, Messages: 1}
	for want, change := range map[string]func(*RoomTraffic){
		"load: rooms must be at least 1, not -1":  func(r *RoomTraffic) { r.Rooms = -1 },
		"load: members must be at least 2, not 1": func(r *RoomTraffic) { r.Members = 1 },
		"load: messages must be at least 1, not 0": func(r *RoomTraffic) {
			r.Messages = 0
		},
	} {
		rooms := good
		change(&rooms)
		if _, err := Load(t.Context(), Config{Rooms: &rooms, Target: newModel()}); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := Load(t.Context(), Config{Rooms: &good, File: "f", Target: newModel()}); err == nil {
		t.Error("a file and rooms were loaded together")
	}
}
