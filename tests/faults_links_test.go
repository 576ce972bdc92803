package tests

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/badged/badged/internal/devtest/privateredis"
)

// link is a proxy between two parts of the system that tests can disturb.
type link struct {
	t       *testing.T
	proxy   *toxiproxy.Proxy
	carried atomic.Int64 // connections made over it
	dropped []int64      // the connections, counted from 1, that are closed at once
}

// newLink returns a link to the address of a URL, and the URL that uses the
// link.
func newLink(t *testing.T, to string) (l *link, over string) {
	t.Helper()
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	network, address := "tcp", u.Host
	if u.Scheme == "postgres" { // the Postgres of tests listens only on a Unix socket
		q := u.Query()
		network, address = "unix", filepath.Join(q.Get("host"), ".s.PGSQL."+q.Get("port"))
		q.Del("host")
		q.Del("port")
		q.Del("connect_timeout") // a test waits until programs notice the fault
		q.Set("sslmode", "disable")
		u.RawQuery = q.Encode()
	}
	l = &link{t: t}
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	l.proxy = toxiproxy.NewProxy(server, "link", "127.0.0.1:0", l.bridge(network, address))
	if err := l.proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.proxy.Stop)
	u.Host = l.proxy.Listen
	return l, u.String()
}

// bridge returns a TCP address that forwards to an address of any network, since toxiproxy
// supports only TCP.
func (l *link) bridge(network, address string) string {
	l.t.Helper()
	listener, err := new(net.ListenConfig).Listen(l.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		l.t.Fatal(err)
	}
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			if slices.Contains(l.dropped, l.carried.Add(1)) {
				_ = near.Close()
				continue
			}
			far, err := new(net.Dialer).DialContext(context.Background(), network, address)
			if err != nil { // the target is down
				_ = near.Close()
				continue
			}
			// When one side ends its connection, the other connection is closed too.
			go func() { _, _ = io.Copy(far, near); _ = far.Close() }()
			go func() { _, _ = io.Copy(near, far); _ = near.Close() }()
		}
	}()
	l.t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String()
}

// suffer disturbs both directions of the link until heal is called.
func (l *link) suffer(toxic string) (heal func()) {
	l.t.Helper()
	for _, stream := range []string{"upstream", "downstream"} {
		if _, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(toxic, stream))); err != nil {
			l.t.Fatal(err)
		}
	}
	return func() { l.proxy.Toxics.ResetToxics(context.WithoutCancel(l.t.Context())) }
}

// cut closes every connection and refuses new ones until heal is called.
func (l *link) cut() (heal func()) {
	l.proxy.Stop()
	return func() {
		if err := l.proxy.Start(); err != nil {
			l.t.Error(err)
		}
	}
}

// faults returns the faults of a link.
func faults() map[string]func(*link) (heal func()) {
	toxic := func(json string) func(*link) func() {
		return func(l *link) func() { return l.suffer(json) }
	}
	return map[string]func(*link) func(){
		"cut":        (*link).cut,
		"latency":    toxic(`{"type":"latency","stream":%q,"attributes":{"latency":150,"jitter":100}}`),
		"half-open":  toxic(`{"type":"timeout","stream":%q,"attributes":{"timeout":0}}`),
		"slow close": toxic(`{"type":"slow_close","stream":%q,"attributes":{"delay":500}}`),
		"reset":      toxic(`{"type":"reset_peer","stream":%q,"attributes":{"timeout":0}}`),
	}
}

// duringFault is how many messages are published while a link is disturbed. If the first is not
// accepted, no more are published.
const duringFault = 30

