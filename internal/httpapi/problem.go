package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/events"
)

// problem is an RFC 9457 answer: an error that is safe to show.
type problem struct {
	Type   string         `json:"type" enum:"about:blank" doc:"Always about:blank: the status says what kind of problem it is."`
	Title  string         `json:"title" doc:"The status in words."`
	Status int            `json:"status" minimum:"400" maximum:"599" doc:"The status of the answer."`
	Detail string         `json:"detail" doc:"What is wrong, and what to do about it."`
	Errors []eventProblem `json:"errors,omitempty" doc:"Each bad event of a request that publishes."`

	// retryAfter is the header of that name, in seconds; "" is none.
	retryAfter string
}

// eventProblem is what is wrong with one field of one event.
type eventProblem struct {
	Index   int    `json:"index" minimum:"0" doc:"The event, by its index in the request."`
	Field   string `json:"field,omitempty" doc:"The path of the field; absent where the event as a whole is at fault."`
	Message string `json:"message" doc:"What is wrong with it, and what is expected."`
}

// Error implements error.
func (p *problem) Error() string { return p.Detail }

// fail answers with err. What is not a problem is logged, and told as no more
// than that something failed.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	var p *problem
	if !errors.As(err, &p) {
		if r.Context().Err() != nil {
			return // nobody is there any more
		}
		p = &problem{Status: http.StatusInternalServerError, Detail: "something failed here; it has been logged"}
		if unavailable(err) {
			p = &problem{Status: http.StatusServiceUnavailable, Detail: "the database cannot be reached; repeat the request, events that come twice count once", retryAfter: "1"}
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
	answer.Type, answer.Title = "about:blank", http.StatusText(p.Status)
	writeJSON(w, p.Status, "application/problem+json", answer)
}

// unavailable reports whether err is about reaching the database, rather than
// something that it said of a statement.
func unavailable(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		const readOnly = "25006" // a standby
		return pg.Code == readOnly ||
			strings.HasPrefix(pg.Code, "08") || // connection exception
			strings.HasPrefix(pg.Code, "53") || // insufficient resources
			strings.HasPrefix(pg.Code, "57") // operator intervention
	}
	var connect *pgconn.ConnectError
	var network net.Error
	return errors.As(err, &connect) || errors.As(err, &network) || pgconn.SafeToRetry(err) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// invalidEvents tells which events are bad.
func invalidEvents(bad []events.IndexedError) error {
	p := &problem{Status: http.StatusBadRequest, Detail: "some events are invalid; nothing was stored"}
	for _, e := range bad {
		for _, f := range e.Err.Fields {
			p.Errors = append(p.Errors, eventProblem{Index: e.Index, Field: f.Field, Message: f.Message})
		}
	}
	return p
}

func writeJSON(w http.ResponseWriter, status int, contentType string, body any) {
	b, err := json.Marshal(body)
	if err != nil { // nothing that is answered here cannot be encoded
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // the client may be gone
}
