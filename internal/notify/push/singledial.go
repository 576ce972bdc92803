package push

import (
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
)

// singleDialTransport serializes how the requests to a server get their connection. If a
// connection exists, requests share it without a delay. If none exists, the first request dials
// and the other requests wait for the new connection. Without singleDialTransport, net/http would
// dial for each request, and again for each request that it repeats after a GOAWAY.
type singleDialTransport struct {
	next http.RoundTripper

	mu sync.Mutex
	// turns has the lock of each server to which requests are getting connections.
	turns map[string]*turn
}

// turn is the lock of a server. taken contains a value while a request holds the lock.
type turn struct {
	taken chan struct{}
	// waiting is the number of requests that hold the lock or wait for it.
	waiting int
}

func newInTurn(next http.RoundTripper) *singleDialTransport {
	return &singleDialTransport{next: next, turns: map[string]*turn{}}
}

// maxTries is the maximum number of tries of a request that servers do not process.
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

// isUnprocessed reports whether the server has not processed a request, so that the request can
// be repeated safely. net/http has no error type for this case. roundTrip clears req.GetBody,
// since net/http would otherwise repeat the request itself, without acquiring the lock.
func isUnprocessed(err error) bool { return strings.Contains(err.Error(), "cannot retry err [") }

// roundTrip tries a request once. It holds the lock of the server until the request has a
// connection.
func (t *singleDialTransport) roundTrip(req *http.Request) (*http.Response, error) {
	host := req.URL.Host
	turn := t.wait(host)
	ctx := req.Context()
	select {
	case turn.taken <- struct{}{}:
	case <-ctx.Done():
		t.leave(host, turn)
		return nil, ctx.Err()
	}
	end := sync.OnceFunc(func() {
		<-turn.taken
		t.leave(host, turn)
	})
	defer end() // releases the lock if the request got no connection
	// Hold the lock until the headers are written. Until then, the connection may turn out to be
	// closing, and net/http then chooses another connection.
	req = req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: end}))
	req.GetBody = nil
	return t.next.RoundTrip(req)
}

// wait returns the lock of a server and counts the caller. Call leave once for each call of wait.
func (t *singleDialTransport) wait(server string) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	of, ok := t.turns[server]
	if !ok {
		of = &turn{taken: make(chan struct{}, 1)}
		t.turns[server] = of
	}
	of.waiting++
	return of
}

// leave deletes the lock of a server once no request uses it. Otherwise memory would grow without
// limit, since users choose the servers.
func (t *singleDialTransport) leave(server string, of *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if of.waiting--; of.waiting == 0 {
		delete(t.turns, server)
	}
}
