package gateway

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"github.com/badged/badged/gateway/internal/view"
	"github.com/badged/badged/gateway/protocol"
	"github.com/badged/badged/pubsub"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSnapshotThenChanges(t *testing.T) {
	w := newWorld(t, nil)
	w.tables.commit("ann", "c1", 2)
	c, snapshot := w.connect("ann")
	if snapshot.Total != 2 || snapshot.unread("c1") != 2 || snapshot.Version != 1 || snapshot.Epoch != "e1" {
		t.Errorf("snapshot is %s", snapshot.raw)
	}
	if snapshot.PingMS != time.Hour.Milliseconds() || snapshot.ExpiresInMS < (59*time.Minute).Milliseconds() {
		t.Errorf("snapshot has ping_ms %d, expires_in_ms %d", snapshot.PingMS, snapshot.ExpiresInMS)
	}
	w.send("ann", "c2", 5)
	changes := c.hear()
	if changes.T != "changes" || changes.Total != 7 || changes.unread("c2") != 5 || changes.unread("c1") != -1 {
		t.Errorf("changes are %s", changes.raw)
	}
	w.send("bob", "c1", 1) // not sent to ann
	w.send("ann", "c1", 0)
	if f := c.hear(); f.unread("c1") != 0 || f.Total != 5 || f.Version != 3 {
		t.Errorf("then %s", f.raw)
	}
}

func TestThreeWaysToGiveAToken(t *testing.T) {
	w := newWorld(t, nil)
	for name, tc := range map[string]struct {
		header    http.Header
		protocols []string
		hello     string
	}{
		"header":      {http.Header{"Authorization": {"Bearer ann"}}, []string{protocol.Subprotocol}, `{"t":"hello"}`},
		"subprotocol": {nil, []string{protocol.Subprotocol, "bearer.ann"}, `{"t":"hello"}`},
		"hello":       {nil, []string{protocol.Subprotocol}, `{"t":"hello","token":"ann"}`},
	} {
		t.Run(name, func(t *testing.T) {
			c := w.dial(tc.header, tc.protocols...)
			if p := c.conn.Subprotocol(); p != protocol.Subprotocol {
				t.Errorf("the server chose the subprotocol %q", p)
			}
			c.say(tc.hello)
			if f := c.hear(); f.T != "snapshot" {
				t.Errorf("the answer is %s", f.raw)
			}
		})
	}
}

func TestResume(t *testing.T) {
	for name, tc := range map[string]struct {
		hello string
		want  func(f frame) bool
	}{
		"nothing has changed": {`{"t":"hello","epoch":"e1","version":9}`, func(f frame) bool {
			return f.T == "changes" && len(f.Conversations) == 0 && f.Total == 3 && f.Version == 9 && f.PingMS > 0 && f.ExpiresInMS > 0
		}},
		"two have changed": {`{"t":"hello","epoch":"e1","version":7}`, func(f frame) bool {
			return f.T == "changes" && len(f.Conversations) == 2 && f.unread("c2") == 0 && f.unread("c3") == 3
		}},
		"too many have changed": {`{"t":"hello","epoch":"e1","version":1}`, func(f frame) bool {
			return f.T == "snapshot" && len(f.Conversations) == 1
		}},
		"another epoch": {`{"t":"hello","epoch":"e0","version":9}`, func(f frame) bool {
			return f.T == "snapshot" && f.Epoch == "e1" && f.Version == 9
		}},
		"a version that never was": {`{"t":"hello","epoch":"e1","version":99}`, func(f frame) bool {
			return f.T == "snapshot" && f.Version == 9
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			for i := range 7 {
				w.tables.commit("ann", fmt.Sprintf("old%d", i), 0)
			}
			w.tables.commit("ann", "c3", 3)
			w.tables.commit("ann", "c2", 0)
			c := w.dial(http.Header{"Authorization": {"Bearer ann"}}, protocol.Subprotocol)
			c.say(tc.hello)
			if f := c.hear(); !tc.want(f) {
				t.Errorf("the answer is %s", f.raw)
			}
			w.send("ann", "c4", 1)
			if f := c.hear(); f.T != "changes" || f.unread("c4") != 1 {
				t.Errorf("then %s", f.raw)
			}
		})
	}
}

