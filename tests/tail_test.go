package tests

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/privateredis"
	"github.com/badged/badged/internal/devtest/snippets"
)

// tailKills is how often TestTailOverKills kills the tail, the broker or Postgres.
var tailKills = flag.Int("tail-kills", 3, "how often the test of the tail kills a process")

// tailedEvent is a CloudEvent that a tail has published.
type tailedEvent struct {
	ID, Source, Type, Subject string
	Data                      struct {
		UserIDs        []string `json:"user_ids"`
		ConversationID string   `json:"conversation_id"`
		Epoch          string
		Version, Total int64
		Seq            int
		Members        int
	}
}

// tailed returns the events in a stream.
func tailed(t *testing.T, client *redis.Client, stream string) (all []tailedEvent) {
	t.Helper()
	entries, err := client.XRange(t.Context(), stream, "-", "+").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.Values["content-type"] != "application/cloudevents+json" || entry.Values["badged-partition"] == "" {
			t.Errorf("fields %v", entry.Values)
		}
		var e tailedEvent
		if err := json.Unmarshal([]byte(entry.Values["payload"].(string)), &e); err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// awaitTold waits until so accepts the events in a stream, and returns them.
func awaitTold(t *testing.T, client *redis.Client, stream, what string, so func(all []tailedEvent) bool) []tailedEvent {
	t.Helper()
	for range polls(t, what) {
		if all := tailed(t, client, stream); so(all) {
			return all
		}
	}
	return nil
}

// lastBadge returns the last published badge of a user.
func lastBadge(all []tailedEvent, user string) (last tailedEvent, is bool) {
	for _, e := range slices.Backward(all) {
		if e.Type == "badge.changed" && e.Subject == user {
			return e, true
		}
	}
	return tailedEvent{}, false
}

func newRedisClient(t *testing.T, server *privateredis.Server) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: patience})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// addTo adds a payload to a stream.
func addTo(t *testing.T, client *redis.Client, stream, payload string) {
	t.Helper()
	if err := client.XAdd(t.Context(), &redis.XAddArgs{Stream: stream, Values: []string{"payload", payload}}).Err(); err != nil {
		t.Fatal(err)
	}
}

// startTail starts `badged tail` without waiting.
func startTail(t *testing.T, database string, to ...string) *process {
	t.Helper()
	args := []string{"tail", "--listen=127.0.0.1:0", "--database-url=" + database}
	for _, url := range to {
		args = append(args, "--to="+url)
	}
	return start(t, nil, args...)
}

// A tail publishes events as they are in the log, and badges as absolute states with epoch and version.
// After a rebuild that corrects something, it publishes all badges again.
func TestTail(t *testing.T) {
	t.Parallel()
	database, server := newDatabase(t), newRedis(t)
	client := newRedisClient(t, server)
	p := serve(t, database)
	publish(t, p, delivered("c", 1, `"ann","bob"`)) // published before the tail starts
	r := startTail(t, database, server.URL()+"?stream=events&send=events", server.URL()+"?stream=badges&send=badges&maxlen=100000")
	r.awaitReady()
	publish(t, p, read("r", "c", 1, `"ann"`))
	publish(t, p, event("j", "room.joined", `{"conversation_id":"room","user_ids":["cem","dan"]}`))
	publish(t, p, event("p", "room.posted", `{"conversation_id":"room","seq":1}`))
	awaitTold(t, client, "badges", "the badges", func(all []tailedEvent) bool {
		ann, _ := lastBadge(all, "ann")
		bob, _ := lastBadge(all, "bob")
		cem, _ := lastBadge(all, "cem")
		return ann.Data.Version == 2 && ann.Data.Total == 0 && bob.Data.Version == 1 && bob.Data.Total == 1 && bob.Data.Epoch != "" && cem.Data.Total == 1
	})
	var of map[string][]string
	awaitTold(t, client, "events", "the events of each partition", func(all []tailedEvent) bool {
		of = map[string][]string{}
		for _, e := range all {
			for _, user := range e.Data.UserIDs {
				of[user] = append(of[user], e.Type)
			}
		}
		posted := slices.ContainsFunc(all, func(e tailedEvent) bool { return e.Type == "room.posted" })
		return posted && slices.Contains(of["ann"], "conversation.read") && len(of["bob"]) > 0
	})
	if got := fmt.Sprint(of["ann"], of["bob"]); got != "[message.delivered conversation.read] [message.delivered]" {
		t.Errorf("events of users: %s", got)
	}
	before, _ := lastBadge(tailed(t, client, "badges"), "bob")
	conn := pgtest.Connect(t, shardOf(t, database, "bob"))
	pgtest.Exec(t, conn, `UPDATE badged.users SET total = 7 WHERE user_id = 'bob'`)
	must(t, "rebuild", "--quiet", "--database-url="+database)
	awaitTold(t, client, "badges", "the badge of bob in another epoch", func(all []tailedEvent) bool {
		bob, _ := lastBadge(all, "bob")
		return bob.Data.Epoch != before.Data.Epoch && bob.Data.Total == 1
	})
	const lag = `badged_tail_lag_seconds{partition="0",target="redis"}`
	await(t, lag, func() bool { return metric(t, metricsOf(t, r), lag) == 0 }) // at first the tail was behind
	r.mustStop()
	forget := snippets.With(t, "docs/brokers.md", "forget_tail", "sql").Text
	sql(t, shardOf(t, database, "bob"), strings.Replace(forget, "kafka", "redis", 1)) // fails for a tail that the database does not know
}

