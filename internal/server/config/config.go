// Package config defines the settings: their names, defaults and help. The value of a setting
// comes from a flag, else from the environment variable BADGED_…, else from the configuration
// file.
//
// It does not know what the settings do.
package config

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Tokens configures the verification of users' access tokens.
type Tokens struct {
	JWTKeys     []string `name:"jwt-keys" help:"Keys that verify tokens of users: KID=HS256:SECRET (at least 32 bytes), or KID=RS256:PEM-FILE, or the same with ES256 or EdDSA; comma-separated." placeholder:"KID=METHOD:KEY"`
	JWTAudience string   `name:"jwt-audience" help:"Audience (aud) that tokens must have; if it is empty, any audience is accepted." placeholder:"AUD"`
	JWTIssuer   string   `name:"jwt-issuer" help:"Issuer (iss) that tokens must have; if it is empty, any issuer is accepted." placeholder:"ISS"`
}

// Limits are the limits of clients. 0 means no limit, unless the help of a limit says otherwise.
type Limits struct {
	MaxConnections     int            `help:"Maximum number of connections of users to this process; 0 for as many as the limit of open files allows." default:"0"`
	MaxUnauthenticated int            `help:"Maximum number of connections to this process that have not sent a valid key or token yet; a further connection closes the oldest of them. 0 for a third of the connections that the limit of open files allows, at most 8192." default:"0"`
	MaxUserConnections int            `help:"Maximum number of connections of one user to this process; 0 for no limit." default:"100"`
	ConnectsPerSecond  float64        `help:"Maximum number of new connections per second from one address (IPv6: one /64); 0 for no limit. Behind a proxy, set --trusted-proxies: otherwise all clients have the address of the proxy." default:"0"`
	CommandsPerSecond  float64        `help:"Maximum number of commands per second of one user to this process, over all connections and HTTP together; 0 for no limit." default:"50"`
	ReadsPerSecond     float64        `help:"Maximum number of HTTP requests per second with tokens of one user to this process; for all users with one address (IPv6: one /64), ten times as many. Only a few of these requests run at the same time. 0 for no limit. Behind a proxy, set --trusted-proxies: otherwise all clients have the address of the proxy." default:"20"`
	LockTimeout        time.Duration  `help:"How long requests to read and publish wait for locks in Postgres, such as the locks of a migration of another program. After that the answer is 503 with Retry-After. 0 for no limit." default:"4s"`
	BodyMemoryMiB      int            `name:"body-memory-mib" help:"Memory, in MiB, for bodies of requests in this process, at least 64. A body counts with four times its size, which includes the decoded events. One key may use half of the memory, and all users together a quarter. 0 for a quarter of the memory limit of the process (GOMEMLIMIT, or the limit of the container), at least 64 and at most 1024, or 256 if there is no limit." default:"0"`
	TrustedProxies     []netip.Prefix `help:"Addresses of proxies whose header X-Forwarded-For is trusted, such as 10.0.0.0/8; comma-separated." placeholder:"CIDR"`
}

// Validate implements kong's validation.
func (l *Limits) Validate() error {
	var p problems
	for _, limit := range []struct {
		flag  string
		value float64
	}{
		{"--max-connections", float64(l.MaxConnections)},
		{"--max-unauthenticated", float64(l.MaxUnauthenticated)},
		{"--max-user-connections", float64(l.MaxUserConnections)},
		{"--connects-per-second", l.ConnectsPerSecond},
		{"--commands-per-second", l.CommandsPerSecond},
		{"--reads-per-second", l.ReadsPerSecond},
		{"--body-memory-mib", float64(l.BodyMemoryMiB)},
		{"--lock-timeout", l.LockTimeout.Seconds()},
	} {
		p.addIf(limit.value < 0 || math.IsNaN(limit.value), "%s must be 0 (no limit) or more", limit.flag)
	}
	p.addIf(l.BodyMemoryMiB > 0 && l.BodyMemoryMiB < MinBodyMemoryMiB, "--body-memory-mib must be at least %d, or 0: half of it must have room for the largest request", MinBodyMemoryMiB)
	return errors.Join(p...)
}

// MinBodyMemoryMiB is the minimum of --body-memory-mib, if it is not 0.
const MinBodyMemoryMiB = 64

// Log configures logging.
type Log struct {
	LogLevel  string `help:"Lowest level of log lines that are written: debug, info, warn or error." default:"info" enum:"debug,info,warn,error"`
	LogFormat string `help:"Format of log lines: text or json." default:"text" enum:"text,json"`
}

// Role is a part of the server. The roles of a server may run in several processes.
type Role string

// The roles of a process.
const (
	RoleAPI       Role = "api"       // publishing and reading badges over HTTP
	RoleProjector Role = "projector" // folds the log into the badges
	RoleGateway   Role = "gateway"   // pushes badges over WebSockets and server-sent events
	RoleNotifier  Role = "notifier"  // pushes badges to devices and calls webhooks
	RoleIngest    Role = "ingest"    // reads events from brokers
)

