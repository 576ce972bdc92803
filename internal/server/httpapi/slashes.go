package httpapi

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/badged/badged/internal/base/describe"
)

// http.ServeMux treats an id that is a single slash, %2F, as the end of the path, so no wildcard
// matches it. Therefore markSlashes appends a mark, a character that no id may contain, to such a
// path segment before the routes are matched. withSlashes removes the mark again.
const (
	slash       = "/"
	markedSlash = "/\x00"
)

// markSlashes returns u with a mark after each path segment that is a single slash.
func markSlashes(u *url.URL) *url.URL {
	segments := strings.Split(u.EscapedPath(), slash)
	isSlash := func(segment string) bool { return strings.EqualFold(segment, "%2f") }
	if !slices.ContainsFunc(segments, isSlash) {
		return u
	}
	for i := range segments {
		if isSlash(segments[i]) {
			segments[i] = url.PathEscape(markedSlash)
		}
	}
	marked := *u
	marked.RawPath = strings.Join(segments, slash)
	marked.Path, _ = url.PathUnescape(marked.RawPath) // cannot fail, since EscapedPath is valid
	return &marked
}

// withSlashes returns a handler that removes the marks from path parameters, then calls h.
func withSlashes(h http.Handler, params []describe.Param) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, p := range params {
			if p.In == "path" && r.PathValue(p.Name) == markedSlash {
				r.SetPathValue(p.Name, slash)
			}
		}
		h.ServeHTTP(w, r)
	})
}
