package httpapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/describe"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/pg/pgfault"
	"github.com/badged/badged/pubsub"
)

// problem is an RFC 9457 answer: an error that is safe to show.
type problem struct {
	Type   string         `json:"type" doc:"Always urn:badged:problem: it shows that the answer comes from badged, not from a proxy. The status says what kind of problem it is."`
	Title  string         `json:"title" doc:"The status in words, such as Not Found."`
	Status int            `json:"status" minimum:"400" maximum:"599" doc:"The status of the answer."`
	Detail string         `json:"detail" doc:"What is wrong, and what to do about it."`
	Errors []eventProblem `json:"errors,omitempty" doc:"Only for a request to publish: the invalid events, and why they are invalid."`

	Lacking *lacking `json:"lacking,omitempty" doc:"Only if a shard has failed: the users whose events were not stored, or whose badges could not be read. The events of all other users were stored, or their badges are in badges."`

	Badges []pubsub.Badge `json:"badges,omitzero" doc:"Only for a query of badges: the badges of all users except the users in lacking, in the order of the query."`

	// retryAfter is the value of the header Retry-After, in seconds; "" for no header.
	retryAfter string
}

// lacking identifies the users whose part of a request failed: by their partitions and, for a query
// of badges, by their ids.
type lacking struct {
	Partitions []int `json:"partitions" doc:"The partitions of these users, numbered as before the first split."`
	Of         int   `json:"of" minimum:"1" doc:"The number of partitions before the first split. To find the partition of a user, take the first 4 bytes of the SHA-256 of the user's id as a big-endian number, modulo this number."`

	UserIDs []string `json:"user_ids,omitempty" doc:"Only for a query of badges: the ids of these users."`
}

// incompleteError means that a request failed for some or all of its users: a request to publish, or
// a request to read the badges of several users. It wraps the reason.
type incompleteError struct {
	err error
	// publishing is true for a request to publish. For a request to read, badges has the badges
	// that could be read.
	publishing bool
	badges     []pubsub.Badge
}

// Error implements error.
func (e *incompleteError) Error() string { return e.err.Error() }

// Unwrap returns the reason.
func (e *incompleteError) Unwrap() error { return e.err }

// eventProblem is the error of one field of one event in a request to publish.
type eventProblem struct {
	Index   int    `json:"index" minimum:"0" doc:"The index of the event in the request, from 0."`
	Field   string `json:"field,omitempty" doc:"The path of the invalid field; absent if the error concerns the whole event."`
	Message string `json:"message" doc:"What is wrong, and what is expected."`
}

// Error implements error.
func (p *problem) Error() string { return p.Detail }

