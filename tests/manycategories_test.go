package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/badged/badged/events"
)

// firstFrame returns the numbers of the first frame that a new connection of a user gets.
func firstFrame(t *testing.T, p *process, user string) (n numbers) {
	t.Helper()
	c, err := dial(t, p.url, token(t, user), http.DefaultClient)
	if err == nil {
		err = c.write(`{"t":"hello"}`)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err == nil {
		var frame []byte
		if _, frame, err = c.conn.Read(ctx); err == nil {
			err = json.Unmarshal(frame, &n)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A user with 20,000 categories connects, and gets 500 of them with the totals of all. Other users of
// the partition do not wait longer for their states.
func TestAUserWithManyCategories(t *testing.T) {
	t.Parallel()
	const categories = 20_000
	p := serve(t, newDatabase(t))
	var position string
	for from := 0; from < categories; from += 10_000 {
		var lines []string
		for i := from; i < from+10_000; i++ {
			lines = append(lines, event(fmt.Sprint("m", i), "message.delivered",
				fmt.Sprintf(`{"conversation_id":"c%d","seq":1,"user_ids":["tenant"],"category":"project-%05d"}`, i, i)))
		}
		position = p.mustPost(lines...)
	}
	wantTotal(t, p, "tenant", position, categories)
	for range 20 {
		if b := firstFrame(t, p, "tenant"); b.Total != categories || len(b.Categories) != 500 || !b.MoreCategories {
			t.Errorf("the snapshot has total %d in %d categories", b.Total, len(b.Categories))
		}
	}
	other := usersIn(events.PartitionOf("tenant", partitions), 1)[0]
	connect(t, p.url, other).awaitTotal(0)

	// Badges omit most categories, but a token that is restricted to an omitted category
	// shows its numbers, also after changes.
	const left = "project-19999"
	frames := make(chan string, 100)
	v := &viewer{t: t, categories: []string{left}, frames: frames}
	restrictedToken := restricted(t, "tenant", left)
	socketFrames(t, p, restrictedToken, frames)
	v.next()
	for seq := 2; seq <= 4; seq++ {
		publish(t, p, event(fmt.Sprint("late", seq), "message.delivered", fmt.Sprintf(`{"conversation_id":"c19999","seq":%d,"user_ids":["tenant"],"category":%q}`, seq, left)))
		v.await(func(n numbers) bool { return n.Total == int64(seq) })
	}
	if b := badgeAs(t, p, restrictedToken, "tenant"); b.Total != 4 || b.Categories[left].Total != 4 || b.MoreCategories {
		t.Errorf("the badge of one category is %v", b)
	}
	publish(t, p, event("late", "conversation.read", `{"conversation_id":"c19999","user_ids":["tenant"],"up_to_seq":3}`))
	v.await(func(n numbers) bool { return n.Total == 1 })

	// The size of an answer depends on the different users that the request names, and not
	// on how often it names each.
	again := make([]string, 1000)
	for i := range again {
		again[i] = "tenant"
	}
	badges, size := queryBadges[numbers](t, p, append([]string{other}, again[1:]...), "0")
	if len(badges) != 2 || size > 100_000 {
		t.Fatalf("%d badges in %d bytes", len(badges), size)
	}
	b := badges[1]
	if _, first := b.Categories["project-00000"]; b.Total != categories || b.UnreadConversations != categories || len(b.Categories) != 500 || !first || !b.MoreCategories || badges[0].MoreCategories {
		t.Errorf("the badge has total %d, %d conversations, %d categories", b.Total, b.UnreadConversations, len(b.Categories))
	}
	status, _, answer := request(t, http.MethodGet, p.url+"/v1/users/tenant/badge", "", "")
	if err := json.Unmarshal([]byte(answer), &b); err != nil || status != http.StatusOK || len(b.Categories) != 500 {
		t.Errorf("%d, %d categories, %v", status, len(b.Categories), err)
	}
}

// The first connection of a user is restricted to some categories. A later connection without the
// restriction gets the right numbers of all categories.
func TestManyCategoriesAfterAConnectionOfSome(t *testing.T) {
	t.Parallel()
	p := serve(t, newDatabase(t))
	var evs []string
	for i := range 20 {
		evs = append(evs, in(fmt.Sprintf("acme/k%d", i), fmt.Sprint("c", i), 1, ""))
	}
	position := p.mustPost(append(evs, in("chat", "c99", 1, ""),
		inRoom("hall", "join", "room.joined", `,"user_ids":["ann"]`), postTo("hall", 1, `,"category":"chat"`))...)
	wantTotal(t, p, "ann", position, 22)
	some, all := make(chan string, 100), make(chan string, 100)
	socketFrames(t, p, restricted(t, "ann", "acme/k1"), some)
	<-some // its snapshot
	p.mustPost(in("acme/k1", "c1", 2, ""))
	<-some // from then on the gateway follows the user's rooms
	socketFrames(t, p, token(t, "ann"), all)
	<-all
	p.mustPost(postTo("hall", 2, `,"category":"chat"`))
	for text := range all {
		var f frame
		var of numbers
		if json.Unmarshal([]byte(text), &f) != nil || json.Unmarshal([]byte(text), &of) != nil || f.T != "changes" {
			continue
		}
		if of.Total != 24 || of.Categories["chat"].Total != 3 {
			t.Errorf("after a message to the room: %s", text)
		}
		return
	}
}
