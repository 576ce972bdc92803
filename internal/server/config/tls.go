package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
)

// TLS configures TLS on the listener for clients.
type TLS struct {
	TLSCert string `name:"tls-cert" help:"File with the certificate chain of --listen, in PEM. With it, --listen uses TLS. The file is read again when it changes. Default: no TLS." placeholder:"FILE"`
	TLSKey  string `name:"tls-key" help:"File with the private key of --tls-cert, in PEM." placeholder:"FILE"`
}

// Validate implements kong's validation.
func (t TLS) Validate() error {
	if (t.TLSCert == "") != (t.TLSKey == "") {
		return errors.New("--tls-cert and --tls-key belong together: give both, or neither")
	}
	return nil
}

// ClearTextRisks returns warnings about connections to Postgres and Redis on other hosts that may
// be unencrypted.
func (s *Server) ClearTextRisks() []string {
	var risks []string
	databases, _ := s.All() // Validate returns its error
	for _, database := range databases {
		if host := database.clearTextHost(); host != "" {
			risks = append(risks, fmt.Sprintf("%s: the connection to %s may be in the clear: add sslmode=verify-full and sslrootcert=FILE", database.flag(), host))
		}
	}
	if u, err := url.Parse(s.RedisURL); err == nil && u.Scheme == "redis" {
		hosts := []string{u.Hostname()}
		for _, address := range u.Query()["addr"] {
			host, _, err := net.SplitHostPort(address)
			if err != nil {
				host = address
			}
			hosts = append(hosts, host)
		}
		if i := slices.IndexFunc(hosts, isOtherHost); i >= 0 {
			risks = append(risks, fmt.Sprintf("--redis-url: the connection to %s is in the clear, with users' badges: use rediss://", hosts[i]))
		}
	}
	return risks
}

// clearTextHost returns the first other host to which a connection may be unencrypted, or "".
func (s NamedDatabase) clearTextHost() string {
	cfg, err := s.PoolConfig()
	if err != nil {
		return ""
	}
	c := cfg.ConnConfig
	if c.TLSConfig == nil && isOtherHost(c.Host) {
		return c.Host
	}
	for _, f := range c.Fallbacks { // with sslmode=prefer, the second connection attempt does not use TLS
		if f.TLSConfig == nil && isOtherHost(f.Host) {
			return f.Host
		}
	}
	return ""
}

// isOtherHost reports whether connections to a host may leave this machine. A host that is a
// path is a Unix socket on this machine.
func isOtherHost(host string) bool {
	ip := net.ParseIP(host)
	return host != "" && host != "localhost" && !strings.HasPrefix(host, "/") && !strings.HasPrefix(host, "@") && (ip == nil || !ip.IsLoopback())
}
