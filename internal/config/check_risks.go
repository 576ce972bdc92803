package config

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// isSecret reports whether the value of a setting holds a secret.
func isSecret(name string) bool {
	return slices.Contains([]string{"database-url", "redis-url", "jwks-url", "jwt-keys", "publisher-keys", "admin-keys"}, name)
}

// password matches that of a connection string in pairs.
var password = regexp.MustCompile(`(?i)((?:ssl)?password\s*=\s*)('(?:[^'\\]|\\.)*'|\S+)`)

// hide returns a value of a setting without what is secret of it.
func hide(name, text string) string {
	const hidden = "***"
	switch {
	case text == "" || !isSecret(name):
		return text
	case !strings.HasSuffix(name, "-url"):
		id, secret, _ := strings.Cut(text, "=")
		if secret == "" {
			return hidden
		}
		// The method, and the file of a public key, are no secrets.
		if method, rest, ok := strings.Cut(secret, ":"); ok && name == "jwt-keys" && method != "HS256" {
			return id + "=" + method + ":" + rest
		}
		if method, _, ok := strings.Cut(secret, ":"); ok && (method == "HS256" || method == "sha256") {
			return id + "=" + method + ":" + hidden
		}
		return id + "=" + hidden
	case !strings.Contains(text, "://"):
		return password.ReplaceAllString(text, "${1}"+hidden)
	}
	u, err := url.Parse(text)
	if err != nil { // where nobody can tell what is the password
		return hidden
	}
	if _, has := u.User.Password(); has {
		u.User = url.UserPassword(u.User.Username(), hidden)
	}
	query := u.Query()
	for key := range query {
		if strings.Contains(strings.ToLower(key), "password") {
			query.Set(key, hidden)
		}
	}
	u.RawQuery = query.Encode()
	return strings.ReplaceAll(u.String(), url.QueryEscape(hidden), hidden)
}

// risks returns what an operator may regret of settings with which a server
// starts.
func (s *Server) risks() []string {
	var risks []string
	warn := func(when bool, format string, args ...any) {
		if when {
			risks = append(risks, fmt.Sprintf(format, args...))
		}
	}
	api, gateway := s.Has(RoleAPI), s.Has(RoleGateway)
	warn(!isLoopback(s.Listen), "--listen %s: badged speaks no TLS, and /metrics asks for no key: put a proxy in front, and let only it and Prometheus through", s.Listen)
	for _, keys := range []struct {
		flag  string
		specs []string
	}{{"publisher-keys", s.PublisherKeys}, {"admin-keys", s.AdminKeys}} {
		for _, spec := range keys.specs {
			name, secret, ok := strings.Cut(spec, "=")
			hashed := strings.HasPrefix(secret, "sha256:")
			warn(ok && !hashed, "--%s: the key %s is in the clear; %s=sha256:HEX keeps it out of configuration (printf %%s SECRET | sha256sum)", keys.flag, name, name)
			warn(ok && !hashed && len(secret) < 16, "--%s: the key %s is shorter than 16 characters, and may be guessed", keys.flag, name)
		}
	}
	for _, spec := range s.AdminKeys {
		_, secret, _ := strings.Cut(spec, "=")
		warn(slices.ContainsFunc(s.PublisherKeys, func(p string) bool {
			_, other, _ := strings.Cut(p, "=")
			return other == secret
		}), "--admin-keys: a publisher has the same secret, and may do all")
	}
	warn(slices.Contains(s.AllowedOrigins, "*"), "--allowed-origins *: any page may connect with a token that it has got hold of")
	warn(gateway && s.JWKSURL != "" && s.JWTAudience == "", "--jwks-url without --jwt-audience: every token of that login service is good here, also one that is meant for another application")
	warn(strings.HasPrefix(s.JWKSURL, "http://"), "--jwks-url is not https: whoever is in between chooses the keys")
	warn(s.ConnectsPerSecond > 0 && len(s.TrustedProxies) == 0, "--connects-per-second without --trusted-proxies: behind a proxy all clients count as one")
	warn(gateway && s.ReconcileInterval > 5*time.Minute, "--reconcile-interval %s: a client that missed an update shows the old number for so long", s.ReconcileInterval)
	warn(gateway && s.ReconcileInterval < time.Second, "--reconcile-interval %s: every connected user is read from Postgres as often", s.ReconcileInterval)
	warn(s.Has(RoleProjector) && s.VerifyInterval == 0, "--verify-interval 0s: nobody would notice a wrong badge; run `badged verify` regularly")
	warn(s.DedupWindow < 24*time.Hour, "--dedup-window %s: what is published again after that may apply twice", s.DedupWindow)
	warn(len(s.Expire) > 0 && !s.Has(RoleProjector), "--expire has no effect without the role projector")
	warn(s.DrainTimeout > 12*time.Second, "--drain-timeout %s: a stop may take twice as long; give it more than that before it is killed (Kubernetes: terminationGracePeriodSeconds, 30 s by default)", s.DrainTimeout)
	warn(api && len(s.AdminKeys) == 0, "no --admin-keys: nobody can use /admin/v1/")
	return risks
}

// isLoopback reports whether only this machine can reach an address.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return true // which is a mistake of its own
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