// A tail follows partitions that move to another shard, and publishes for the other shards while a shard
// is unavailable.
func TestTailOfShards(t *testing.T) {
	t.Parallel()
	servers := []*pgtest.Server{pgtest.NewServer(t), pgtest.NewServer(t)}
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.NewDB(t, pgtest.Template{}))
	}
	must(t, append([]string{"migrate", "up", fmt.Sprint("--partitions=", partitions)}, shardFlags(urls)...)...)
	server := newRedis(t)
	client := newRedisClient(t, server)
	p := launch(t, nil, append([]string{"serve", "--listen=127.0.0.1:0"}, shardFlags(urls)...)...)
	r := start(t, nil, append([]string{"tail", "--listen=127.0.0.1:0", "--to=" + server.URL() + "?stream=all"}, shardFlags(urls)...)...)
	r.awaitReady()
	moved, stays := usersIn(0, 1)[0], usersIn(1, 1)[0] // users of the first shard
	seqs := map[string]int{}
	send := func(user string) {
		t.Helper()
		for range 3 {
			seqs[user]++
			publish(t, p, delivered(user, seqs[user], fmt.Sprintf("%q", user)))
		}
	}
	told := func(user string) {
		t.Helper()
		all := awaitTold(t, client, "all", fmt.Sprintf("%d messages of %s", seqs[user], user), func(all []tailedEvent) bool {
			last, _ := lastBadge(all, user)
			return last.Data.Total == int64(seqs[user]) && slices.ContainsFunc(all, func(e tailedEvent) bool {
				return e.Data.ConversationID == user && e.Data.Seq == seqs[user]
			})
		})
		next := 1
		for _, e := range all {
			if e.Type == "message.delivered" && e.Data.ConversationID == user && e.Data.Seq >= next {
				if e.Data.Seq > next {
					t.Fatalf("message %d of %s is missing", next, user)
				}
				next++
			}
		}
	}
	send(moved)
	send(stays)
	told(moved)
	told(stays)
	must(t, append([]string{"partition", "move", "0", "--to=b"}, shardFlags(urls)...)...)
	send(moved)
	told(moved)
	for _, process := range []*process{p, r} {
		process.saysNoError()
	}
	servers[0].Kill()
	send(moved)
	told(moved)
	restart(t, servers[0])
	await(t, "the shard to be back", func() bool {
		code, _, _ := request(t, http.MethodPost, p.url+"/v1/events", "application/json", delivered(stays, seqs[stays]+1, fmt.Sprintf("%q", stays)))
		return code == http.StatusAccepted
	})
	seqs[stays]++
	told(stays)
}

// For a room with many members in a partition, the tail publishes the room instead of its members'
// badges.
func TestTailOfALargeRoom(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDB(t, pgtest.Template{})
	must(t, "migrate", "up", "--partitions=1", "--database-url="+url)
	server := newRedis(t)
	client := newRedisClient(t, server)
	p := serve(t, url)
	_, names := users(1001)
	total(t, p, "user-7", publish(t, p, event("j", "room.joined", `{"conversation_id":"room","user_ids":[`+names+`]}`)))
	startTail(t, url, server.URL()+"?stream=badges&send=badges").awaitReady()
	// Each badge is published once for the event, and once because the tail is new.
	awaitTold(t, client, "badges", "the members, twice", func(all []tailedEvent) bool { return len(all) >= 2*1001 })
	publish(t, p, event("p", "room.posted", `{"conversation_id":"room","seq":1,"mentioned_user_ids":["user-7"]}`))
	all := awaitTold(t, client, "badges", "the room", func(all []tailedEvent) bool {
		last, _ := lastBadge(all, "user-7")
		return last.Data.Total == 1
	})
	i := slices.IndexFunc(all, func(e tailedEvent) bool { return e.Type == "room.changed" })
	if i < 0 || all[i].Subject != "room" || all[i].Data.Members != 1001 || all[i].Data.Epoch == "" {
		t.Errorf("%+v", all[max(0, len(all)-3):])
	}
	if other, _ := lastBadge(all, "user-8"); other.Data.Total != 0 {
		t.Errorf("a member who is not mentioned: %+v", other)
	}
}

