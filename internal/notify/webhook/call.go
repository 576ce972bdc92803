package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/badged/badged/internal/notify/egress"
	"github.com/badged/badged/internal/notify/outbound"
)

// Caller calls endpoints. It is safe for concurrent use.
type Caller struct {
	// Client makes the HTTP requests. It must not follow redirects, must have a timeout, and must
	// refuse addresses of private networks.
	Client *http.Client
	// Origin is the DNS name of this installation. It is sent as the source of events, and as the
	// origin in handshakes.
	Origin string
	// Now returns the time that is sent and signed with each call. Default time.Now.
	Now func() time.Time
}

func (c *Caller) now() time.Time {
	if c.Now == nil {
		return time.Now()
	}
	return c.Now()
}

// Answer is the result of a call.
type Answer struct {
	// Status is the HTTP status, 0 if the endpoint did not answer.
	Status   int
	Duration time.Duration
	// Err is nil if the call succeeded. Its text may be shown to any user: it contains neither
	// the URL nor a secret.
	Err error
	// retryAfter is the wait that the endpoint asks for, 0 if it asks for none.
	retryAfter time.Duration
}

// succeeded reports whether a status means that the call was accepted.
func succeeded(status int) bool { return status >= 200 && status < 300 }

func (c *Caller) post(ctx context.Context, w outbound.Webhook, id, contentType string, body []byte) Answer {
	now, began := c.now(), time.Now()
	answer := Answer{}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(body))
	if err != nil {
		answer.Err = errors.New("the URL cannot be called")
		return answer
	}
	h := r.Header
	h.Set("Content-Type", contentType)
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", strconv.FormatInt(now.Unix(), 10))
	h.Set("webhook-signature", signatures(w.Secrets, id, now, body))
	c.introduce(h)
	res, err := c.Client.Do(r)
	answer.Duration = time.Since(began)
	if err != nil {
		answer.Err = withoutURL(err)
		return answer
	}
	discard(res)
	answer.Duration, answer.Status = time.Since(began), res.StatusCode
	if !succeeded(res.StatusCode) {
		answer.Err = statusError(res.StatusCode)
		answer.retryAfter = egress.RetryAfter(res.Header, now, maxRetryAfter)
	}
	return answer
}

// introduce sets the headers that identify the caller.
func (c *Caller) introduce(h http.Header) {
	h.Set("User-Agent", "badged")
	h.Set("WebHook-Request-Origin", c.Origin)
}

// discard reads and closes the body of an answer, so that the connection can be reused. The
// client limits the length of answers.
func discard(res *http.Response) {
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
}

// statusError returns the error for a status that does not mean success.
func statusError(status int) error {
	switch {
	case status >= 300 && status < 400:
		return fmt.Errorf("the endpoint answered %d %s; redirects are not followed", status, http.StatusText(status))
	case status == http.StatusGone:
		return errors.New("the endpoint answered 410 Gone: it wants no more calls")
	}
	return fmt.Errorf("the endpoint answered %d %s", status, http.StatusText(status))
}

// withoutURL removes the URL from the error of a call, because the query of the URL may contain a
// token. The error may also quote the endpoint's answer. So withoutURL truncates the text, and
// replaces characters that cannot be stored or displayed.
func withoutURL(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		if failed.Timeout() {
			return errors.New("no answer in time")
		}
		err = failed.Err
	}
	const limit = 500
	text := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return utf8.RuneError
	}, err.Error())
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + "…"
	}
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}

// Test calls the endpoint of w at once with an event of the type webhook.test. It does not use
// the queue.
func (c *Caller) Test(ctx context.Context, w outbound.Webhook) Answer {
	id, err := uuid.NewV7()
	if err != nil {
		return Answer{Err: fmt.Errorf("make an id: %w", err)}
	}
	test := eventOf(c.Origin, w.Name, outbound.Call{Type: Test, Subject: w.Name, QueuedAt: c.now()}, []byte(`{}`))
	test.ID = "msg_" + id.String()
	body, contentType, callID, err := encode([]event{test}, w.Batch > 1)
	if err != nil {
		return Answer{Err: err}
	}
	return c.post(ctx, w, callID, contentType, body)
}
