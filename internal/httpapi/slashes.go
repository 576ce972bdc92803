package httpapi

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/badged/badged/internal/describe"
)

// http.ServeMux takes a segment %2F, an id that is one slash, for the end of the path, so
// that no wildcard matches it. Such a segment is marked before the path is matched, with
// a character that no id has, and the mark removed afterwards.
const (
	slash       = "/"
	markedSlash = "/\x00"
)

// markSlashes returns a URL whose path has marks.
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
	marked.Path, _ = url.PathUnescape(marked.RawPath) // EscapedPath is valid
	return &marked
}

// withSlashes returns a handler that gets the parameters of the path without marks.
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
