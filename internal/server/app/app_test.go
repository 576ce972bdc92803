package app

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/server/config"
	"github.com/badged/badged/pubsub"
)

// message is an event that delivers seq of a conversation to a user.
func message(conversationID string, seq int, userID string) string {
	return fmt.Sprintf(`{"specversion":"1.0","id":"%s/%d","source":"test","type":"message.delivered",`+
		`"data":{"conversation_id":"%[1]s","seq":%[2]d,"user_ids":["%[3]s"]}}`+"\n", conversationID, seq, userID)
}

// badge returns the badge of a user once it includes everything up to a
// position.
func (s *server) badge(t *testing.T, userID, position string) pubsub.Badge {
	t.Helper()
	a := s.get(t, "/v1/users/"+userID+"/badge?timeout=30s&at_least="+position)
	var b pubsub.Badge
	if err := json.Unmarshal([]byte(a.body), &b); err != nil || a.status != http.StatusOK {
		t.Fatalf("badge of %s: %d %s", userID, a.status, a.body)
	}
	return b
}

func TestRoutes(t *testing.T) {
	databaseURL := pgtest.NewDB(t, migrated())
	everything := settings(databaseURL)
	// These tests have no Redis, and the parts must not need it.
	api, projecting, gateway := everything, everything, everything
	api.Roles = []config.Role{config.RoleAPI}
	projecting.Roles = []config.Role{config.RoleProjector}
	gateway.Roles = []config.Role{config.RoleGateway}
	const absent, present = http.StatusNotFound, http.StatusOK
	for _, test := range []struct {
		name string
		cfg  config.Server
		// want is the status by path.
		want map[string]int
	}{
		{"all roles", everything, map[string]int{
			"/livez": present, "/readyz": present, "/metrics": present, "/nothing": absent,
			"/v1/users/ada/badge": present, "/v1/nothing": absent, "/v1/ws": http.StatusUpgradeRequired,
		}},
		{"the API", api, map[string]int{"/livez": present, "/readyz": present, "/metrics": present, "/v1/users/ada/badge": present, "/v1/ws": absent}},
		{"the projector", projecting, map[string]int{"/livez": present, "/readyz": present, "/metrics": present, "/v1/users/ada/badge": absent, "/v1/ws": absent}},
		{"the gateway", gateway, map[string]int{"/livez": present, "/readyz": present, "/metrics": present, "/v1/users/ada/badge": absent, "/v1/ws": http.StatusUpgradeRequired}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := run(t, open(t, test.cfg))
			s.awaitReady(t)
			for path, want := range test.want {
				if a := s.get(t, path); a.status != want {
					t.Errorf("%s: %d %s, want %d", path, a.status, a.body, want)
				}
			}
		})
	}
}

func TestReadinessDependsOnPostgres(t *testing.T) {
	postgres := pgtest.NewServer(t)
	s := run(t, open(t, settings(postgres.NewDB(t, migrated()))))
	s.awaitReady(t)
	if a := s.get(t, "/readyz"); a.body != `{"status":"ready","checks":{"clocks":"ok","folding":"ok","gateway":"ok","postgres":"ok","revocations":"ok"}}`+"\n" {
		t.Errorf("with Postgres: %d %s", a.status, a.body)
	}
	postgres.Kill()
	if a := s.get(t, "/readyz"); a.status != http.StatusServiceUnavailable || a.body != `{"status":"not ready","checks":{"clocks":"ok","folding":"ok","gateway":"ok","postgres":"cannot be reached","revocations":"ok"}}`+"\n" {
		t.Errorf("without: %d %s", a.status, a.body)
	}
	if a := s.get(t, "/livez"); a.status != http.StatusOK {
		t.Errorf("without Postgres it does not live: %d", a.status)
	}
	if err := postgres.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.awaitReady(t)
	// The server continues afterwards.
	if b := s.badge(t, "ada", s.publish(t, message("lunch", 1, "ada"))); b.Total != 1 {
		t.Errorf("badge is %+v", b)
	}
}