func TestWhatCanBeAnID(t *testing.T) {
	for text, want := range map[string]bool{
		"9a6c36fbe39f": true, "é": true, strings.Repeat("e", maxIDBytes): true,
		"": false, "\x00": false, "e\x001": false, "\u0085": false, "\xff": false, strings.Repeat("e", maxIDBytes+1): false,
	} {
		if got := canBeID(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// A commit after the read for the snapshot, whose update arrives before the
// snapshot is sent, is shown once, after the snapshot.
func TestUpdateBetweenSubscribeAndSnapshot(t *testing.T) {
	w := newWorld(t, nil)
	w.tables.commit("ann", "c1", 1)
	w.tables.beforeReturn = func() { w.send("ann", "c1", 2) }
	c, snapshot := w.connect("ann")
	if snapshot.Version != 1 || snapshot.unread("c1") != 1 {
		t.Errorf("snapshot is %s", snapshot.raw)
	}
	if f := c.hear(); f.T != "changes" || f.Version != 2 || f.unread("c1") != 2 {
		t.Errorf("then %s", f.raw)
	}
	w.send("ann", "c1", 3)
	if f := c.hear(); f.Version != 3 || f.unread("c1") != 3 {
		t.Errorf("the update before was not seen exactly once: %s", f.raw)
	}
}

// After a lost update, the next frame also has the changes of the lost update.
func TestUpdateAfterALostOne(t *testing.T) {
	w := newWorld(t, nil)
	c, _ := w.connect("ann")
	w.bus.setLose(true)
	w.send("ann", "lost", 4)
	w.bus.setLose(false)
	w.send("ann", "c1", 1)
	if f := c.hear(); f.Version != 2 || f.unread("lost") != 4 || f.unread("c1") != 1 || f.Total != 5 {
		t.Errorf("changes are %s", f.raw)
	}
}

func TestNewEpochReachesConnectedClients(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.ReconcileInterval = 20 * time.Millisecond })
	w.tables.commit("ann", "c1", 1)
	c, _ := w.connect("ann")
	w.tables.setEpoch("e2")
	if f := c.hear(); f.T != "snapshot" || f.Epoch != "e2" || f.unread("c1") != 1 {
		t.Errorf("after the rebuild: %s", f.raw)
	}
}

// A scheduled read of the tables that an earlier read made unnecessary does not overtake an
// update in the mailbox.
func TestReadNoLongerNeededIsSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPipedWorld(t, nil)
		ann, _ := w.connect("ann")
		versions := make(chan int64, 10)
		go func() {
			for f, err := ann.listen(); err == nil; f, err = ann.listen() {
				if f.T == "changes" {
					versions <- f.Version
				}
			}
		}()
		synctest.Wait()
		mailbox := w.openSessions()[0].mailbox
		w.tables.setFail(errors.New("away"))
		w.tables.commit("ann", "c1", 1) // and the bus loses it
		mailbox.Repair(view.Holding{Epoch: "e1", Version: 1})
		synctest.Wait() // until the tables are to be read again

		w.tables.setFail(nil)
		ann.say(`{"t":"ping"}`) // causes an earlier read
		synctest.Wait()
		second, third := w.tables.commit("ann", "c1", 2), w.tables.commit("ann", "c1", 3)
		w.tables.mu.Lock()
		w.tables.beforeReturn = func() { mailbox.Offer(&second) }
		w.tables.mu.Unlock()
		time.Sleep(lastSyncBackoff)
		mailbox.Offer(&third)
		synctest.Wait()
		close(versions)
		held := int64(0)
		for v := range versions {
			if v <= held {
				t.Errorf("version %d came after version %d", v, held)
			}
			held = v
		}
		if held != 3 {
			t.Errorf("the client holds version %d, want 3", held)
		}
	})
}

