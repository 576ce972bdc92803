package demo

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// Guard refuses requests that other sites' pages make a browser send: the demo
// gives keys and tokens to anyone who opens it. A site whose name resolves to
// this machine (DNS rebinding) is recognized by the Host header, any other by
// Origin. listen is the address of --listen.
func Guard(listen string) func(http.Handler) http.Handler {
	name, _, _ := net.SplitHostPort(listen)
	return func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !isOwnHost(r.Host, name) {
				http.Error(w, "the demo answers to localhost and to addresses only, not to "+r.Host+": open it as http://localhost:PORT", http.StatusMisdirectedRequest)
				return
			}
			if !isOwnOrigin(r) {
				http.Error(w, "the demo answers its own page only", http.StatusForbidden)
				return
			}
			h.ServeHTTP(w, r)
		})
	}
}

// isOwnHost reports whether no other site's page can have a Host: an address,
// localhost, or the name that the operator gave.
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

// isOwnOrigin reports whether a request comes from a page of the demo or from
// no page.
func isOwnOrigin(r *http.Request) bool {
	for _, origin := range r.Header.Values("Origin") {
		u, err := url.Parse(origin)
		if err != nil || !strings.EqualFold(u.Host, r.Host) {
			return false
		}
	}
	// A browser that sends no Origin names the site of the page in this
	// header. Following a link to the demo is allowed.
	site := r.Header.Get("Sec-Fetch-Site")
	return site != "cross-site" && site != "same-site" || r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Method == http.MethodGet
}
