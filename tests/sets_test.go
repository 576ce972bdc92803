package tests

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// listing is a conversation of a user in a server's list.
type listing struct {
	ConversationID string `json:"conversation_id"`
	Unread         int64
	Mentions       int64
	FirstUnreadSeq int64 `json:"first_unread_seq"`
}

// theConversation returns the only conversation of a user, once it includes a
// position.
func theConversation(t *testing.T, p *process, user, position string) listing {
	t.Helper()
	total(t, p, user, position)
	var page struct{ Conversations []listing }
	get(t, p.url+"/v1/users/"+user+"/conversations", &page)
	if len(page.Conversations) != 1 {
		t.Fatalf("%s has %+v", user, page.Conversations)
	}
	return page.Conversations[0]
}

// A conversation without gaps in its seqs is exact, however many separate
// mentions and holes it has.
func TestDenseConversation(t *testing.T) {
	database := newDatabase(t)
	p := serve(t, database)
	const messages, mentions = 4001, 1100
	var evs []string
	for seq := 1; seq <= messages; seq++ {
		// Ben gets only every second message.
		data := fmt.Sprintf(`{"conversation_id":"c","seq":%d,"user_ids":["ann"%s]`, seq, map[bool]string{true: `,"ben"`}[seq%2 == 0])
		if seq%2 == 0 && seq <= 2*mentions {
			data += `,"mentioned_user_ids":["ann"]`
		}
		evs = append(evs, event(fmt.Sprint("c/", seq), "message.delivered", data+"}"))
	}
	for request := range slices.Chunk(evs, 1000) {
		p.mustPost(request...)
	}
	position := p.mustPost(read("r", "c", 20, `"ann","ben"`))
	if c, want := theConversation(t, p, "ann", position), (listing{"c", messages - 20, mentions - 10, 21}); c != want {
		t.Errorf("ann has %+v, want %+v", c, want)
	}
	if c, want := theConversation(t, p, "ben", position), (listing{"c", messages/2 - 10, 0, 22}); c != want {
		t.Errorf("ben has %+v, want %+v", c, want)
	}
	position = p.mustPost(event("level", "conversation.level_set", `{"conversation_id":"c","user_ids":["ann"],"level":"mentions"}`),
		recalled("c", 30, `"ann","ben"`), read("r2", "c", 24, `"ann","ben"`))
	if n := total(t, p, "ann", position); n != mentions-13 {
		t.Errorf("the total of ann is %d, want %d", n, mentions-13)
	}
	if n := total(t, p, "ben", position); n != messages/2-13 {
		t.Errorf("the total of ben is %d, want %d", n, messages/2-13)
	}
	if out := must(t, "verify", "--database-url="+database); !strings.Contains(out, ": no difference") {
		t.Errorf("verify prints %s", out)
	}
}

// If seqs are far apart and a user has thousands unread, part of a
// conversation is only counted. Its first unread message still exists, in the
// list and in the snapshot, also after a read and a recall.
func TestFirstUnreadOfASparseConversation(t *testing.T) {
	database := newDatabase(t)
	p := serve(t, database)
	const messages, distance = 3000, 1 << 22
	var evs []string
	for i := 1; i <= messages; i++ {
		evs = append(evs, delivered("c", i*distance, `"ann"`))
	}
	for request := range slices.Chunk(evs, 1000) {
		p.mustPost(request...)
	}
	check := func(position string, least, most int64) {
		t.Helper()
		c := theConversation(t, p, "ann", position)
		if c.FirstUnreadSeq%distance != 0 || c.FirstUnreadSeq < least*distance || c.FirstUnreadSeq > most*distance {
			t.Errorf("the first unread message is %d/%d, want one from %d to %d", c.FirstUnreadSeq, distance, least, most)
		}
		status, _, snapshot := request(t, http.MethodGet, p.url+"/v1/users/ann/conversations?unread=true", "", "")
		if want := fmt.Sprintf(`"first_unread_seq":%d,`, c.FirstUnreadSeq); status != http.StatusOK || !strings.Contains(snapshot, want) {
			t.Errorf("%d %s has no %s", status, snapshot, want)
		}
	}
	check(p.mustPost(delivered("c", (messages+1)*distance, `"ann"`)), 1, 1)
	check(p.mustPost(recalled("c", distance, `"ann"`)), 2, 100)
	check(p.mustPost(read("half a message", "c", 1000*distance+distance/2, `"ann"`)), 1001, 1100)
	check(p.mustPost(read("the rest of the block", "c", 2500*distance, `"ann"`)), 2501, 2501)
	if out := must(t, "verify", "--database-url="+database); !strings.Contains(out, ": no difference") {
		t.Errorf("verify prints %s", out)
	}
}