// fail answers with err. If err is not a *problem, fail logs err and does not show its text to the
// client: it answers with a general text, which says whether to repeat the request.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	var p *problem
	if !errors.As(err, &p) {
		if r.Context().Err() != nil {
			return // the client has disconnected
		}
		p = &problem{Status: http.StatusInternalServerError, Detail: "internal error; the server has logged it"}
		f := pgfault.FaultOf(err)
		away := cluster.AwayIn(err)
		locked, _ := errors.AsType[*pgfault.LockedError](err)
		switch {
		case errors.Is(err, eventlog.ErrRevoked): // this process has not read the revocation yet
			a.fail(w, r, unauthorized("bad token: it was revoked"))
			return
		case len(away) > 0:
			p = &problem{Status: http.StatusServiceUnavailable, Detail: areAway(away) + "; " + whatWasDone(r, err), retryAfter: "5"}
		case errors.Is(err, events.ErrNotHeld):
			p = &problem{Status: http.StatusServiceUnavailable, Detail: "some users of the request are being moved to another database; repeat the request; repeated events count once", retryAfter: "1"}
		case errors.Is(err, cluster.ErrAway):
			p = &problem{Status: http.StatusServiceUnavailable, Detail: "the database of some users of the request cannot be reached; " + whatWasDone(r, err), retryAfter: "1"}
		case locked != nil:
			p = &problem{Status: http.StatusServiceUnavailable, Detail: locked.Which() + ", and " + whatWaited(err) + "; repeat the request; repeated events count once", retryAfter: "2"}
		case f != pgfault.None:
			p = unavailable(f, err)
		}
		incomplete, _ := errors.AsType[*incompleteError](err)
		partial, _ := errors.AsType[*cluster.PartialFailure](err)
		if incomplete != nil && partial != nil && p.Status == http.StatusServiceUnavailable {
			p.Lacking = &lacking{Partitions: partial.Numbers(), Of: len(partial.Partitions), UserIDs: partial.UserIDs}
			p.Badges = incomplete.badges
		}
		a.log.ErrorContext(r.Context(), "request failed", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="badged"`)
	}
	if p.retryAfter != "" {
		w.Header().Set("Retry-After", p.retryAfter)
	}
	answer := *p
	answer.Type, answer.Title = describe.ProblemType, http.StatusText(p.Status)
	writeJSON(w, p.Status, "application/problem+json", answer)
}

// areAway says which databases are unavailable.
func areAway(away []*cluster.Fault) string {
	texts := make([]string, len(away))
	for i, a := range away {
		texts[i] = a.Which()
	}
	return strings.Join(texts, "; ")
}

// whatWaited says how much of a request was carried out before it timed out on a locked
// partition.
func whatWaited(err error) string {
	switch incomplete, ok := errors.AsType[*incompleteError](err); {
	case !ok:
		return "the request timed out"
	case !incomplete.publishing:
		return "reading timed out; badges has the badges of all other users, and lacking names the rest"
	case errors.As(err, new(*cluster.Fault)):
		return "storing timed out there; the events for users of other shards are stored"
	}
	return "storing timed out: nothing was stored"
}

// whatWasDone says how much of a request was carried out before it failed because a database is
// not available.
func whatWasDone(r *http.Request, err error) string {
	switch incomplete, ok := errors.AsType[*incompleteError](err); {
	case ok && incomplete.publishing && errors.Is(err, cluster.ErrHeldBack):
		return "the events for users of other shards are stored, except messages to rooms that users of an unavailable shard join; repeat the request; repeated events count once"
	case ok && incomplete.publishing:
		return "the events for users of other shards are stored; repeat the request; repeated events count once"
	case ok:
		return "badges has the badges of all other users; repeat the request for the users of lacking when the shard is back"
	case r.Method == http.MethodGet || strings.HasSuffix(r.URL.Path, "/query"):
		return "repeat the request when the shard is back"
	}
	return "the part on other shards may have been carried out; repeat the request when the shard is back"
}

// unavailable returns the answer to a request that failed because of the database or a shard.
func unavailable(f pgfault.Fault, err error) *problem {
	which, nothing := "the database "+f.String(), " and nothing was stored"
	if fault, ok := errors.AsType[*cluster.Fault](err); ok {
		which, nothing = fault.Which(), ""
	}
	const again = "repeat the request; repeated events count once"
	switch f {
	case pgfault.Full, pgfault.Unwritable, pgfault.ReadOnly, pgfault.WrongPassword, pgfault.LoginRefused, pgfault.NoDatabase:
		return &problem{Status: http.StatusServiceUnavailable, Detail: which + nothing + "; " + again, retryAfter: "10"}
	}
	return &problem{Status: http.StatusServiceUnavailable, Detail: which + "; " + again, retryAfter: "1"}
}

// publishedTypes lists the types of events that publishers may write.
var publishedTypes = func() string {
	var names []string
	for _, t := range events.Types() {
		if !t.Reserved {
			names = append(names, string(t.Type))
		}
	}
	return strings.Join(names, ", ")
}()

// invalidEvents returns the answer 400 that lists invalid events.
func invalidEvents(bad []events.IndexedError) error {
	detail := "some events are invalid; nothing was stored"
	if slices.ContainsFunc(bad, func(e events.IndexedError) bool {
		return slices.ContainsFunc(e.Err.Fields, func(f events.FieldError) bool { return f.Field == "type" })
	}) {
		detail += "; the types of events are " + publishedTypes
	}
	return eventsProblem(http.StatusBadRequest, detail, bad)
}

// forbiddenEvents returns the answer 403 that lists the events that a key may not publish.
func forbiddenEvents(key string, refused []events.IndexedError) error {
	return eventsProblem(http.StatusForbidden, "the key "+key+" may not publish some of these events; nothing was stored", refused)
}

func eventsProblem(status int, detail string, bad []events.IndexedError) error {
	p := &problem{Status: status, Detail: detail}
	for _, e := range bad {
		for _, f := range e.Err.Fields {
			p.Errors = append(p.Errors, eventProblem{Index: e.Index, Field: f.Field, Message: f.Message})
		}
	}
	return p
}

func writeJSON(w http.ResponseWriter, status int, contentType string, body any) {
	b, err := json.Marshal(body)
	if err != nil { // never happens: all answers can be encoded
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // an error means that the client has disconnected
}

// begunBody is the body of an answer that is sent in parts while it is generated. begun is true if
// a part has been sent.
type begunBody struct {
	http.ResponseWriter
	mediaType string
	begun     bool
}

// Write implements io.Writer.
func (b *begunBody) Write(p []byte) (int, error) {
	if !b.begun {
		b.begun = true
		b.Header().Set("Content-Type", b.mediaType)
		b.Header().Set("Cache-Control", "no-store")
	}
	return b.ResponseWriter.Write(p)
}

// finish ends an answer; err is the error of the code that generated it, or nil. If err is not nil
// and nothing was sent yet, finish returns err. If a part was sent already, finish logs err and
// breaks the connection.
func (a *API) finish(r *http.Request, body *begunBody, err error) error {
	if err == nil || !body.begun {
		return err
	}
	if r.Context().Err() == nil {
		a.log.ErrorContext(r.Context(), "cannot finish an answer; the client gets a part, and the connection breaks", "path", r.URL.Path, "error", err)
	}
	panic(http.ErrAbortHandler) // the status 200 is already sent, so only a broken connection shows the failure
}

// awayDatabases is the part of a page that names the databases whose elements the page lacks.
type awayDatabases struct {
	Away []string `json:"away,omitempty" doc:"The names of the shards that cannot be reached now. The list lacks the elements on these shards. Absent if all shards can be reached."`
}

// away returns the names of the databases that are unavailable now.
func (a *API) away() []string {
	if a.cfg.Away == nil {
		return nil
	}
	return a.cfg.Away()
}
