package tests

import (
	"fmt"
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
	ids, names := users(members)
	publish(t, p["api"], joined("hall", names))
	publish(t, p["api"], posted("hall", 1, "chat"))
	var clients []*client
	for i := range 60 {
		gateway := p["gateway"]
		if i%2 > 0 {
			gateway = other
		}
		clients = append(clients, connect(t, gateway.url, ids[i*members/60]))
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
	restart(t, redis)
	awaitBus(t, p["gateway"], "ok", 1)
	awaitBus(t, other, "ok", 1)
	publish(t, p["api"], posted("hall", 7, ids[0]))
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

// The greatest possible seq causes no overflow or endless loop. It can be posted, read, marked and
// recalled; a member can join at it, leave, and be reset from it; and a guest who has marked it can be
// merged.
func TestTheGreatestSeq(t *testing.T) {
	t.Parallel()
	database := newDatabase(t)
	p := serve(t, database)
	const greatest = "9223372036854775807"
	both := `"user_ids":["ann","bob"]`
	about := func(typ, more string) string { return roomEvent(typ, "hall", more) }
	message := about("room.posted", `"seq":`+greatest+`,"sender_id":"bob","mentioned_user_ids":["ann"]`)
	check := func(when string, ann int64, events ...string) {
		t.Helper()
		position := p.mustPost(events...)
		if a, b := total(t, p, "ann", position), total(t, p, "bob", position); a != ann || b != 0 {
			t.Fatalf("%s, ann has %d unread, and bob %d; want %d and 0", when, a, b, ann)
		}
	}
	check("after the message", 2, about("room.joined", both), about("room.posted", `"seq":1,"sender_id":"bob"`), message)
	check("after reading it", 0, about("conversation.read", both+`,"up_to_seq":`+greatest))
	check("after marking it", 1, about("conversation.marked_unread", `"user_ids":["ann"],"from_seq":`+greatest))
	p.mustCommand("ann", `{"t":"mark_unread","id":1,"conversation_id":"hall","from_seq":2}`)
	check("after a reset", 0, about("conversation.reset", both+`,"up_to_seq":`+greatest))
	check("after recalling it", 0, about("conversation.reset", `"user_ids":["ann"],"up_to_seq":1`), about("room.recalled", `"seq":`+greatest))
	check("after leaving", 0, about("room.left", both))
	check("after joining at it", 0, about("room.joined", both+`,"up_to_seq":`+greatest))
	check("after a reset to the first", 0, about("conversation.reset", both+`,"up_to_seq":1`))
	must(t, "verify", "--quiet", "--database-url="+database)

	guest := `{"conversation_id":"lunch","user_ids":["guest"],`
	position := p.mustPost(event("g1", "message.delivered", guest+`"seq":`+greatest+`}`), event("g2", "conversation.read", guest+`"up_to_seq":`+greatest+`}`),
		event("g3", "conversation.marked_unread", guest+`"seqs":[`+greatest+`]}`))
	wantTotal(t, p, "guest", position, 1)
	must(t, "user", "merge", "guest", "ann", "--database-url="+database)
	awaitTotalOf(t, p, "ann", 1)
	must(t, "verify", "--quiet", "--database-url="+database)
}
