package tests

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
)

// changed returns a change of a message, with more fields of its data.
func changed(id, conversation string, seq int, users, rest string) string {
	return event(id, "message.changed", fmt.Sprintf(`{"conversation_id":%q,"seq":%d,"user_ids":[%s]%s}`, conversation, seq, users, rest))
}

func recalledAs(revision int, id, conversation string, seq int, users string) string {
	return event(id, "message.recalled", fmt.Sprintf(`{"conversation_id":%q,"seq":%d,"user_ids":[%s],"revision":%d}`, conversation, seq, users, revision))
}

// A message is moved to another conversation and back. The events of both moves come in order, and
// for another user in reverse order.
func movedMessage(t *testing.T) {
	database := newDatabase(t)
	p := serve(t, database, "--redis-url="+newRedis(t).URL())
	for i, user := range []string{"ann", "bob"} {
		client, quoted := connect(t, p.url, user), fmt.Sprintf("%q", user)
		p.mustPost(event("a/1"+user, "message.delivered", fmt.Sprintf(`{"conversation_id":"a","seq":1,"user_ids":[%s],"mentioned_user_ids":[%s]}`, quoted, quoted)),
			event("a/2"+user, "message.delivered", fmt.Sprintf(`{"conversation_id":"a","seq":2,"user_ids":[%s]}`, quoted)))
		client.awaitTotal(2)
		story := []string{
			recalledAs(1, "out of a"+user, "a", 1, quoted), changed("into b"+user, "b", 7, quoted, `,"revision":1`),
			recalledAs(2, "out of b"+user, "b", 7, quoted), changed("back into a"+user, "a", 1, quoted, fmt.Sprintf(`,"revision":2,"mentioned_user_ids":[%s]`, quoted)),
		}
		if i == 1 {
			for _, n := range []int{3, 2, 1, 0} {
				p.mustPost(story[n])
			}
		} else {
			position := p.mustPost(story[:2]...)
			everyReaderSays(t, database, p, user, position, map[string]int64{"a": 1, "b": 1})
			p.mustPost(story[2:]...)
		}
		position := p.mustPost(event("a/1"+user, "message.delivered", fmt.Sprintf(`{"conversation_id":"a","seq":1,"user_ids":[%s]}`, quoted))) // a retry
		everyReaderSays(t, database, p, user, position, map[string]int64{"a": 2})
		if status, _, answer := request(t, http.MethodGet, p.url+"/v1/users/"+user+"/badge", "", ""); !strings.Contains(answer, `"mentions":1,`) {
			t.Errorf("the badge of %s is %d %s", user, status, answer)
		}
	}
	must(t, "verify", "--database-url="+database)
}

// Edits of a message mention Ann, stop mentioning her, and mention her again. The edits arrive in
// each possible order.
func editedMention(t *testing.T) {
	database := newDatabase(t)
	p := serve(t, database)
	says := func(seq, mentions int, position string) {
		t.Helper()
		if status, _, answer := request(t, http.MethodGet, p.url+"/v1/users/ann/badge?timeout=30s&at_least="+position, "", ""); !strings.Contains(answer, fmt.Sprintf(`"mentions":%d,`, mentions)) {
			t.Errorf("after the edits of message %d the badge is %d %s, want %d mentions", seq, status, answer, mentions)
		}
	}
	edits := func(seq int) []string {
		return []string{
			event(fmt.Sprint("c/", seq), "message.delivered", fmt.Sprintf(`{"conversation_id":"c","seq":%d,"user_ids":["ann"],"mentioned_user_ids":["ann"]}`, seq)),
			changed(fmt.Sprint("edit 1 of ", seq), "c", seq, `"ann"`, `,"revision":1`),
			changed(fmt.Sprint("edit 2 of ", seq), "c", seq, `"ann"`, `,"revision":2,"mentioned_user_ids":["ann"]`),
			changed(fmt.Sprint("edit 3 of ", seq), "c", seq, `"ann"`, `,"revision":3`),
		}
	}
	for i, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 3, 0, 1}, {1, 0, 3, 2}} {
		var position string
		for _, n := range order {
			position = publish(t, p, edits(i + 1)[n])
		}
		says(i+1, 0, position)
	}
	for i, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {2, 0, 1}, {1, 2, 0}} {
		var position string
		for _, n := range order {
			position = publish(t, p, edits(i + 10)[n])
		}
		says(i+10, i+1, position)
	}
	must(t, "verify", "--database-url="+database)
}

