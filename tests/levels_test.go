package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/badged/badged/internal/devtest/pgtest"
)

// onTwoShards runs a test on the usual stack, and on a stack of two shards.
func onTwoShards(t *testing.T, story func(t *testing.T, database string)) {
	t.Parallel()
	for name, database := range map[string]func(*testing.T) string{
		"the usual stack": newDatabase,
		"two shards":      func(t *testing.T) string { t.Helper(); return stack(pgtest.NewDBs(t, sharded(2))) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			story(t, database(t))
		})
	}
}

// levelUntil sets a level of users until a time.
func levelUntil(conversation, level string, until time.Time, users ...string) string {
	return event(fmt.Sprint(conversation, level, until.UnixNano()), "conversation.level_set",
		fmt.Sprintf(`{"conversation_id":%q,"user_ids":["%s"],"level":%q,"until":%q}`, conversation, strings.Join(users, `","`), level, until.UTC().Format(time.RFC3339Nano)))
}

// usersApart returns a user of the first half of the partitions and one of the second.
func usersApart() (users []string) { return append(usersIn(0, 1), usersIn(partitions/2, 1)...) }

// A conversation and a room are muted until a time. Until then they add nothing to the total, and
// afterwards everything, without another event of a publisher. Apps see both states.
func TestMutedUntilATime(t *testing.T) {
	onTwoShards(t, func(t *testing.T, database string) {
		p, users := serve(t, database), usersApart()
		publish(t, p, inRoom("hall", "join", "room.joined", fmt.Sprintf(`,"user_ids":[%q,%q]`, users[0], users[1])))
		until := time.Now().Add(2 * time.Second)
		for _, conversation := range []string{"team", "hall"} {
			publish(t, p, levelUntil(conversation, "none", until, users...))
		}
		publish(t, p, delivered("team", 1, fmt.Sprintf("%q,%q", users[0], users[1])))
		position := publish(t, p, postTo("hall", 1, ""))
		for _, user := range users {
			frames := make(chan string, 100)
			socketFrames(t, p, token(t, user), frames)
			total(t, p, user, position) // waits until the events are folded; the number may have changed already
			for seen := int64(0); seen != 2; {
				select {
				case text, ok := <-frames:
					var n numbers
					if err := json.Unmarshal([]byte(text), &n); !ok || err != nil {
						t.Fatalf("%q: %v", text, err)
					}
					seen = max(seen, n.Total)
				case <-time.After(patience):
					t.Fatal("the levels do not end")
				}
			}
		}
		must(t, "verify", "--database-url="+database)
	})
}

// Apps and operators see when a level ends, also for the level default: in snapshots, lists and
// explanations.
func TestLevelsSayWhenTheyEnd(t *testing.T) {
	onTwoShards(t, func(t *testing.T, database string) {
		p := serve(t, database, "--admin-keys=ops="+adminKey)
		until := time.Date(2100, 1, 31, 23, 59, 59, 0, time.UTC)
		var position string
		for _, user := range usersApart() {
			publish(t, p, inRoom("hall", "join "+user, "room.joined", fmt.Sprintf(`,"user_ids":[%q],"level":"none"`, user)))
			for _, conversation := range []string{"muted", "heard"} {
				publish(t, p, event(conversation+user, "message.delivered", fmt.Sprintf(`{"conversation_id":%q,"user_ids":[%q],"seq":1}`, conversation, user)))
			}
			publish(t, p, event("quiet"+user, "conversation.level_set", fmt.Sprintf(`{"conversation_id":"heard","user_ids":[%q],"level":"none"}`, user)))
			publish(t, p, event("read"+user, "conversation.read", fmt.Sprintf(`{"conversation_id":"heard","user_ids":[%q],"up_to_seq":1}`, user)))
			publish(t, p, levelUntil("muted", "none", until, user))
			publish(t, p, levelUntil("heard", "all", until, user))
			position = publish(t, p, levelUntil("hall", "all", until, user))
			total(t, p, user, position)
		}
		want := []string{"hall all 2100-01-31T23:59:59Z", "heard all 2100-01-31T23:59:59Z", "muted none 2100-01-31T23:59:59Z"}
		type listed struct {
			ConversationID string `json:"conversation_id"`
			Level          string `json:"level"`
			LevelUntil     string `json:"level_until"`
		}
		same := func(what, text string) {
			t.Helper()
			var has struct {
				Conversations []listed `json:"conversations"`
			}
			if err := json.Unmarshal([]byte(text), &has); err != nil {
				t.Fatalf("%s: %q: %v", what, text, err)
			}
			var levels []string
			for _, c := range has.Conversations {
				levels = append(levels, c.ConversationID+" "+c.Level+" "+c.LevelUntil)
			}
			if slices.Sort(levels); !slices.Equal(levels, want) {
				t.Errorf("%s has the levels %q, want %q", what, levels, want)
			}
		}
		for _, user := range usersApart() {
			for _, jwt := range []string{token(t, user), restricted(t, user, "chat")} {
				frames := make(chan string, 100)
				socketFrames(t, p, jwt, frames)
				same("the snapshot", <-frames)
				_, _, answer := requestAs(t, jwt, http.MethodGet, p.url+"/v1/users/"+user+"/conversations", "", "")
				same("the list", answer)
			}
			shown := must(t, "user", "show", "--database-url="+database, user)
			for _, c := range want {
				id, _, _ := strings.Cut(c, " ")
				if level := strings.Fields(c)[1] + " until 2100-01-31T23:59:59.000Z"; !strings.Contains(shown, level) || !strings.Contains(shown, id) {
					t.Errorf("user show has no %q of %s:\n%s", level, id, shown)
				}
			}
			explained := must(t, "user", "explain", "--conversation=heard", "--database-url="+database, user)
			if !strings.Contains(explained, "heard adds 0: 0 unread, 0 mentions; level all until 2100-01-31T23:59:59.000Z, category chat\n") {
				t.Errorf("user explain says\n%s", explained)
			}
			_, answer := asAdmin(t, p, http.MethodGet, "v1/users/"+user+"/explain?conversation=heard", "")
			if !strings.Contains(answer, `"level":"all","level_until":"2100-01-31T23:59:59Z"`) {
				t.Errorf("the explanation over HTTP is %s", answer)
			}
		}
		must(t, "verify", "--database-url="+database)
	})
}
