package tests

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/badged/badged/internal/devtest/pgtest"
)

// While a shard is unavailable, every view for operators shows the hints stored for it. If a user
// is erased meanwhile, no hint names the user any more, and the messages are delivered without the
// user once the shard is available again. The tests of the admin page are in
// web/browser/away.test.mjs.
func TestAdminBrowserWithoutAShard(t *testing.T) {
	t.Parallel()
	lost := pgtest.Borrow(t)
	flags := shardFlags([]string{pgtest.NewDB(t, pgtest.Template{}), lost.NewDB(t, pgtest.Template{})})
	must(t, append([]string{"migrate", "up", fmt.Sprint("--partitions=", partitions)}, flags...)...)
	p := launch(t, nil, append([]string{"serve", "--listen=127.0.0.1:0", "--admin-keys=ops=" + adminKey}, flags...)...)
	here, there, ghost := usersIn(0, 1)[0], usersIn(partitions/2, 1)[0], usersIn(1, 1)[0]
	publish(t, p, fmt.Sprintf(`{"specversion":"1.0","id":"join","source":"s","type":"room.joined","data":{"conversation_id":"lobby","user_ids":[%q,%q]}}`, here, there))

	lost.Kill()
	awaitAnswer(t, p, "partitions", `"away":[{"shard":"b"`, 1)
	position := publish(t, p, fmt.Sprintf(`{"specversion":"1.0","id":"post","source":"s","type":"room.posted","data":{"conversation_id":"lobby","seq":1,"sender_id":%q,"mentioned_user_ids":[%q]}}`, ghost, ghost))
	awaitAnswer(t, p, "partitions", `"waiting":[{"for":"b","on":"a","messages":1,`, 1)
	p.awaitAnswer(http.MethodGet, "/metrics", "", http.StatusOK, `badged_shard_hints{shard="b"} 1`)
	if out, _, _ := command(t, append([]string{"lag"}, flags...)...); !strings.Contains(out, "Shard a stores messages for shard b: 1 message to rooms, the oldest for ") {
		t.Errorf("badged lag prints %s", out)
	}
	if out, stderr, code := command(t, append([]string{"user", "erase", ghost}, flags...)...); code == 0 || !strings.Contains(stderr, "shard b") || !strings.Contains(out, "removed the user from 1 message stored for other shards") {
		t.Errorf("badged user erase exits with %d: %s%s", code, out, stderr)
	}

	back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := lost.Restart(t.Context()); err != nil { //nolint:contextcheck // the server outlives the request
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}))
	t.Cleanup(back.Close)
	browse(t, "away.test.mjs", "BADGED_URL="+p.url, "BADGED_ADMIN_KEY="+adminKey, "BADGED_BACK="+back.URL)

	for _, user := range []string{here, there} {
		wantTotal(t, p, user, position, 1)
	}
	if out := must(t, append([]string{"user", "export", ghost}, flags...)...); strings.Contains(out, "event") {
		t.Errorf("badged still holds %s", out)
	}
	must(t, append([]string{"user", "erase", ghost}, flags...)...)
}
