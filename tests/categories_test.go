package tests

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/badged/badged/internal/base/category"
	"github.com/badged/badged/pubsub"
)

// restricted returns a token of a user that is restricted to categories.
func restricted(t *testing.T, user string, categories ...string) string {
	t.Helper()
	return issuedWith(t, user, time.Now(), map[string]any{"badged_categories": categories})
}

// numbers are the numbers of a badge, in the JSON of frames and answers.
type numbers struct {
	Epoch               string                    `json:"epoch"`
	Version             int64                     `json:"version"`
	Total               int64                     `json:"total"`
	Mentions            int64                     `json:"mentions"`
	Categories          map[string]pubsub.Numbers `json:"categories"`
	MoreCategories      bool                      `json:"more_categories"`
	AllCategories       bool                      `json:"all_categories"`
	UnreadConversations int64                     `json:"unread_conversations"`
}

// listedConversation is a conversation in the JSON of frames and answers.
type listedConversation struct {
	ConversationID string `json:"conversation_id"`
	Unread         int64  `json:"unread"`
	Mentions       int64  `json:"mentions"`
	Level          string `json:"level"`
	Category       string `json:"category"`
	MarkedUnread   bool   `json:"marked_unread"`
	Left           bool   `json:"left"`
}

// sumOf returns the numbers that conversations of some categories add up to.
func sumOf(conversations map[string]listedConversation, categories []string) numbers {
	n := numbers{Categories: map[string]pubsub.Numbers{}}
	for _, c := range conversations {
		if !slices.Contains(categories, c.Category) || c.Level == "none" {
			continue
		}
		n.Mentions += c.Mentions
		adds := c.Unread
		switch {
		case c.Level == "mentions" || c.Level == "direct_mentions":
			adds = c.Mentions
		case c.MarkedUnread:
			adds = max(1, adds)
		}
		if adds > 0 {
			n.Total += adds
			n.UnreadConversations++
			category.AddTo(n.Categories, c.Category, pubsub.Numbers{Total: adds, UnreadConversations: 1})
		}
	}
	return n
}

func (n numbers) String() string {
	totals, conversations := map[string]int64{}, map[string]int64{}
	for path, of := range n.Categories {
		if of.Total > 0 {
			totals[path], conversations[path] = of.Total, of.UnreadConversations
		}
	}
	return fmt.Sprintf("%d@%d %v %d %v", n.Total, n.Mentions, totals, n.UnreadConversations, conversations)
}

// viewer is an app with a restricted token. It applies frames as the protocol says.
type viewer struct {
	t          *testing.T
	categories []string
	frames     <-chan string
	held       numbers
	list       map[string]listedConversation
}

// next applies the next frame with a state. It checks that the state has nothing of other
// categories, and that its totals are the sums of its parts.
func (v *viewer) next() {
	v.t.Helper()
	text, ok := <-v.frames
	if !ok {
		v.t.Fatal("the connection has ended")
	}
	var f struct {
		T string `json:"t"`
		numbers
		Conversations []listedConversation `json:"conversations"`
	}
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		v.t.Fatalf("%s: %v", text, err)
	}
	switch f.T {
	case "snapshot":
		v.list = map[string]listedConversation{}
	case "changes":
		if f.Epoch != v.held.Epoch || f.Version <= v.held.Version {
			return
		}
	default:
		return
	}
	for _, c := range f.Conversations {
		if !slices.Contains(v.categories, c.Category) {
			v.t.Fatalf("a token of %q sees %s", v.categories, text)
		}
		if v.list[c.ConversationID] = c; c.Left {
			delete(v.list, c.ConversationID)
		}
	}
	if f.T == "changes" && !f.AllCategories {
		of := maps.Clone(v.held.Categories)
		maps.Copy(of, f.Categories)
		f.Categories = of
	}
	v.held = f.numbers
	if want := sumOf(v.list, v.categories); want.String() != f.String() {
		v.t.Fatalf("%s %q: %s\nits parts add up to %s", f.T, v.categories, f.numbers, want)
	}
}

