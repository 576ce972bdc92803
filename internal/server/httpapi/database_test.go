package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/schematest"
	"github.com/badged/badged/internal/server/httpapi"
	"github.com/badged/badged/projector"
	"github.com/badged/badged/pubsub"
)

// partitions of the test databases: few, so that users share some.
const partitions = 2

func migrated() pgtest.Template {
	return schematest.Migrated(partitions)
}

func openPool(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// readerOf returns a reader of a database by itself.
func readerOf(t *testing.T, pool *pgxpool.Pool) *cluster.Reader {
	t.Helper()
	dbs, err := cluster.Open(t.Context(), cluster.Config{Databases: []cluster.Candidate{{Pool: pool}}})
	if err != nil {
		t.Fatal(err)
	}
	return cluster.NewReader(dbs)
}

// asBadged appends with the names of keys, as the server does.
type asBadged struct{ *events.Log }

func (a asBadged) Append(ctx context.Context, evs ...events.Event) (events.Receipt, error) {
	return a.AppendOwn(ctx, evs...)
}

// openAPI returns an API on a database.
func openAPI(t *testing.T, pool *pgxpool.Pool) (*httpapi.API, *events.Log) {
	t.Helper()
	log, err := events.Open(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	return newAPI(t, asBadged{log}, readerOf(t, pool), slog.New(slog.DiscardHandler)), log
}

// fold runs a projector until the test ends.
func fold(t *testing.T, pool *pgxpool.Pool, log *events.Log) {
	t.Helper()
	bus := pubsub.NewMemory()
	p, err := projector.New(projector.Config{Pool: pool, Log: log, Bus: bus})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
		if err := bus.Close(); err != nil {
			t.Error(err)
		}
	})
}

// message is an event that delivers seq of conversation to ada and ben.
func message(conversationID string, seq int) string {
	return fmt.Sprintf(`{"specversion":"1.0","id":"%s/%d","source":"test","type":"message.delivered",`+
		`"data":{"conversation_id":%q,"seq":%[2]d,"user_ids":["ada","ben"],"mentioned_user_ids":["ben"]}}`, conversationID, seq, conversationID)
}

// mustPublish publishes and returns the position.
func mustPublish(t *testing.T, api http.Handler, contentType, body string) string {
	t.Helper()
	a := post(t, api, "/v1/events", contentType, body)
	if a.status != http.StatusAccepted {
		t.Fatalf("publish: %d %s", a.status, a.body)
	}
	return a.header.Get(httpapi.PositionHeader)
}

func mustDecode[T any](t *testing.T, a answer) T {
	t.Helper()
	var v T
	if a.status != http.StatusOK {
		t.Fatalf("answer is %d %s", a.status, a.body)
	}
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	return v
}

func TestPublishedEventsAreRead(t *testing.T) {
	pool := openPool(t, pgtest.NewDB(t, migrated()))
	api, log := openAPI(t, pool)

	// Before the events are folded the badge can be read, but lacks them.
	position := mustPublish(t, api, single, message("lunch", 1))
	if a := get(t, api, "/v1/users/ada/badge?timeout=0s&at_least="+position); a.status != http.StatusGatewayTimeout {
		t.Errorf("before folding: %d %s, want 504", a.status, a.body)
	}
	if b := mustDecode[pubsub.Badge](t, get(t, api, "/v1/users/ada/badge")); b.Total != 0 || b.Version != 0 || b.Epoch == "" || b.Categories == nil {
		t.Errorf("a user without folded events has %+v", b)
	}

	fold(t, pool, log)
	mustPublish(t, api, batch, "["+message("lunch", 2)+","+message("lunch", 2)+","+message("crew", 1)+"]") // one comes twice
	position = mustPublish(t, api, ndjson, message("crew", 2)+"\n"+message("lunch", 1)+"\n")               // one came before
	ada := mustDecode[pubsub.Badge](t, get(t, api, "/v1/users/ada/badge?timeout=30s&at_least="+position))
	if ada.Total != 4 || ada.Mentions != 0 || ada.Categories["chat"].Total != 4 {
		t.Errorf("ada has %+v, want 4 unread and no mentions", ada)
	}

	query := mustDecode[struct{ Badges []pubsub.Badge }](t, post(t, api, "/v1/badges/query", plain,
		`{"user_ids":["dan","ben","ada"],"at_least":"`+position+`","timeout":"30s"}`))
	if len(query.Badges) != 3 || query.Badges[0].Total != 0 || query.Badges[1].Mentions != 4 {
		t.Fatalf("badges are %+v", query.Badges)
	}
	if diff := cmp.Diff(ada, query.Badges[2]); diff != "" {
		t.Errorf("the query answers otherwise (-one +many):\n%s", diff)
	}

	type listing struct {
		Conversations []pubsub.Conversation
		Cursor        string
	}
	first := mustDecode[listing](t, get(t, api, "/v1/users/ada/conversations?limit=1&unread=true"))
	second := mustDecode[listing](t, get(t, api, "/v1/users/ada/conversations?limit=1&unread=true&cursor="+first.Cursor))
	got := append(first.Conversations, second.Conversations...)
	if len(got) != 2 || got[0].ConversationID != "crew" || got[1].ConversationID != "lunch" || got[1].Unread != 2 || got[1].LastSeq != 2 {
		t.Errorf("conversations are %+v, want crew before lunch, 2 unread each", got)
	}
	if first.Cursor == "" || second.Cursor != "" {
		t.Errorf("cursors are %q and %q, want one page more and no other", first.Cursor, second.Cursor)
	}
}

func TestPublishIsAllOrNothing(t *testing.T) {
	pool := openPool(t, pgtest.NewDB(t, migrated()))
	api, _ := openAPI(t, pool)
	a := post(t, api, "/v1/events", ndjson, message("lunch", 1)+"\n"+message("lunch", 0)+"\n"+message("lunch", 2))
	if got, want := a.story(t), "400 some events are invalid; nothing was stored\nevent 1 data.seq: must be at least 1, is 0"; got != want {
		t.Errorf("answer is %s, want %s", got, want)
	}
	if n := logLength(t, pool); n != 0 {
		t.Errorf("the log holds %d rows of a batch that was refused", n)
	}
	mustPublish(t, api, ndjson, message("lunch", 1)+"\n"+message("lunch", 2))
	if n := logLength(t, pool); n == 0 {
		t.Error("the log holds nothing of a batch that was accepted")
	}
}

// logLength returns the number of rows in the log.
func logLength(t *testing.T, pool *pgxpool.Pool) int {
	t.Helper()
	total := 0
	for p := range partitions {
		var n int
		if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM badged."+events.Topic(p)).Scan(&n); err != nil {
			t.Fatal(err)
		}
		total += n
	}
	return total
}

func TestPostgresThatGoesAwayAndComesBack(t *testing.T) {
	server := pgtest.NewServer(t)
	api, _ := openAPI(t, openPool(t, server.NewDB(t, migrated())))
	server.Kill()
	for name, a := range map[string]answer{
		"publish":       post(t, api, "/v1/events", single, message("lunch", 1)),
		"badge":         get(t, api, "/v1/users/ada/badge"),
		"await":         get(t, api, "/v1/users/ada/badge?at_least=1"),
		"conversations": get(t, api, "/v1/users/ada/conversations"),
		"query":         post(t, api, "/v1/badges/query", plain, `{"user_ids":["ada"]}`),
	} {
		if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %s, want 503 with Retry-After", name, a.status, a.body)
		}
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustPublish(t, api, single, message("lunch", 1))
}
