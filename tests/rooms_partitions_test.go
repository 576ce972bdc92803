package tests

import (
	"fmt"
	"strings"
	"testing"

	"github.com/badged/badged/events"
)

// userOf returns a user of a partition whose id begins with prefix.
func userOf(partition int, prefix string) string {
	for n := 0; ; n++ {
		if id := fmt.Sprint(prefix, n); events.PartitionOf(id, partitions) == partition {
			return id
		}
	}
}

// A user joins a room with an up_to_seq that is far ahead. Only this user gets no counts from later
// messages: other users do, also users who join later as the first of their partition. A row of the
// log with a seq in a join becomes a dead letter, and a rebuild corrects tables with such a seq.
func TestOneJoinSilencesOneUser(t *testing.T) {
	t.Parallel()
	database := newDatabase(t)
	p := serve(t, database)
	first, far := userOf(0, "member-"), userOf(1, "member-")
	publish(t, p, joined("hall", fmt.Sprintf("%q", first)))
	publish(t, p, roomEvent("room.joined", "hall", fmt.Sprintf(`"user_ids":[%q],"up_to_seq":9223372036854775807`, far)))
	old := userOf(2, "member-")
	row := roomEvent("room.joined", "hall", fmt.Sprintf(`"user_ids":[%q],"seq":9223372036854775807`, old))
	sql(t, shardOf(t, database, old), `INSERT INTO badged.`+events.Topic(events.PartitionOf(old, partitions))+` (uuid, payload) VALUES (gen_random_uuid(), convert_to('`+row+`', 'UTF8'))`)
	position := publish(t, p, posted("hall", 1, "chat"))
	want := map[string]int64{first: 1, far: 0, old: 0}
	check := func(when string) {
		t.Helper()
		for user, n := range want {
			if got := total(t, p, user, position); got != n {
				t.Errorf("%s, %s in partition %d has %d unread, want %d", when, user, events.PartitionOf(user, partitions), got, n)
			}
		}
	}
	check("at first")
	var late []string
	for n := range partitions {
		user := userOf(n, "late-")
		late = append(late, fmt.Sprintf("%q", user))
		want[user] = 1
	}
	publish(t, p, joined("hall", strings.Join(late, ",")))
	position = publish(t, p, posted("hall", 2, "chat"))
	want[first] = 2
	check("after others have joined")
	must(t, "verify", "--quiet", "--database-url="+database)
	sql(t, database, `UPDATE badged.rooms SET last_seq = 9223372036854775807`)
	must(t, "rebuild", "--quiet", "--database-url="+database)
	must(t, "verify", "--quiet", "--database-url="+database)
	newcomer := userOf(3, "newcomer-")
	publish(t, p, joined("hall", fmt.Sprintf("%q", newcomer)))
	position = publish(t, p, posted("hall", 3, "chat"))
	want[first], want[newcomer] = 3, 1
	for user := range want {
		if strings.HasPrefix(user, "late-") {
			want[user] = 2
		}
	}
	check("after the rebuild")
}

// In a small room the ids of users make no difference: with up_to_seq, the first member in a partition
// or on a shard gets the same last message and category as the other members.
func TestTheFirstMemberOfAPartition(t *testing.T) {
	t.Parallel()
	p := serve(t, newDatabase(t))
	publish(t, p, joined("hall", fmt.Sprintf("%q", userOf(0, "member-"))))
	publish(t, p, posted("hall", 1, "chat"))
	publish(t, p, posted("hall", 2, "chat"))
	publish(t, p, roomEvent("room.posted", "hall", `"seq":3,"category":"news"`))
	var users []string
	for n := range partitions {
		users = append(users, userOf(n, "reader-"))
	}
	position := publish(t, p, roomEvent("room.joined", "hall", fmt.Sprintf(`"user_ids":["%s"],"up_to_seq":1`, strings.Join(users, `","`))))
	var first string
	for _, user := range users {
		if n := total(t, p, user, position); n != 2 {
			t.Errorf("%s in partition %d has %d unread, want 2", user, events.PartitionOf(user, partitions), n)
		}
		_, _, answer := request(t, "GET", p.url+"/v1/users/"+user+"/conversations", "", "")
		answer = strings.ReplaceAll(answer, user, "")
		if first == "" {
			first = answer
		}
		if answer != first || !strings.Contains(answer, `"last_seq":3`) || !strings.Contains(answer, `"category":"news"`) {
			t.Errorf("%s has %s, want what the first has: %s", user, answer, first)
		}
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
	if n := total(t, p, "guest", position); n != 1 {
		t.Errorf("the guest has %d unread, want 1", n)
	}
	must(t, "user", "merge", "guest", "ann", "--database-url="+database)
	awaitTotalOf(t, p, "ann", 1)
	must(t, "verify", "--quiet", "--database-url="+database)
}