// A token that is restricted to categories shows only these: over WebSockets, server-sent events
// and HTTP, for conversations and rooms, while events arrive in all categories.
func TestTokensOfCategories(t *testing.T) {
	t.Parallel()
	p := serve(t, newDatabase(t))
	r := rand.New(rand.NewPCG(7, 7))
	views := [][]string{{"chat"}, {"likes"}, {"hr", "likes"}, {"chat", "hr", "likes"}, {"other"}}
	var viewers []*viewer
	for i, categories := range views {
		frames := make(chan string, 10_000)
		v := &viewer{t: t, categories: categories, frames: frames}
		token := restricted(t, "ann", categories...)
		if i%2 == 0 {
			streamFrames(t, p, token, frames)
		} else {
			socketFrames(t, p, token, frames)
		}
		v.next()
		viewers = append(viewers, v)
	}
	publish(t, p, joined("hall", `"ann","bob"`))
	publish(t, p, joined("den", `"ann","bob"`))
	var position string
	for i := range 150 {
		position = publish(t, p, randomEvent(r, i))
	}
	if total(t, p, "ann", position) == 0 {
		t.Fatal("the history leaves nothing unread: it shows nothing")
	}
	all := conversationsOf(t, p, "", "ann")
	for _, v := range viewers {
		want := sumOf(all, v.categories)
		token := restricted(t, "ann", v.categories...)
		badge := badgeAs(t, p, token, "ann")
		v.await(func(n numbers) bool { return n.Version >= badge.Version })
		if badge.String() != want.String() || v.held.String() != want.String() || badge.Epoch != v.held.Epoch || badge.Version != v.held.Version {
			t.Errorf("of %q: the badge is %v, the client has %v; the parts add up to %v", v.categories, badge, v.held, want)
		}
		list := conversationsOf(t, p, token, "ann")
		maps.DeleteFunc(list, func(id string, c listedConversation) bool {
			return c == all[id] && slices.Contains(v.categories, c.Category)
		})
		if len(list) > 0 {
			t.Errorf("the token of %q lists %v", v.categories, list)
		}
		for id, c := range all {
			if _, ok := v.list[id]; !ok && slices.Contains(v.categories, c.Category) && c.Unread > 0 {
				t.Errorf("the client of %q lacks %v", v.categories, c)
			}
		}
	}

	// Commands: read_all reads only these categories, and reads of other conversations are
	// refused.
	before := sumOf(all, []string{"chat", "hr"})
	token := restricted(t, "ann", "likes")
	wantStatus(t, token, http.MethodPost, p.url+"/v1/commands", "application/json", `{"t":"read_all","id":1}`, http.StatusOK)
	viewers[1].await(func(n numbers) bool { return n.Total == 0 })
	if after := sumOf(conversationsOf(t, p, "", "ann"), []string{"chat", "hr"}); after.String() != before.String() {
		t.Errorf("what the token does not show was %v, and is %v after it read all", before, after)
	}
	for id, c := range all {
		status, _, answer := requestAs(t, token, http.MethodPost, p.url+"/v1/commands", "application/json", fmt.Sprintf(`{"t":"mark_unread","id":1,"conversation_id":%q}`, id))
		if may := c.Category == "likes"; may != (status == http.StatusOK) || !may && status != http.StatusNotFound {
			t.Errorf("a mark of %v: %d %s", c, status, answer)
		}
	}

	// Tokens without the restriction show everything, and a token with an invalid
	// restriction is refused.
	if status, _, answer := requestAs(t, restricted(t, "ann"), http.MethodGet, p.url+"/v1/users/ann/badge", "", ""); status != http.StatusUnauthorized ||
		!strings.Contains(answer, "badged_categories must") {
		t.Errorf("a token of no category: %d %s", status, answer)
	}
	wantStatus(t, token, http.MethodGet, p.url+"/v1/users/bob/badge", "", "", http.StatusForbidden)
	signed := strings.TrimSpace(must(t, "token", "--jwt-keys="+jwtKeys, "--categories=likes,hr", "ann"))
	if got := badgeAs(t, p, signed, "ann"); got.Epoch == badgeAs(t, p, token, "ann").Epoch || got.Categories["chat"].Total != 0 {
		t.Errorf("a token of the command line has the badge %+v", got)
	}
}

// await waits until so accepts the numbers of the app.
func (v *viewer) await(so func(numbers) bool) {
	v.t.Helper()
	for !so(v.held) {
		v.next()
	}
}

