package traffic

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/describe"
	"github.com/badged/badged/pubsub"
)

const (
	// positionHeader has the position of the appended events.
	positionHeader = "Badged-Position"
	// foldTimeout is how long a request for badges lets the server wait.
	foldTimeout = 2 * time.Second
	// requestTimeout bounds one request, so that a server that vanished is
	// noticed.
	requestTimeout = 30 * time.Second
	// maxResponseBytes bounds an answer; 1,000 badges with long ids and many
	// categories fit.
	maxResponseBytes = 64 << 20
)

// HTTPTarget publishes to a running server.
type HTTPTarget struct {
	positions            positions
	eventsURL, badgesURL string
	publisherKey         string
	client               *http.Client
}

var _ Target = (*HTTPTarget)(nil)

// NewHTTPTarget returns a target that publishes to the server at baseURL, such
// as "http://127.0.0.1:8080", with a publisher's API key. Nothing is sent yet.
func NewHTTPTarget(baseURL, publisherKey string) (*HTTPTarget, error) {
	base, err := url.Parse(baseURL)
	if err != nil {
		return nil, fmt.Errorf("server URL: %w", err)
	}
	if (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return nil, fmt.Errorf("server URL %q: want one such as http://127.0.0.1:8080", base.Redacted())
	}
	if publisherKey == "" {
		return nil, errors.New("a publisher key is needed to publish to a server")
	}
	base.RawQuery, base.Fragment = "", ""
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = maxInFlight
	return &HTTPTarget{
		eventsURL:    base.JoinPath("v1/events").String(),
		badgesURL:    base.JoinPath("v1/badges/query").String(),
		publisherKey: publisherKey,
		client: &http.Client{
			Transport: transport,
			Timeout:   requestTimeout,
			// A redirect would turn the POST into a GET.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Close closes idle connections.
func (t *HTTPTarget) Close() { t.client.CloseIdleConnections() }

// Append implements Target with one request. It returns a [*TransientError],
// or a [*ServerError] if the server refused.
func (t *HTTPTarget) Append(ctx context.Context, evs []events.Event) (int64, error) {
	var body bytes.Buffer
	for i := range evs {
		b, err := evs[i].MarshalJSON()
		if err != nil {
			return 0, fmt.Errorf("encode event %d: %w", i, err)
		}
		body.Write(b)
		body.WriteByte('\n')
	}
	var transactionID int64
	err := t.post(ctx, t.eventsURL, "application/x-ndjson", body.Bytes(), http.StatusAccepted, func(res *http.Response) error {
		token := res.Header.Get(positionHeader)
		var err error
		if transactionID, err = t.positions.number(token); err != nil {
			return fmt.Errorf("the answer's %s header is %s, not a position: is %s a badged server?",
				positionHeader, quoteShort([]byte(token)), t.eventsURL)
		}
		return nil
	})
	return transactionID, err
}

// Check returns an error if the server cannot be reached, refuses the key or is not
// badged, without publishing anything: badged refuses a call without events.
func (t *HTTPTarget) Check(ctx context.Context) error {
	err := t.post(ctx, t.eventsURL, "application/x-ndjson", nil, http.StatusAccepted, func(*http.Response) error {
		return fmt.Errorf("the server at %s accepted a call without events, which badged refuses: check the server URL", t.eventsURL)
	})
	var refused *ServerError
	if errors.As(err, &refused) && refused.ByBadged && refused.Status == http.StatusBadRequest { // no events
		return nil
	}
	return err
}

// badgesQuery is the body of a request for badges, badgesAnswer that of the
// answer.
type (
	badgesQuery struct {
		UserIDs []string `json:"user_ids"`
		AtLeast string   `json:"at_least"`
		Timeout string   `json:"timeout"`
	}
	badgesAnswer struct {
		Badges []pubsub.Badge `json:"badges"`
	}
)

// Badges implements Target with one request.
func (t *HTTPTarget) Badges(ctx context.Context, userIDs []string, transactionID int64) ([]pubsub.Badge, error) {
	body, err := json.Marshal(badgesQuery{
		UserIDs: userIDs, AtLeast: t.positions.position(transactionID), Timeout: foldTimeout.String(),
	})
	if err != nil {
		return nil, fmt.Errorf("encode the query for badges: %w", err)
	}
	var answer badgesAnswer
	err = t.post(ctx, t.badgesURL, "application/json", body, http.StatusOK, func(res *http.Response) error {
		b, err := io.ReadAll(io.LimitReader(res.Body, maxResponseBytes))
		if err != nil {
			return &TransientError{Err: fmt.Errorf("read badges: %w", err)}
		}
		if err := json.Unmarshal(b, &answer); err != nil {
			return fmt.Errorf("read badges: %w", err)
		}
		return nil
	})
	var refused *ServerError
	if errors.As(err, &refused) && refused.Status == http.StatusGatewayTimeout {
		return nil, ErrNotFolded
	}
	if err != nil {
		return nil, err
	}
	if len(answer.Badges) != len(userIDs) {
		return nil, fmt.Errorf("asked for the badges of %d users, got %d", len(userIDs), len(answer.Badges))
	}
	return answer.Badges, nil
}

// post sends body and calls read with the response if its status is want.
func (t *HTTPTarget) post(ctx context.Context, to, contentType string, body []byte, want int, read func(*http.Response) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make a request to %s: %w", to, err)
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Authorization", "Bearer "+t.publisherKey)
	res, err := t.client.Do(req)
	if err != nil {
		var untrusted *tls.CertificateVerificationError
		if errors.As(err, &untrusted) {
			return err
		}
		// Refused, reset, timed out: the server may come back soon.
		return &TransientError{Err: err}
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode == want {
		err = read(res)
	} else {
		err = refusal(res)
	}
	// Reading the body to its end allows the connection to be reused.
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxProblemBytes))
	return err
}

// ServerError is an error answer of the server.
type ServerError struct {
	Status int
	// ByBadged is whether badged itself answered, rather than a proxy in between or another
	// server: only then does the answer say anything about the events.
	ByBadged bool
	// Detail is the server's description of the error, or "".
	Detail string
	// Events are the bad events of the request.
	Events []EventError
	// Lacking says whose users lack the events, nil if it is not known that others have
	// theirs.
	Lacking *Lacking
}

// Lacking names users by their partitions, as numbered before any was split.
type Lacking struct {
	Partitions []int `json:"partitions"`
	// Of is how many partitions there were then.
	Of int `json:"of"`
}

// EventError is the server's error about one event of a request.
type EventError struct {
	Index   int    `json:"index"` // from 0
	Field   string `json:"field"` // path of the field, "" for the event as a whole
	Message string `json:"message"`
}

// Error implements error.
func (e EventError) Error() string {
	return events.FieldError{Field: e.Field, Message: e.Message}.Error()
}

// Error implements error. It does not name Events.
func (e *ServerError) Error() string {
	s := fmt.Sprintf("the server answered %d %s", e.Status, http.StatusText(e.Status))
	switch {
	case e.Detail != "":
		s += ": " + e.Detail
	case e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden:
		s += ": check the publisher key"
	}
	if !e.ByBadged {
		s += "; this is no answer of badged: check the server URL, and the proxies in between"
	}
	return s
}

// maxProblemBytes bounds the body of an error answer.
const maxProblemBytes = 1 << 20

// refusal returns the error of an error answer: a ServerError, transient if
// the same request may succeed a little later.
func refusal(res *http.Response) error {
	refused := &ServerError{Status: res.StatusCode}
	refused.describe(res)
	switch res.StatusCode {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return &TransientError{Err: refused, After: retryAfter(res.Header)}
	}
	return refused
}

// describe sets the rest of the error from an application/problem+json or text body.
func (e *ServerError) describe(res *http.Response) {
	mediaType, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxProblemBytes))
	switch mediaType {
	case "application/problem+json":
		var problem struct {
			Type    string       `json:"type"`
			Detail  string       `json:"detail"`
			Errors  []EventError `json:"errors"`
			Lacking *Lacking     `json:"lacking"`
		}
		if json.Unmarshal(body, &problem) != nil {
			return
		}
		e.Detail = problem.Detail
		if e.ByBadged = problem.Type == describe.ProblemType; e.ByBadged {
			e.Events, e.Lacking = problem.Errors, problem.Lacking
		}
	case "text/plain":
		e.Detail, _, _ = strings.Cut(strings.TrimSpace(string(body)), "\n")
	}
}

// retryAfter returns how long a response asks to wait; 0 unless it gives
// seconds.
func retryAfter(h http.Header) time.Duration {
	const most = 3600
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(min(seconds, most)) * time.Second
}
