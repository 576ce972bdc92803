package config_test

import (
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/badged/badged/internal/server/config"
)

// TestMain clears the settings in the environment of the test run.
func TestMain(m *testing.M) {
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "BADGED_") {
			_ = os.Unsetenv(name) // the name comes from the environment
		}
	}
	os.Exit(m.Run())
}

// server returns valid settings, changed by change.
func server(change func(*config.Server)) *config.Server {
	s := &config.Server{
		CacheMiB:          1,
		Database:          config.Database{DatabaseURL: "postgres://localhost/chat"},
		Tokens:            config.Tokens{JWTKeys: []string{"k=HS256:secret"}},
		Roles:             []config.Role{config.RoleAPI, config.RoleProjector, config.RoleGateway, config.RoleNotifier, config.RoleIngest},
		PublisherKeys:     []string{"chat=secret"},
		ReconcileInterval: time.Second, DrainTimeout: time.Second,
		DedupWindow: time.Hour, RoomPushInterval: time.Minute, Webhooks: config.Webhooks{WebhooksOrigin: "badged"},
	}
	change(s)
	return s
}

func TestServerValidate(t *testing.T) {
	const redis = "redis://localhost"
	for _, test := range []struct {
		name   string
		change func(*config.Server)
		want   string // part of the error, "" for none
	}{
		{"all roles in one process", func(*config.Server) {}, ""},
		{"all roles, with Redis", func(s *config.Server) { s.RedisURL = redis }, ""},
		{"no database", func(s *config.Server) { s.DatabaseURL = "" }, "--database-url (BADGED_DATABASE_URL) is required"},
		{"a certificate without a key", func(s *config.Server) { s.TLSCert = "cert.pem" }, "--tls-cert and --tls-key belong together"},
		{"no role", func(s *config.Server) { s.Roles = nil }, "--roles names no role"},

		{"only the API, without Redis", only(config.RoleAPI), "--redis-url (BADGED_REDIS_URL) is required because the role projector runs in another process"},
		{"no gateway, without Redis", only(config.RoleAPI, config.RoleProjector), "because the role gateway runs in another process"},
		{"no API, without Redis", only(config.RoleProjector, config.RoleGateway), "because the role api runs in another process"},
		{"only the projector, which needs no keys", func(s *config.Server) {
			only(config.RoleProjector)(s)
			s.RedisURL, s.PublisherKeys, s.JWTKeys = redis, nil, nil
		}, ""},
		{"only the API, which needs no JWT keys", func(s *config.Server) {
			only(config.RoleAPI)(s)
			s.RedisURL, s.JWTKeys = redis, nil
		}, ""},
		{"only the gateway, which needs no publisher keys", func(s *config.Server) {
			only(config.RoleGateway)(s)
			s.RedisURL, s.PublisherKeys = redis, nil
		}, ""},
		{"the API without publisher keys", func(s *config.Server) { s.PublisherKeys = nil }, "--publisher-keys (BADGED_PUBLISHER_KEYS) or --keys-file (BADGED_KEYS_FILE) is required with the role api"},
		{"an admin key is no publisher key", func(s *config.Server) {
			s.PublisherKeys, s.AdminKeys = nil, []string{"ops=secret"}
		}, "--publisher-keys"},
		{"the gateway without JWT keys", func(s *config.Server) { s.JWTKeys = nil }, "--jwt-keys (BADGED_JWT_KEYS) or --jwks-url (BADGED_JWKS_URL) is required with the role gateway"},
		{"the gateway with a key set", func(s *config.Server) { s.JWTKeys, s.JWKSURL = nil, "https://login.example/jwks.json" }, ""},

		{"keys of a set that age", func(s *config.Server) { s.JWKSMaxAge, s.JWTMaxLifetime = 10*time.Minute, time.Second }, ""},
		{"keys of a set that age too fast", func(s *config.Server) { s.JWKSMaxAge = 9 * time.Minute }, "--jwks-max-age must be 0s (no limit) or at least 10m0s: keys are fetched every five minutes"},
		{"tokens that live less than nothing", func(s *config.Server) { s.JWTMaxLifetime = -time.Second }, "--jwt-max-lifetime must be 0s (no limit) or more"},

		{"without limits", func(s *config.Server) { s.Limits = config.Limits{} }, ""},
		{"limits below zero", func(s *config.Server) {
			s.Limits = config.Limits{MaxConnections: -1, MaxUserConnections: -1, ConnectsPerSecond: -1, CommandsPerSecond: math.NaN(), ReadsPerSecond: -1}
		}, "--max-connections must be 0 (no limit) or more\n--max-user-connections must be 0 (no limit) or more\n" +
			"--connects-per-second must be 0 (no limit) or more\n--commands-per-second must be 0 (no limit) or more\n--reads-per-second must be 0 (no limit) or more"},
		{"a lag below zero", func(s *config.Server) { s.MaxLag = -time.Second }, "--max-lag must be 0s (no limit) or more"},
		{"never reconcile", func(s *config.Server) { s.ReconcileInterval = 0 }, "--reconcile-interval must be more than 0s"},
		{"reconcile before now", func(s *config.Server) { s.ReconcileInterval = -time.Second }, "--reconcile-interval must be more than 0s"},
		{"no cache", func(s *config.Server) { s.CacheMiB = 0 }, "--cache-mib must be 1 or more"},
		{"verify never", func(s *config.Server) { s.VerifyInterval = 0 }, ""},
		{"verify", func(s *config.Server) { s.VerifyInterval, s.VerifySample = time.Second, 16 }, ""},
		{"verify before now", func(s *config.Server) { s.VerifyInterval = -time.Second }, "--verify-interval must be 0s (never) or more"},
		{"verify no users", func(s *config.Server) { s.VerifyInterval, s.VerifySample = time.Second, 0 }, "--verify-sample must be from 1 to 16"},
		{"verify too many", func(s *config.Server) { s.VerifyInterval, s.VerifySample = time.Second, 17 }, "--verify-sample must be from 1 to 16"},
		{"keys are forgotten too soon", func(s *config.Server) { s.DedupWindow = time.Hour - 1 }, "--dedup-window (BADGED_DEDUP_WINDOW) must be at least 1h, is 59m59.999999999s"},
		{"expire nothing", func(s *config.Server) { s.Expire = nil }, ""},
		{"expire after a week", func(s *config.Server) { s.Expire = []string{"chat=168h", "a=b=1h", "*=72h30m"} }, ""},
		{"expire whenever", func(s *config.Server) { s.Expire = []string{"chat"} }, `--expire (BADGED_EXPIRE): "chat": want CATEGORY=DURATION, such as chat=168h`},
		{"expire without a unit", func(s *config.Server) { s.Expire = []string{"chat=168"} }, `--expire (BADGED_EXPIRE): "chat=168": want a duration in hours after the "=", such as 168h for a week`},
		{"expire in days", func(s *config.Server) { s.Expire = []string{"chat=7d"} }, `"chat=7d": want a duration in hours`},
		{"expire no category", func(s *config.Server) { s.Expire = []string{"=168h"} }, `"=168h": the category must not be empty`},
		{"expire too soon", func(s *config.Server) { s.Expire = []string{"chat=59m59s"} }, `"chat=59m59s": must be at least 1h`},
		{"expire before now", func(s *config.Server) { s.Expire = []string{"chat=-168h"} }, `"chat=-168h": must be at least 1h`},
		{"expire twice", func(s *config.Server) { s.Expire = []string{"chat=168h", "chat=24h"} }, `category "chat" appears twice`},
		{"remind after a day", func(s *config.Server) { s.RemindAfter = []string{"chat=24h", "*=1s"} }, ""},
		{"remind at once", func(s *config.Server) { s.RemindAfter = []string{"chat=999ms"} }, `--remind-after (BADGED_REMIND_AFTER): "chat=999ms": must be at least 1s`},
		{"remind whenever", func(s *config.Server) { s.RemindAfter = []string{"chat"} }, `"chat": want CATEGORY=DURATION`},
		{"no origin of webhooks", func(s *config.Server) { s.WebhooksOrigin = "https://badged.example/" }, `--webhooks-origin: "https://badged.example/" is not a DNS name`},
		{"no pause between pushes to a room", func(s *config.Server) { s.RoomPushInterval = 0 }, "--room-push-interval must be more than 0s"},
		{"a negative time to close connections", func(s *config.Server) { s.DrainDuration = -time.Second }, "--drain-duration must be 0s (all at once) or more"},
		{"no time to drain", func(s *config.Server) { s.DrainTimeout = 0 }, "--drain-timeout must be more than 0s"},
		{"more traces than all", func(s *config.Server) { s.TraceSample = 1.5 }, "--trace-sample must be from 0 to 1, is 1.5"},
	} {
		t.Run(test.name, func(t *testing.T) { checkError(t, server(test.change).Validate(), test.want) })
	}
}

