package inbound

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/badged/badged/internal/base/wait"
)

const (
	// lookInterval is the time between two checks of the files of a certificate. It need not be
	// shorter, since certificates are renewed days before they expire.
	lookInterval = 5 * time.Second
	// retryInterval is the time between two attempts to load unusable files. Each failed
	// attempt counts in the metrics, so that an alert continues to fire until the files are
	// usable.
	retryInterval = time.Minute
)

// Certificate is a TLS certificate with its key. It is loaded from files, and again when these
// files change. It is safe for concurrent use.
type Certificate struct {
	files   wait.Files
	current atomic.Pointer[tls.Certificate]
}

// LoadCertificate reads a certificate chain and its key, in PEM. It fails if the key is not the key
// of the certificate, or if the certificate is not valid now.
func LoadCertificate(certFile, keyFile string) (*Certificate, error) {
	c := &Certificate{files: wait.Files{Paths: []string{certFile, keyFile}, Interval: lookInterval, Retry: retryInterval}}
	return c, c.use(c.files.Read())
}

// use makes new connections use the certificate in `files`. If the certificate is unusable, use
// returns an error and changes nothing.
func (c *Certificate) use(files [][]byte, err error) error {
	if err != nil {
		return fmt.Errorf("read the certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(files[0], files[1])
	if err != nil {
		return fmt.Errorf("%s with the key %s: %w", c.files.Paths[0], c.files.Paths[1], err)
	}
	switch now, leaf := time.Now(), pair.Leaf; {
	case now.After(leaf.NotAfter):
		return fmt.Errorf("the certificate %s has expired at %s", c.files.Paths[0], leaf.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("the certificate %s is not valid before %s", c.files.Paths[0], leaf.NotBefore.UTC().Format(time.RFC3339))
	}
	c.current.Store(&pair)
	return nil
}

// TLS returns the configuration of a listener. It offers only HTTP/1.1, which WebSockets need.
func (c *Certificate) TLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return c.current.Load(), nil
		},
	}
}

// Run loads changed files until ctx is done, and returns nil. If the new files are unusable,
// new connections continue to get the former certificate.
func (c *Certificate) Run(ctx context.Context, log *slog.Logger, m *Metrics) error {
	m.expires.Set(float64(c.current.Load().Leaf.NotAfter.Unix()))
	c.files.Use = func(ctx context.Context, files [][]byte, err error) error {
		err = c.use(files, err)
		expires := c.current.Load().Leaf.NotAfter
		if err != nil {
			m.reloads.WithLabelValues("error").Inc()
			log.WarnContext(ctx, "the new certificate cannot be used; connections get the former one", "expires", expires, "error", err)
			return err
		}
		m.reloads.WithLabelValues("ok").Inc()
		m.expires.Set(float64(expires.Unix()))
		log.InfoContext(ctx, "the certificate was renewed", "expires", expires)
		return nil
	}
	return c.files.Run(ctx)
}