// After any fault of a link or of Redis during traffic, every client ends with the state in
// Postgres.
func TestFaultsOfLinks(t *testing.T) {
	t.Parallel()
	database, redis := newDatabase(t), newRedis(t)
	links := map[string]*link{}
	over := func(name, to string) (url string) {
		links[name], url = newLink(t, to)
		return url
	}
	common := []string{"--reconcile-interval=1s"}
	serve(t, over("projector to Postgres", database),
		append(common, "--redis-url="+over("projector to Redis", redis.URL()), "--roles=projector")...)
	api := serve(t, over("API to Postgres", database), append(common, "--redis-url="+redis.URL(), "--roles=api")...)
	gateway := serve(t, over("gateway to Postgres", database),
		append(common, "--redis-url="+over("gateway to Redis", redis.URL()), "--roles=gateway")...)
	front := over("client to gateway", gateway.url)
	// This server is connected to Postgres directly, not over a link.
	reader := serve(t, database, append(common, "--redis-url="+redis.URL(), "--roles=api")...)

	ann, ben := connect(t, front, "ann"), connect(t, front, "ben")
	publish(t, api, delivered("c", 1, `"ann","ben"`))
	ann.awaitTotal(1)
	for where, l := range links {
		if l.carried.Load() == 0 {
			t.Errorf("no connection from %s uses the link", where)
		}
	}
	seq := 1
	// disturb publishes during a fault and checks the results during the fault
	// and afterwards.
	disturb := func(fault func() (heal func()), meanwhile func(accepted bool)) {
		heal := sync.OnceFunc(fault())
		defer heal()
		ok := true
		for i := 0; ok && i < duringFault; i++ {
			seq++
			ok = attempt(t, api, delivered("c", seq, `"ann","ben"`))
		}
		meanwhile(ok)
		heal()
		for !ok { // the pool detects its dead connections one by one
			ok = attempt(t, api, delivered("c", seq, `"ann","ben"`))
		}
		seq++
		for !attempt(t, api, delivered("c", seq, `"ann","ben"`)) {
		}
		ann, ben = ann.untilTotal(front, int64(seq)), ben.untilTotal(front, int64(seq))
		for i, n := range totals(t, reader, []string{"ann", "ben"}) {
			if n != int64(seq) {
				t.Errorf("in Postgres client %d has %d unread, want %d", i, n, seq)
			}
		}
	}
	for where, l := range links {
		for what, fault := range faults() {
			t.Run(where+" suffers "+what, func(t *testing.T) {
				disturb(func() func() { return fault(l) }, func(accepted bool) {
					if what == "cut" && where == "API to Postgres" && accepted {
						t.Error("an event was accepted without Postgres")
					}
				})
			})
		}
	}
	t.Run("Redis stands still", func(t *testing.T) {
		disturb(func() func() { return pause(t, redis) }, func(accepted bool) {
			if !accepted {
				t.Error("an event was refused because Redis is down")
			}
			awaitBus(t, gateway, "not connected", 0) // then it has closed its connection
		})
	})
}

// pause freezes a Redis (SIGSTOP) until resume is called: its connections stay open, but it does
// not answer.
func pause(t *testing.T, redis *privateredis.Server) (resume func()) {
	t.Helper()
	if err := redis.Pause(); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := redis.Resume(); err != nil {
			t.Error(err)
		}
	}
}

// attempt publishes an event or an array of events, and reports whether the server accepted it. It
// returns false if there is no answer.
func attempt(t *testing.T, p *process, body string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	status, _, _, err := exchangeOnce(ctx, publisherKey, http.MethodPost, p.url+"/v1/events", "application/json", body)
	return err == nil && status == http.StatusAccepted
}

// untilTotal waits until the client's total is n. If its connection ends, it
// reconnects with the same state, and returns the new client.
func (c *client) untilTotal(url string, n int64) *client {
	c.t.Helper()
	deadline := time.After(patience)
	for {
		c.mu.Lock()
		total, changed, lost := c.total, c.changed, c.err
		c.mu.Unlock()
		if total == n {
			return c
		}
		if lost != nil {
			back, err := c.again(url)
			if err != nil {
				c.t.Fatalf("connect again after %v: %v", lost, err)
			}
			c = back
			continue
		}
		select {
		case <-changed:
		case <-deadline:
			c.t.Fatalf("the total is %d, want %d", total, n)
		}
	}
}
