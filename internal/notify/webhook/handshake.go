package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

// RefusedError means that the endpoint has answered the handshake with a refusal.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return "the endpoint refuses webhooks: " + e.Reason }

// Handshake asks an endpoint for permission to call it, as the CloudEvents specification of
// webhooks describes. It returns the number of calls per minute that the endpoint permits; 0 means
// no limit. It fails with a [*RefusedError] if the endpoint refuses, and with another error if the
// endpoint does not answer. Handshake succeeds if the endpoint does not support handshakes, because
// only operators register webhooks.
func (c *Caller) Handshake(ctx context.Context, endpoint string) (rate int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodOptions, endpoint, nil)
	if err != nil {
		return 0, errors.New("the URL cannot be called")
	}
	c.introduce(r.Header)
	res, err := c.Client.Do(r)
	if err != nil {
		return 0, fmt.Errorf("the endpoint cannot be reached: %w", withoutURL(err))
	}
	discard(res)
	switch allowed := res.Header.Get("WebHook-Allowed-Origin"); {
	case allowed != "" && allowed != "*" && allowed != c.Origin:
		return 0, &RefusedError{"it allows another origin than " + c.Origin}
	case allowed == "" && saysNo(res.StatusCode):
		return 0, &RefusedError{fmt.Sprintf("it answered OPTIONS with %d %s", res.StatusCode, http.StatusText(res.StatusCode))}
	case allowed == "":
		return 0, nil
	}
	switch text := res.Header.Get("WebHook-Allowed-Rate"); text {
	case "", "*":
		return 0, nil
	default:
		n, err := strconv.ParseInt(text, 10, 32)
		if n < 1 || err != nil && !errors.Is(err, strconv.ErrRange) { // ParseInt returns the greatest number if the value is out of range
			return 0, &RefusedError{"its WebHook-Allowed-Rate is neither * nor a number of calls a minute"}
		}
		return int(n), nil
	}
}

// saysNo reports whether an answer with this status is a refusal if it does not have the headers of
// a handshake. Other statuses, such as 404 or 405, mean only that the endpoint does not support
// OPTIONS.
func saysNo(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusGone
}