// Server has the settings of a server.
type Server struct {
	Database `embed:""`
	Tokens   `embed:""`

	JWKSURL           string        `name:"jwks-url" help:"URL of a JSON Web Key Set with further keys that verify tokens of users. It is fetched every five minutes, and when a token names an unknown key." placeholder:"URL"`
	JWKSMaxAge        time.Duration `name:"jwks-max-age" help:"For how long keys fetched from --jwks-url are used while the URL cannot be reached, at least 10m. After that the keys are not trusted. 0 for no limit." default:"0s"`
	JWTMaxLifetime    time.Duration `name:"jwt-max-lifetime" help:"Maximum time between iat and exp of a user's token, which must have both. Revocations are deleted an hour after this time has passed. Set the same value in all processes. 0 for no limit: then tokens need no iat, and revocations are never deleted." default:"720h"`
	Listen            string        `help:"Address of the listener for HTTP, WebSockets and metrics; port 0 selects a free port." default:"127.0.0.1:8080"`
	TLS               `embed:""`
	InternalListen    string   `help:"Address of a separate listener for operators, which serves /metrics, /readyz, /livez, /openapi.json, /asyncapi.json, /admin/, /admin/v1/ and /debug/pprof/. Of these routes, --listen then serves only /livez. Default: none." placeholder:"ADDRESS"`
	RedisURL          string   `name:"redis-url" help:"URL of the Redis that carries updates between processes. Without Redis, all roles must run in this process." placeholder:"URL"`
	BusKey            []string `help:"Secrets of at least 32 bytes for signatures of messages on Redis; comma-separated. The first secret signs messages, all secrets verify them; messages without a valid signature are dropped. Set the same secrets in all processes. Default: messages are not signed." placeholder:"SECRET"`
	Roles             []Role   `help:"Roles of this process: api, projector, gateway, notifier, ingest; comma-separated. ingest does nothing without --from." default:"api,projector,gateway,notifier,ingest" enum:"api,projector,gateway,notifier,ingest"`
	PublisherKeys     []string `help:"Keys of publishers: NAME=SECRET or NAME=sha256:HEX; comma-separated." placeholder:"NAME=KEY"`
	AdminKeys         []string `help:"Keys of operators, who may do everything: NAME=SECRET or NAME=sha256:HEX; comma-separated." placeholder:"NAME=KEY"`
	KeysFile          string   `help:"YAML or JSON file with keys of publishers, readers and admins, and what each key may do. The file is loaded again when it changes, and on SIGHUP. Without the role api the file may be missing, and is read only for --internal-listen." placeholder:"FILE"`
	AllowedOrigins    []string `help:"Origins of web pages that may connect, such as https://chat.example, or capacitor://localhost, file:// and null for hybrid apps; * allows any origin. Default: the origin of the server." placeholder:"ORIGIN"`
	Limits            `embed:""`
	MaxLag            time.Duration `help:"How far folding may fall behind. Above this, publishing over HTTP is refused with 429 and Retry-After. 0 for no limit." default:"30s"`
	ReconcileInterval time.Duration `help:"How often the states of clients are compared with Postgres. After this time at most, a client that missed an update is corrected." default:"30s"`
	CacheMiB          int           `name:"cache-mib" help:"Memory, in MiB, for the caches of a projector: rows of users and filters of event keys." default:"256"`
	VerifyInterval    time.Duration `help:"How often a few users of a partition are verified by replaying the log. If the log is long, they are verified less often. 0 for never." default:"1m"`
	VerifySample      int           `help:"Maximum number of users that are verified each time, 1 to 16; fewer if the log is long." default:"10"`
	SelfHeal          bool          `help:"Correct the badge of a user that differs from the log. Without this setting, differences are only logged."`
	DedupWindow       time.Duration `help:"Minimum time for which event keys are stored, so that a repeated event within this time changes nothing." default:"336h"`
	Expire            []string      `help:"Mark conversations as read that had no new messages for this time, at least 1h: CATEGORY=DURATION; * stands for all other categories; comma-separated. Default: never. Levels that were set with an end time end also without this setting." placeholder:"CATEGORY=DURATION"`
	RoomPushInterval  time.Duration `help:"Minimum time between two pushes to all members of a room that has more than 1000 members in a partition." default:"1m"`
	DrainDuration     time.Duration `help:"Time during which the server, when it stops, closes the connections of clients one after the other; 0 to close all at once." default:"2s"`
	DrainTimeout      time.Duration `help:"How long the server, when it stops, waits for connections to close and requests to finish." default:"5s"`
	Migrate           bool          `help:"Run pending migrations before serving."`
	Outbound          `embed:""`
	Webhooks          `embed:""`
	Brokers           `embed:""`
	Tracing           `embed:""`
}

// Tracing configures traces of events.
type Tracing struct {
	OTLPEndpoint string  `name:"otlp-endpoint" help:"Receiver of traces (OTLP over HTTP), such as http://127.0.0.1:4318. Default: nothing is traced." placeholder:"URL" env:"BADGED_OTLP_ENDPOINT,OTEL_EXPORTER_OTLP_ENDPOINT"`
	TraceSample  float64 `help:"The part, from 0 to 1, of the traces started by this process that are sampled. For traces that publishers started, the decision of the publisher applies." default:"0.01"`
}

