// Package egress provides HTTP clients for URLs that users or operators have entered, such as
// webhooks and push subscriptions. The clients refuse addresses in the private network in which
// badged runs.
//
// The package does not know what is sent. ADR 139 explains why a client checks an address at the
// time of connecting.
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
	// AllowPrivate permits plain http, and addresses of private networks and of this machine.
	// Link-local addresses are always refused, because they include the metadata services of
	// clouds.
	AllowPrivate bool
	// Timeout limits a whole call, from dialing to the last byte of the answer. Default 15s.
	Timeout time.Duration
	// MaxRedirects is the maximum number of redirects that a call follows. The client checks the
	// address of each redirect. Default 0: a call returns a redirect as its answer.
	MaxRedirects int
	// MaxBody is the maximum number of bytes that can be read from the body of an answer. Reading
	// a longer body fails with ErrTooLong. Default 64 KiB.
	MaxBody int64
	// MaxConnsPerHost limits the connections to one host, including idle ones. Default 64.
	MaxConnsPerHost int
	// RootCAs verify the certificates of servers. Default: the certificates of the system.
	RootCAs *x509.CertPool
	// Resolver resolves names. Default net.DefaultResolver.
	Resolver *net.Resolver
}

// ErrTooLong means that the body of an answer has more than Config.MaxBody bytes.
var ErrTooLong = errors.New("the answer is too long")

// RefusedError means that the client has refused to connect to an address.
type RefusedError struct {
	Addr netip.Addr
	// Reason names the range of the address, such as "a private network".
	Reason string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("refused to connect to %s: it belongs to %s", e.Addr, e.Reason)
}

const (
	dialTimeout      = 5 * time.Second
	handshakeTimeout = 5 * time.Second
	idleTimeout      = 90 * time.Second
	maxHeaderBytes   = 64 << 10
)

// NewClient returns a client that checks an IP address each time before it connects, after the name
// was resolved. The client uses no proxy, because a proxy would resolve the name itself, and the
// client could not check the resulting address.
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
			ForceAttemptHTTP2:      true, // a custom dialer would disable HTTP/2
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

// checkAddress returns an error if a client must not connect to an address, which has the form
// ip:port.
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

// CheckURL returns what is wrong with a URL, or "". It does not resolve the host: the client
// checks the IP address when it connects.
func CheckURL(raw string, allowPrivate bool) string {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return "is not a URL" // the error repeats the URL, which may contain a secret
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

// checkHost returns what is wrong with the host of a URL, or "". It does not resolve names.
func checkHost(host string, allowPrivate bool) string {
	if addr, err := netip.ParseAddr(host); err == nil {
		if why := refusal(addr, allowPrivate); why != "" {
			return "belongs to " + why
		}
		return ""
	}
	name, err := idna.Lookup.ToASCII(strings.TrimSuffix(host, ".")) // as net/http does
	if err != nil {
		name = host // for example a name with an underscore, which DNS permits
	}
	name = strings.ToLower(name)
	last := name[strings.LastIndexByte(name, '.')+1:]
	switch {
	case isNumber(last):
		// The resolvers of operating systems accept 127.1, 2130706433 and 0x7f.0.0.1 as
		// addresses.
		return "has an address that is not written as four decimal numbers"
	case last == "localhost" && !allowPrivate: // RFC 6761
		return "belongs to " + loopback
	}
	return ""
}

// isNumber reports whether the last label of a host is a number, decimal or hexadecimal, which
// resolvers accept as a part of an IPv4 address. label is in lower case.
func isNumber(label string) bool {
	digits, isHex := strings.CutPrefix(label, "0x")
	if isHex {
		return strings.Trim(digits, "0123456789abcdef") == ""
	}
	return digits != "" && strings.Trim(digits, "0123456789") == ""
}

// bounded is a transport that limits the bodies of answers to max bytes.
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

// CloseIdleConnections is called by http.Client.CloseIdleConnections.
func (b *bounded) CloseIdleConnections() {
	if c, ok := b.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// boundedBody is the unread part of a body; reading more than `left` bytes fails with ErrTooLong.
type boundedBody struct {
	io.ReadCloser
	left int64
}

func (b *boundedBody) Read(p []byte) (int, error) {
	// Read one byte more than the limit: this distinguishes a body that is too long from a body
	// that ends at the limit.
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left+1)])
	if int64(n) > b.left {
		n, err = int(b.left), ErrTooLong
	}
	b.left -= int64(n)
	return n, err
}

// RetryAfter returns the wait in a Retry-After header, at most `limit`; 0 if there is no wait.
func RetryAfter(h http.Header, now time.Time, limit time.Duration) time.Duration {
	text := h.Get("Retry-After")
	var d time.Duration
	if seconds, err := strconv.ParseInt(text, 10, 32); err == nil || errors.Is(err, strconv.ErrRange) { // for a number out of range, ParseInt returns the greatest number
		d = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		d = at.Sub(now)
	}
	return min(max(d, 0), limit)
}
