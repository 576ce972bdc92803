// Package config is what can be set, with names, defaults and help. Each
// setting is a flag, an environment variable BADGED_… and a key of the
// configuration file, in this order of precedence.
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

// Tokens says which tokens of users are good.
type Tokens struct {
	JWTKeys     []string `name:"jwt-keys" help:"Keys of user tokens: KID=HS256:SECRET (at least 32 bytes), or KID=RS256:PEM-FILE, ES256, EdDSA; comma-separated." placeholder:"KID=METHOD:KEY"`
	JWTAudience string   `name:"jwt-audience" help:"Audience (aud) that tokens must have; empty accepts any." placeholder:"AUD"`
	JWTIssuer   string   `name:"jwt-issuer" help:"Issuer (iss) that tokens must have; empty accepts any." placeholder:"ISS"`
}

// Limits says how much clients may ask for; 0 is no limit.
type Limits struct {
	MaxConnections     int            `help:"Most connections of clients to this process; 0 for no limit." default:"0"`
	MaxUserConnections int            `help:"Most connections of one user to this process; 0 for no limit." default:"100"`
	ConnectsPerSecond  float64        `help:"Connections per second from one address (of IPv6 a /64); 0 for no limit. Behind a proxy give --trusted-proxies, or all count as one." default:"0"`
	CommandsPerSecond  float64        `help:"Commands per second on one connection, or by HTTP of one user; 0 for no limit." default:"50"`
	TrustedProxies     []netip.Prefix `help:"Addresses of proxies whose X-Forwarded-For is believed, such as 10.0.0.0/8; comma-separated." placeholder:"CIDR"`
}

// Validate implements kong's validation.
func (l *Limits) Validate() error {
	var errs []error
	for _, limit := range []struct {
		flag  string
		value float64
	}{
		{"--max-connections", float64(l.MaxConnections)},
		{"--max-user-connections", float64(l.MaxUserConnections)},
		{"--connects-per-second", l.ConnectsPerSecond},
		{"--commands-per-second", l.CommandsPerSecond},
	} {
		if limit.value < 0 || math.IsNaN(limit.value) {
			errs = append(errs, fmt.Errorf("%s must be 0 (no limit) or more", limit.flag))
		}
	}
	return errors.Join(errs...)
}

// Log says what is logged and how.
type Log struct {
	LogLevel  string `help:"Least severe level that is logged: debug, info, warn or error." default:"info" enum:"debug,info,warn,error"`
	LogFormat string `help:"Format of log lines: text or json." default:"text" enum:"text,json"`
}

// Role is a part of the server that can run in a process of its own.
type Role string

// The roles.
const (
	RoleAPI       Role = "api"       // takes events and answers for badges over HTTP
	RoleProjector Role = "projector" // folds the log into the badges
	RoleGateway   Role = "gateway"   // tells clients over WebSockets and server-sent events
)

// Server is what a server needs to know.
type Server struct {
	Database `embed:""`
	Tokens   `embed:""`

	JWKSURL           string   `name:"jwks-url" help:"Where further keys of user tokens are, as a JSON Web Key Set; asked again every five minutes and when a token names a key that is not known." placeholder:"URL"`
	Listen            string   `help:"Address of HTTP, WebSocket and metrics; port 0 picks a free one." default:"127.0.0.1:8080"`
	RedisURL          string   `name:"redis-url" help:"Redis that carries updates between processes; without it all roles must run in this one." placeholder:"URL"`
	Roles             []Role   `help:"Roles of this process: api, projector, gateway; comma-separated." default:"api,projector,gateway" enum:"api,projector,gateway"`
	PublisherKeys     []string `help:"Keys of publishers: NAME=SECRET or NAME=sha256:HEX; comma-separated." placeholder:"NAME=KEY"`
	AdminKeys         []string `help:"Keys of operators, who may do all, in the same form." placeholder:"NAME=KEY"`
	AllowedOrigins    []string `help:"Origins of browser pages that may connect, such as https://chat.example; * allows any. Default: the server's own." placeholder:"ORIGIN"`
	Limits            `embed:""`
	ReconcileInterval time.Duration `help:"How long a lost update can stay unnoticed." default:"30s"`
	CacheMiB          int           `name:"cache-mib" help:"Memory, in MiB, for users whose rows a projector remembers instead of loading them again." default:"256"`
	VerifyInterval    time.Duration `help:"How often a few users of a partition are folded again from the log and compared, rarer where the log is long; 0 for never." default:"1m"`
	VerifySample      int           `help:"Most users compared each time, 1 to 16; fewer where the log is long." default:"10"`
	SelfHeal          bool          `help:"Make the badges of a user what the log says where they are found to differ; otherwise it is only logged."`
	DedupWindow       time.Duration `help:"How long the keys of events are remembered at least, so that one that comes again changes nothing." default:"336h"`
	Expire            []string      `help:"Conversations that are read after so long without a message, at least 1h: CATEGORY=DURATION; * stands for every category not named; comma-separated. Default: none." placeholder:"CATEGORY=DURATION"`
	DrainDuration     time.Duration `help:"Time over which the connections of clients are closed when the server stops; 0 for all at once." default:"2s"`
	DrainTimeout      time.Duration `help:"How long connections have to end once they are closed, and requests to be answered, when the server stops." default:"5s"`
	Migrate           bool          `help:"Run pending migrations first."`
	Tracing           `embed:""`
}

