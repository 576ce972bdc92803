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

	"github.com/badged/badged/internal/bridge/ingest"
	"github.com/badged/badged/internal/notify/push"
	"github.com/badged/badged/internal/notify/seal"
	"github.com/badged/badged/internal/operations"
	"github.com/badged/badged/internal/server/auth"
	"github.com/badged/badged/internal/server/config"
	"github.com/badged/badged/internal/server/inbound"
	"github.com/badged/badged/internal/server/keyring"
	"github.com/badged/badged/pubsub"
)

// Check returns the errors that Open or Listen would return for these settings. It opens no
// connection, so it finds only errors in the settings themselves.
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
	for _, l := range [][2]string{{"--listen", cfg.Listen}, {"--internal-listen", cfg.InternalListen}} {
		flag, address := l[0], l[1]
		if _, err := net.ResolveTCPAddr("tcp", address); err != nil {
			errs = append(errs, addressError(flag, address, err))
		}
	}
	return errs
}

// exists reports whether a file may exist. It returns false only if name is empty, or if
// reading the file's metadata fails with fs.ErrNotExist.
func exists(name string) bool {
	_, err := os.Stat(name)
	return name != "" && !errors.Is(err, fs.ErrNotExist)
}

// parsed has the settings, converted for the parts of the server that use them.
type parsed struct {
	keys        *keyring.Ring
	allowOrigin func(*http.Request) bool
	// apps are the apps that get pushes. box encrypts the secrets stored in tables.
	apps push.Apps
	box  *seal.Box
	// webhooks is the file that declares webhooks; nil without such a file.
	webhooks *operations.WebhookFile
	// brokers are the brokers to read events from.
	brokers []ingest.Source
	// certificate is nil without TLS.
	certificate *inbound.Certificate
}

// parse parses settings without connecting. It returns all errors. The clock `now` is used for
// quotas, for the expiry of keys, and for the signatures of pushes.
func parse(cfg config.Server, now func() time.Time, log *slog.Logger, registry prometheus.Registerer) (p parsed, errs []error) {
	keys := keyring.Config{Publishers: cfg.PublisherKeys, Admins: cfg.AdminKeys, Logger: log, Registerer: registry, Now: now}
	if cfg.Has(config.RoleAPI) || cfg.InternalListen != "" && exists(cfg.KeysFile) { // other roles use keys only for profiles, so the file may be missing
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
		if p.webhooks, err = operations.NewWebhookFile(cfg.WebhooksConfig, webhookRules(&cfg), log); err != nil {
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