func TestCommands(t *testing.T) {
	w := newWorld(t, nil)
	w.tables.commit("ann", "left", 1)
	w.tables.user("ann").Conversations[0].Left = true
	w.tables.commit("ann", "c1", 7)
	state := w.tables.user("ann")
	state.Conversations = append(state.Conversations, pubsub.Conversation{ConversationID: "empty room", Version: 1})
	c, _ := w.connect("ann")
	for _, tc := range []struct {
		say, answer, done string
	}{
		{`{"t":"read","id":1,"conversation_id":"c1","up_to_seq":5}`, `{"t":"ok","id":1}`, "ann reads c1 up to 5"},
		// The fold caps a read, not the gateway.
		{`{"t":"read","id":"two","conversation_id":"c1","up_to_seq":9223372036854775807}`, `{"t":"ok","id":"two"}`, "ann reads c1 up to 9223372036854775807"},
		{`{"t":"read_all","id":3}`, `{"t":"ok","id":3}`, `ann reads all of ""`},
		{`{"t":"read_all","id":4,"category":"likes"}`, `{"t":"ok","id":4}`, `ann reads all of "likes"`},
		{`{"t":"mark_unread","id":5,"conversation_id":"c1"}`, `{"t":"ok","id":5}`, "ann marks c1"},
		{`{"t":"read","id":6,"conversation_id":"nowhere","up_to_seq":1}`, `{"t":"ok","id":6}`, "ann reads nowhere up to 1"},
		{`{"t":"read","id":7,"conversation_id":"c1"}`, `{"t":"error","id":7,"code":"invalid","message":"read needs the field up_to_seq"}`, ""},
		{`{"t":"mark_unread","id":8,"conversation_id":"made up"}`, `{"t":"error","id":8,"code":"not_found","message":"no message of this conversation was delivered to you"}`, ""},
		{`{"t":"mark_unread","id":12,"conversation_id":"empty room"}`, `{"t":"ok","id":12}`, "ann marks empty room"},
		{`{"t":"mark_unread","id":13,"conversation_id":"c1","seqs":[3,5]}`, `{"t":"ok","id":13}`, "ann marks [3 5] of c1"},
		{`{"t":"mark_unread","id":14,"conversation_id":"c1","seqs":[]}`, `{"t":"error","id":14,"code":"invalid","message":"seqs must name at least one message"}`, ""},
		{`{"t":"mark_unread","id":15,"conversation_id":"empty room","seqs":[3]}`, `{"t":"error","id":15,"code":"invalid","message":"seqs must be absent in a room: give from_seq"}`, ""},
		{`{"t":"mark_unread","id":16,"conversation_id":"empty room","from_seq":3}`, `{"t":"ok","id":16}`, "ann marks empty room from 3"},
		{`{"t":"mark_unread","id":17,"conversation_id":"empty room","from_seq":0}`, `{"t":"error","id":17,"code":"invalid","message":"from_seq must be at least 1"}`, ""},
		{`{"t":"mark_unread","id":18,"conversation_id":"c1","from_seq":3}`, `{"t":"error","id":18,"code":"invalid","message":"from_seq works only in rooms that you have joined; give seqs instead"}`, ""},
		{`{"t":"mark_unread","id":19,"conversation_id":"empty room","from_seq":3,"seqs":[4]}`, `{"t":"error","id":19,"code":"invalid","message":"give seqs or from_seq, not both"}`, ""},
		{`{"t":"mark_unread","id":11,"conversation_id":"left"}`, `{"t":"error","id":11,"code":"not_found","message":"you have left this conversation"}`, ""},
		{`{"t":"read_all","id":10,"category":"bad"}`, `{"t":"error","id":10,"code":"invalid","message":"category must be good"}`, ""},
		// A UUID in any spelling is the command's idempotency key; other ids
		// are not.
		{`{"t":"read","id":"0B7D5A4E-1f3c-4c7e-9a52-6f6d1f3f7c10","conversation_id":"c1","up_to_seq":5}`, `{"t":"ok","id":"0B7D5A4E-1f3c-4c7e-9a52-6f6d1f3f7c10"}`, "ann reads c1 up to 5 as 0b7d5a4e-1f3c-4c7e-9a52-6f6d1f3f7c10"},
		{`{"t":"read_all","id":"0b7d5a4e-1f3c-4c7e-9a52-6f6d1f3f7c10"}`, `{"t":"ok","id":"0b7d5a4e-1f3c-4c7e-9a52-6f6d1f3f7c10"}`, `ann reads all of "" as 0b7d5a4e-1f3c-4c7e-9a52-6f6d1f3f7c10`},
		{`{"t":"mark_unread","id":"0b7d5a4e-1f3c-4c7e-9a52-6f6d1f3f7c10","conversation_id":"c1"}`, `{"t":"ok","id":"0b7d5a4e-1f3c-4c7e-9a52-6f6d1f3f7c10"}`, "ann marks c1 as 0b7d5a4e-1f3c-4c7e-9a52-6f6d1f3f7c10"},
		{`{"t":"mark_unread","id":"0b7d5a4e1f3c4c7e9a526f6d1f3f7c10","conversation_id":"c1"}`, `{"t":"ok","id":"0b7d5a4e1f3c4c7e9a526f6d1f3f7c10"}`, "ann marks c1"},
		{`{"t":"dance","id":9}`, `{"t":"error","id":9,"code":"invalid","message":"unknown type of frame"}`, ""},
		{`{"t":"ping","from":"the future"}`, `{"t":"pong"}`, ""},
	} {
		w.log.done = nil
		c.say(tc.say)
		if f := c.hear(); f.raw != tc.answer {
			t.Errorf("%s\nis answered  %s\nwant         %s", tc.say, f.raw, tc.answer)
		}
		if got := strings.Join(w.log.done, ", "); got != tc.done {
			t.Errorf("%s\ndid %q, want %q", tc.say, got, tc.done)
		}
	}
}

