package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/schematest"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/server/config"
	"github.com/badged/badged/projector/badges"
)

// shardedPartitions are two for each of three shards.
const shardedPartitions = 6

// shardSettings returns the settings of a server on the shards a, b and c.
func shardSettings(t *testing.T, urls ...string) config.Server {
	t.Helper()
	cfg := settings("")
	var databases []cluster.Candidate
	for i, url := range urls {
		name := string(rune('a' + i))
		cfg.Shards = append(cfg.Shards, name+"="+url)
		pool, err := pgxpool.New(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		databases = append(databases, cluster.Candidate{Name: name, Pool: pool})
	}
	if _, err := cluster.Form(t.Context(), databases); err != nil {
		t.Fatal(err)
	}
	return cfg
}

func newShard(t *testing.T) string {
	t.Helper()
	return pgtest.NewDB(t, schematest.Migrated(shardedPartitions))
}

// onEach returns a user of each partition.
func onEach(prefix string) []string {
	users := make([]string, shardedPartitions)
	for i, found := 0, 0; found < shardedPartitions; i++ {
		id := fmt.Sprintf("%s%d", prefix, i)
		if p := events.PartitionOf(id, shardedPartitions); users[p] == "" {
			users[p] = id
			found++
		}
	}
	return users
}

func event(id, kind, data string) string {
	return fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"test","type":%q,"data":{%s}}`+"\n", id, kind, data)
}

func quotedList(users []string) string { return `["` + strings.Join(users, `","`) + `"]` }

// totals reads the badges of users as of a position. As the answer asks for, it repeats a 503: a busy
// machine may take a shard for unavailable.
func (s *server) totals(t *testing.T, users []string, position string) map[string]int64 {
	t.Helper()
	var a answer
	eventually(t, "the badges are read", func() bool {
		a = s.query(t, users, position)
		return a.status != http.StatusServiceUnavailable
	})
	var answer struct {
		Badges []struct {
			UserID string `json:"user_id"`
			Total  int64  `json:"total"`
		} `json:"badges"`
	}
	if err := json.Unmarshal([]byte(a.body), &answer); err != nil || a.status != http.StatusOK {
		t.Fatalf("read the badges: %d %s", a.status, a.body)
	}
	all := map[string]int64{}
	for i, b := range answer.Badges {
		if b.UserID != users[i] {
			t.Errorf("badge %d is of %s, want %s", i, b.UserID, users[i])
		}
		all[b.UserID] = b.Total
	}
	return all
}

// query asks for the badges of users, as of a position unless it is "".
func (s *server) query(t *testing.T, users []string, position string) answer {
	t.Helper()
	body := fmt.Sprintf(`{"user_ids":%s}`, quotedList(users))
	if position != "" {
		body = fmt.Sprintf(`{"user_ids":%s,"at_least":%q,"timeout":"30s"}`, quotedList(users), position)
	}
	return s.ask(t, publisherKey, http.MethodPost, "/v1/badges/query", "application/json", body)
}

func wantTotals(t *testing.T, got map[string]int64, users []string, want int64) {
	t.Helper()
	all := map[string]int64{}
	for _, u := range users {
		all[u] = want
	}
	if diff := cmp.Diff(all, got); diff != "" {
		t.Errorf("totals (-want +got):\n%s", diff)
	}
}

func TestEventsGoToTheShardsOfTheirUsers(t *testing.T) {
	s := run(t, open(t, shardSettings(t, newShard(t), newShard(t), newShard(t))))
	users := onEach("u")
	position := s.publish(t, event("1", "message.delivered", `"conversation_id":"all","seq":1,"user_ids":`+quotedList(users)+`,"mentioned_user_ids":`+quotedList(users[3:5])))
	if strings.Count(position, ".") != 6 {
		t.Errorf("the position is %s", position)
	}
	wantTotals(t, s.totals(t, users, position), users, 1)
	// Publishing again changes nothing.
	position = s.publish(t, event("1", "message.delivered", `"conversation_id":"all","seq":1,"user_ids":`+quotedList(users)+`,"mentioned_user_ids":`+quotedList(users[3:5])))
	wantTotals(t, s.totals(t, users, position), users, 1)
	// A call for one shard names only that.
	if position := s.publish(t, event("2", "message.delivered", `"conversation_id":"one","seq":1,"user_ids":["`+users[5]+`"]`)); !strings.HasPrefix(position, "0.c.") {
		t.Errorf("the position is %s", position)
	}
	for _, u := range users {
		if a := s.get(t, "/v1/users/"+url.PathEscape(u)+"/conversations"); a.status != http.StatusOK || !strings.Contains(a.body, `"conversation_id":"all"`) {
			t.Errorf("conversations of %s: %d %s", u, a.status, a.body)
		}
	}
	// An invalid event is stored nowhere.
	if a := s.tryPublish(t, event("3", "message.delivered", `"conversation_id":"all","seq":2,"user_ids":`+quotedList(users))+event("4", "message.delivered", `"conversation_id":"all","seq":0,"user_ids":`+quotedList(users))); a.status != http.StatusBadRequest {
		t.Errorf("an invalid event: %d %s", a.status, a.body)
	}
	if a := s.get(t, "/v1/users/ada/badge?at_least=x"); a.status != http.StatusBadRequest {
		t.Errorf("a wrong position: %d %s", a.status, a.body)
	}
}

// What several large calls have for a shard shares transactions, though one of them has
// an event that its shard refuses.
func TestLargeCallsShareTransactions(t *testing.T) {
	urls := []string{newShard(t), newShard(t)}
	s := run(t, open(t, shardSettings(t, urls...)))
	pool := s.databases[0].serving
	users := onEach("u")
	const calls, size = 6, 300
	seq := 0
	// The calls of a round may miss each other: then there is another.
	eventually(t, "calls share a transaction", func() bool {
		before := transactions(t, pool)
		var g sync.WaitGroup
		for range calls {
			var call strings.Builder
			for range size {
				seq++
				call.WriteString(event(fmt.Sprint(seq), "message.delivered", fmt.Sprintf(`"conversation_id":"c","seq":%d,"user_ids":%s`, seq, quotedList(users))))
			}
			g.Go(func() {
				if a := s.tryPublish(t, call.String()); a.status != http.StatusAccepted {
					t.Errorf("publish: %d %s", a.status, a.body)
				}
			})
		}
		refused := event("refused", "message.delivered", `"conversation_id":"c","seq":0,"user_ids":["`+users[0]+`"]`)
		g.Go(func() {
			if a := s.tryPublish(t, strings.Repeat(refused, size)); a.status != http.StatusBadRequest {
				t.Errorf("publish invalid events: %d %s", a.status, a.body)
			}
		})
		g.Wait()
		return transactions(t, pool)-before < calls
	})
	position := s.publish(t, event("last", "message.delivered", fmt.Sprintf(`"conversation_id":"c","seq":%d,"user_ids":%s`, seq+1, quotedList(users))))
	wantTotals(t, s.totals(t, users, position), users, int64(seq)+1)
}

// transactions returns how many have appended to the first partition.
func transactions(t *testing.T, pool *pgxpool.Pool) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), `SELECT count(DISTINCT transaction_id) FROM badged.events_p00`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A room has members on every shard. Those who join first on their shard have read what
// was posted before.
func TestRoomsSpanShards(t *testing.T) {
	s := run(t, open(t, shardSettings(t, newShard(t), newShard(t), newShard(t))))
	users := onEach("u")
	early, late := users[:2], users[2:]
	room := `"conversation_id":"lobby"`
	s.publish(t, event("j1", "room.joined", room+`,"user_ids":`+quotedList(early)))
	position := s.publish(t, event("p1", "room.posted", room+`,"seq":1`)+event("p2", "room.posted", room+`,"seq":2`))
	wantTotals(t, s.totals(t, early, position), early, 2)
	position = s.publish(t, event("j2", "room.joined", room+`,"user_ids":`+quotedList(late)))
	wantTotals(t, s.totals(t, late, position), late, 0)
	position = s.publish(t, event("p3", "room.posted", room+`,"seq":3,"sender_id":"`+users[4]+`"`))
	got := s.totals(t, users, position)
	want := map[string]int64{users[0]: 3, users[1]: 3, users[2]: 1, users[3]: 1, users[4]: 0, users[5]: 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("totals (-want +got):\n%s", diff)
	}
	// A message that comes late is behind the join everywhere.
	position = s.publish(t, event("p1 again", "room.recalled", room+`,"seq":3`))
	got = s.totals(t, users, position)
	want = map[string]int64{users[0]: 2, users[1]: 2, users[2]: 0, users[3]: 0, users[4]: 0, users[5]: 0}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("totals after recalling (-want +got):\n%s", diff)
	}
}

func TestALostShardStopsItsUsersOnly(t *testing.T) {
	lost := pgtest.Borrow(t)
	cfg := shardSettings(t, newShard(t), newShard(t), lost.NewDB(t, schematest.Migrated(shardedPartitions)))
	s := run(t, open(t, cfg))
	users := onEach("u")
	message := func(id string, users []string) string {
		return event(id, "message.delivered", `"conversation_id":"all","seq":`+id+`,"user_ids":`+quotedList(users))
	}
	wantTotals(t, s.totals(t, users, s.publish(t, message("1", users))), users, 1)
	s.publish(t, event("j", "room.joined", `"conversation_id":"lobby","user_ids":`+quotedList(users)))
	post := func(id string) string { return event("p"+id, "room.posted", `"conversation_id":"lobby","seq":`+id) }

	lost.Kill()
	s.impatient = true
	if a := s.tryPublish(t, message("2", users)); a.status != http.StatusServiceUnavailable {
		t.Errorf("publish for all: %d %s", a.status, a.body)
	}
	eventually(t, "the loss is seen", func() bool {
		a := s.get(t, "/readyz")
		return a.status == http.StatusOK && strings.Contains(a.body, "shard c: cannot be reached; partitions of unavailable shards: 4-5")
	})
	others := users[:4]
	position := s.publish(t, message("3", others))
	// The others have what went to all, too.
	wantTotals(t, s.totals(t, others, position), others, 3)
	a := s.tryPublish(t, message("3", users)+post("1"))
	if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") != "5" ||
		!strings.Contains(a.body, `"detail":"shard c, which has the partitions 4-5, is unavailable; the events for users of other shards are stored; repeat`) || !strings.Contains(a.body, `"lacking":{"partitions":[4,5],"of":6}`) {
		t.Errorf("publish for all: %d %v %s", a.status, a.header, a.body)
	}
	// A message to a room is kept for the lost shard.
	waits := s.publish(t, post("1")+post("2"))
	wantTotals(t, s.totals(t, others, waits), others, 5)
	if a := s.get(t, "/v1/users/"+users[5]+"/badge?at_least="+waits); a.status != http.StatusServiceUnavailable {
		t.Errorf("badge of a user of the lost shard with the message: %d %s", a.status, a.body)
	}
	if a := s.get(t, "/v1/users/"+users[5]+"/badge"); a.status != http.StatusServiceUnavailable {
		t.Errorf("badge of a user of the lost shard: %d %s", a.status, a.body)
	}
	if a := s.query(t, users, position); a.status != http.StatusServiceUnavailable || strings.Count(a.body, `"version":6,"total":5,`) != 4 || strings.Count(a.body, `"epoch":`) != 4 ||
		!strings.Contains(a.body, `"lacking":{"partitions":[4,5],"of":6,"user_ids":`+quotedList(users[4:])+`}`) {
		t.Errorf("the badges of all: %d %s", a.status, a.body)
	}
	if a := s.get(t, "/metrics"); !strings.Contains(a.body, `badged_shard_up{shard="c"} 0`) || !strings.Contains(a.body, `badged_shard_partition_away{partition="5"} 1`) {
		t.Error("the metrics do not tell the loss")
	}
	// A server starts without it, too.
	late := run(t, open(t, cfg))
	wantTotals(t, late.totals(t, others, late.publish(t, message("4", others))), others, 6)

	if err := lost.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*server{s, late} {
		eventually(t, "the shard is back", func() bool { return !strings.Contains(s.get(t, "/readyz").body, "unavailable") })
	}
	wantTotals(t, late.totals(t, users[4:], waits), users[4:], 3)
	for _, id := range []string{"2", "3", "4"} {
		position = s.publish(t, message(id, users))
	}
	wantTotals(t, s.totals(t, users, position), users, 6)
	position = late.publish(t, message("5", users)+post("1"))
	wantTotals(t, late.totals(t, users, position), users, 7)
}

