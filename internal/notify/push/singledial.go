package push

import (
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
)

// singleDialTransport prevents concurrent requests to a server from opening a connection each.
// The requests get their connection one after the other: if a connection exists, they share it
// without a delay; if none exists, the first request dials, and the other requests wait for the
// new connection. Without singleDialTransport, net/http would dial for each request, and again
// for each request that it repeats after a GOAWAY.
type singleDialTransport struct {
	next http.RoundTripper

	mu sync.Mutex
	// turns has a lock for each server to which requests are getting connections.
	turns map[string]*turn
}

// turn is the lock of a server. The channel taken contains a value while a request holds the
// lock.
type turn struct {
	taken chan struct{}
	// waiting is the number of requests that hold the lock or are waiting for it.
	waiting int
}

func newInTurn(next http.RoundTripper) *singleDialTransport {
	return &singleDialTransport{next: next, turns: map[string]*turn{}}
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
// repeating the request is safe. net/http has no error type for this case; it returns such an
// error only because roundTrip clears req.GetBody. Otherwise net/http would repeat the request
// itself, without acquiring the lock.
func isUnprocessed(err error) bool { return strings.Contains(err.Error(), "cannot retry err [") }

// roundTrip sends a request once. It holds the lock of the server until the request has a
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
	// Hold the lock until the headers are written. Before that, net/http may find that the
	// connection is closing, and choose another connection.
	req = req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: end}))
	req.GetBody = nil
	return t.next.RoundTrip(req)
}

// wait returns the lock of a server, and counts the caller in waiting. Call leave once for each
// call of wait.
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

// leave ends the use of a lock, and deletes the lock if no other request uses it. If locks were
// not deleted, memory would grow without limit, since users choose the servers.
func (t *singleDialTransport) leave(server string, of *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if of.waiting--; of.waiting == 0 {
		delete(t.turns, server)
	}
}
