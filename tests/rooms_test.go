package tests

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// roomEvent returns an event of a room with additional fields in its data.
func roomEvent(typ, room, more string) string {
	return event(uuid.NewString(), typ, fmt.Sprintf(`{"conversation_id":%q,%s}`, room, more))
}

func joined(room, users string) string {
	return roomEvent("room.joined", room, `"user_ids":[`+users+`]`)
}

// posted returns an event that posts message seq of a sender to a room.
func posted(room string, seq int, sender string) string {
	return roomEvent("room.posted", room, fmt.Sprintf(`"seq":%d,"sender_id":%q`, seq, sender))
}

// awaitUnread waits until that many messages of a conversation are unread.
func (c *client) awaitUnread(conversation string, n int64) {
	c.t.Helper()
	c.await(fmt.Sprintf("%d unread in %s", n, conversation), func() bool { return c.unread[conversation] == n })
}

// Connected members see the changes of a room. They join while they are connected, and get messages
// except their own. They see on one device what they read on another, and recalled messages stop
// counting. They leave, and resume after a disconnect.
func TestRoomOverSockets(t *testing.T) {
	t.Parallel()
	p := serve(t, newDatabase(t))
	ann, phone, bob, eve := connect(t, p.url, "ann"), connect(t, p.url, "ann"), connect(t, p.url, "bob"), connect(t, p.url, "eve")
	publish(t, p, delivered("direct", 1, `"ann","bob"`))
	ann.awaitTotal(1)
	publish(t, p, joined("hall", `"ann","bob"`))
	publish(t, p, posted("hall", 1, "ann"))
	publish(t, p, posted("hall", 2, "bob"))
	for _, c := range []*client{ann, phone, bob} {
		c.awaitUnread("hall", 1) // the message of the other member
		c.awaitTotal(2)
	}
	publish(t, p, roomEvent("room.posted", "hall", `"seq":3,"sender_id":"bob","mentioned_user_ids":["ann"]`))
	ann.awaitTotal(3)
	bob.say(`{"t":"read","id":1,"conversation_id":"hall","up_to_seq":1}`)
	bob.awaitTotal(1)
	ann.say(`{"t":"read","id":1,"conversation_id":"hall","up_to_seq":2}`)
	for _, c := range []*client{ann, phone} {
		c.awaitUnread("hall", 1)
	}
	publish(t, p, roomEvent("room.recalled", "hall", `"seq":3`))
	for _, c := range []*client{ann, phone} {
		c.awaitUnread("hall", 0)
	}
	position := publish(t, p, posted("hall", 4, "chat"))
	ann.awaitTotal(2)
	bob.awaitTotal(2)
	eve.awaitTotal(0) // she is not a member
	for user, n := range map[string]int64{"ann": 2, "bob": 2, "eve": 0} {
		if got := total(t, p, user, position); got != n {
			t.Errorf("the API says %d for %s, want %d", got, user, n)
		}
	}

	bob.close()
	publish(t, p, posted("hall", 5, "ann"))
	publish(t, p, roomEvent("room.left", "hall", `"user_ids":["ann"]`))
	ann.awaitTotal(1)
	phone.awaitTotal(1)
	publish(t, p, posted("hall", 6, "chat"))
	publish(t, p, delivered("direct", 2, `"ann"`))
	ann.awaitTotal(2)
	bob = bob.resume(p.url)
	bob.awaitTotal(4)
	publish(t, p, joined("hall", `"ann","eve"`))
	publish(t, p, posted("hall", 7, "chat"))
	ann.awaitTotal(3)
	eve.awaitTotal(1)
	bob.awaitTotal(5)
}

// An app has a message of a room before badged has it, and reads it. When the message arrives it does
// not count, but later messages do.
func TestReadAheadOfARoom(t *testing.T) {
	t.Parallel()
	p := serve(t, newDatabase(t))
	bob := connect(t, p.url, "bob")
	publish(t, p, joined("hall", `"ann","bob"`))
	publish(t, p, posted("hall", 1, "ann"))
	bob.awaitUnread("hall", 1)
	bob.say(`{"t":"read","id":1,"conversation_id":"hall","up_to_seq":3}`)
	bob.awaitTotal(0)
	for seq := 2; seq <= 4; seq++ {
		publish(t, p, posted("hall", seq, "ann"))
	}
	bob.await("1 unread of 4", func() bool { return bob.last["hall"] == 4 && bob.unread["hall"] == 1 })
	bob.awaitTotal(1)
}

// Members of a large room are connected to two gateways. Redis is killed and restarted while messages
// are posted. In the end every client is right.
func TestRoomAcrossProcesses(t *testing.T) {
	t.Parallel()
	const members = 3000
	database, redis := newDatabase(t), newRedis(t)
	p := roles(t, database, redis, "--reconcile-interval=1s")
	other := serve(t, database, "--redis-url="+redis.URL(), "--roles=gateway", "--reconcile-interval=1s")
	names := make([]string, members)
	for i := range names {
		names[i] = fmt.Sprintf("%q", fmt.Sprintf("u%d", i))
	}
	publish(t, p["api"], joined("hall", strings.Join(names, ",")))
	publish(t, p["api"], posted("hall", 1, "chat"))
	var clients []*client
	for i := range 60 {
		gateway := p["gateway"]
		if i%2 > 0 {
			gateway = other
		}
		clients = append(clients, connect(t, gateway.url, fmt.Sprintf("u%d", i*members/60)))
	}
	all := func(n int64) {
		t.Helper()
		for _, c := range clients {
			c.awaitUnread("hall", n)
		}
	}
	all(1)
	publish(t, p["api"], posted("hall", 2, "chat"))
	all(2)
	redis.Kill()
	for seq := 3; seq <= 6; seq++ {
		publish(t, p["api"], posted("hall", seq, "chat"))
	}
	all(6) // by reconciliation
	if err := redis.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitBus(t, p["gateway"], "ok", 1)
	awaitBus(t, other, "ok", 1)
	publish(t, p["api"], posted("hall", 7, "u0"))
	clients[0].awaitUnread("hall", 6) // without the member's own message
	for _, c := range clients[1:] {
		c.awaitUnread("hall", 7)
	}
	clients[1].close()
	publish(t, p["api"], posted("hall", 8, "chat"))
	clients[1] = clients[1].resume(other.url)
	clients[1].awaitUnread("hall", 8)
	if n := metric(t, metricsOf(t, other), "badged_gateway_room_updates_total"); n == 0 {
		t.Error("the gateway got no update of the room")
	}
}
