package app

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/gateway/push"
	"github.com/badged/badged/internal/admin"
	"github.com/badged/badged/internal/auth"
	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/internal/inbound"
	"github.com/badged/badged/internal/ingest"
	"github.com/badged/badged/internal/keyring"
	"github.com/badged/badged/internal/seal"
	"github.com/badged/badged/pubsub"
)

// Check returns the errors that Open or Listen would return for settings, as
// far as they can be found without connecting.
func Check(cfg config.Server) []error {
	_, errs := parse(cfg, time.Now, nil, nil)
	if _, err := auth.NewTokens(auth.TokenConfig{Keys: cfg.JWTKeys}); err != nil {
		errs = append(errs, fmt.Errorf("--jwt-keys: %w", err))
	}
	if cfg.JWKSURL != "" {
		if _, err := auth.NewKeySet(auth.KeySetConfig{URL: cfg.JWKSURL}); err != nil {
			errs = append(errs, fmt.Errorf("--jwks-url: %w", err))
		}
	}
	if cfg.DatabaseURL != "" {
		if _, err := cfg.PoolConfig(); err != nil {
			errs = append(errs, err)
		}
	}
	if cfg.RedisURL != "" {
		if bus, err := pubsub.NewRedis(pubsub.RedisConfig{URL: cfg.RedisURL}); err != nil {
			errs = append(errs, fmt.Errorf("--redis-url: %w", err))
		} else {
			_ = bus.Close() // it never connected
		}
	}
	if _, err := limitsFor(&cfg); err != nil {
		errs = append(errs, err)
	}
	if _, err := net.ResolveTCPAddr("tcp", cfg.Listen); err != nil {
		errs = append(errs, fmt.Errorf("--listen %s: %w", cfg.Listen, err))
	}
	if cfg.InternalListen != "" {
		if _, err := net.ResolveTCPAddr("tcp", cfg.InternalListen); err != nil {
			errs = append(errs, fmt.Errorf("--internal-listen %s: %w", cfg.InternalListen, err))
		}
	}
	return errs
}

// exists reports whether there is a file, or something that is not one.
func exists(name string) bool {
	_, err := os.Stat(name)
	return name != "" && !errors.Is(err, fs.ErrNotExist)
}

// parsed are settings in the form that the parts need.
type parsed struct {
	keys        *keyring.Ring
	allowOrigin func(*http.Request) bool
	// apps are those that get pushes; box encrypts secrets in the tables.
	apps push.Apps
	box  *seal.Box
	// webhooks is the file that declares some; nil if there is none.
	webhooks *admin.WebhookFile
	// brokers are where events are read from.
	brokers []ingest.Source
	// certificate is nil without TLS.
	certificate *inbound.Certificate
}

// parse parses settings without connecting, and returns all errors. now is the clock of
// quotas, of keys that expire, and of what pushes are signed with.
func parse(cfg config.Server, now func() time.Time, log *slog.Logger, registry prometheus.Registerer) (p parsed, errs []error) {
	keys := keyring.Config{Publishers: cfg.PublisherKeys, Admins: cfg.AdminKeys, Logger: log, Registerer: registry, Now: now}
	if cfg.Has(config.RoleAPI) || cfg.InternalListen != "" && exists(cfg.KeysFile) { // the other roles may lack the file: of keys, only profiles need some
		keys.File = cfg.KeysFile
	}
	p.keys, errs = keyring.New(keys)
	var err error
	if p.allowOrigin, err = originCheck(cfg.AllowedOrigins); err != nil {
		errs = append(errs, fmt.Errorf("--allowed-origins: %w", err))
	}
	if cfg.PushConfig != "" {
		if p.apps, err = push.LoadApps(cfg.PushConfig, pushClient, now); err != nil {
			errs = append(errs, fmt.Errorf("--push-config: %w", err))
		}
	}
	if cfg.WebhooksConfig != "" {
		if p.webhooks, err = admin.NewWebhookFile(cfg.WebhooksConfig, admin.WebhooksConfig{
			AllowPrivate: cfg.WebhooksAllowPrivate, Reminders: len(cfg.RemindAfter) > 0,
		}, log); err != nil {
			errs = append(errs, fmt.Errorf("--webhooks-config: %w", err))
		}
	}
	if p.box, err = seal.ParseKeys(cfg.OutboundKeys); err != nil {
		errs = append(errs, fmt.Errorf("--outbound-keys: %w", err))
	}
	var bad []error
	p.brokers, bad = ingest.Parse(cfg.From)
	errs = append(errs, bad...)
	if cfg.TLSCert != "" && cfg.TLSKey != "" {
		if p.certificate, err = inbound.LoadCertificate(cfg.TLSCert, cfg.TLSKey); err != nil {
			errs = append(errs, fmt.Errorf("--tls-cert: %w", err))
		}
	}
	return p, errs
}
