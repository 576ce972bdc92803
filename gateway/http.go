package gateway

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/badged/badged/gateway/protocol"
)

// ServeCommands executes one command of a client that uses server-sent events. The body is the
// frame that a client would send on a WebSocket. The answer is an ok frame, as on a WebSocket,
// or a [Refusal].
func (g *Gateway) ServeCommands(w http.ResponseWriter, r *http.Request) {
	if !allow(w, r, http.MethodPost) {
		return
	}
	token := bearerOf(r)
	if token == "" {
		answerProblem(w, &Refusal{Status: http.StatusUnauthorized, Detail: "give a user's token in the header Authorization: Bearer …"})
		return
	}
	from, _ := ClientOf(r, g.cfg.Limits.TrustedProxies)
	id, refusal := g.identify(r.Context(), token, from)
	if refusal != nil {
		answerProblem(w, problemOf(refusal))
		return
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		answerProblem(w, &Refusal{Status: http.StatusUnsupportedMediaType, Detail: "send the frame as it is, without Content-Encoding", Code: protocol.CodeInvalid})
		return
	}
	if wait := g.commands.Turn(id.UserID, time.Now()); wait > 0 { // refuse before reading the body
		g.metrics.limited.Inc()
		answerRefused(w, tooMany(protocol.ClientFrame{}, wait))
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, protocol.MaxFrameBytes))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		answerProblem(w, &Refusal{Status: http.StatusRequestEntityTooLarge, Detail: "a frame may have " + strconv.Itoa(protocol.MaxFrameBytes) + " bytes"})
		return
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		answerProblem(w, &Refusal{Status: http.StatusRequestTimeout, Detail: "the body came too slowly"})
		return
	}
	if full, ok := errors.AsType[interface {
		error
		Refusal() (own bool, retryAfter time.Duration)
	}](err); ok {
		own, wait := full.Refusal()
		refused := &protocol.ErrorFrame{Code: protocol.CodeUnavailable, Message: full.Error(), RetryMS: wait.Milliseconds()}
		if own {
			refused.Code = protocol.CodeRateLimited
		}
		answerRefused(w, refused)
		return
	}
	if err != nil {
		return // the client has disconnected
	}
	if ending := g.ended(id, nil); ending != nil { // expired while the body was read
		answerProblem(w, problemOf(ending))
		return
	}
	f, err := protocol.DecodeFrame(body)
	if err != nil {
		answerProblem(w, &Refusal{Status: http.StatusBadRequest, Detail: err.Error(), Code: protocol.CodeInvalid})
		return
	}
	if types := protocol.CommandTypes(); !slices.Contains(types, f.T) {
		answerProblem(w, &Refusal{Status: http.StatusBadRequest, Detail: "t must be one of " + strings.Join(types, ", "), Code: protocol.CodeInvalid})
		return
	}
	switch refused, ending := g.command(r.Context(), id, f); {
	case ending != nil:
		answerProblem(w, problemOf(ending))
	case refused != nil:
		answerRefused(w, refused)
	default:
		answer(w, http.StatusOK, "application/json", protocol.OKFrame{T: "ok", ID: f.ID})
	}
}

// answerRefused answers a command with the problem that corresponds to an error frame.
func answerRefused(w http.ResponseWriter, f *protocol.ErrorFrame) {
	answerProblem(w, &Refusal{Status: statusOf(f.Code), Detail: f.Message, Code: f.Code, RetryMS: f.RetryMS})
}

// Refusal is the answer to a stream or command that is refused: a problem (RFC 9457).
type Refusal struct {
	Type    string `json:"type" doc:"Always urn:badged:problem: it shows that the answer comes from badged, not from a proxy. The status says what kind of problem it is."`
	Title   string `json:"title" doc:"The status in words, such as Not Found."`
	Status  int    `json:"status" minimum:"400" maximum:"599" doc:"The status of the answer."`
	Detail  string `json:"detail" doc:"What is wrong, for developers."`
	Code    string `json:"code,omitempty" enum:"invalid,not_found,unavailable,rate_limited" doc:"The code that an error frame for the same error has; only in answers to commands."`
	RetryMS int64  `json:"retry_ms,omitempty" minimum:"1" doc:"Milliseconds to wait before trying again; absent if another attempt would fail too."`
}

// refuse answers a client that is not allowed to connect.
func (g *Gateway) refuse(w http.ResponseWriter, c *closing) {
	g.metrics.closed(c.code)
	answerProblem(w, problemOf(c))
}

// problemOf returns the problem that corresponds to a closing.
func problemOf(c *closing) *Refusal {
	p := &Refusal{Detail: c.reason, RetryMS: c.reconnect.Milliseconds()}
	switch c.code {
	case protocol.CloseBadToken, protocol.CloseTokenExpired:
		p.Status = http.StatusUnauthorized
	case protocol.CloseRateLimited, protocol.CloseUserConnections:
		p.Status = http.StatusTooManyRequests
	default:
		p.Status = http.StatusServiceUnavailable
	}
	return p
}

// statusOf returns the HTTP status that corresponds to the code of an error frame.
func statusOf(code string) int {
	switch code {
	case protocol.CodeInvalid:
		return http.StatusBadRequest
	case protocol.CodeNotFound:
		return http.StatusNotFound
	case protocol.CodeRateLimited:
		return http.StatusTooManyRequests
	}
	return http.StatusServiceUnavailable
}

func answerProblem(w http.ResponseWriter, p *Refusal) {
	p.Type, p.Title = protocol.ProblemType, http.StatusText(p.Status)
	if p.RetryMS > 0 {
		seconds := (p.RetryMS + 999) / 1000 // the header allows whole seconds only
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
	_ = json.NewEncoder(w).Encode(body) // the client may have disconnected
}

// allow reports whether a request has the given method. If not, it answers with an error.
func allow(w http.ResponseWriter, r *http.Request, method string) bool {
	if r.Method == method {
		return true
	}
	w.Header().Set("Allow", method)
	answerProblem(w, &Refusal{Status: http.StatusMethodNotAllowed, Detail: r.Method + " is not a method of " + r.URL.Path + "; use " + method})
	return false
}