func only(roles ...config.Role) func(*config.Server) {
	return func(s *config.Server) { s.Roles = roles }
}

func checkError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("refused: %v", err)
	case want != "" && err == nil:
		t.Error("accepted")
	case want != "" && !strings.Contains(err.Error(), want):
		t.Errorf("error is %q, want %q", err, want)
	}
}

func TestPoolConfig(t *testing.T) {
	for _, test := range []struct {
		name, url      string
		host, database string
		maxConns       int32
	}{
		{"a URL", "postgres://u:p@db.example:5433/chat?pool_max_conns=3", "db.example", "chat", 3},
		{"pairs", "host=db.example port=5433 dbname=chat pool_max_conns=3", "db.example", "chat", 3},
		{"several hosts", "postgres://u:p@one.example,two.example/chat?target_session_attrs=read-write&pool_max_conns=7", "one.example", "chat", 7},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg, err := config.Database{DatabaseURL: test.url}.PoolConfig()
			if err != nil {
				t.Fatal(err)
			}
			if cfg.ConnConfig.Host != test.host || cfg.ConnConfig.Database != test.database || cfg.MaxConns != test.maxConns {
				t.Errorf("host %s, database %s, %d connections; want %s, %s, %d",
					cfg.ConnConfig.Host, cfg.ConnConfig.Database, cfg.MaxConns, test.host, test.database, test.maxConns)
			}
			if _, ok := cfg.ConnConfig.RuntimeParams["pool_max_conns"]; ok {
				t.Error("Postgres would get a setting of the pool")
			}
		})
	}
}