func TestMetricsPage(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDB(t, migrated())
	conn := pgtest.Connect(t, url)
	if _, err := conn.Exec(t.Context(), `INSERT INTO badged.dead_letters (partition_id, transaction_id, "offset", uuid, origin, reason) VALUES
		(1, '1', 1, gen_random_uuid(), NULL, 'of a partition'),
		(9, '1', 1, gen_random_uuid(), NULL, 'copied for a partition that is moving here'),
		(NULL, NULL, NULL, NULL, 'nats://broker/chat/7', 'of a broker')`); err != nil {
		t.Fatal(err)
	}
	s := run(t, open(t, settings(url)))
	s.publish(t, message("lunch", 1, "ada"))
	s.badge(t, "ada", s.publish(t, message("lunch", 1, "ada")+message("lunch", 2, "ada")))

	page := ""
	shows := func(pattern string) bool {
		return regexp.MustCompile(`(?m)^` + pattern + `$`).MatchString(page)
	}
	// A batch is counted after its commit, and the lag at intervals.
	for _, pattern := range []string{
		`badged_log_events_appended_total 3`,
		`badged_projector_events_folded_total 2`,
		`badged_projector_events_deduplicated_total 1`,
		`badged_projector_partitions_owned 4`,
		`badged_projector_lag_events\{partition="3"\} 0`,
		`badged_projector_lag_seconds\{partition="3"\} 0`,
		`badged_projector_dead_letters_waiting 2`,
	} {
		eventually(t, pattern+" on\n"+page, func() bool { page = s.get(t, "/metrics").body; return shows(pattern) })
	}
	for _, pattern := range []string{
		`badged_projector_batch_events_sum 3`,
		`badged_projector_batch_seconds_count [12]`,
		`badged_projector_delay_seconds_count [12]`,
	} {
		if !shows(pattern) {
			t.Errorf("the page has no %s", pattern)
		}
	}
	for line := range strings.Lines(page) {
		if name, rest, ok := strings.Cut(line, "{"); ok && strings.Contains(rest, "ada") {
			t.Errorf("%s has a label for a user", name)
		}
	}
	if t.Failed() {
		t.Log(page)
	}
}

func TestStoppedServerLeavesNothingBehind(t *testing.T) {
	url := pgtest.NewDB(t, migrated())
	before := goleak.IgnoreCurrent()
	a := open(t, settings(url))
	s := run(t, a)
	s.badge(t, "ada", s.publish(t, message("lunch", 1, "ada")))
	client := dial(t, s, "ada")
	client.next(t, "snapshot")
	if err := s.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	client.close()
	a.Close()
	a.Close() // idempotent
	goleak.VerifyNone(t, before)
}

func TestOpenThatFailsLeavesNothingBehind(t *testing.T) {
	fresh, ready := pgtest.NewDB(t, pgtest.Template{}), pgtest.NewDB(t, migrated())
	missing, err := url.Parse(ready)
	if err != nil {
		t.Fatal(err)
	}
	missing.Path, missing.User = "/missing", url.UserPassword(missing.User.Username(), "hunter2")
	for _, test := range []struct {
		name, databaseURL string
		change            func(*config.Server)
		want              string
	}{
		{"a database that is not migrated", fresh, func(*config.Server) {}, "migrations are pending; run `badged migrate up`, or serve with --migrate"},
		{"a database that does not exist", missing.String(), func(*config.Server) {}, "does not exist"},
		{"an invalid URL", "postgres://u:hun%zzter2@localhost/chat", func(*config.Server) {}, "--database-url"},
		{"publisher keys", ready, func(c *config.Server) { c.PublisherKeys = []string{"hunter2"} }, "--publisher-keys: key 1"},
		{"admin keys", ready, func(c *config.Server) { c.AdminKeys = []string{"hunter2"} }, "--admin-keys: key 1"},
		{"JWT keys", ready, func(c *config.Server) { c.JWTKeys = []string{"hunter2"} }, "--jwt-keys: JWT key 1"},
		{"an origin", ready, func(c *config.Server) { c.AllowedOrigins = []string{"chat.example"} }, "--allowed-origins: "},
		{"Redis", ready, func(c *config.Server) { c.RedisURL = "ftp://u:hunter2@localhost" }, "--redis-url: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			cfg := settings(test.databaseURL)
			test.change(&cfg)
			a, err := Open(t.Context(), cfg, listen(t), slog.New(slog.DiscardHandler))
			if err == nil {
				a.Close()
				t.Fatal("opened")
			}
			if !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("error is %v, want %s", err, test.want)
			}
			goleak.VerifyNone(t, before)
		})
	}
}

func TestListenOnAnAddressThatIsTaken(t *testing.T) {
	address := listen(t).Addr().String()
	_, err := Listen(t.Context(), address)
	want := "--listen " + address + ": another program is listening there; stop it, or give another address (port 0 picks a free one)"
	if err == nil || err.Error() != want {
		t.Errorf("error is %v, want %s", err, want)
	}
	if _, err := Listen(t.Context(), "8080"); err == nil || err.Error() != "--listen 8080: want HOST:PORT, such as 127.0.0.1:8080" {
		t.Errorf("error is %v", err)
	}
}
