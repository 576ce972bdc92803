package demo

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/pubsub"
)

func TestPostRecall(t *testing.T) {
	f := newFixture(t)
	f.mustSend(t, "lunch", "ada", "@Ben lunch?")
	p := openPage(t, serve(t, f))
	p.nextMessage(t)
	const notThere = `{"detail":"there is no such message of this sender, or it was recalled before"}`
	for _, test := range []struct {
		name, body string
		status     int
		want       string
	}{
		{"another's message", `{"conversation_id":"lunch","sender_id":"ben","seq":1}`, 400, notThere},
		{"a message that never was", `{"conversation_id":"lunch","sender_id":"ada","seq":2}`, 400, notThere},
		{"an unknown conversation", `{"conversation_id":"dinner","sender_id":"ada","seq":1}`, 400, `{"detail":"there is no such conversation"}`},
		{"no JSON", `hello`, 400, `{"detail":"the recall cannot be read"}`},
		{"one's own", `{"conversation_id":"lunch","sender_id":"ada","seq":1}`, 200, `{}`},
		{"the same again", `{"conversation_id":"lunch","sender_id":"ada","seq":1}`, 400, notThere},
	} {
		if w := ask(t, f, http.MethodPost, "/demo/recalls", test.body); w.Code != test.status || w.Body.String() != test.want+"\n" {
			t.Errorf("%s: %d %s, want %d %s", test.name, w.Code, w.Body, test.status, test.want)
		}
	}
	if m := p.nextMessage(t); !m.Recalled || m.Seq != 1 || m.Text != "" {
		t.Errorf("the page gets %+v, want message 1 without its text", m)
	}
	e := f.published(t)["lunch/1/recalled"]
	if e.Type != events.MessageRecalled || e.Data.Seq != 1 || strings.Join(e.Data.UserIDs, " ") != "ben chloe" {
		t.Errorf("published is %+v, want a recall for who got the message", e)
	}
	again, err := f.store.recent(t.Context())
	if err != nil || len(again) != 1 || !again[0].Recalled || again[0].Text != "" {
		t.Errorf("stored are %+v, %v", again, err)
	}
}

func TestPostLevel(t *testing.T) {
	f := newFixture(t)
	before := len(f.published(t))
	for _, test := range []struct {
		name, body string
		status     int
		want       string
	}{
		{"a user who is not a member", `{"conversation_id":"lunch","user_id":"dev","level":"none"}`, 400, `{"detail":"the user is not in this conversation"}`},
		{"an unknown level", `{"conversation_id":"lunch","user_id":"ada","level":"loud"}`, 400, `{"detail":"a level is all, mentions, direct_mentions or none"}`},
		{"an unknown conversation", `{"conversation_id":"dinner","user_id":"ada","level":"none"}`, 400, `{"detail":"there is no such conversation"}`},
		{"nothing", ``, 400, `{"detail":"the level cannot be read"}`},
		{"mute", `{"conversation_id":"lunch","user_id":"ada","level":"none"}`, 200, `{}`},
		{"and back", `{"conversation_id":"lunch","user_id":"ada","level":"all"}`, 200, `{}`},
		{"mute again", `{"conversation_id":"lunch","user_id":"ada","level":"none"}`, 200, `{}`},
	} {
		if w := ask(t, f, http.MethodPost, "/demo/levels", test.body); w.Code != test.status || w.Body.String() != test.want+"\n" {
			t.Errorf("%s: %d %s, want %d %s", test.name, w.Code, w.Body, test.status, test.want)
		}
	}
	if all := f.published(t); len(all) != before+3 {
		t.Errorf("%d events, want one for each of the three that were accepted", len(all)-before)
	}
}

// updates receives a bus's updates of one user.
type updates chan pubsub.Update

func (u updates) HandleUpdate(up *pubsub.Update) { u <- *up }
func (updates) HandleRoom(*pubsub.RoomUpdate)    {}
func (u updates) HandleGap()                     {}

func TestLinkThatIsCutLosesUpdates(t *testing.T) {
	f := newFixture(t)
	got := make(updates, 10)
	sub, err := f.bus.Subscribe(got)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Close() })
	if err := sub.Join(t.Context(), pubsub.Address{ID: "ada"}); err != nil {
		t.Fatal(err)
	}
	publish := func(version int64) {
		t.Helper()
		if err := f.bus.Publish(t.Context(), []pubsub.Update{{Badge: pubsub.Badge{UserID: "ada", Version: version}}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	state := func(method, body string) (l linkState) {
		t.Helper()
		w := ask(t, f, method, "/demo/bus", body)
		if err := json.Unmarshal(w.Body.Bytes(), &l); err != nil || w.Code != http.StatusOK {
			t.Fatalf("answer is %d %s", w.Code, w.Body)
		}
		return l
	}
	if l := state(http.MethodGet, ""); l != (linkState{}) {
		t.Errorf("at first the link is %+v, want whole", l)
	}
	p := openPage(t, serve(t, f))
	if l := state(http.MethodPost, `{"cut_ms":60000}`); l.CutMS < 30_000 || l.CutMS > 60_000 {
		t.Errorf("the link is %+v, want cut for a minute", l)
	}
	if data := p.next("link"); !strings.Contains(data, `"cut_ms":`) {
		t.Errorf("the page gets %q", data)
	}
	publish(1)
	if l := state(http.MethodPost, `{"cut_ms":0}`); l != (linkState{Lost: 1}) {
		t.Errorf("the link is %+v, want whole again, with one update lost", l)
	}
	publish(2)
	if up := <-got; up.Version != 2 {
		t.Errorf("version %d arrived, want 2: the link was cut for 1", up.Version)
	}
	for _, bad := range []string{`{"cut_ms":-1}`, `{"cut_ms":60001}`, `{"cut_ms":9223372036854775807}`, `cut`} {
		if w := ask(t, f, http.MethodPost, "/demo/bus", bad); w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", bad, w.Code, w.Body)
		}
	}
	if f.bus.remaining() > time.Millisecond {
		t.Error("a refused request has cut the link")
	}
}
