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
	"github.com/badged/badged/internal/base/describe"
	"github.com/badged/badged/pubsub"
)

const (
	// positionHeader is the response header with the position of the appended events.
	positionHeader = "Badged-Position"
	// foldTimeout is how long the server may wait for folding before it answers a request for
	// badges.
	foldTimeout = 2 * time.Second
	// requestTimeout limits one request, so that a server that hangs is detected.
	requestTimeout = 30 * time.Second
	// maxResponseBytes limits an answer. An answer with 1,000 badges, long ids and many categories
	// is smaller.
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

// NewHTTPTarget returns a target that publishes with a publisher's API key to the server at
// baseURL, such as "http://127.0.0.1:8080". It does not connect.
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
			// Do not follow redirects: a redirect would convert the POST to a GET.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Close closes idle connections.
func (t *HTTPTarget) Close() { t.client.CloseIdleConnections() }

// Append implements Target with one request. If the server refuses the events, it returns a
// [*ServerError]. If the same call may succeed later, it returns a [*TransientError].
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

// Check returns an error if the server cannot be reached, refuses the key or is not badged. It
// publishes nothing: it sends a request without events, which badged refuses with status 400.
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

// badgesQuery is the body of a request for badges, badgesAnswer the body of the answer.
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

// post sends body to the URL `to`. If the response has the status `want`, post calls the function
// `read` with the response.
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
		// The connection was refused or reset, or timed out. The server may be reachable again
		// soon.
		return &TransientError{Err: err}
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode == want {
		err = read(res)
	} else {
		err = refusal(res)
	}
	// The transport reuses the connection only if the body was read to its end.
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxProblemBytes))
	return err
}

// ServerError is an error answer of the server.
type ServerError struct {
	Status int
	// ByBadged is true if badged itself answered, and not a proxy or another server. Only an answer
	// of badged can be a refusal of events.
	ByBadged bool
	// Detail is the server's description of the error, or "".
	Detail string
	// Events has the errors about single events of the request.
	Events []EventError
	// Lacking identifies the users who did not get their events because databases are unavailable.
	// If it is nil, the users are unknown, and any of the events may be missing.
	Lacking *Lacking
}

// Lacking identifies users by their partitions, with the numbers that the partitions had before any
// split.
type Lacking struct {
	Partitions []int `json:"partitions"`
	// Of is the number of partitions before any split.
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

// Error implements error. The text does not include Events.
func (e *ServerError) Error() string {
	s := fmt.Sprintf("the server answered %d %s", e.Status, http.StatusText(e.Status))
	switch {
	case e.Detail != "":
		s += ": " + e.Detail
	case e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden:
		s += ": check the publisher key"
	}
	if !e.ByBadged {
		s += "; badged did not send this answer: check the server URL, and the proxies in between"
	}
	return s
}

// maxProblemBytes bounds the body of an error answer.
const maxProblemBytes = 1 << 20

// refusal returns a ServerError for an error answer. If the same request may succeed later, it
// wraps the ServerError in a TransientError.
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

// describe sets the fields of e that come from the body, which is application/problem+json or plain
// text.
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

// retryAfter returns the Retry-After of a response, at most an hour. It returns 0 if the header is
// missing or is not a number of seconds.
func retryAfter(h http.Header) time.Duration {
	const limit = 3600
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(min(seconds, limit)) * time.Second
}
