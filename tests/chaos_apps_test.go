//go:build chaos

package tests

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
)

// chaosApp is an app of a user. Whenever its connection has ended, it reconnects to any server
// and resumes with its state.
type chaosApp struct {
	c      *chaos
	user   string
	random *rand.Rand
	stream bool // uses server-sent events instead of a WebSocket

	mu    sync.Mutex
	state *client
}

// connectApps connects two apps of each user who has some.
func (c *chaos) connectApps() {
	var each []func(done <-chan struct{})
	for n := range chaosApps {
		for _, stream := range []bool{false, true} {
			a := &chaosApp{c: c, user: chaosUser(n), random: c.randomOf(fmt.Sprint("app ", n, stream)), stream: stream}
			a.state = a.newState(nil)
			c.apps = append(c.apps, a)
			each = append(each, a.follow)
		}
	}
	c.work(each...)
}

// newState returns a client with the state of an earlier client.
func (a *chaosApp) newState(before *client) *client {
	next := &client{
		t: a.c.t, jwt: tokenFor(a.c.t, a.user, 24*time.Hour), changed: make(chan struct{}),
		unread: map[string]int64{}, last: map[string]int64{}, answers: map[int]string{}, forgets: true,
	}
	if before != nil {
		before.mu.Lock()
		defer before.mu.Unlock()
		next.epoch, next.version, next.total, next.resuming = before.epoch, before.version, before.total, true
		next.unread, next.last = maps.Clone(before.unread), maps.Clone(before.last)
	}
	return next
}

// follow keeps the app connected until done is closed. At times it closes its connection by
// itself, since a connection to a frozen server would not end.
func (a *chaosApp) follow(done <-chan struct{}) {
	running, end := context.WithCancel(context.Background())
	defer end()
	go func() { <-done; end() }()
	for {
		ctx, cancel := context.WithTimeout(running, time.Duration(3000+a.random.IntN(12000))*time.Millisecond)
		if a.stream {
			a.overSSE(ctx)
		} else {
			a.overWebSocket(ctx)
		}
		cancel()
		select {
		case <-running.Done():
			return
		case <-time.After(time.Duration(50+a.random.IntN(200)) * time.Millisecond):
		}
	}
}

func (a *chaosApp) current() *client {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state
}

func (a *chaosApp) take(next *client) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state = next
}

func (a *chaosApp) overWebSocket(ctx context.Context) {
	next, err := open(a.c.t, a.c.anyServer(a.random), a.current().jwt, &http.Client{Timeout: chaosPatience}) //nolint:contextcheck // the client has a timeout
	if err != nil {
		return // the server is down
	}
	known := a.newState(a.current())
	known.conn = next.conn
	if err := known.hello(); err != nil { //nolint:contextcheck // a write has a timeout
		_ = known.conn.CloseNow() // it has failed already
		return
	}
	a.take(known)
	select {
	case <-ctx.Done():
	case <-known.ended:
	}
	known.close()
}

func (a *chaosApp) overSSE(ctx context.Context) {
	known := a.newState(a.current())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.c.anyServer(a.random)+"/v1/sse", http.NoBody)
	if err != nil {
		a.c.t.Error(err)
		return
	}
	req.Header.Set("Authorization", "Bearer "+known.jwt)
	if known.epoch != "" {
		req.Header.Set("Last-Event-ID", fmt.Sprintf("%s:%d", known.epoch, known.version))
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return // the server is down
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return
	}
	a.take(known)
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		known.mu.Lock()
		known.apply([]byte(data))
		known.mu.Unlock()
	}
}

// shows returns the state that the app shows, as text.
func (a *chaosApp) shows() string {
	known := a.current()
	known.mu.Lock()
	defer known.mu.Unlock()
	return shown(known.epoch, known.version, known.total, known.unread)
}

// shown returns the text for a state of an app.
func shown(epoch string, version, total int64, unread map[string]int64) string {
	counts := maps.Clone(unread)
	maps.DeleteFunc(counts, func(_ string, n int64) bool { return n == 0 })
	return fmt.Sprintf("total %d at version %d of %s: %v", total, version, epoch, counts)
}
