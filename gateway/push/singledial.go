package push

import (
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
)

// singleDialTransport lets the requests to a server take their connections one after the other. While a connection is up that takes no time, and it is shared. While there is none,
// the first request dials, and the others wait for that connection: net/http by itself
// would dial one for each, and again one for each that a GOAWAY lets it repeat.
type singleDialTransport struct {
	next http.RoundTripper

	mu sync.Mutex
	// turns has a lock for each server that requests connect to.
	turns map[string]*turn
}

// turn has a token while a request takes a connection.
type turn struct {
	taken chan struct{}
	// waiting is how many requests have the token or wait for it.
	waiting int
}

func newInTurn(next http.RoundTripper) *singleDialTransport {
	return &singleDialTransport{next: next, turns: map[string]*turn{}}
}

// maxTries is how often a request is tried that servers do not process.
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

// isUnprocessed reports whether a server has not processed a request, so that it can be
// repeated. Net/http has no type for that. It would repeat the request by itself, not in
// its turn, if it could read the body again.
func isUnprocessed(err error) bool { return strings.Contains(err.Error(), "cannot retry err [") }

// roundTrip tries a request once.
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
	defer end() // it may have got no connection
	// Until then the connection may turn out to be one that ends, and another is taken.
	req = req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: end}))
	req.GetBody = nil
	return t.next.RoundTrip(req)
}

// wait returns the turn of a server. Each call is followed by one of leave.
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

// leave forgets the turn of a server to which no request is left: devices name servers.
func (t *singleDialTransport) leave(server string, of *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if of.waiting--; of.waiting == 0 {
		delete(t.turns, server)
	}
}
