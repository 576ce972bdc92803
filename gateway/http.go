package gateway

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"
)

// ServeCommands takes a command of a user who listens by server-sent events: the
// same frame that a WebSocket would carry. The answer is its ok frame, or a
// problem of RFC 9457.
func (g *Gateway) ServeCommands(w http.ResponseWriter, r *http.Request) {
	if !allow(w, r, http.MethodPost) {
		return
	}
	token := bearerOf(r)
	if token == "" {
		answerProblem(w, &Refusal{Status: http.StatusUnauthorized, Detail: "give a user's token in the header Authorization: Bearer …"})
		return
	}
	id, refusal := g.identify(r.Context(), token)
	if refusal != nil {
		answerProblem(w, problemOf(refusal))
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxFrameBytes))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		answerProblem(w, &Refusal{Status: http.StatusRequestEntityTooLarge, Detail: "a frame may have " + strconv.Itoa(MaxFrameBytes) + " bytes"})
		return
	}
	if err != nil {
		return // nobody is there any more
	}
	f, err := decodeFrame(body)
	if err != nil {
		answerProblem(w, &Refusal{Status: http.StatusBadRequest, Detail: err.Error(), Code: codeInvalid})
		return
	}
	switch f.T {
	case frameRead, frameReadAll, frameMarkUnread:
	default:
		answerProblem(w, &Refusal{Status: http.StatusBadRequest, Detail: "t must be read, read_all or mark_unread", Code: codeInvalid})
		return
	}
	var refused *errorFrame
	if wait := g.commands.take(id.UserID, time.Now()); wait > 0 {
		g.metrics.limited.Inc()
		refused = tooMany(f, wait)
	} else {
		refused = g.command(r.Context(), id.UserID, f)
	}
	if refused != nil {
		answerProblem(w, &Refusal{
			Status: statusOf(refused.Code), Detail: refused.Message,
			Code: refused.Code, RetryMS: refused.RetryMS,
		})
		return
	}
	answer(w, http.StatusOK, "application/json", okFrame{T: "ok", ID: f.ID})
}

// Refusal is an RFC 9457 answer to a stream or a command that is refused.
type Refusal struct {
	Type    string `json:"type" enum:"about:blank" doc:"Always about:blank: the status says what kind of problem it is."`
	Title   string `json:"title" doc:"The status in words."`
	Status  int    `json:"status" minimum:"400" maximum:"599" doc:"The status of the answer."`
	Detail  string `json:"detail" doc:"What is wrong."`
	Code    string `json:"code,omitempty" enum:"invalid,not_found,unavailable,rate_limited" doc:"The code of the error frame that a WebSocket would have carried; of commands only."`
	RetryMS int64  `json:"retry_ms,omitempty" minimum:"1" doc:"After how many milliseconds to try again; absent where there is no point in it."`
}

// refuse answers a client that is not let in.
func (g *Gateway) refuse(w http.ResponseWriter, c *closing) {
	g.metrics.closed(c.code)
	answerProblem(w, problemOf(c))
}

// problemOf says what a close code would.
func problemOf(c *closing) *Refusal {
	p := &Refusal{Detail: c.reason, RetryMS: c.reconnect.Milliseconds()}
	switch c.code {
	case CloseBadToken, CloseTokenExpired:
		p.Status = http.StatusUnauthorized
	case CloseRateLimited, CloseUserConnections:
		p.Status = http.StatusTooManyRequests
	default:
		p.Status = http.StatusServiceUnavailable
	}
	return p
}

// statusOf returns the status that says what the code of an error frame would.
func statusOf(code string) int {
	switch code {
	case codeInvalid:
		return http.StatusBadRequest
	case codeNotFound:
		return http.StatusNotFound
	case codeRateLimited:
		return http.StatusTooManyRequests
	}
	return http.StatusServiceUnavailable
}

func answerProblem(w http.ResponseWriter, p *Refusal) {
	p.Type, p.Title = "about:blank", http.StatusText(p.Status)
	if p.RetryMS > 0 {
		seconds := (p.RetryMS + 999) / 1000 // the header knows no less
		w.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
	}
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="badged"`)
	}
	answer(w, p.Status, "application/problem+json", p)
}

func answer(w http.ResponseWriter, status int, contentType string, body any) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}

// allow reports whether a request has the method of its route, and answers it
// where it has another.
func allow(w http.ResponseWriter, r *http.Request, method string) bool {
	if r.Method == method {
		return true
	}
	w.Header().Set("Allow", method)
	answerProblem(w, &Refusal{Status: http.StatusMethodNotAllowed, Detail: r.Method + " is not a method of " + r.URL.Path + "; use " + method})
	return false
}
