package tests

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

// A conversation and a room that are muted until a time add nothing to the total until
// then, and everything afterwards, without another event of a publisher. Apps see both.
func TestMutedUntilATime(t *testing.T) {
	t.Parallel()
	database := newDatabase(t)
	p := serve(t, database)
	publish(t, p, inRoom("hall", "join", "room.joined", `,"user_ids":["ann"]`))
	until := time.Now().Add(2 * time.Second).UTC().Format(time.RFC3339Nano)
	for _, conversation := range []string{"team", "hall"} {
		publish(t, p, event("mute "+conversation, "conversation.level_set",
			fmt.Sprintf(`{"conversation_id":%q,"user_ids":["ann"],"level":"none","until":%q}`, conversation, until)))
	}
	publish(t, p, delivered("team", 1, `"ann"`))
	position := publish(t, p, postTo("hall", 1, ""))
	frames := make(chan string, 100)
	socketFrames(t, p, token(t, "ann"), frames)
	total(t, p, "ann", position) // folded, whatever it is by now
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
	must(t, "verify", "--database-url="+database)
}
