package tests

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/badged/badged/internal/devtest/pgtest"
)

// Four publishers publish the same events, each in its own order: 60 messages, recalls of a third
// of them, and a read up to message 40.
func negativeBadge(t *testing.T) {
	database := newDatabase(t)
	p := serve(t, database)
	ann := connect(t, p.url, "ann") // the client checks that no number is negative
	ann.awaitTotal(0)

	var story []string
	for seq := 1; seq <= 60; seq++ {
		story = append(story, delivered("room", seq, `"ann","bob"`))
		if seq%3 == 0 {
			story = append(story, recalled("room", seq, `"ann","bob"`))
		}
	}
	for _, upTo := range []int{10, 40, 20, 30} {
		story = append(story, read(fmt.Sprint("read ", upTo), "room", upTo, `"ann"`))
	}
	racing := publishers{t: t}
	for n := range uint64(4) {
		own := slices.Clone(story)
		rand.New(rand.NewPCG(n, n)).Shuffle(len(own), func(i, j int) { own[i], own[j] = own[j], own[i] })
		racing.publish(p, each(own))
	}
	position := racing.await()

	everyReaderSays(t, database, p, "ann", position, map[string]int64{"room": 20 - 7}) // seven of 41 to 60 are recalled
	everyReaderSays(t, database, p, "bob", position, map[string]int64{"room": 40})
	ann.awaitTotal(13)
	position = p.mustPost(delivered("room", 61, `"ann","bob"`))
	everyReaderSays(t, database, p, "ann", position, map[string]int64{"room": 14}) // the next message counts too
	ann.awaitTotal(14)
}

// The sender's own messages do not count, although backends often name the sender among the
// recipients.
func ownMessagesCounted(t *testing.T) {
	database := newDatabase(t)
	p := serve(t, database)
	says := func(who string, seq int) string {
		return event(fmt.Sprint(seq), "message.delivered",
			fmt.Sprintf(`{"conversation_id":"direct","seq":%d,"user_ids":["ann","bob"],"sender_id":%q}`, seq, who))
	}
	phone, laptop := connect(t, p.url, "ann"), connect(t, p.url, "ann")
	p.mustPost(says("bob", 1))
	phone.awaitTotal(1)
	laptop.awaitTotal(1)
	laptop.say(`{"t":"read","id":1,"conversation_id":"direct","up_to_seq":1}`)
	laptop.awaitTotal(0)
	phone.awaitTotal(0)
	phone.close()

	position := p.mustPost(says("ann", 2), says("ann", 3)) // ann writes from her laptop
	everyReaderSays(t, database, p, "ann", position, map[string]int64{})
	everyReaderSays(t, database, p, "bob", position, map[string]int64{"direct": 2})
	phone = phone.resume(p.url)
	phone.await("the state", func() bool { return !phone.resuming })
	position = p.mustPost(says("ann", 4), says("bob", 5))
	phone.awaitTotal(1)
	laptop.awaitTotal(1)
	everyReaderSays(t, database, p, "ann", position, map[string]int64{"direct": 1})
	everyReaderSays(t, database, p, "bob", position, map[string]int64{"direct": 3})
}

// Messages in other rooms, and a late message in this room, simulate that time passes.
func badgeOnlyGrows(t *testing.T) {
	database := newDatabase(t)
	p := serve(t, database)
	awake, asleep := connect(t, p.url, "ann"), connect(t, p.url, "ann")
	p.mustPost(delivered("room", 1, `"ann"`), delivered("room", 3, `"ann"`), delivered("other", 1, `"ann"`))
	awake.awaitTotal(3)
	asleep.awaitTotal(3)
	asleep.close()

	position := p.mustPost(left("leave", "room", `"ann"`))
	everyReaderSays(t, database, p, "ann", position, map[string]int64{"other": 1})
	awake.awaitTotal(1)
	for seq := 2; seq <= 20; seq++ {
		p.mustPost(delivered("other", seq, `"ann"`))
	}
	position = p.mustPost(delivered("room", 2, `"ann"`))
	everyReaderSays(t, database, p, "ann", position, map[string]int64{"other": 20})
	awake.awaitTotal(20)
	asleep.resume(p.url).awaitTotal(20)

	position = p.mustPost(delivered("room", 4, `"ann"`)) // the user joins again
	everyReaderSays(t, database, p, "ann", position, map[string]int64{"other": 20, "room": 1})
}

func badgeJumpsBack(t *testing.T) {
	database := newDatabase(t)
	p := serve(t, database)
	phone, tablet := connect(t, p.url, "ann"), connect(t, p.url, "ann")
	for seq := 1; seq <= 4; seq++ {
		p.mustPost(delivered("chat", seq, `"ann"`))
	}
	phone.awaitTotal(4)
	tablet.awaitTotal(4)
	tablet.close() // the tablet sleeps, and shows a total of 4

	phone.say(`{"t":"read","id":1,"conversation_id":"chat","up_to_seq":4}`)
	phone.awaitTotal(0)
	position := p.mustPost(delivered("chat", 5, `"ann"`))
	everyReaderSays(t, database, p, "ann", position, map[string]int64{"chat": 1}) // the number for a push notification
	phone.awaitTotal(1)
	tablet.resume(p.url).awaitTotal(1)
}

