package app

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/schematest"
	"github.com/badged/badged/internal/server/config"
	"github.com/badged/badged/internal/server/keyring"
)

// withQuota adds a publisher's key, limited, of ten events a day.
func withQuota(t *testing.T, cfg config.Server) config.Server {
	t.Helper()
	cfg.KeysFile = filepath.Join(t.TempDir(), "keys.yaml")
	text := fmt.Sprintf("keys:\n- {name: limited, kind: publisher, secret: %q, quota: 10}\n", keyring.Hash("limited"))
	if err := os.WriteFile(cfg.KeysFile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// publishLimited publishes n events for users with the key of the quota.
func (s *server) publishLimited(t *testing.T, id string, n int, users []string) answer {
	t.Helper()
	var ndjson strings.Builder
	for i := range n {
		ndjson.WriteString(event(fmt.Sprintf("%s-%d", id, i), "message.delivered", fmt.Sprintf(`"conversation_id":%q,"seq":%d,"user_ids":%s`, id, i+1, quotedList(users))))
	}
	return s.ask(t, "limited", http.MethodPost, "/v1/events", "application/x-ndjson", ndjson.String())
}

// disconnect disconnects a user and revokes the tokens issued until now.
func (s *server) disconnect(t *testing.T, userID string) answer {
	t.Helper()
	return s.ask(t, publisherKey, http.MethodPost, "/v1/users/"+userID+"/disconnect", "application/json", `{"revoke":true}`)
}

// lines returns the rows of a query with one text.
func (d *database) lines(t *testing.T, sql string) []string {
	t.Helper()
	rows, err := d.serving.Query(t.Context(), sql)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// back waits until a server reaches all shards again.
func (s *server) back(t *testing.T) {
	t.Helper()
	eventually(t, "the shard is back", func() bool { return !strings.Contains(s.get(t, "/readyz").body, "unavailable") })
}

// Processes that name the shards in another order count the same quota.
func TestAQuotaCountsOnceOverShards(t *testing.T) {
	cfg := withQuota(t, shardSettings(t, newShard(t), newShard(t)))
	other := cfg
	other.Shards = slices.Clone(cfg.Shards)
	slices.Reverse(other.Shards)
	one, two := run(t, open(t, cfg)), run(t, open(t, other))
	users := onEach("u")
	if a := one.publishLimited(t, "one", 6, users); a.status != http.StatusAccepted {
		t.Fatalf("6 of 10 events: %d %s", a.status, a.body)
	}
	if a := two.publishLimited(t, "two", 5, users); a.status != http.StatusTooManyRequests || !strings.Contains(a.body, "may publish 10 events a day, and has used 6") {
		t.Errorf("5 more of 10 events: %d %s", a.status, a.body)
	}
	if a := two.publishLimited(t, "two", 4, users); a.status != http.StatusAccepted {
		t.Errorf("4 more of 10 events: %d %s", a.status, a.body)
	}
	if a := one.publishLimited(t, "three", 1, users); a.status != http.StatusTooManyRequests {
		t.Errorf("the 11th event: %d %s", a.status, a.body)
	}
}

// While the shard that counts quotas is away, what is limited by one is refused, and
// nothing else. What was counted before still counts when it is available again.
func TestQuotasWhileTheirShardIsAway(t *testing.T) {
	lost := pgtest.Borrow(t)
	s := run(t, open(t, withQuota(t, shardSettings(t, lost.NewDB(t, schematest.Migrated(shardedPartitions)), newShard(t)))))
	others := onEach("u")[3:] // on the other shard
	if a := s.publishLimited(t, "before", 6, others); a.status != http.StatusAccepted {
		t.Fatalf("6 of 10 events: %d %s", a.status, a.body)
	}
	lost.Kill()
	s.impatient = true
	if a := s.publishLimited(t, "away", 4, others); a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
		t.Errorf("with a quota: %d %s", a.status, a.body)
	}
	position := s.publish(t, event("free", "message.delivered", `"conversation_id":"free","seq":1,"user_ids":`+quotedList(others)))
	wantTotals(t, s.totals(t, others, position), others, 7)
	if err := lost.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.back(t)
	eventually(t, "the quota is known again", func() bool { return s.publishLimited(t, "after", 4, others).status == http.StatusAccepted })
	if a := s.publishLimited(t, "over", 1, others); a.status != http.StatusTooManyRequests {
		t.Errorf("the 11th event: %d %s", a.status, a.body)
	}
}

// What concerns no user is recorded on a shard that is there, whichever is away.
func TestTheTrailWhileAShardIsAway(t *testing.T) {
	lost := pgtest.Borrow(t)
	cfg := withQuota(t, shardSettings(t, lost.NewDB(t, schematest.Migrated(shardedPartitions)), newShard(t)))
	reader := open(t, cfg)
	lost.Kill()
	s := run(t, open(t, cfg))
	if a := s.ask(t, "guessed", http.MethodPost, "/v1/events", "application/x-ndjson", event("1", "message.delivered", `"conversation_id":"c","seq":1,"user_ids":["ada"]`)); a.status != http.StatusUnauthorized {
		t.Errorf("a wrong key: %d %s", a.status, a.body)
	}
	if err := s.stop(); err != nil {
		t.Errorf("stopping while a shard is away: %v", err)
	}
	got := reader.databases[1].lines(t, `SELECT action FROM badged.audit ORDER BY action`)
	if want := []string{"keys.load", "signin.failed"}; !slices.Equal(got, want) {
		t.Errorf("the trail of the shard that is there has %q, want %q", got, want)
	}
	if err := lost.Restart(t.Context()); err != nil { // other tests borrow it
		t.Fatal(err)
	}
}

// Revocations of users of any shard hold in all processes, and are recorded on the
// user's shard. A shard that is unavailable concerns its users only.
func TestRevocationsOverShards(t *testing.T) {
	lost := pgtest.Borrow(t)
	cfg := shardSettings(t, newShard(t), lost.NewDB(t, schematest.Migrated(shardedPartitions)))
	one, two := run(t, open(t, cfg)), run(t, open(t, cfg))
	users := onEach("u")
	issued := time.Now().Add(-time.Minute)
	tokens := map[string]string{}
	for _, u := range users {
		tokens[u] = one.tokenOf(t, u, issued)
		if status := two.badgeAs(t, u, tokens[u]).status; status != http.StatusOK {
			t.Fatalf("the token of %s gets %d", u, status)
		}
	}
	first, last := users[0], users[5]
	for i, u := range []string{first, last} {
		if a := one.disconnect(t, u); a.status != http.StatusAccepted || !strings.Contains(a.body, "revoked_before") {
			t.Fatalf("disconnect %s: %d %s", u, a.status, a.body)
		}
		for _, s := range []*server{one, two} {
			eventually(t, "the token is refused", func() bool { return s.badgeAs(t, u, tokens[u]).status == http.StatusUnauthorized })
		}
		got := one.databases[i].lines(t, `SELECT who || ' ' || (arguments ->> 'user') FROM badged.audit WHERE action = 'user.disconnect'`)
		if want := []string{"chat " + u}; !slices.Equal(got, want) {
			t.Errorf("shard %s has recorded %q, want %q", one.databases[i].config.Name, got, want)
		}
	}

	lost.Kill()
	one.impatient = true
	eventually(t, "the loss is seen", func() bool { return strings.Contains(one.get(t, "/readyz").body, "shard b: cannot be reached") })
	if a := one.disconnect(t, users[4]); a.status != http.StatusServiceUnavailable {
		t.Errorf("disconnect a user of the shard that is away: %d %s", a.status, a.body)
	}
	if a := one.disconnect(t, users[1]); a.status != http.StatusAccepted {
		t.Errorf("disconnect a user of the other shard: %d %s", a.status, a.body)
	}
	late := run(t, open(t, cfg)) // which cannot read what is revoked there
	if status := late.badgeAs(t, first, tokens[first]).status; status != http.StatusUnauthorized {
		t.Errorf("a revoked token of the shard that is there gets %d", status)
	}
	if err := lost.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	answered := 0
	eventually(t, "the shard is back", func() bool {
		answered = late.badgeAs(t, last, tokens[last]).status
		return answered != http.StatusServiceUnavailable
	})
	if answered != http.StatusUnauthorized {
		t.Errorf("once the shard is back, a token that was revoked before gets %d", answered)
	}
}
