// Package egress calls addresses that others give, such as webhooks and push
// subscriptions, without letting them reach the network that badged runs in.
//
// It does not know what is sent. ADR 139 says why addresses are checked when a connection
// is made.
package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/net/idna"
)

// Config configures a client. The zero value is usable.
type Config struct {
	// AllowPrivate permits plain http, and addresses of private networks and of
	// this machine. Link-local addresses, among them those of cloud metadata,
	// stay refused.
	AllowPrivate bool
	// Timeout bounds a call from dialing to the last byte of the answer.
	// Default 15s.
	Timeout time.Duration
	// MaxRedirects is how many redirects a call follows, each to an address that
	// is checked like the first. By default a call follows none and returns the
	// answer that redirects.
	MaxRedirects int
	// MaxBody is the most bytes of an answer that can be read; reading more
	// fails with ErrTooLong. Default 64 KiB.
	MaxBody int64
	// MaxConnsPerHost bounds the connections to one host, idle ones included.
	// Default 64.
	MaxConnsPerHost int
	// RootCAs verify certificates. Default: those of the system.
	RootCAs *x509.CertPool
	// Resolver resolves names. Default net.DefaultResolver.
	Resolver *net.Resolver
}

// ErrTooLong is returned by the body of an answer that exceeds Config.MaxBody.
var ErrTooLong = errors.New("the answer is too long")

// RefusedError is the error of a call to an address that badged does not call.
type RefusedError struct {
	Addr netip.Addr
	// Why says what the address is, such as "a private network".
	Why string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("refused to connect to %s: it belongs to %s", e.Addr, e.Why)
}

const (
	dialTimeout      = 5 * time.Second
	handshakeTimeout = 5 * time.Second
	idleTimeout      = 90 * time.Second
	maxHeaderBytes   = 64 << 10
)

// NewClient returns a client that checks each address when it connects, thus
// after names are resolved and after redirects. It uses no proxy: a proxy would
// resolve names itself, behind the check.
func NewClient(cfg Config) *http.Client {
	if cfg.Timeout <= 0 {
		cfg.Timeout = 15 * time.Second
	}
	if cfg.MaxBody <= 0 {
		cfg.MaxBody = 64 << 10
	}
	if cfg.MaxConnsPerHost <= 0 {
		cfg.MaxConnsPerHost = 64
	}
	dialer := &net.Dialer{
		Timeout: dialTimeout, KeepAlive: 30 * time.Second, Resolver: cfg.Resolver,
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			return checkAddress(address, cfg.AllowPrivate)
		},
	}
	return &http.Client{
		Timeout: cfg.Timeout,
		Transport: &bounded{max: cfg.MaxBody, next: &http.Transport{
			DialContext:            dialer.DialContext,
			TLSClientConfig:        &tls.Config{RootCAs: cfg.RootCAs, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:    handshakeTimeout,
			ForceAttemptHTTP2:      true, // a dialer of one's own turns it off otherwise
			MaxConnsPerHost:        cfg.MaxConnsPerHost,
			MaxIdleConnsPerHost:    cfg.MaxConnsPerHost,
			IdleConnTimeout:        idleTimeout,
			MaxResponseHeaderBytes: maxHeaderBytes,
		}},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			switch {
			case cfg.MaxRedirects == 0:
				return http.ErrUseLastResponse
			case len(via) > cfg.MaxRedirects:
				return fmt.Errorf("redirects more than %d times", cfg.MaxRedirects)
			case via[len(via)-1].URL.Scheme == "https" && r.URL.Scheme != "https":
				return errors.New("redirects from https to http")
			}
			return nil
		},
	}
}

// checkAddress returns an error if a client must not connect to an address,
// which has the form ip:port.
func checkAddress(address string, allowPrivate bool) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("refused to connect: %w", err)
	}
	if why := refusal(to.Addr(), allowPrivate); why != "" {
		return &RefusedError{to.Addr(), why}
	}
	return nil
}

// CheckURL returns what is wrong with an address, or "". It resolves no name:
// the client checks what a name stands for when it connects.
func CheckURL(raw string, allowPrivate bool) string {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return "is not a URL" // err repeats the URL, which may hold a secret
	case u.Scheme == "https", u.Scheme == "http" && allowPrivate:
	case allowPrivate:
		return "must begin with https:// or http://"
	default:
		return "must begin with https://"
	}
	switch {
	case strings.Trim(u.Hostname(), ".") == "":
		return "has no host"
	case u.User != nil:
		return "must not hold a user or a password"
	case u.Fragment != "":
		return "must not have a fragment"
	}
	if port, err := strconv.ParseUint(u.Port(), 10, 16); u.Port() != "" && (err != nil || port == 0) {
		return "has a port that is not from 1 to 65535"
	}
	return checkHost(u.Hostname(), allowPrivate)
}

// checkHost returns what is wrong with a host without looking up its name, or "".
func checkHost(host string, allowPrivate bool) string {
	if addr, err := netip.ParseAddr(host); err == nil {
		if why := refusal(addr, allowPrivate); why != "" {
			return "belongs to " + why
		}
		return ""
	}
	name, err := idna.Lookup.ToASCII(strings.TrimSuffix(host, ".")) // as net/http does
	if err != nil {
		name = host // such as one with an underscore, which DNS permits
	}
	name = strings.ToLower(name)
	last := name[strings.LastIndexByte(name, '.')+1:]
	switch {
	case isNumber(last):
		// Resolvers of operating systems take 127.1, 2130706433 and 0x7f.0.0.1 for addresses.
		return "has an address that is not written as four decimal numbers"
	case last == "localhost" && !allowPrivate: // RFC 6761
		return "belongs to " + loopback
	}
	return ""
}

// isNumber reports whether a label is a number, as parts of IPv4 addresses may be written.
func isNumber(label string) bool {
	digits, isHex := strings.CutPrefix(label, "0x")
	if isHex {
		return strings.Trim(digits, "0123456789abcdef") == ""
	}
	return digits != "" && strings.Trim(digits, "0123456789") == ""
}

// bounded limits how much of an answer can be read.
type bounded struct {
	next http.RoundTripper
	max  int64
}

func (b *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	res.Body = &boundedBody{res.Body, b.max}
	return res, nil
}

// CloseIdleConnections is called by the method of the client.
func (b *bounded) CloseIdleConnections() {
	if c, ok := b.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// boundedBody is a body with a limit: left is how many more bytes can be read.
type boundedBody struct {
	io.ReadCloser
	left int64
}

func (b *boundedBody) Read(p []byte) (int, error) {
	// One byte more than allowed tells a long body from one that ends there.
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left+1)])
	if int64(n) > b.left {
		n, err = int(b.left), ErrTooLong
	}
	b.left -= int64(n)
	return n, err
}