// Two messages are deleted and restored. The first was read before it was deleted, the second was
// not.
func restoredMessage(t *testing.T) {
	database := newDatabase(t)
	p := serve(t, database, "--redis-url="+newRedis(t).URL())
	ann := connect(t, p.url, "ann")
	p.mustPost(delivered("c", 1, `"ann"`), read("read", "c", 1, `"ann"`), delivered("c", 2, `"ann"`), recalled("c", 1, `"ann"`), recalled("c", 2, `"ann"`))
	position := p.mustPost(delivered("c", 2, `"ann"`))
	everyReaderSays(t, database, p, "ann", position, map[string]int64{})
	position = p.mustPost(changed("restored 1", "c", 1, `"ann"`, ""), changed("restored 2", "c", 2, `"ann"`, ""))
	ann.awaitTotal(1)
	everyReaderSays(t, database, p, "ann", position, map[string]int64{"c": 1})
	position = p.mustPost(event("deleted again", "message.recalled", `{"conversation_id":"c","seq":2,"user_ids":["ann"]}`))
	ann.awaitTotal(0)
	everyReaderSays(t, database, p, "ann", position, map[string]int64{})
	must(t, "verify", "--database-url="+database)
}

// Edits of Bob's message to a room mention ann, stop mentioning her, and mention her again. The
// message is also deleted and restored. The changes arrive in each possible order, at members in
// different partitions.
func changedInARoom(t *testing.T) {
	database := newDatabase(t)
	p := serve(t, database, "--redis-url="+newRedis(t).URL())
	ann := connect(t, p.url, "ann")
	p.mustPost(joined("hall", `"ann","bob","eve"`))
	story := func(seq int) []string {
		said := func(typ, rest string) string {
			return roomEvent(typ, "hall", fmt.Sprintf(`"seq":%d%s`, seq, rest))
		}
		return []string{
			said("room.posted", `,"sender_id":"bob","mentioned_user_ids":["ann"]`),
			said("room.changed", `,"sender_id":"bob","revision":1`),
			said("room.recalled", `,"revision":2`),
			said("room.changed", `,"sender_id":"bob","revision":3,"mentioned_user_ids":["ann"]`),
			said("room.recalled", `,"revision":4`),
		}
	}
	seq := 0
	for _, tt := range []struct {
		orders       [][]int
		live, counts bool // counts is true if ann is mentioned
	}{
		{[][]int{{0, 1}, {1, 0}}, true, false},
		{[][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}}, false, false},
		{[][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 3, 0, 1}}, true, true},
		{[][]int{{0, 1, 2, 3, 4}, {4, 3, 2, 1, 0}, {3, 4, 0, 2, 1}}, false, false},
	} {
		for i, order := range tt.orders {
			seq++
			before, events := ann.total, story(seq)
			unread, mentions := before, mentionsOf(t, p, "ann")
			if tt.live {
				unread++
			}
			if tt.counts {
				mentions++
			}
			var position string
			for _, n := range order {
				position = p.mustPost(events[n])
			}
			ann.awaitTotal(unread)
			for user, want := range map[string]int64{"ann": unread, "bob": 0, "eve": unread} {
				counts := map[string]int64{}
				if want > 0 {
					counts["hall"] = want
				}
				if n, got := total(t, p, user, position), listed(t, p, user); n != want || !maps.Equal(got, counts) {
					t.Errorf("after %v of message %d the badge of %s says %d, and the list has %v, want %d", order, seq, user, n, got, want)
				}
				if i == 0 { // readers do not see the order
					everyReaderSays(t, database, p, user, position, counts)
				}
			}
			if got := mentionsOf(t, p, "ann"); got != mentions {
				t.Errorf("after %v of message %d ann has %d mentions, want %d", order, seq, got, mentions)
			}
		}
	}
	must(t, "verify", "--database-url="+database)
}

// mentionsOf returns how many unread messages mention a user.
func mentionsOf(t *testing.T, p *process, user string) int64 {
	t.Helper()
	var b struct{ Mentions int64 }
	get(t, p.url+"/v1/users/"+user+"/badge", &b)
	return b.Mentions
}