// A badge of 1 has two causes in turn: first an unread message in an old room, then an error in the
// tables.
func phantomThread(t *testing.T) {
	database := newDatabase(t)
	p := serve(t, database)
	p.mustPost(delivered("a thread long forgotten", 4, `"ann"`), delivered("chat", 1, `"ann"`))
	position := p.mustPost(read("read chat", "chat", 1, `"ann"`))
	everyReaderSays(t, database, p, "ann", position, map[string]int64{"a thread long forgotten": 1})
	explained := must(t, "user", "explain", "ann", "--database-url="+database)
	contains(t, explained, "a thread long forgotten adds 1", "a thread long forgotten/4")
	position = p.mustPost(read("read thread", "a thread long forgotten", 4, `"ann"`))
	everyReaderSays(t, database, p, "ann", position, map[string]int64{})
	must(t, "verify", "--user=ann", "--database-url="+database)

	p.mustStop() // otherwise the server might heal the row first
	conn := pgtest.Connect(t, shardOf(t, database, "ann"))
	pgtest.Exec(t, conn, `UPDATE badged.users SET total = 1, categories = '{"chat":[1]}' WHERE user_id = 'ann'`)
	if out, _, code := command(t, "verify", "--user=ann", "--database-url="+database); code != 1 || !strings.Contains(out, "ann") || !strings.Contains(out, "total") {
		t.Errorf("verify exited with %d:\n%s", code, out)
	}
	fails(t, 1, "the tables differ from the log", "user", "explain", "ann", "--database-url="+database)
	must(t, "rebuild", "--user=ann", "--database-url="+database)
	must(t, "verify", "--user=ann", "--database-url="+database)
	p = serve(t, database)
	everyReaderSays(t, database, p, "ann", position, map[string]int64{})
}

func emptyRoomUnread(t *testing.T) {
	database := newDatabase(t)
	p := serve(t, database)
	ann := connect(t, p.url, "ann")
	p.mustPost(delivered("room", 7, `"ann"`))
	ann.awaitTotal(1)
	position := p.mustPost(recalled("room", 7, `"ann"`))
	ann.awaitTotal(0)
	everyReaderSays(t, database, p, "ann", position, map[string]int64{})
	position = p.mustPost(delivered("room", 7, `"ann"`)) // a retry does not bring it back
	everyReaderSays(t, database, p, "ann", position, map[string]int64{})
}

// The connection drops after a read, and the app sends the read again. The first read is known to be
// in the log before the connection drops; for a second read that is unknown.
func reconnectDrift(t *testing.T) {
	database := newDatabase(t)
	p := serve(t, database)
	phone, other := connect(t, p.url, "ann"), connect(t, p.url, "ann")
	for seq := 1; seq <= 3; seq++ {
		p.mustPost(delivered("first", seq, `"ann"`), delivered("second", seq, `"ann"`))
	}
	phone.awaitTotal(6)
	other.awaitTotal(6)

	phone.say(`{"t":"read","id":1,"conversation_id":"first","up_to_seq":2}`)
	other.awaitTotal(4)
	phone.close()
	phone = phone.resume(p.url)
	phone.say(`{"t":"read","id":1,"conversation_id":"first","up_to_seq":2}`)
	phone.await("an answer", func() bool { return phone.answers[1] == "ok" })

	phone.say(`{"t":"read","id":2,"conversation_id":"second","up_to_seq":3}`)
	phone.close()
	phone = phone.resume(p.url)
	phone.say(`{"t":"read","id":2,"conversation_id":"second","up_to_seq":3}`)
	phone.await("an answer", func() bool { return phone.answers[2] == "ok" })
	phone.awaitTotal(1)
	other.awaitTotal(1)

	position := p.mustPost(delivered("first", 4, `"ann"`))
	everyReaderSays(t, database, p, "ann", position, map[string]int64{"first": 2})
	other.awaitTotal(2)
	other.mu.Lock()
	defer other.mu.Unlock()
	if want := int64(6 + 2 + 1); other.version != want { // seven messages and two reads, each once
		t.Errorf("the version is %d, want %d", other.version, want)
	}
}

// The total can be read while the rows of all conversations are locked, so it is stored and not
// summed when it is read.
func slowSum(t *testing.T) {
	database := newDatabase(t)
	p := serve(t, database)
	const conversations = 5000
	var events []string
	for i := range conversations {
		events = append(events, delivered(fmt.Sprint("room ", i), i+1, `"ann"`))
	}
	position := p.mustPost(events...)
	total(t, p, "ann", position)

	conn := pgtest.Connect(t, shardOf(t, database, "ann"))
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, tx, `LOCK TABLE badged.conversations IN ACCESS EXCLUSIVE MODE`)
	wantTotal(t, p, "ann", "0", conversations)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// The backend was down for a day. Its messages have yesterday's times, and lower seqs than messages
// that arrived in another way.
func lateOldMessage(t *testing.T) {
	database := newDatabase(t)
	p := serve(t, database)
	late := func(seq int) string {
		return fmt.Sprintf(`{"specversion":"1.0","id":"late %[1]d","source":"test","type":"message.delivered","time":"2020-01-01T00:00:00Z",`+
			`"data":{"conversation_id":"chat","seq":%[1]d,"user_ids":["ann"]}}`, seq)
	}
	ann := connect(t, p.url, "ann")
	p.mustPost(delivered("chat", 10, `"ann"`), delivered("chat", 20, `"ann"`), read("read", "chat", 10, `"ann"`))
	ann.awaitTotal(1)
	p.mustPost(late(11), late(15))
	ann.awaitTotal(3)
	position := p.mustPost(late(9), late(10))
	everyReaderSays(t, database, p, "ann", position, map[string]int64{"chat": 3})
	var page struct {
		Conversations []struct {
			FirstUnreadSeq int64 `json:"first_unread_seq"`
			LastSeq        int64 `json:"last_seq"`
		}
	}
	get(t, p.url+"/v1/users/ann/conversations", &page)
	if c := page.Conversations[0]; c.FirstUnreadSeq != 11 || c.LastSeq != 20 {
		t.Errorf("the first unread is %d and the last %d, want 11 and 20", c.FirstUnreadSeq, c.LastSeq)
	}
}
