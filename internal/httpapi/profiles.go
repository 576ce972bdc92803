package httpapi

import (
	"net/http"
	"net/http/pprof"
	"strings"
)

// ProfilesPath is the path below which Profiles serves.
const ProfilesPath = "/debug/pprof/"

// Profiles returns a handler that serves profiles of the process to admins, in the format
// of `go tool pprof`. The command line is not among them: it may have secrets. Serve it to
// operators only: a CPU profile costs some percent of the processors while it runs.
func (a *API) Profiles() http.Handler {
	return a.admin(func(w http.ResponseWriter, r *http.Request) error {
		switch strings.TrimPrefix(r.URL.Path, ProfilesPath) {
		case "profile":
			pprof.Profile(w, r)
		case "trace":
			pprof.Trace(w, r)
		case "symbol":
			pprof.Symbol(w, r)
		default:
			pprof.Index(w, r)
		}
		return nil
	})
}