// `badged tail` refuses settings that cannot work, and the error says what to do.
func TestTailRefusals(t *testing.T) {
	t.Parallel()
	database, server := oneDatabase(t), newRedis(t)
	client := newRedisClient(t, server)
	if err := client.Set(t.Context(), "text", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	for to, want := range map[string]string{
		"amqp://h/x":                                 "there is no broker for amqp://; want kafka://, nats://, redis://, rediss://",
		server.URL() + "?stream=text":                "the key text has the type string, not stream",
		server.URL():                                 "the URL must name one stream; want redis://",
		server.URL() + "?stream=a&send=letters":      `send must be events, badges or both with a comma, is "letters"`,
		server.URL() + "?stream=a&maxlen=none":       `maxlen must be a number of entries, is "none"`,
		"redis://127.0.0.1:1/0?stream=a":             "connect to Redis: ",
		"kafka://ann:hunter2@127.0.0.1:1/chat":       "connect to Kafka at 127.0.0.1:1",
		"kafka://ann:hunter2@127.0.0.1:1/a,b":        "the URL must name one topic",
		"nats://ann:hunter2@127.0.0.1:1/CHAT":        "connect to NATS at nats://127.0.0.1:1",
		"nats://ann:hunter2@127.0.0.1:1/C?subject=*": "subject must have no wildcards",
	} {
		_, stderr, code := command(t, "tail", "--listen=127.0.0.1:0", "--database-url="+database, "--to="+to)
		exits := 2
		if strings.HasPrefix(want, "connect to ") || strings.HasPrefix(want, "the key ") { // these errors come from the broker
			exits = 1
		}
		if code != exits || !strings.HasPrefix(stderr, "badged: ") || !strings.Contains(stderr, want) || strings.Contains(stderr, "hunter2") {
			t.Errorf("%s: %d, want %q:\n%s", to, code, want, stderr)
		}
	}
	twice := "--to=" + server.URL() + "?stream=a"
	fails(t, 2, "a is named twice", "tail", "--listen=127.0.0.1:0", "--database-url="+database, twice, twice)
}

// Tails, Redis and Postgres are killed in turn while messages and reads are published. No event is
// missing, the first occurrences of events are in each user's order, versions do not decrease, and the
// last badge is right.
func TestTailOverKills(t *testing.T) {
	t.Parallel()
	postgres := pgtest.NewServer(t)
	database := postgres.NewDB(t, migrated())
	server, err := privateredis.Start(t.Context(), privateredis.Config{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	client := newRedisClient(t, server)
	p := serve(t, database)
	to := server.URL() + "?stream=all"
	tails := []*process{startTail(t, database, to), startTail(t, database, to)}
	for _, one := range tails {
		one.awaitReady()
	}
	seqs := map[string]int{}
	some := func() {
		user := fmt.Sprintf("user-%d", rand.N(8))
		for range 5 {
			seqs[user]++
			body := delivered(user, seqs[user], `"`+user+`"`)
			await(t, "publishing", func() bool {
				status, _, _ := request(t, "POST", p.url+"/v1/events", "application/json", body)
				return status == 202
			})
		}
	}
	for kill := range *tailKills {
		for range 20 {
			some()
		}
		time.Sleep(rand.N(20 * time.Millisecond)) //nolint:forbidigo // the moment of the kill is random
		switch kill % 3 {
		case 0:
			i := kill / 3 % 2
			tails[i].kill()
			tails[i] = startTail(t, database, to)
		case 1:
			server.Kill()
			restart(t, server)
		case 2:
			postgres.Kill()
			restart(t, postgres)
		}
	}
	some()
	all := awaitTold(t, client, "all", "everything", func(all []tailedEvent) bool {
		// A new owner of a partition publishes the badges of all its users, which may be
		// ahead of the published events.
		told := map[string]int{}
		for _, e := range all {
			if e.Type == "message.delivered" {
				told[e.Data.ConversationID] = max(told[e.Data.ConversationID], e.Data.Seq)
			}
		}
		for user, n := range seqs {
			if last, _ := lastBadge(all, user); last.Data.Total != int64(n) || told[user] != n {
				return false
			}
		}
		return true
	})
	seen, versions := map[string]int{}, map[string]int64{}
	for _, e := range all {
		switch e.Type {
		case "message.delivered":
			user := e.Data.ConversationID
			if e.Data.Seq > seen[user]+1 {
				t.Fatalf("message %d of %s comes after %d", e.Data.Seq, user, seen[user])
			}
			seen[user] = max(seen[user], e.Data.Seq)
		case "badge.changed":
			versions[e.Subject] = max(versions[e.Subject], e.Data.Version)
		}
	}
	for user, n := range seqs {
		if seen[user] != n || versions[user] != int64(n) {
			t.Errorf("%s: %d messages, published up to %d, with version %d", user, n, seen[user], versions[user])
		}
	}
}