// randomEvent returns event i, for one of a few conversations and two rooms of ann. They are in
// three categories, and some events change the category of a conversation.
func randomEvent(r *rand.Rand, i int) string {
	id := fmt.Sprint("c", r.IntN(6))
	category := []string{"chat", "likes", "hr"}[r.IntN(3)]
	room := []string{"hall", "den"}[r.IntN(2)]
	seq := i + 1
	switch r.IntN(10) {
	case 0:
		return event(fmt.Sprint("e", i), "conversation.read", fmt.Sprintf(`{"conversation_id":%q,"user_ids":["ann"],"up_to_seq":%d}`, id, seq-r.IntN(20)+20))
	case 1:
		return event(fmt.Sprint("e", i), "conversation.level_set", fmt.Sprintf(`{"conversation_id":%q,"user_ids":["ann"],"level":%q}`, []string{id, room}[r.IntN(2)], []string{"all", "mentions", "none", "direct_mentions"}[r.IntN(4)]))
	case 2:
		return event(fmt.Sprint("e", i), "conversation.marked_unread", fmt.Sprintf(`{"conversation_id":%q,"user_ids":["ann"]}`, []string{id, room}[r.IntN(2)]))
	case 3:
		return event(fmt.Sprint("e", i), "user.read_all", fmt.Sprintf(`{"user_ids":["ann"],"category":%q}`, category))
	case 4:
		return event(fmt.Sprint("e", i), "conversation.left", fmt.Sprintf(`{"conversation_id":%q,"user_ids":["ann"]}`, id))
	case 5, 6:
		return event(fmt.Sprint("e", i), "room.posted", fmt.Sprintf(`{"conversation_id":%q,"seq":%d,"sender_id":"bob","category":%q,"mentions_all":%t}`, room, seq, category, r.IntN(2) == 0))
	}
	mentioned := ""
	if r.IntN(2) == 0 {
		mentioned = `"ann"`
	}
	return event(fmt.Sprint("e", i), "message.delivered", fmt.Sprintf(`{"conversation_id":%q,"seq":%d,"user_ids":["ann","bob"],"mentioned_user_ids":[%s],"category":%q}`, id, seq, mentioned, category))
}

// conversationsOf reads the conversations of a user with a token, or with the publisher's key if
// token is empty.
func conversationsOf(t *testing.T, p *process, token, user string) map[string]listedConversation {
	t.Helper()
	if token == "" {
		token = publisherKey
	}
	list := map[string]listedConversation{}
	for cursor := ""; ; {
		url := p.url + "/v1/users/" + user + "/conversations?limit=2&cursor=" + cursor
		status, _, answer := requestAs(t, token, http.MethodGet, url, "", "")
		var page struct {
			Conversations []listedConversation `json:"conversations"`
			Cursor        string               `json:"cursor"`
		}
		if err := json.Unmarshal([]byte(answer), &page); err != nil || status != http.StatusOK {
			t.Fatalf("conversations: %d %s", status, answer)
		}
		for _, c := range page.Conversations {
			list[c.ConversationID] = c
		}
		if cursor = page.Cursor; cursor == "" {
			return list
		}
	}
}

func badgeAs(t *testing.T, p *process, token, user string) (badge numbers) {
	t.Helper()
	status, _, answer := requestAs(t, token, http.MethodGet, p.url+"/v1/users/"+user+"/badge", "", "")
	if err := json.Unmarshal([]byte(answer), &badge); err != nil || status != http.StatusOK {
		t.Fatalf("badge: %d %s", status, answer)
	}
	return badge
}

// socketFrames opens a WebSocket and sends its frames to a channel.
func socketFrames(t *testing.T, p *process, token string, frames chan<- string) {
	t.Helper()
	c, err := dial(t, p.url, token, http.DefaultClient)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.write(`{"t":"hello"}`); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(frames)
		for {
			_, b, err := c.conn.Read(t.Context())
			if err != nil {
				return
			}
			frames <- string(b)
		}
	}()
}

// streamFrames opens a stream of server-sent events and sends its frames to a channel.
func streamFrames(t *testing.T, p *process, token string, frames chan<- string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+"/v1/sse", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() }) // it only ends the stream
	go func() {
		defer close(frames)
		for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				frames <- text
			}
		}
	}()
}