// A shard that can be reached, and has nothing of its users, is named, and stops them only.
func TestAShardWithoutTablesStopsItsUsersOnly(t *testing.T) {
	message := func(id string, users []string) string {
		return event(id, "message.delivered", `"conversation_id":"all","seq":`+id+`,"user_ids":`+quotedList(users))
	}
	for name, tc := range map[string]struct {
		// lose is what happens to the shard c.
		lose []string
		// others are users that are served, and the detail is what the rest is told.
		others []int
		detail string
		// stores is true if the log is still there.
		stores bool
	}{
		"restored from before it got a partition": {
			[]string{`DELETE FROM badged.partitions WHERE partition_id = 4`, `DROP TABLE badged.users_p04 CASCADE`, `DROP TABLE badged.events_p04 CASCADE`},
			[]int{0, 1, 2, 3, 5},
			"shard c does not hold partition 4, which the map assigns to it", false,
		},
		"a table is missing": {
			[]string{`ALTER TABLE badged.users RENAME TO others`, `ALTER TABLE badged.users_p04 RENAME TO others_p04`, `ALTER TABLE badged.users_p05 RENAME TO others_p05`},
			[]int{0, 1, 2, 3},
			"shard c, which has the partitions 4-5, does not have all tables of badged", true,
		},
		"empty": {[]string{`DROP SCHEMA badged CASCADE`}, []int{0, 1, 2, 3}, "shard c, which has the partitions 4-5, is unavailable", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := run(t, open(t, shardSettings(t, newShard(t), newShard(t), newShard(t))))
			users := onEach("u")
			wantTotals(t, s.totals(t, users, s.publish(t, message("1", users))), users, 1)
			s.impatient = true
			for _, sql := range tc.lose {
				if _, err := s.databases[2].serving.Exec(t.Context(), sql); err != nil {
					t.Fatal(err)
				}
			}
			var others []string
			for _, i := range tc.others {
				others = append(others, users[i])
			}
			eventually(t, "the others are read, and the shard is named", func() bool {
				a := s.query(t, users, "")
				if a.status != http.StatusServiceUnavailable {
					t.Fatalf("it answers %d %s", a.status, a.body)
				}
				return strings.Count(a.body, `"version":1,"total":1,`) == len(others) && strings.Contains(a.body, tc.detail)
			})
			for _, path := range []string{"badge", "conversations"} {
				if a := s.get(t, "/v1/users/"+users[4]+"/"+path); a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, tc.detail) {
					t.Errorf("the %s of a user of it: %d %s", path, a.status, a.body)
				}
			}
			if a := s.tryPublish(t, message("2", users)); tc.stores && a.status != http.StatusAccepted || !tc.stores && (a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, tc.detail) || !strings.Contains(a.body, `"lacking":{"partitions":[4`)) {
				t.Errorf("publish for all: %d %s", a.status, a.body)
			}
			others = users[:4]
			wantTotals(t, s.totals(t, others, s.publish(t, message("3", others))), others, 3)
		})
	}
}

