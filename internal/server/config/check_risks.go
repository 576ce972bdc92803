package config

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// isSecret reports whether the value of a setting may contain a secret.
func isSecret(name string) bool {
	return slices.Contains([]string{"database-url", "redis-url", "jwks-url", "jwt-keys", "publisher-keys", "admin-keys", "bus-key", "outbound-keys", "from", "shard"}, name)
}

// password matches the password in a key=value connection string.
var password = regexp.MustCompile(`(?i)((?:ssl)?password\s*=\s*)('(?:[^'\\]|\\.)*'|\S+)`)

// userOfBroker matches the user and password in the URL of a broker. passwordOfBroker matches a
// parameter of the URL whose value is a password.
var (
	userOfBroker     = regexp.MustCompile(`(?s)^([^:/]*://)?.*@`)
	passwordOfBroker = regexp.MustCompile(`(?i)([?&][^=&]*password=)[^&]*`)
)

// hide returns the value of a setting with its secrets hidden.
func hide(name, text string) string {
	const hidden = "***"
	switch {
	case text == "" || !isSecret(name):
		return text
	case name == "shard": // in the environment, one value lists several shards
		d := Database{Shards: []string{text}}
		all, err := d.All()
		if err != nil {
			return hidden
		}
		shown := make([]string, len(all))
		for i, s := range all {
			shown[i] = s.Name + "=" + hide("database-url", s.URL)
		}
		return strings.Join(shown, "\n")
	case name == "bus-key": // the whole value is secret
		return hidden
	case name == "from": // net/url cannot parse a URL with several hosts
		return passwordOfBroker.ReplaceAllString(userOfBroker.ReplaceAllString(text, "${1}"+hidden+"@"), "${1}"+hidden)
	case !strings.HasSuffix(name, "-url"):
		id, secret, _ := strings.Cut(text, "=")
		if secret == "" {
			return hidden
		}
		// The method and the file of a public key are not secret.
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
	if err != nil { // the password cannot be located, so hide the whole value
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

// risks returns warnings about valid but risky settings.
func (s *Server) risks() []string {
	var risks []string
	warn := func(when bool, format string, args ...any) {
		if when {
			risks = append(risks, fmt.Sprintf(format, args...))
		}
	}
	api, gateway := s.Has(RoleAPI), s.Has(RoleGateway)
	warn(!isLoopback(s.Listen) && s.TLSCert == "", "--listen %s: without --tls-cert keys and tokens travel in the clear: give a certificate, or put a proxy with TLS in front and admit only it", s.Listen)
	warn(!isLoopback(s.Listen) && s.InternalListen == "", "--listen %s: /metrics needs no key: move it to --internal-listen, or let a proxy admit only Prometheus to it", s.Listen)
	warn(s.InternalListen != "" && !isLoopback(s.InternalListen), "--internal-listen %s: /metrics needs no key: admit only Prometheus, probes and operators", s.InternalListen)
	risks = append(risks, s.KeyRisks()...)
	risks = append(risks, s.ClearTextRisks()...)
	warn(slices.Contains(s.AllowedOrigins, "*"), "--allowed-origins *: any page may connect with a stolen token")
	warn(slices.Contains(s.AllowedOrigins, "null"), "--allowed-origins null: any page can open a frame with this origin, and connect in it with a stolen token")
	warn(gateway && s.JWKSURL != "" && s.JWTAudience == "", "--jwks-url without --jwt-audience: tokens of that login service for other applications are accepted too")
	warn(s.JWKSURL == "" && s.JWKSMaxAge > 0, "--jwks-max-age has no effect without --jwks-url")
	warn(strings.HasPrefix(s.JWKSURL, "http://"), "--jwks-url is not https: an attacker on the network can replace the keys")
	warn(s.ConnectsPerSecond > 0 && len(s.TrustedProxies) == 0, "--connects-per-second without --trusted-proxies: behind a proxy all clients count as one")
	for _, p := range s.TrustedProxies {
		warn(isWide(p), "--trusted-proxies %s includes addresses of clients: with X-Forwarded-For a client chooses the address under which its connections and wrong keys are counted, and evades the limits for an address: name the proxies only", p)
	}
	for _, names := range s.similarShards() {
		warn(true, "--shard %s: these names differ in case only, and are different shards: a mistyped one is a new, empty shard", strings.Join(names, ", "))
	}
	warn(gateway && s.ReconcileInterval > 5*time.Minute, "--reconcile-interval %s: a client that missed an update shows the old number for that long", s.ReconcileInterval)
	warn(gateway && s.ReconcileInterval < time.Second, "--reconcile-interval %s: every connected user is read from Postgres this often", s.ReconcileInterval)
	warn(s.Has(RoleProjector) && s.VerifyInterval == 0, "--verify-interval 0s: wrong badges go unnoticed; run `badged verify` regularly")
	warn(s.DedupWindow < 24*time.Hour, "--dedup-window %s: an event repeated after that may apply twice", s.DedupWindow)
	warn(s.RedisURL != "" && len(s.BusKey) == 0, "--redis-url without --bus-key: any client of that Redis can show users false badges, for up to --reconcile-interval each time")
	warn(s.RedisURL == "" && len(s.BusKey) > 0, "--bus-key has no effect without --redis-url")
	warn(len(s.From) > 0 && !s.Has(RoleIngest), "--from has no effect without the role ingest")
	warn(len(s.Expire) > 0 && !s.Has(RoleProjector), "--expire has no effect without the role projector")
	warn(s.DrainTimeout > 12*time.Second, "--drain-timeout %s: a stop may take twice as long; give it more than that before it is killed (Kubernetes: terminationGracePeriodSeconds, 30 s by default)", s.DrainTimeout)
	warn(api && s.MaxLag == 0, "--max-lag 0s: publishing is never refused, however far folding falls behind")
	warn(api && len(s.AdminKeys) == 0 && s.KeysFile == "", "neither --admin-keys nor --keys-file: /admin/v1/ is unusable")
	return risks
}

// isWide reports whether a network is larger than every private network.
func isWide(p netip.Prefix) bool {
	if p.Addr().Is4() {
		return p.Bits() < 8 // 10.0.0.0/8
	}
	return p.Bits() < 7 // fc00::/7
}

// similarShards returns groups of names of shards: the names in a group differ only in upper and
// lower case.
func (d Database) similarShards() (groups [][]string) {
	all, err := d.All()
	if err != nil {
		return nil // reported as a mistake
	}
	same := map[string][]string{}
	for _, s := range all {
		folded := strings.ToLower(s.Name)
		same[folded] = append(same[folded], s.Name)
	}
	for _, folded := range slices.Sorted(maps.Keys(same)) {
		if len(same[folded]) > 1 {
			groups = append(groups, same[folded])
		}
	}
	return groups
}

const (
	// shortKey is the length of a key in bytes below which it can be guessed.
	shortKey = 16
	// fewCharacters is the number of different characters below which a secret is probably not
	// random, so that KeyRisks warns about it.
	fewCharacters = 8
)

// KeyRisks returns warnings about weak keys. The warnings do not show the keys.
func (s *Server) KeyRisks() []string {
	var risks []string
	warn := func(when bool, format string, args ...any) {
		if when {
			risks = append(risks, fmt.Sprintf(format, args...))
		}
	}
	for _, keys := range []struct {
		flag  string
		specs []string
	}{{"publisher-keys", s.PublisherKeys}, {"admin-keys", s.AdminKeys}} {
		for _, spec := range keys.specs {
			name, secret, ok := strings.Cut(spec, "=")
			if !ok || strings.HasPrefix(secret, "sha256:") {
				continue
			}
			warn(true, "--%s: the key %s is in plain text; %s=sha256:HEX keeps it out of the configuration (printf %%s SECRET | sha256sum)", keys.flag, name, name)
			warn(len(secret) < shortKey, "--%s: the key %s is shorter than %d characters, and may be guessed", keys.flag, name, shortKey)
			warn(len(secret) >= shortKey && isMonotonous(secret), "--%s: the key %s has fewer than %d different characters, and may be guessed", keys.flag, name, fewCharacters)
		}
	}
	for _, spec := range s.JWTKeys {
		kid, rest, _ := strings.Cut(spec, "=")
		secret, ok := strings.CutPrefix(rest, "HS256:")
		warn(ok && isMonotonous(secret), "--jwt-keys: the secret of %s has fewer than %d different characters, and may be guessed: that allows impersonating any user", kid, fewCharacters)
	}
	for _, spec := range s.AdminKeys {
		_, secret, _ := strings.Cut(spec, "=")
		warn(slices.ContainsFunc(s.PublisherKeys, func(p string) bool {
			_, other, _ := strings.Cut(p, "=")
			return other == secret
		}), "--admin-keys: a publisher has the same secret, and so may do everything")
	}
	return risks
}

// isMonotonous reports whether a secret has fewer than fewCharacters different characters.
func isMonotonous(secret string) bool {
	different := map[rune]bool{}
	for _, c := range secret {
		different[c] = true
	}
	return len(different) < fewCharacters
}

// isLoopback reports whether an address can be reached only from this machine.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return true // reported as a mistake elsewhere
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