// Validate implements kong's validation.
func (t *Tracing) Validate() error {
	if math.IsNaN(t.TraceSample) || t.TraceSample < 0 || t.TraceSample > 1 {
		return fmt.Errorf("--trace-sample must be from 0 to 1, is %g", t.TraceSample)
	}
	return nil
}

// minJWKSMaxAge is the minimum of --jwks-max-age. Keys are fetched every five minutes, so with this
// minimum they stay valid if one fetch fails.
const minJWKSMaxAge = 10 * time.Minute

// minDedupWindow is the minimum of --dedup-window. A generation of event keys lasts half a window.
// This half must be much longer than the interval between two checks of the generations.
const minDedupWindow = time.Hour

// Has reports whether this process has a role.
func (s *Server) Has(r Role) bool { return slices.Contains(s.Roles, r) }

// problems collects the mistakes in settings.
type problems []error

// addIf adds a problem if exists is true.
func (p *problems) addIf(exists bool, format string, args ...any) {
	if exists {
		*p = append(*p, fmt.Errorf(format, args...))
	}
}

// Validate implements kong's validation. It reports all mistakes at once.
func (s *Server) Validate() error {
	p := problems{s.Database.Validate(), s.Limits.Validate(), s.Tracing.Validate(), s.Webhooks.Validate(), s.TLS.Validate()}
	p.addIf(s.Has(RoleAPI) && len(s.PublisherKeys) == 0 && s.KeysFile == "",
		"--publisher-keys (BADGED_PUBLISHER_KEYS) or --keys-file (BADGED_KEYS_FILE) is required with the role api: publishing needs a key")
	p.addIf(s.Has(RoleGateway) && len(s.JWTKeys) == 0 && s.JWKSURL == "",
		"--jwt-keys (BADGED_JWT_KEYS) or --jwks-url (BADGED_JWKS_URL) is required with the role gateway: clients connect with tokens")
	p.addIf(s.JWTMaxLifetime < 0, "--jwt-max-lifetime must be 0s (no limit) or more")
	p.addIf(s.JWKSMaxAge != 0 && s.JWKSMaxAge < minJWKSMaxAge, "--jwks-max-age must be 0s (no limit) or at least %s: keys are fetched every five minutes", minJWKSMaxAge)
	p.addIf(s.InternalListen != "" && s.InternalListen == s.Listen && !strings.HasSuffix(s.Listen, ":0"), "--internal-listen must differ from --listen")
	_, expire := s.ExpireAfter()
	p = append(p, s.validateRoles(), ValidateBusKey(s.BusKey), expire)
	p.addIf(s.MaxLag < 0, "--max-lag must be 0s (no limit) or more")
	p.addIf(s.ReconcileInterval <= 0, "--reconcile-interval must be more than 0s")
	p.addIf(s.DedupWindow < minDedupWindow, "--dedup-window (BADGED_DEDUP_WINDOW) must be at least 1h, is %s: it must exceed the time for which publishers retry", s.DedupWindow)
	p.addIf(s.CacheMiB < 1, "--cache-mib must be 1 or more")
	p.addIf(s.VerifyInterval < 0, "--verify-interval must be 0s (never) or more")
	p.addIf(s.VerifyInterval > 0 && (s.VerifySample < 1 || s.VerifySample > 16), "--verify-sample must be from 1 to 16")
	p.addIf(s.RoomPushInterval <= 0, "--room-push-interval must be more than 0s")
	p.addIf(s.DrainDuration < 0, "--drain-duration must be 0s (all at once) or more")
	p.addIf(s.DrainTimeout <= 0, "--drain-timeout must be more than 0s")
	return errors.Join(p...)
}

// minBusKeyBytes is the minimum length of a secret of --bus-key in bytes. A shorter secret could
// be guessed from signed messages.
const minBusKeyBytes = 32

// ValidateBusKey checks the secrets of --bus-key.
func ValidateBusKey(secrets []string) error {
	for i, secret := range secrets {
		if len(secret) < minBusKeyBytes {
			return fmt.Errorf("--bus-key (BADGED_BUS_KEY): secret %d has %d bytes and must have %d or more; `openssl rand -hex 32` makes one",
				i+1, len(secret), minBusKeyBytes)
		}
	}
	return nil
}

func (s *Server) validateRoles() error {
	if len(s.Roles) == 0 {
		return errors.New("--roles names no role: want some of api, projector, gateway, notifier, ingest")
	}
	if s.NeedsBrokers() {
		if len(s.From) == 0 {
			return errors.New("--from (BADGED_FROM) is required with the role ingest alone: it names the brokers")
		}
		return nil // no bus is needed: projectors find events by polling
	}
	for _, r := range []Role{RoleAPI, RoleProjector, RoleGateway} {
		if !s.Has(r) && s.RedisURL == "" {
			return fmt.Errorf("--redis-url (BADGED_REDIS_URL) is required because the role %s runs in another process", r)
		}
	}
	return nil
}