// Shards that are databases of one server share its connections.
func TestPoolSize(t *testing.T) {
	const one, two = "postgres://u@one.example", "postgres://u@two.example"
	for _, tc := range []struct {
		name   string
		shards []string
		want   int32
	}{
		{"a server each", []string{"a=" + one + "/a", "b=" + two + "/b"}, 12},
		{"other ports", []string{"a=" + one + ":5432/a", "b=" + one + ":5433/b"}, 12},
		{"two of one server", []string{"a=" + one + "/a", "b=" + one + "/b", "c=" + two + "/c"}, 6},
		{"many of one server", slices.Repeat([]string{one}, 8), 3},
		{"its own limit", []string{"a=" + one + "/a?pool_max_conns=20", "b=" + one + "/b"}, 20},
	} {
		for i, s := range tc.shards {
			if !strings.Contains(s, "=") {
				tc.shards[i] = fmt.Sprintf("s%d=%s/s%d", i, s, i)
			}
		}
		d := config.Database{Shards: tc.shards}
		all, err := d.All()
		if err != nil {
			t.Fatal(err)
		}
		if got := d.PoolSize(all[0], config.WatchingConns); got != config.WatchingConns {
			t.Errorf("%s: a small pool has %d connections", tc.name, got)
		}
		if got := d.PoolSize(all[0], 12); got != tc.want {
			t.Errorf("%s: the pool has %d connections, want %d", tc.name, got, tc.want)
		}
	}
	if got := (config.Database{DatabaseURL: one + "/a"}).PoolSize(config.NamedDatabase{URL: one + "/a"}, 12); got != 12 {
		t.Errorf("the pool of the only database has %d connections", got)
	}
}

func TestInvalidDatabaseURLs(t *testing.T) {
	// Wherever the URL is malformed, the error has no part of the password.
	for _, test := range []struct{ name, url, want string }{
		{"an invalid port", "postgres://u:hunter2@h:99999/x", "invalid port"},
		{"a slash in the password", "postgres://u:hun/ter2@h/x", "invalid port"},
		{"a space in the password", "postgres://u:hun ter2@h/x", "failed to parse as URL"},
		{"a percent sign in the password", "postgres://u:hun%zzter2@h/x", "failed to parse as URL"},
		{"a number in the password's place of the port", "postgres://hun:ter2/x@h", "invalid port"},
		{"no scheme", "u:hunter2@h/x", "failed to parse as keyword/value"},
		{"a scheme without colon", "postgres//u:hunter2@h/x", "failed to parse as keyword/value"},
		{"a space in a password among pairs", "host=h password=hun ter2 port=1", "failed to parse as keyword/value"},
		{"an open quote among pairs", "host=h password='hun ter2 port=1", "failed to parse as keyword/value"},
		{"an unknown TLS mode", "postgres://u:hunter2@h/x?sslmode=hunter2", "failed to configure TLS"},
		{"a pool size that is not a number", "postgres://u:hunter2@h/x?pool_max_conns=hunter2", "cannot parse pool_max_conns"},
		{"nonsense", "hunter2", "failed to parse as keyword/value"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := config.Database{DatabaseURL: test.url}.PoolConfig()
			checkError(t, err, "--database-url (BADGED_DATABASE_URL): "+test.want)
			checkError(t, err, "want a URL such as postgres://")
			for _, piece := range []string{"hun", "ter2"} {
				if err != nil && strings.Contains(err.Error(), piece) {
					t.Errorf("the error tells the password: %v", err)
				}
			}
		})
	}
}

func TestExpireAfter(t *testing.T) {
	got, err := server(func(s *config.Server) { s.Expire = []string{"chat=168h", "a=b=1h", "*=72h30m"} }).ExpireAfter()
	want := map[string]time.Duration{"chat": 168 * time.Hour, "a=b": time.Hour, "*": 72*time.Hour + 30*time.Minute}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, error %v, want %v", got, err, want)
	}
}
