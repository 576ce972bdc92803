package push

import (
	"net/http"
	"net/http/httptrace"
	"sync"
)

// inTurn lets the requests to a server take their connections one after the other.
// While a connection is up that takes no time, and it is shared. While there is none,
// the first request dials, and the others wait for that connection: net/http by itself
// would dial one for each.
type inTurn struct {
	next http.RoundTripper

	mu sync.Mutex
	// turns has a token while a request takes a connection, by server.
	turns map[string]chan struct{}
}

func newInTurn(next http.RoundTripper) *inTurn {
	return &inTurn{next: next, turns: map[string]chan struct{}{}}
}

// RoundTrip implements http.RoundTripper.
func (t *inTurn) RoundTrip(req *http.Request) (*http.Response, error) {
	turn := t.of(req.URL.Host)
	ctx := req.Context()
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	end := sync.OnceFunc(func() { <-turn })
	defer end() // it may have got no connection
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { end() }})
	return t.next.RoundTrip(req.WithContext(ctx))
}

func (t *inTurn) of(server string) chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	turn, ok := t.turns[server]
	if !ok {
		turn = make(chan struct{}, 1)
		t.turns[server] = turn
	}
	return turn
}
