package httpapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/describe"
	"github.com/badged/badged/internal/eventlog"
	"github.com/badged/badged/internal/pgfault"
	"github.com/badged/badged/internal/shards"
	"github.com/badged/badged/pubsub"
)

// problem is an RFC 9457 answer: an error that is safe to show.
type problem struct {
	Type   string         `json:"type" doc:"Always urn:badged:problem, which tells answers of badged from those of proxies. The status tells the kind of problem."`
	Title  string         `json:"title" doc:"The status in words."`
	Status int            `json:"status" minimum:"400" maximum:"599" doc:"The status of the answer."`
	Detail string         `json:"detail" doc:"What is wrong, and what to do about it."`
	Errors []eventProblem `json:"errors,omitempty" doc:"Each bad event of a request that publishes."`

	Lacking *lacking `json:"lacking,omitempty" doc:"If a shard is at fault: whose events are not stored, or whose badges could not be read. Everything for other users is stored, and their badges are in badges."`

	Badges []pubsub.Badge `json:"badges,omitzero" doc:"Of a query for badges: those of all users but the ones that lacking names, in the order asked for."`

	// retryAfter is the header of that name, in seconds; "" is none.
	retryAfter string
}

// lacking says for which users a request failed.
type lacking struct {
	Partitions []int `json:"partitions" doc:"The partitions of these users, as numbered before any was split."`
	Of         int   `json:"of" minimum:"1" doc:"How many partitions there were then. That of a user is a big-endian number, the first 4 bytes of the SHA-256 of the id, modulo this."`

	UserIDs []string `json:"user_ids,omitempty" doc:"Of a query for badges: these users."`
}

// unstoredError wraps why events could not be stored.
type unstoredError struct {
	err     error
	lacking *lacking
}

// Error implements error.
func (e *unstoredError) Error() string { return e.err.Error() }

// Unwrap returns why.
func (e *unstoredError) Unwrap() error { return e.err }

// unreadError wraps why badges could not be read, with those that could.
type unreadError struct {
	*shards.PartialReadError

	badges []pubsub.Badge
}

// Unwrap returns why.
func (e *unreadError) Unwrap() error { return e.PartialReadError }

// eventProblem is an error of one field of one event.
type eventProblem struct {
	Index   int    `json:"index" minimum:"0" doc:"The event, by its index in the request."`
	Field   string `json:"field,omitempty" doc:"The path of the field; absent if the event as a whole is at fault."`
	Message string `json:"message" doc:"What is wrong, and what is expected."`
}

// Error implements error.
func (p *problem) Error() string { return p.Detail }