// Publishers and readers follow a partition to another shard.
func TestAMovedPartitionIsFollowed(t *testing.T) {
	cfg := shardSettings(t, newShard(t), newShard(t))
	s := run(t, open(t, cfg))
	user := onEach("u")[0]
	position := s.publish(t, event("1", "message.delivered", `"conversation_id":"c","seq":1,"user_ids":["`+user+`"]`))
	wantTotals(t, s.totals(t, []string{user}, position), []string{user}, 1)
	a, b := s.databases[0].serving, s.databases[1].serving
	var epoch string
	if err := a.QueryRow(t.Context(), `SELECT badged.release_partition(0, 'b', 2)`).Scan(&epoch); err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, b, `SELECT badged.hold_partition(0, 2, $1)`, epoch)
	position = s.publish(t, event("2", "message.delivered", `"conversation_id":"c","seq":2,"user_ids":["`+user+`"]`))
	if !strings.HasPrefix(position, "1.b.") {
		t.Errorf("the position is %s", position)
	}
	wantTotals(t, s.totals(t, []string{user}, position), []string{user}, 1) // rows were not moved

	// What the source had lost before is lost, although the target has folded all that it got.
	reader := cluster.NewReader(s.cluster)
	for _, lost := range []eventlog.Token{eventlog.NewToken(9, 1), eventlog.NewToken(1, 1<<40)} {
		if folded, err := reader.FoldedAt(t.Context(), []string{user}, fmt.Sprintf("0.a.%d", lost)); !errors.Is(err, badges.ErrLost) {
			t.Errorf("a position that the source has lost gives %v, %v", folded, err)
		}
	}
	kept := eventlog.NewToken(1, 3)
	if _, err := reader.FoldedAt(t.Context(), []string{user}, fmt.Sprintf("0.a.%d", kept)); err != nil {
		t.Errorf("a position that the source has gives %v", err)
	}
}

