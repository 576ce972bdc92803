package inbound

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/badged/badged/internal/wait"
)

// lookInterval is how often the files of a certificate are read. Watching them would
// miss changes on some file systems, and a renewal has days.
const lookInterval = 5 * time.Second

// Certificate is a TLS certificate with its key, from files that may be renewed. It is
// safe for concurrent use.
type Certificate struct {
	certFile, keyFile string
	current           atomic.Pointer[tls.Certificate]
	// seen is the content of the files that was tried last. Only Run uses it.
	seen []byte
}

// LoadCertificate reads a certificate chain and its key, in PEM. It fails if they do
// not belong together, or if the certificate is not valid now.
func LoadCertificate(certFile, keyFile string) (*Certificate, error) {
	c := &Certificate{certFile: certFile, keyFile: keyFile}
	chain, key, err := c.read()
	if err != nil {
		return nil, err
	}
	c.seen = slices.Concat(chain, key)
	return c, c.use(chain, key)
}

func (c *Certificate) read() (chain, key []byte, err error) {
	if chain, err = os.ReadFile(c.certFile); err == nil {
		key, err = os.ReadFile(c.keyFile)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read the certificate: %w", err)
	}
	return chain, key, nil
}

// use makes new connections get a certificate, unless something is wrong with it.
func (c *Certificate) use(chain, key []byte) error {
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return fmt.Errorf("%s with the key %s: %w", c.certFile, c.keyFile, err)
	}
	switch now, leaf := time.Now(), pair.Leaf; {
	case now.After(leaf.NotAfter):
		return fmt.Errorf("the certificate %s has expired at %s", c.certFile, leaf.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("the certificate %s is not valid before %s", c.certFile, leaf.NotBefore.UTC().Format(time.RFC3339))
	}
	c.current.Store(&pair)
	return nil
}

// TLS returns the configuration of a listener. It offers HTTP/1.1 alone, which
// WebSockets need.
func (c *Certificate) TLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return c.current.Load(), nil
		},
	}
}

// Run takes over new files until ctx is done, and returns nil. While something is
// wrong with them, connections get the former certificate.
func (c *Certificate) Run(ctx context.Context, log *slog.Logger, m *Metrics) error {
	m.expires.Set(float64(c.current.Load().Leaf.NotAfter.Unix()))
	return wait.Every(ctx, lookInterval, func(ctx context.Context) {
		changed, err := c.reload()
		expires := c.current.Load().Leaf.NotAfter
		switch {
		case err != nil:
			m.reloads.WithLabelValues("error").Inc()
			log.WarnContext(ctx, "the new certificate cannot be used; connections get the former one", "expires", expires, "error", err)
		case changed:
			m.reloads.WithLabelValues("ok").Inc()
			m.expires.Set(float64(expires.Unix()))
			log.InfoContext(ctx, "the certificate was renewed", "expires", expires)
		}
	})
}

// reload takes over the files if they have changed since the last call.
func (c *Certificate) reload() (changed bool, err error) {
	chain, key, err := c.read()
	if err != nil {
		return false, err
	}
	content := slices.Concat(chain, key)
	if bytes.Equal(content, c.seen) {
		return false, nil
	}
	c.seen = content
	return true, c.use(chain, key)
}