// fail answers with err. An error that is not a problem is logged, and the
// client sees only that the request failed.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	var p *problem
	if !errors.As(err, &p) {
		if r.Context().Err() != nil {
			return // the client is gone
		}
		p = &problem{Status: http.StatusInternalServerError, Detail: "internal error; the server has logged it"}
		f := pgfault.Of(err)
		away := shards.AwayIn(err)
		locked, _ := errors.AsType[*pgfault.LockedError](err)
		unstored, publishing := errors.AsType[*unstoredError](err)
		switch {
		case errors.Is(err, eventlog.ErrRevoked): // by the database, which knows first
			a.fail(w, r, unauthorized("bad token: it was revoked"))
			return
		case len(away) > 0:
			p = &problem{Status: http.StatusServiceUnavailable, Detail: areAway(away) + "; " + whatWasDone(r, err), retryAfter: "5"}
		case errors.Is(err, events.ErrNotHeld):
			p = &problem{Status: http.StatusServiceUnavailable, Detail: "some users of the request are being moved to another database; repeat the request; repeated events count once", retryAfter: "1"}
		case errors.Is(err, shards.ErrAway):
			p = &problem{Status: http.StatusServiceUnavailable, Detail: "the database of some users of the request cannot be reached; " + whatWasDone(r, err), retryAfter: "1"}
		case locked != nil:
			p = &problem{Status: http.StatusServiceUnavailable, Detail: locked.Which() + ", and " + whatWaited(err) + "; repeat the request; repeated events count once", retryAfter: "2"}
		case f != pgfault.None:
			p = unavailable(f, err)
		}
		if publishing {
			p.Lacking = unstored.lacking
		}
		if unread, ok := errors.AsType[*unreadError](err); ok && p.Status == http.StatusServiceUnavailable {
			p.Lacking = &lacking{Partitions: unread.Partitions, Of: unread.Of, UserIDs: unread.UserIDs}
			p.Badges = unread.badges
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

// areAway says which shards are away.
func areAway(away []*shards.AwayError) string {
	texts := make([]string, len(away))
	for i, a := range away {
		texts[i] = a.Which()
	}
	return strings.Join(texts, "; ")
}

// whatWaited says what a request did that waited for a locked partition.
func whatWaited(err error) string {
	switch _, publishing := errors.AsType[*unstoredError](err); {
	case publishing && errors.As(err, new(*shards.FaultError)):
		return "storing was given up there; what there was for users of other shards is stored"
	case publishing:
		return "storing was given up: nothing was stored"
	}
	if _, reading := errors.AsType[*unreadError](err); reading {
		return "reading was given up; badges has those of all other users, and lacking names the rest"
	}
	return "the request was given up"
}

// whatWasDone says what a request did that failed since a shard is away.
func whatWasDone(r *http.Request, err error) string {
	_, publishing := errors.AsType[*unstoredError](err)
	_, reading := errors.AsType[*unreadError](err)
	switch {
	case publishing && errors.Is(err, shards.ErrHeldBack):
		return "what there was for users of other shards is stored, except messages to rooms that users of a lost shard join; repeat the request; repeated events count once"
	case publishing:
		return "what there was for users of other shards is stored; repeat the request; repeated events count once"
	case reading:
		return "badges has those of all other users; repeat the request for the users of lacking when the shard is back"
	case r.Method == http.MethodGet || strings.HasSuffix(r.URL.Path, "/query"):
		return "repeat the request when the shard is back"
	}
	return "what concerned other shards may be done; repeat the request when the shard is back"
}

// unavailable describes a request that failed because of the database, or of a shard.
func unavailable(f pgfault.Fault, err error) *problem {
	which, nothing := "the database", " and nothing was stored"
	if shard, ok := errors.AsType[*shards.FaultError](err); ok {
		which, nothing = shard.Which(), ""
	}
	const again = "repeat the request; repeated events count once"
	switch f {
	case pgfault.Full, pgfault.Unwritable, pgfault.ReadOnly, pgfault.WrongPassword, pgfault.LoginRefused, pgfault.NoDatabase:
		return &problem{Status: http.StatusServiceUnavailable, Detail: which + " " + f.String() + nothing + "; " + again, retryAfter: "10"}
	}
	return &problem{Status: http.StatusServiceUnavailable, Detail: which + " " + f.String() + "; " + again, retryAfter: "1"}
}

// invalidEvents describes the bad events.
func invalidEvents(bad []events.IndexedError) error {
	return eventsProblem(http.StatusBadRequest, "some events are invalid; nothing was stored", bad)
}

// forbiddenEvents describes the events that a key may not publish.
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
	if err != nil { // all answers can be encoded
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // the client may be gone
}

// begunBody is the body of an answer that is sent while it is read, and knows whether it
// has begun.
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

// finish ends an answer. After an error it breaks the connection if the answer has begun,
// and else returns the error.
func (a *API) finish(r *http.Request, body *begunBody, err error) error {
	if err == nil || !body.begun {
		return err
	}
	if r.Context().Err() == nil {
		a.log.ErrorContext(r.Context(), "cannot finish an answer; the client gets a part, and the connection breaks", "path", r.URL.Path, "error", err)
	}
	panic(http.ErrAbortHandler) // the status is sent: only a broken connection tells
}

// away returns the names of the shards that cannot be reached now, nil for none.
func (a *API) away() []string {
	if a.cfg.Away == nil {
		return nil
	}
	return a.cfg.Away()
}