// Tracing says where traces of events go.
type Tracing struct {
	OTLPEndpoint string  `name:"otlp-endpoint" help:"Receiver of traces, by OTLP over HTTP, such as http://127.0.0.1:4318. Default: nothing is traced." placeholder:"URL" env:"BADGED_OTLP_ENDPOINT,OTEL_EXPORTER_OTLP_ENDPOINT"`
	TraceSample  float64 `help:"Share, from 0 to 1, of the traces begun here that are made; those that publishers began are made where these make them." default:"0.01"`
}

// Validate implements kong's validation.
func (t *Tracing) Validate() error {
	if math.IsNaN(t.TraceSample) || t.TraceSample < 0 || t.TraceSample > 1 {
		return fmt.Errorf("--trace-sample must be from 0 to 1, is %g", t.TraceSample)
	}
	return nil
}

// minDedupWindow keeps generations of keys from being so short that how often
// they are looked at matters.
const minDedupWindow = time.Hour

// PostgresConnections returns how many connections to Postgres this process
// opens at most, where the database URL sets no other limit: for serving and,
// with the role projector, for folding, for what it owns and for expiry.
func (s *Server) PostgresConnections() int {
	serving, folding := int(ServingConns), int(FoldingConns)
	if cfg, err := s.PoolConfig(); err == nil && strings.Contains(s.DatabaseURL, "pool_max_conns") {
		serving, folding = int(cfg.MaxConns), int(cfg.MaxConns)
	}
	if !s.Has(RoleProjector) {
		return serving
	}
	n := serving + folding + 1
	if len(s.Expire) > 0 {
		n++
	}
	return n
}

// How many connections to Postgres a process opens at most, unless
// pool_max_conns in the database URL says otherwise.
const (
	ServingConns int32 = 16
	FoldingConns int32 = 8
)

// Has reports whether this process has a role.
func (s *Server) Has(r Role) bool { return slices.Contains(s.Roles, r) }

// Validate implements kong's validation. It names everything that is amiss, so
// that whoever starts from nothing need not find out one by one.
func (s *Server) Validate() error {
	errs := []error{s.Database.Validate(), s.Limits.Validate(), s.Tracing.Validate()}
	if s.Has(RoleAPI) && len(s.PublisherKeys) == 0 {
		errs = append(errs, errors.New("--publisher-keys (BADGED_PUBLISHER_KEYS) is required with the role api: without a key nobody can publish"))
	}
	if s.Has(RoleGateway) && len(s.JWTKeys) == 0 && s.JWKSURL == "" {
		errs = append(errs, errors.New("--jwt-keys (BADGED_JWT_KEYS) or --jwks-url (BADGED_JWKS_URL) is required with the role gateway: without a key nobody can connect"))
	}
	errs = append(errs, s.validateRoles())
	if _, err := s.ExpireAfter(); err != nil {
		errs = append(errs, err)
	}
	if s.ReconcileInterval <= 0 {
		errs = append(errs, errors.New("--reconcile-interval must be more than 0s"))
	}
	if s.DedupWindow < minDedupWindow {
		errs = append(errs, fmt.Errorf("--dedup-window (BADGED_DEDUP_WINDOW) must be at least 1h, is %s: "+
			"give more than the time for which publishers try again", s.DedupWindow))
	}
	if s.CacheMiB < 1 {
		errs = append(errs, errors.New("--cache-mib must be 1 or more"))
	}
	if s.VerifyInterval < 0 {
		errs = append(errs, errors.New("--verify-interval must be 0s (never) or more"))
	}
	if s.VerifyInterval > 0 && (s.VerifySample < 1 || s.VerifySample > 16) {
		errs = append(errs, errors.New("--verify-sample must be from 1 to 16"))
	}
	if s.DrainDuration < 0 {
		errs = append(errs, errors.New("--drain-duration must be 0s (all at once) or more"))
	}
	if s.DrainTimeout <= 0 {
		errs = append(errs, errors.New("--drain-timeout must be more than 0s"))
	}
	return errors.Join(errs...)
}

func (s *Server) validateRoles() error {
	if len(s.Roles) == 0 {
		return errors.New("--roles names no role: want some of api, projector, gateway")
	}
	for _, r := range []Role{RoleAPI, RoleProjector, RoleGateway} {
		if !s.Has(r) && s.RedisURL == "" {
			return fmt.Errorf("--redis-url (BADGED_REDIS_URL) is required, since the role %s runs in another process", r)
		}
	}
	return nil
}