// A server that does not know a shard answers 503 to messages to rooms, which may have members
// there, and names the shard.
func TestMessagesToRoomsNeedEveryShardOfTheMap(t *testing.T) {
	urls := []string{newShard(t), newShard(t), newShard(t)}
	s := run(t, open(t, shardSettings(t, urls[:2]...)))
	s.impatient = true
	room := func(id string) answer {
		return s.tryPublish(t, event(id, "room.posted", `"conversation_id":"lobby","seq":1`))
	}
	_ = shardSettings(t, urls...) // the third shard joins
	if a := room("1"); a.status != http.StatusAccepted {
		t.Errorf("while the shard that has joined has no partition: %d %s", a.status, a.body)
	}
	a := s.databases[0].serving
	pgtest.Exec(t, a, `SELECT badged.release_partition(0, 'c', 2)`)
	if err := s.cluster.Reload(t.Context()); !errors.Is(err, cluster.ErrMissing) {
		t.Fatal(err)
	}
	join := event("4", "room.joined", `"conversation_id":"club","user_ids":`+quotedList(onEach("u")[:2]))
	if held := s.tryPublish(t, join+event("5", "room.posted", `"conversation_id":"club","seq":1`)); held.status != http.StatusServiceUnavailable ||
		!strings.Contains(held.body, "except messages to rooms that users of an unavailable shard join") || !strings.Contains(held.body, `"lacking":{"partitions":[0,1,2,3,4,5],"of":6`) {
		t.Errorf("a message behind a join: %d %s", held.status, held.body)
	}
	for what, answered := range map[string]answer{
		"a message to a room": room("2"),
		"a message to a user": s.tryPublish(t, event("3", "message.delivered", `"conversation_id":"c","seq":1,"user_ids":["`+onEach("u")[0]+`"]`)),
	} {
		if answered.status != http.StatusServiceUnavailable || !strings.Contains(answered.body, "shard c, which has partition 0, is not in the settings of this process") || !strings.Contains(answered.body, `"lacking":{"partitions":[0],"of":6`) {
			t.Errorf("%s: %d %s", what, answered.status, answered.body)
		}
	}
}

func TestServingRefusesWhatIsNoCluster(t *testing.T) {
	a, b := newShard(t), newShard(t)
	cfg := settings("")
	cfg.Shards = []string{"a=" + a, "b=" + b}
	refuses := func(want string) {
		t.Helper()
		app, err := Open(t.Context(), cfg, listen(t), slog.New(slog.DiscardHandler))
		if err == nil {
			app.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open: %v, want %q", err, want)
		}
	}
	refuses("run `badged migrate up` with the same --shard settings")
	cfg = shardSettings(t, a, b)
	cfg.Shards = cfg.Shards[:1]
	refuses("add --shard b=URL")
	cfg = settings(a)
	refuses("the database is a shard of a cluster, a: name every shard with --shard")
}
