package httpapi

import (
	"fmt"
	"net/http"
	"net/http/pprof"
	runtimepprof "runtime/pprof"
	"slices"
	"strconv"

	"github.com/badged/badged/internal/base/describe"
)

// ProfilesPath is the path of the routes of profiles.
const ProfilesPath = "/debug/pprof/"

// The CPU profile and the execution trace are always recorded over a period. A process records only
// one of the two at a time. Any other profile is a snapshot of the Go runtime, or, with the
// parameter `seconds`, the difference between two snapshots.
const (
	cpuProfile  = "profile"
	traceOfTime = "trace"
)

// maxProfileSeconds is the longest period of a profile in seconds.
const maxProfileSeconds = 600

// NewProfiles returns an API that has only the routes of profiles, for a process without the
// role api. It uses Keys, ClientOf, WrongKey, Logger and Registerer of cfg.
func NewProfiles(cfg Config) *API {
	a := newAPI(cfg)
	a.handle(a.profileRoutes())
	return a
}

// profileRoutes returns the routes of profiles, for operators only: recording a CPU profile takes
// some percent of the processor time. Unlike net/http/pprof they do not serve the command line of
// the process, which may contain secrets.
func (a *API) profileRoutes() []describe.Route {
	const none = `{"type":"urn:badged:problem","title":"Not Found","status":404,"detail":"/debug/pprof/cpu is not a profile; GET /debug/pprof/ lists them"}`
	unread := describe.Problem(http.StatusBadRequest, problem{}, "A parameter is unknown or cannot be understood.", "")
	missing := describe.Problem(http.StatusNotFound, problem{}, "There is no such profile.", none)
	return []describe.Route{
		a.restrict(operating, nil, a.getProfiles, describe.Route{
			Method: http.MethodGet, Path: ProfilesPath,
			Name: "listProfiles", Group: GroupProfiles, Summary: "List the profiles",
			Answers: failures(describe.Answer{Status: http.StatusOK, Doc: "The names of the profiles, one on each line.", Content: &describe.Content{MediaType: "text/plain"}}, unread, missing),
		}),
		a.restrict(operating, nil, a.getProfile, describe.Route{
			Method: http.MethodGet, Path: ProfilesPath + "{profile}",
			Name: "getProfile", Group: GroupProfiles, Summary: "Take a profile of the process",
			Doc: "The answer has the format of `go tool pprof`, or for `trace` of `go tool trace`. It contains names of functions, but no data of users.",
			Params: []describe.Param{
				{In: "path", Name: "profile", Doc: "The name of the profile. `profile` is the use of processors during a time, and `trace` records what goroutines do during a time. The Go runtime has further profiles, such as `heap` and `goroutine`.", Example: "heap"},
				{In: "query", Name: "seconds", Doc: "For how many seconds the profile is recorded; by default 30 for `profile` and 1 for `trace`. By default the other profiles show the current state; with `seconds` they show what changes during this time.", Model: &describe.Schema{Type: []string{"integer"}, Minimum: new(int64(1)), Maximum: new(int64(maxProfileSeconds))}, Example: "1"},
				{In: "query", Name: "debug", Doc: "With 1, the answer is text; with 2, `goroutine` also shows every stack. Only for profiles other than `profile` and `trace`, and not with `seconds`.", Model: &describe.Schema{Type: []string{"integer"}, Minimum: new(int64(0)), Maximum: new(int64(2))}, Example: "0"},
				{In: "query", Name: "gc", Doc: "With 1, a garbage collection runs before `heap` is recorded.", Model: &describe.Schema{Type: []string{"integer"}, Minimum: new(int64(0)), Maximum: new(int64(1))}, Example: "1"},
			},
			Answers: failures(
				describe.Answer{Status: http.StatusOK, Doc: "The profile.", Content: &describe.Content{MediaType: "*/*", Doc: "`application/octet-stream`, or with `debug` `text/plain`."}},
				unread, missing,
				describe.Problem(http.StatusConflict, problem{}, "Another `profile` or `trace` is being recorded.", ""),
			),
		}),
	}
}

// getProfiles lists the profiles. It replaces the index of net/http/pprof, which has links to
// profiles that are not served here.
func (*API) getProfiles(w http.ResponseWriter, r *http.Request, _ grant) (answer, error) {
	if r.URL.Path != ProfilesPath {
		return answer{}, noProfile(r)
	}
	names := []string{cpuProfile, traceOfTime}
	for _, p := range runtimepprof.Profiles() {
		names = append(names, p.Name())
	}
	slices.Sort(names)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	for _, name := range names {
		fmt.Fprintln(w, name) // an error means that the client has disconnected
	}
	return answer{}, nil
}

func (a *API) getProfile(w http.ResponseWriter, r *http.Request, _ grant) (answer, error) {
	query := r.URL.Query()
	for _, limits := range []struct {
		name     string
		min, max int
	}{{"seconds", 1, maxProfileSeconds}, {"debug", 0, 2}, {"gc", 0, 1}} {
		n, err := strconv.Atoi(query.Get(limits.name))
		if query.Has(limits.name) && (err != nil || n < limits.min || n > limits.max) {
			return answer{}, badRequest(fmt.Sprintf("%s must be a number from %d to %d", limits.name, limits.min, limits.max))
		}
	}
	name := r.PathValue("profile")
	switch {
	case name == cpuProfile || name == traceOfTime:
		if !a.profiling.TryLock() {
			return answer{}, &problem{Status: http.StatusConflict, Detail: "another profile or trace is being taken; ask again when it has ended"}
		}
		defer a.profiling.Unlock()
		if name == cpuProfile {
			pprof.Profile(w, r)
		} else {
			pprof.Trace(w, r)
		}
	case runtimepprof.Lookup(name) == nil:
		return answer{}, noProfile(r)
	case query.Has("seconds") && query.Get("debug") > "0":
		return answer{}, badRequest("seconds cannot be combined with debug: what has changed is not shown as text")
	default:
		pprof.Handler(name).ServeHTTP(w, r)
	}
	return answer{}, nil
}

func noProfile(r *http.Request) error {
	return &problem{Status: http.StatusNotFound, Detail: r.URL.Path + " is not a profile; GET " + ProfilesPath + " lists them"}
}
