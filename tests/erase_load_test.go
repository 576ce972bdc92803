package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/badged/badged/events"
)

// A user whose id needs escapes in JSON is erased from everything that names users, while
// publishers still name the user. Once they have stopped and the user was erased again, neither a
// dump nor the archive contains the id in any form, and the numbers of all other users are right.
// Not parallel: a range is complete only once all older transactions have ended.
func TestEraseUserUnderLoad(t *testing.T) {
	const (
		mark  = "ghost-4711" // the part of the id that needs no escapes
		ghost = mark + `/<é> "x"`
	)
	inJSON, err := json.Marshal(ghost)
	if err != nil {
		t.Fatal(err)
	}
	quoted := string(inJSON)
	database, dir := newDatabase(t), filepath.Join(t.TempDir(), "archive")
	p := serve(t, database, "--admin-keys=ops="+adminKey, "--reconcile-interval=1s", "--webhooks-allow-private")
	var calls atomic.Int64
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) > 1 { // the first call checks that the endpoint exists
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer hook.Close()
	of := p.url + "/v1/users/" + url.PathEscape(ghost)
	ask := func(key, method, at, body string, want int) string {
		t.Helper()
		status, _, answer := requestAs(t, key, method, at, "application/json", body)
		if status != want {
			t.Fatalf("%s %s: %d %s", method, at, status, answer)
		}
		return answer
	}
	run := func(args ...string) string {
		t.Helper()
		return must(t, append(args, "--database-url="+database)...)
	}

	// Things other than messages that name the user.
	ask(adminKey, http.MethodPut, p.url+"/admin/v1/webhooks/crm", `{"url":"`+hook.URL+`","events":["badge.changed"]}`, http.StatusCreated)
	publish(t, p, joined("hall", quoted+`,"ann"`))
	publish(t, p, event("hall/1", "room.posted", `{"conversation_id":"hall","seq":1,"sender_id":`+quoted+`}`))
	publish(t, p, event("hall/2", "room.posted", `{"conversation_id":"hall","seq":2,"mentioned_user_ids":[`+quoted+`]}`))
	publish(t, p, event("level", "conversation.level_set", `{"conversation_id":"mute","user_ids":[`+quoted+`],"level":"none"}`))
	position := publish(t, p, delivered("old", 1, quoted+`,"ann"`))
	wantTotal(t, p, "ann", position, 3)
	cutLog(t, database)
	must(t, archiving(database, dir)...)
	home := events.PartitionOf(ghost, partitions)
	writeLog(t, database, home, event("bad", "message.teleported", `{"user_ids":[`+quoted+`]}`))
	writeLog(t, database, (home+1)%partitions, delivered("astray", 1, quoted))
	awaitMetric(t, p, "badged_projector_dead_letters_total", 2)
	ask(publisherKey, http.MethodPost, of+"/disconnect", `{"revoke":true}`, http.StatusAccepted)
	ask(adminKey, http.MethodGet, strings.Replace(of, "/v1/", "/admin/v1/", 1)+"/explain", "", http.StatusOK)
	ask(adminKey, http.MethodGet, strings.Replace(of, "/v1/", "/admin/v1/", 1)+"/export", "", http.StatusOK)
	run("user", "show", ghost)
	run("verify", "--user="+ghost)
	run("rebuild", "-q", "--user="+ghost)

	stop := make(chan struct{})
	var publishers sync.WaitGroup
	var last [3]int
	for n := range last {
		publishers.Go(func() {
			for seq := 1; seq <= 200; seq++ {
				select {
				case <-stop:
					return
				default:
				}
				var batch strings.Builder // large enough to be compressed
				for i := range 40 {
					id := fmt.Sprintf("load-%d-%d-%d", n, seq, i)
					fmt.Fprintln(&batch, event(id, "message.delivered",
						fmt.Sprintf(`{"conversation_id":"c%d","seq":%d,"user_ids":[%s,"ann"],"sender_id":"ben","mentioned_user_ids":[%s]}`, n, 40*seq+i, quoted, quoted)))
					fmt.Fprintln(&batch, event("from-"+id, "message.delivered",
						fmt.Sprintf(`{"conversation_id":"d%d","seq":%d,"user_ids":["ann"],"sender_id":%s}`, n, 40*seq+i, quoted)))
				}
				if status, _, answer := request(t, http.MethodPost, p.url+"/v1/events", "application/x-ndjson", batch.String()); status != http.StatusAccepted {
					t.Errorf("publish: %d %s", status, answer)
					return
				}
				last[n] = seq
			}
		})
	}
	before := everywhere(t, database, dir)
	run("user", "erase", ghost, "--archive="+dir)
	run("audit", "verify")
	close(stop)
	publishers.Wait()
	position = publish(t, p, delivered("after", 1, quoted+`,"ann"`))
	want := int64(4)
	for _, batches := range last {
		want += int64(2 * 40 * batches)
	}
	wantTotal(t, p, "ann", position, want)
	if strings.Count(before, mark) < 10 {
		t.Errorf("before, the id was only at %d places", strings.Count(before, mark))
	}

	ask(adminKey, http.MethodDelete, p.url+"/admin/v1/webhooks/crm", "", http.StatusNoContent)
	run("user", "erase", ghost, "--archive="+dir)
	forgets(t, database, dir, mark)
	run("audit", "verify")
	run("verify")
	run("verify", "--archive="+dir)
	wantTotal(t, p, "ann", position, want)
	wantTotal(t, p, url.PathEscape(ghost), position, 0)
}