func TestCommandThatCannotBeSaved(t *testing.T) {
	w := newWorld(t, nil)
	w.log.fail = errors.New("the database is away")
	c, _ := w.connect("ann")
	c.say(`{"t":"read_all","id":1}`)
	if f := c.hear(); f.T != "error" || f.Code != "unavailable" || f.RetryMS < 1000 || strings.Contains(f.raw, "database") {
		t.Errorf("the answer is %s", f.raw)
	}
}

// A mark waits for the tables, because the log may already have the event that
// creates or returns the conversation.
func TestMarkWaitsForTheTables(t *testing.T) {
	for name, left := range map[string]bool{"not there yet": false, "left before": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.tables.commit("ann", "other", 1)
			if left {
				w.tables.commit("ann", "c1", 1)
				w.tables.user("ann").Conversations[0].Left = true
			}
			w.tables.behind = 3
			w.tables.catchUp = func(s *pubsub.Snapshot) {
				s.Conversations = []pubsub.Conversation{{ConversationID: "c1", LastSeq: 2, Version: s.Version + 1}}
			}
			c, _ := w.connect("ann")
			c.say(`{"t":"mark_unread","id":1,"conversation_id":"c1"}`)
			if f := c.hear(); f.raw != `{"t":"ok","id":1}` {
				t.Errorf("the answer is %s", f.raw)
			}
			if got := strings.Join(w.log.recorded(), ", "); got != "ann marks c1" {
				t.Errorf("did %q", got)
			}
		})
	}
}

// If the tables do not catch up in time, the answer is unavailable instead of
// not_found.
func TestMarkOfAConversationNotYetFolded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPipedWorld(t, nil)
		w.tables.behind = math.MaxInt
		c, _ := w.connect("ann")
		c.say(`{"t":"mark_unread","id":1,"conversation_id":"c1"}`)
		if f := c.hear(); f.T != "error" || f.Code != "unavailable" || f.RetryMS < 1000 {
			t.Errorf("the answer is %s", f.raw)
		}
		if did := w.log.recorded(); len(did) > 0 {
			t.Errorf("did %q", did)
		}
	})
}

