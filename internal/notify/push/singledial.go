package push

import (
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
)

// singleDialTransport makes requests to a server get their connections one after the other. If
// there is a connection, requests share it without a delay. If there is no connection, the
// first request dials and the other requests wait for the connection. net/http would dial for
// each request, and dial again for each request that is repeated after a GOAWAY.
type singleDialTransport struct {
	next http.RoundTripper

	mu sync.Mutex
	// turns has a lock for each server to which requests connect.
	turns map[string]*turn
}

// turn is the lock of a server. taken contains a token while a request gets its connection.
type turn struct {
	taken chan struct{}
	// waiting is the number of requests that have the token or wait for it.
	waiting int
}

func newInTurn(next http.RoundTripper) *singleDialTransport {
	return &singleDialTransport{next: next, turns: map[string]*turn{}}
}

// maxTries is how often a request is tried if servers do not process it.
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

// isUnprocessed reports whether the server has not processed a request, so that the request
// can be repeated. net/http has no error type for this case. If req.GetBody were set, net/http
// would repeat the request itself, without waiting for its turn.
func isUnprocessed(err error) bool { return strings.Contains(err.Error(), "cannot retry err [") }

// roundTrip tries a request once, after it has waited for its turn.
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
	defer end() // if the request got no connection
	// Keep the token until the headers are written. Before that, the connection may turn out
	// to be closing, and net/http then chooses another connection.
	req = req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: end}))
	req.GetBody = nil
	return t.next.RoundTrip(req)
}

// wait returns the turn of a server. Call leave once for each call of wait.
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

// leave removes the turn of a server without further requests. Otherwise memory would grow
// without limit, since users choose the servers.
func (t *singleDialTransport) leave(server string, of *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if of.waiting--; of.waiting == 0 {
		delete(t.turns, server)
	}
}
