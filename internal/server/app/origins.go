package app

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rs/cors"
)

// originCheck returns a function that reports whether the Origin header of a request is allowed.
// If no origins are configured, it returns nil, and the gateway allows only the server's own
// origin.
func originCheck(allowed []string) (func(*http.Request) bool, error) {
	if len(allowed) == 0 {
		return nil, nil //nolint:nilnil // the gateway's default
	}
	origins := map[string]bool{}
	for _, o := range allowed {
		origin, err := normalOrigin(o)
		if err != nil {
			return nil, fmt.Errorf("%q %w", o, err)
		}
		origins[origin] = true
	}
	return func(r *http.Request) bool {
		origin := r.Header.Get("Origin")
		return origin == "" || // not a browser
			origins["*"] || origins[strings.ToLower(origin)]
	}, nil
}

// namedOrigins are values of the setting that are not URLs: "*" for any origin, and the origins
// "null" and "file://", which browsers send for files and sandboxed frames.
var namedOrigins = []string{"*", "null", "file://"}

// normalOrigin returns an origin in the form that browsers send. It fails if browsers never send
// such an origin.
func normalOrigin(text string) (string, error) {
	text = strings.ToLower(text)
	if slices.Contains(namedOrigins, text) {
		return text, nil
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme == "" || u.Hostname() == "" || u.Opaque != "":
		return "", errors.New("is not an origin such as https://chat.example or capacitor://localhost, nor one of null, file:// and *")
	case u.User != nil || u.Path != "" || u.RawQuery != "" || u.ForceQuery || strings.Contains(text, "#"):
		return "", errors.New("has more than a scheme, a host and a port: browsers send only these")
	case u.Scheme == "ws" || u.Scheme == "wss":
		return "", errors.New("is the address of a server: want that of a page, which is http or https")
	case strings.Contains(u.Host, "*"):
		return "", errors.New("has an asterisk: list each origin, or * alone, which allows any")
	case !isASCII(u.Host):
		return "", errors.New("has letters that browsers encode: give the host as they send it, beginning with xn--")
	}
	origin, port := u.Scheme+"://"+strings.TrimSuffix(strings.TrimSuffix(u.Host, u.Port()), ":"), u.Port()
	if port == "" {
		return origin, nil
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", errors.New("has a port above 65535")
	}
	if defaults := map[string]uint64{"http": 80, "https": 443}; n == defaults[u.Scheme] {
		return origin, nil // browsers omit the default port
	}
	return origin + ":" + strconv.FormatUint(n, 10), nil
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r > '~' })
}

// forOrigins adds CORS headers to the answers of a route, for requests from the allowed origins. If
// allowed is nil, it adds no headers, and only pages of the server's own origin can call the route.
func forOrigins(allowed func(*http.Request) bool, h http.Handler) http.Handler {
	if allowed == nil {
		return h
	}
	return cors.New(cors.Options{
		AllowOriginVaryRequestFunc: func(r *http.Request, _ string) (bool, []string) { return allowed(r), nil },
		AllowedMethods:             []string{http.MethodGet, http.MethodPost},
		AllowedHeaders:             []string{"Authorization", "Content-Type", "Last-Event-ID"},
		ExposedHeaders:             []string{"Retry-After"},
		MaxAge:                     int(corsMaxAge.Seconds()),
	}).Handler(h)
}

// corsMaxAge is how long browsers may cache a preflight answer.
const corsMaxAge = 10 * time.Minute