func TestRefusals(t *testing.T) {
	ann := http.Header{"Authorization": {"Bearer ann"}}
	text := func(s string) func(c *client) { return func(c *client) { c.say(s) } }
	for name, tc := range map[string]struct {
		header    http.Header
		protocols []string
		do        func(c *client)
		code      int
		reason    string
	}{
		"bad token in the header":      {http.Header{"Authorization": {"Bearer bad"}}, []string{protocol.Subprotocol}, nil, 4001, "bad token: its signature is wrong"},
		"bad token in the subprotocol": {nil, []string{protocol.Subprotocol, "bearer.bad"}, nil, 4001, "bad token: its signature is wrong"},
		"bad token in the hello":       {nil, []string{protocol.Subprotocol}, text(`{"t":"hello","token":"bad"}`), 4001, "bad token: its signature is wrong"},
		"no token":                     {nil, []string{protocol.Subprotocol}, text(`{"t":"hello"}`), 4001, "no token given"},
		"no subprotocol":               {ann, nil, nil, 4004, "offer the subprotocol badge.v1"},
		"no hello":                     {ann, []string{protocol.Subprotocol}, text(`{"t":"ping"}`), 4002, "the first frame must be a hello"},
		"no hello in time":             {ann, []string{protocol.Subprotocol}, nil, 4002, "no hello in time"},
		"not JSON":                     {ann, []string{protocol.Subprotocol}, text(`hello`), 4002, "frame is not a JSON object"},
		"wrong type of field":          {ann, []string{protocol.Subprotocol}, text(`{"t":"hello","version":"9"}`), 4002, "field version must not be a JSON string"},
		"a second hello":               {ann, []string{protocol.Subprotocol}, func(c *client) { c.say(`{"t":"hello"}`); c.say(`{"t":"hello"}`) }, 4002, "hello was sent twice"},
		"another user's token":         {ann, []string{protocol.Subprotocol}, func(c *client) { c.say(`{"t":"hello"}`); c.say(`{"t":"auth","token":"bob"}`) }, 4003, "the token is another user's"},
		"binary": {ann, []string{protocol.Subprotocol}, func(c *client) {
			_ = c.conn.Write(c.t.Context(), websocket.MessageBinary, []byte(`{"t":"hello"}`))
		}, 4002, "frames must be text"},
		"not UTF-8":             {ann, []string{protocol.Subprotocol}, text("{\"t\":\"\xff\"}"), 1007, "text must be UTF-8"},
		"too large":             {ann, []string{protocol.Subprotocol}, text(`{"t":"hello","x":"` + strings.Repeat("x", protocol.MaxTokenFrameBytes) + `"}`), 1009, "a frame may have at most 4096 bytes, a hello or auth at most 20480"},
		"odd id":                {ann, []string{protocol.Subprotocol}, text(`{"t":"hello","id":{}}`), 4002, "id must be a number or a string"},
		"no type":               {ann, []string{protocol.Subprotocol}, text(`{}`), 4002, "frame has no type t"},
		"expired when it comes": {nil, []string{protocol.Subprotocol, "bearer.old"}, nil, 4202, "the token has expired"},
		"expired since":         {http.Header{"Authorization": {"Bearer ann/10ms"}}, []string{protocol.Subprotocol}, text(`{"t":"hello"}`), 4202, "the token has expired"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(c *Config) {
				if name == "no hello in time" {
					c.HelloTimeout = 10 * time.Millisecond
				}
			})
			c := w.dial(tc.header, tc.protocols...)
			if tc.do != nil {
				tc.do(c)
			}
			code, reason, bye := c.farewell()
			if code != tc.code || tc.reason != "" && reason != tc.reason {
				t.Errorf("closed with %d %q, want %d %q", code, reason, tc.code, tc.reason)
			}
			if code >= 4000 && (bye.Code != float64(code) || !strings.Contains(bye.raw, `"reason"`)) {
				t.Errorf("no bye came before, but %s", bye.raw)
			}
		})
	}
}

func TestPlainRequestIsRefusedWithAHint(t *testing.T) {
	w := newWorld(t, nil)
	if res := w.request(http.MethodGet, "", "", ""); res.status != http.StatusUpgradeRequired || res.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("status %d, %v", res.status, res.header)
	}
}

func TestFreshTokenKeepsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPipedWorld(t, nil)
		c := w.greet("ann/1m")
		c.hear()
		c.say(`{"t":"auth","id":1,"token":"ann/1h"}`)
		if f := c.hear(); f.T != "ok" || f.ExpiresInMS < (59*time.Minute).Milliseconds() {
			t.Errorf("the fresh token is answered with %s", f.raw)
		}
		time.Sleep(2 * time.Minute) // of the bubble: past the end of the first token
		c.say(`{"t":"read_all","id":2}`)
		if f := c.hear(); f.T != "ok" || string(f.ID) != "2" {
			t.Errorf("after the first token has ended: %s", f.raw)
		}
	})
}

