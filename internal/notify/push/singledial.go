package push

import (
	"math"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"

	"github.com/badged/badged/internal/base/limit"
)

// singleDialTransport prevents concurrent requests to a server from opening a connection each.
// The requests get their connection one after the other: if a connection exists, they share it
// without a delay; if none exists, the first request dials, and the other requests wait for the
// new connection. Without singleDialTransport, net/http would dial for each request, and again
// for each request that it repeats after a GOAWAY.
type singleDialTransport struct {
	next http.RoundTripper
	// turns has a lock for each server to which requests are getting connections.
	turns *limit.AtOnce[string]
}

func newInTurn(next http.RoundTripper) *singleDialTransport {
	return &singleDialTransport{next, limit.NewAtOnce[string](1, math.MaxInt64)}
}

// maxTries is the maximum number of times that a request is sent if the server does not process
// it.
const maxTries = 5

// RoundTrip implements http.RoundTripper.
func (t *singleDialTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	for try := 1; ; try++ {
		res, err := t.roundTrip(req)
		if err == nil || req.GetBody == nil || try == maxTries || !isUnprocessed(err) {
			return res, err
		}
		body, bodyErr := req.GetBody()
		if bodyErr != nil {
			return nil, err
		}
		req = req.WithContext(req.Context()) // a copy
		req.Body = body
	}
}

// isUnprocessed reports whether err means that the server has not processed a request, so that
// repeating the request is safe. net/http has no error type for this case. roundTrip clears
// req.GetBody, so net/http returns the error; otherwise net/http would repeat the request itself,
// without acquiring the lock.
func isUnprocessed(err error) bool { return strings.Contains(err.Error(), "cannot retry err [") }

// roundTrip sends a request once. It holds the lock of the server until the request has a
// connection.
func (t *singleDialTransport) roundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	leave, ok := t.turns.Enter(ctx, req.URL.Host)
	if !ok {
		return nil, ctx.Err()
	}
	end := sync.OnceFunc(leave)
	defer end() // releases the lock if the request got no connection
	// Hold the lock until the headers are written. Before that, net/http may find that the
	// connection is closing, and choose another connection.
	req = req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: end}))
	req.GetBody = nil
	return t.next.RoundTrip(req)
}
