package demo

import (
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"golang.org/x/time/rate"
)

// Guard refuses requests that pages of other sites make a browser send: the demo gives keys and
// tokens to any client, so another site could obtain them. Such a request has the Origin header
// of another site. If the name of the other site resolves to this machine (DNS rebinding), the
// request has the Host header of that site. listen is the address given with --listen. Guard logs
// only the first request that it refuses because of the Origin header.
func Guard(listen string, log *slog.Logger) func(http.Handler) http.Handler {
	name, _, _ := net.SplitHostPort(listen)
	refused := rate.Sometimes{First: 1}
	const why = "the demo answers its own page only; for a page of your own run badged dev"
	return func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !isOwnHost(r.Host, name) {
				http.Error(w, "the demo answers to localhost and to addresses only, not to "+r.Host+": open it as http://localhost:PORT", http.StatusMisdirectedRequest)
				return
			}
			if !isOwnOrigin(r) {
				refused.Do(func() { log.WarnContext(r.Context(), why, "origin", r.Header.Get("Origin")) })
				http.Error(w, why, http.StatusForbidden)
				return
			}
			h.ServeHTTP(w, r)
		})
	}
}

// isOwnHost reports whether a Host header cannot name another site: it is an IP address, localhost,
// or the name given with --listen.
func isOwnHost(host, given string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.ToLower(strings.Trim(name, "[]")), ".")
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	return name == "localhost" || name != "" && name == strings.ToLower(given)
}

// isOwnOrigin reports whether a request was sent by a page of the demo, or by a program that is not
// a page.
func isOwnOrigin(r *http.Request) bool {
	for _, origin := range r.Header.Values("Origin") {
		u, err := url.Parse(origin)
		if err != nil || !strings.EqualFold(u.Host, r.Host) {
			return false
		}
	}
	// If a browser sends no Origin header, its Sec-Fetch-Site header says whether another site made
	// the request. A link from another site to the demo is allowed.
	site := r.Header.Get("Sec-Fetch-Site")
	return site != "cross-site" && site != "same-site" || r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Method == http.MethodGet
}