// A fresh token replaces the old one at once, even if it expires sooner.
func TestFreshTokenThatEndsSooner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPipedWorld(t, nil)
		c, _ := w.connect("ann")
		c.say(`{"t":"auth","id":1,"token":"ann/2s"}`)
		if f := c.hear(); f.T != "ok" || f.ExpiresInMS < 1 || f.ExpiresInMS > 2000 {
			t.Errorf("the fresh token is answered with %s", f.raw)
		}
		began := time.Now()
		if code, _, _ := c.farewell(); code != protocol.CloseTokenExpired {
			t.Errorf("closed with %d", code)
		}
		if took := time.Since(began); took > 2*time.Second { // of the bubble
			t.Errorf("a token for 2s lasted for %v", took)
		}
	})
}

// After its token has expired a session executes no command, even while its
// goodbye waits for a slow client.
func TestFrameAfterTheTokenHasEnded(t *testing.T) {
	w := newWorld(t, nil)
	for _, f := range []protocol.ClientFrame{{T: protocol.FrameReadAll}, {T: protocol.FramePing}, {T: protocol.FrameAuth, Token: "ann"}} {
		s := newSession(w.gateway)
		s.userID, s.identity = "ann", Identity{UserID: "ann", ExpiresAt: time.Now().Add(-time.Millisecond)}
		if ending := s.handle(t.Context(), f); ending == nil || ending.code != protocol.CloseTokenExpired {
			t.Errorf("%s: %+v", f.T, ending)
		}
	}
}

func TestClientThatAnswersPingsStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPipedWorld(t, func(c *Config) { c.PingInterval = time.Second })
		c, _ := w.connect("ann")
		for range 10 { // the library answers protocol pings while it reads
			if f := c.hear(); f.T != "ping" {
				t.Fatalf("heard %s", f.raw)
			}
		}
	})
}

// Answers that a client does not read are bounded, and the client is told that it sends too much.
func TestUnreadAnswersCloseTheConnection(t *testing.T) {
	for _, typ := range []string{protocol.FramePing, "dance"} {
		t.Run(typ, func(t *testing.T) {
			w := newWorld(t, func(c *Config) { c.Limits.Commands = 0.001 })
			s := newSession(w.gateway)
			s.userID, s.identity.ExpiresAt = "ann", time.Now().Add(time.Hour)
			for i := range view.MaxReplies {
				if refusal := s.handle(t.Context(), protocol.ClientFrame{T: typ}); refusal != nil {
					t.Fatalf("answer %d ends the session: %+v", i, refusal)
				}
			}
			if refusal := s.handle(t.Context(), protocol.ClientFrame{T: typ}); refusal == nil || refusal.code != protocol.CloseRateLimited {
				t.Errorf("one more: %+v", refusal)
			}
		})
	}
}

// While the tables cannot be read, new clients are told to reconnect, and open connections stay
// open and catch up afterwards.
func TestTablesAway(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.ReconcileInterval = 20 * time.Millisecond })
	here, _ := w.connect("ann")
	w.tables.setFail(errors.New("the database is away"))
	newcomer := w.greet("bob")
	if code, _, bye := newcomer.farewell(); code != protocol.CloseResync || bye.ReconnectMS < 1000 {
		t.Errorf("the newcomer is closed with %d after %s", code, bye.raw)
	}
	w.bus.setLose(true)
	w.send("ann", "c1", 1)
	w.tables.setFail(nil)
	if f := here.hear(); f.unread("c1") != 1 {
		t.Errorf("afterwards: %s", f.raw)
	}
}

// Clients get their badge even if the bus does not acknowledge.
func TestBusAway(t *testing.T) {
	w := newWorld(t, func(c *Config) {
		c.Bus = deafBus{c.Bus}
		c.JoinTimeout = 20 * time.Millisecond
		c.ReconcileInterval = 20 * time.Millisecond
	})
	c, _ := w.connect("ann")
	w.send("ann", "c1", 1)
	if f := c.hear(); f.unread("c1") != 1 {
		t.Errorf("heard %s", f.raw)
	}
}

// deafBus never acknowledges a join and delivers nothing.
type deafBus struct{ pubsub.Bus }

func (b deafBus) Subscribe(pubsub.Handler) (pubsub.Subscription, error) { return deaf{}, nil }

type deaf struct{}

func (deaf) Join(ctx context.Context, _ ...pubsub.Address) error {
	<-ctx.Done()
	return ctx.Err()
}
func (deaf) Leave(context.Context, ...pubsub.Address) error { return nil }
func (deaf) Close() error                                   { return nil }
