package pubsubtest

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/pubsub"
)

func testRoomIsWhole(t *testing.T, bus pubsub.Bus) {
	room := roomOf(users(t, 1)[0])
	_, r := subscribe(t, bus, room)
	sent := []pubsub.RoomUpdate{
		*NewRoomUpdate(room, 1<<62+1),
		{Room: pubsub.Room{ConversationID: room.ID}, Partition: room.Partition},
	}
	publishRooms(t, bus, sent...)
	for i, got := range r.AwaitRooms(t, len(sent)) {
		if diff := cmp.Diff(&sent[i], got); diff != "" {
			t.Errorf("update %d changed on its way (-sent +received):\n%s", i, diff)
		}
	}
	if !bus.HasSubscribers(room) {
		t.Error("HasSubscribers is false of a room that has joined")
	}
	lost(t, r)
}

// testRoomIsNoUser checks that rooms and users are not confused: it joins a room and a user
// with the same id, and a user and a room whose ids resemble channels of the other kind.
func testRoomIsNoUser(t *testing.T, bus pubsub.Bus) {
	u := users(t, 1)[0]
	room := roomOf(u)
	s, r := subscribe(t, bus, u, room)
	odd := pubsub.Address{ID: "}:r:" + u.ID, Partition: u.Partition}
	oddRoom := pubsub.Address{ID: "}:u:" + u.ID, Partition: u.Partition, Room: true}
	join(t, s, odd, oddRoom)
	var want []pubsub.Address
	for _, a := range []pubsub.Address{u, room, odd, oddRoom} {
		if a.Room {
			publishRooms(t, bus, *NewRoomUpdate(a, 1))
		} else {
			publish(t, bus, NewUpdate(a, 1))
		}
		want = append(want, a)
	}
	r.AwaitRooms(t, 2)
	leave(t, s, room)
	publishRooms(t, bus, *NewRoomUpdate(room, 2))
	publish(t, bus, NewUpdate(u, 2))
	want = append(want, u)
	r.AwaitVersion(t, u, 2)
	if got := r.Arrived(); !slices.Equal(got, want) {
		t.Errorf("updates of %v arrived, want %v", got, want)
	}
}

func testOrderOfRooms(t *testing.T, bus pubsub.Bus) {
	const rounds = 100
	u := users(t, 2)
	room := roomOf(u[1])
	_, r := subscribe(t, bus, u[0], room)
	var want []pubsub.Address
	for version := range int64(rounds) {
		publish(t, bus, NewUpdate(u[0], version))
		publishRooms(t, bus, *NewRoomUpdate(room, version))
		want = append(want, u[0], room)
	}
	for i, got := range r.AwaitRooms(t, rounds) {
		if got.Changes != int64(i) {
			t.Fatalf("update %d of the room has %d changes", i, got.Changes)
		}
	}
	if got := r.Arrived(); !slices.Equal(got, want) {
		t.Error("users and rooms did not keep their order")
	}
	lost(t, r)
}

// roomOf returns the address of a room that has the id and the partition of a user.
func roomOf(user pubsub.Address) pubsub.Address {
	user.Room = true
	return user
}

func publishRooms(t *testing.T, bus pubsub.Bus, updates ...pubsub.RoomUpdate) {
	t.Helper()
	if err := bus.Publish(t.Context(), nil, updates); err != nil {
		t.Fatalf("Publish: %v", err)
	}
}
