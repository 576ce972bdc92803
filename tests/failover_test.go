//go:build failover

package tests

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// failovers is how often each test of a cluster makes the primary fail.
var failovers = flag.Int("failovers", 20, "how often each test of a Patroni cluster takes the primary away")

// talkers is how many publishers run at once, and pace is the pause between two messages of one.
const (
	talkers = 64
	pace    = 50 * time.Millisecond
)

// loss is a way to lose a primary.
type loss struct {
	name string
	// take makes the primary fail and returns the function that brings its node back.
	take func(n *patroniNode) (back func())
	// soon is true if the node comes back as soon as another node is primary, as when a
	// supervisor restarts Patroni. Until then its Postgres still runs.
	soon bool
}

// losses returns the ways in which nodes fail, in the order in which the tests use them.
func losses() []loss {
	again := func(n *patroniNode) func() { return func() { n.start() } }
	return []loss{
		{"Postgres killed", func(n *patroniNode) func() {
			n.killPostgres()
			return func() {}
		}, false},
		{"node killed", func(n *patroniNode) func() {
			n.killPatroni()
			n.killPostgres()
			return again(n)
		}, false},
		{"Patroni killed", func(n *patroniNode) func() {
			n.killPatroni()
			return again(n)
		}, true},
		// A watchdog resets the frozen node before it continues. Without a watchdog, the
		// Patroni of the frozen node acquires the leader lock again from the new primary
		// (seen with 3.0.2), and the new primary's commits are lost.
		{"node frozen", func(n *patroniNode) func() {
			_ = n.run.cmd.Process.Signal(syscall.SIGSTOP)
			n.signalPostgres(syscall.SIGSTOP)
			return func() {
				n.killPatroni()
				n.killPostgres()
				n.start()
			}
		}, false},
		{"links silent", func(n *patroniNode) func() {
			return n.isolate("half-open")
		}, false},
		{"links cut", func(n *patroniNode) func() {
			return n.isolate("cut")
		}, false},
	}
}

// isolate applies a fault to all links of a node until heal is called.
func (n *patroniNode) isolate(fault string) (heal func()) {
	var heals []func()
	for _, l := range []*link{n.etcd, n.peers, n.clients} {
		heals = append(heals, faults()[fault](l))
	}
	return func() {
		for _, heal := range heals {
			heal()
		}
	}
}

// resumption measures when a frequent event resumes after a loss: at the end of the longest gap
// between two events since the loss.
type resumption struct {
	mu          sync.Mutex
	since, last time.Time
	longest     time.Duration
	end         time.Time
	n           int // events since the loss
}

func (r *resumption) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.since, r.last, r.longest, r.end, r.n = now, now, 0, now, 0
}

func (r *resumption) happened() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if silent := now.Sub(r.last); silent > r.longest {
		r.longest, r.end = silent, now
	}
	r.last = now
	r.n++
}

// times returns the number of events since the loss.
func (r *resumption) times() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n
}

func (r *resumption) after() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.end.Sub(r.since)
}

// chat is a backend with one publisher (talker) for each user. A talker publishes messages to its
// user, and reads the user's badge after each message.
type chat struct {
	t   *testing.T
	p   *process
	url string
	// acknowledged is, by user, the last message that badged has answered with 202.
	acknowledged [talkers]atomic.Int64
	published    resumption
	folded       resumption
	// loses is true if acknowledged messages may be lost.
	loses bool
	// unsure counts reads to which badged answered that it does not know whether a message
	// was lost.
	unsure atomic.Int64
	stop   context.CancelFunc
	done   sync.WaitGroup
}

func talker(i int) string { return fmt.Sprintf("talker-%d", i) }

func newChat(t *testing.T, p *process) *chat { return &chat{t: t, p: p, url: p.url} }

// begin starts the publishers, each with the message after the last acknowledged one.
func (c *chat) begin() {
	ctx, stop := context.WithCancel(c.t.Context())
	c.stop = stop
	c.t.Cleanup(c.pause)
	c.published.reset()
	c.folded.reset()
	for i := range talkers {
		c.done.Go(func() { c.talk(ctx, i) })
	}
}

// pause stops the publishers.
func (c *chat) pause() {
	c.stop()
	c.done.Wait()
}

// talk publishes one message after another, each until it is acknowledged.
func (c *chat) talk(ctx context.Context, i int) {
	rate := time.NewTicker(pace)
	defer rate.Stop()
	for seq := c.acknowledged[i].Load() + 1; ctx.Err() == nil; {
		<-rate.C
		position := c.tell(ctx, i, seq)
		if position == "" {
			continue
		}
		c.acknowledged[i].Store(seq)
		c.published.happened()
		seq++
		if i == 0 {
			c.read(ctx, i, position, seq-1)
		}
	}
}

// tell publishes a message and returns its position, "" if it was not acknowledged.
func (c *chat) tell(ctx context.Context, i int, seq int64) (position string) {
	event := delivered("c-"+talker(i), int(seq), `"`+talker(i)+`"`)
	status, header, answer := c.send(ctx, http.MethodPost, "/v1/events", event)
	switch status {
	case http.StatusAccepted:
		return header.Get("Badged-Position")
	case 0, http.StatusServiceUnavailable, http.StatusTooManyRequests:
	default:
		c.t.Errorf("publish: %d %s", status, answer)
	}
	return ""
}

// read reads a badge that must have a message.
func (c *chat) read(ctx context.Context, i int, position string, seq int64) {
	status, _, answer := c.send(ctx, http.MethodGet, "/v1/users/"+talker(i)+"/badge?timeout=30s&at_least="+position, "")
	switch status {
	case http.StatusOK:
		if n := totalOf(c.t, answer); n < seq && !c.loses {
			c.t.Errorf("%s has %d unread after message %d: %s", talker(i), n, seq, answer)
		}
		c.folded.happened()
	case http.StatusConflict:
		c.unsure.Add(1)
	case 0, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
	default:
		c.t.Errorf("read: %d %s", status, answer)
	}
}

func totalOf(t *testing.T, answer string) int64 {
	var badge struct{ Total int64 }
	if err := json.Unmarshal([]byte(answer), &badge); err != nil {
		t.Errorf("badge %s: %v", answer, err)
	}
	return badge.Total
}

// send sends a request; the status is 0 if there is no answer.
func (c *chat) send(ctx context.Context, method, path, body string) (status int, header http.Header, answer string) {
	status, header, answer, err := exchangeOnce(ctx, publisherKey, method, c.url+path, "application/cloudevents+json", body)
	if err != nil && ctx.Err() == nil {
		c.t.Errorf("%s %s: %v", method, path, err)
	}
	return status, header, answer
}

// goesOn waits until publishing and folding have resumed.
func (c *chat) goesOn(cluster *patroniCluster) {
	c.t.Helper()
	published, folded := c.published.times(), c.folded.times()
	cluster.patiently("publishing and folding", func() bool {
		return c.published.times() > published+5*talkers && c.folded.times() > folded+10
	})
}

// hasAll waits until the badges include every acknowledged message.
func (c *chat) hasAll(after string) {
	c.t.Helper()
	ids := make([]string, talkers)
	for i := range ids {
		ids[i] = talker(i)
	}
	acknowledged := c.now()
	body, err := json.Marshal(map[string]any{"user_ids": ids})
	if err != nil {
		c.t.Fatal(err)
	}
	lacks := ""
	defer func() {
		if lacks != "" {
			c.t.Logf("after %s:%s", after, lacks)
		}
	}()
	for range polls(c.t, "everything that is acknowledged, after "+after) {
		var all struct{ Badges []struct{ Total int64 } }
		status, _, answer := c.send(c.t.Context(), http.MethodPost, "/v1/badges/query", string(body))
		if status != http.StatusOK || json.Unmarshal([]byte(answer), &all) != nil {
			continue
		}
		lacks = ""
		for i, b := range all.Badges {
			if b.Total < acknowledged[i] {
				lacks += fmt.Sprintf(" %s has %d unread, %d are acknowledged;", ids[i], b.Total, acknowledged[i])
			}
		}
		if lacks == "" {
			return
		}
	}
}

// last publishes one more message to a user until it is acknowledged.
func (c *chat) last(i int) (position string, seq int64) {
	c.t.Helper()
	seq = c.acknowledged[i].Load() + 1
	await(c.t, "the last message of a user", func() bool {
		position = c.tell(c.t.Context(), i, seq)
		return position != ""
	})
	c.acknowledged[i].Store(seq)
	return position, seq
}

// end publishes one more message to each user, stops publishing, and checks that each message
// counts once in the badges.
func (c *chat) end(database string) (events int64) {
	c.t.Helper()
	c.pause()
	for i := range talkers {
		position, seq := c.last(i)
		if n := total(c.t, c.p, talker(i), position); n != seq {
			c.t.Errorf("%s has %d unread of %d messages", talker(i), n, seq)
		}
		events += seq
	}
	must(c.t, "verify", "--database-url="+database)
	return events
}

// now returns the last acknowledged message of each user.
func (c *chat) now() (acknowledged []int64) {
	for i := range talkers {
		acknowledged = append(acknowledged, c.acknowledged[i].Load())
	}
	return acknowledged
}

// quantiles returns the median and the maximum of durations, as text.
func quantiles(all []time.Duration) string {
	if len(all) == 0 {
		return "-"
	}
	slices.Sort(all)
	return fmt.Sprintf("p50 %.1f s, max %.1f s", all[len(all)/2].Seconds(), all[len(all)-1].Seconds())
}

// figures are the durations for which publishing and folding were interrupted.
type figures struct{ publishing, folding []time.Duration }

func (f *figures) String() string {
	return fmt.Sprintf("publishing resumed after %s; folding after %s (%d times)", quantiles(f.publishing), quantiles(f.folding), len(f.publishing))
}

// createDatabase creates the database of the tests.
func (c *patroniCluster) createDatabase(url string) {
	c.t.Helper()
	c.patiently("the database", func() bool {
		conn, err := pgx.Connect(c.t.Context(), strings.Replace(url, "/chat?", "/postgres?", 1))
		if err != nil {
			return false
		}
		defer conn.Close(c.t.Context())
		_, err = conn.Exec(c.t.Context(), "CREATE DATABASE chat")
		return err == nil
	})
}

// A cluster with synchronous replication loses its primary again and again while 64 talkers
// publish. No acknowledged event is lost, and none counts twice.
func TestPatroniSynchronous(t *testing.T) {
	for _, way := range []struct {
		name string
		url  func(*patroniCluster) string
	}{
		{"several hosts", (*patroniCluster).hosts},
		{"HAProxy", (*patroniCluster).haproxy},
	} {
		t.Run(way.name, func(t *testing.T) {
			cluster := startPatroni(t, true)
			url := way.url(cluster)
			cluster.createDatabase(url)
			p := serve(t, url, "--reconcile-interval=1s")
			clients := []*client{connect(t, p.url, talker(0)), connect(t, p.url, talker(1))}
			for _, client := range clients { // an old primary may have shown commits that no standby has
				client.mayRewind()
			}
			c := newChat(t, p)
			c.begin()
			c.goesOn(cluster)
			var all figures
			by := map[string]*figures{}
			kinds := losses()
			for i := range *failovers {
				kind := kinds[i%len(kinds)]
				old := cluster.awaitPrimary(nil)
				c.published.reset()
				c.folded.reset()
				back := kind.take(old)
				cluster.awaitPrimary(old)
				if kind.soon {
					back()
					back = func() {}
				}
				c.goesOn(cluster)
				publishing, folding := c.published.after(), c.folded.after()
				t.Logf("%d: %s: publishing resumed after %.1f s, folding after %.1f s", i+1, kind.name, publishing.Seconds(), folding.Seconds())
				if by[kind.name] == nil {
					by[kind.name] = &figures{}
				}
				for _, f := range []*figures{&all, by[kind.name]} {
					f.publishing, f.folding = append(f.publishing, publishing), append(f.folding, folding)
				}
				back()
				cluster.awaitWhole(true)
				c.goesOn(cluster)
				c.hasAll(kind.name)
			}
			events := c.end(url)
			for i, client := range clients {
				client.awaitTotal(c.acknowledged[i].Load())
			}
			if !t.Failed() {
				t.Logf("%d events acknowledged, 0 lost, 0 counted twice; %d reads were told to publish again", events, c.unsure.Load())
			}
			for _, kind := range kinds {
				if f := by[kind.name]; f != nil {
					t.Logf("%s: %v", kind.name, f)
				}
			}
			t.Logf("all: %v", &all)
		})
	}
}

// A cluster with asynchronous replication loses its last commits again and again. badged detects
// this without an operator and begins new epochs. Clients end with the state of the tables, reads
// at positions of lost commits are refused, and lost events count once after they are published
// again.
func TestPatroniAsynchronous(t *testing.T) {
	cluster := startPatroni(t, false)
	url := cluster.hosts()
	cluster.createDatabase(url)
	p := serve(t, url, "--reconcile-interval=1s")
	clients := []*client{connect(t, p.url, talker(0)), connect(t, p.url, talker(1))}
	for _, client := range clients {
		client.mayRewind()
	}
	c := newChat(t, p)
	c.loses = true
	var all figures
	sum := int64(0)
	for i := range max(1, *failovers/4) {
		c.begin()
		c.goesOn(cluster)
		old := cluster.awaitPrimary(nil)
		before := value[string](t, url, epochs)
		parted := c.now()
		heal := old.isolatePeers() // events that are acknowledged from now on are lost
		published := c.published.times()
		cluster.patiently("a tail", func() bool { return c.published.times() > published+5*talkers })
		c.published.reset()
		c.folded.reset()
		old.killPatroni()
		old.killPostgres()
		heal()
		cluster.awaitPrimary(old)
		c.goesOn(cluster)
		until(t, url, `SELECT NOT EXISTS (SELECT FROM badged.partitions WHERE epoch = ANY (string_to_array($1, ' ')))`, before)
		c.pause()
		all.publishing, all.folding = append(all.publishing, c.published.after()), append(all.folding, c.folded.after())
		lost := int64(0)
		for i := range talkers {
			position, seq := c.last(i)
			n := total(t, p, talker(i), position)
			lost += seq - n
			if i < len(clients) {
				clients[i].awaitTotal(n)
			}
			for again := parted[i]; again <= seq; again++ {
				position = insist(t, p, delivered("c-"+talker(i), int(max(1, again)), fmt.Sprintf("%q", talker(i))))
			}
			wantTotal(t, p, talker(i), position, seq)
		}
		t.Logf("%d: publishing resumed after %.1f s, folding after %.1f s; %d acknowledged events were lost", i+1, c.published.after().Seconds(), c.folded.after().Seconds(), lost)
		sum += lost
		old.start()
		cluster.awaitWhole(false)
	}
	if sum == 0 {
		t.Error("nothing was lost: the test shows nothing")
	}
	must(t, "verify", "--database-url="+url)
	t.Logf("all: %v; %d reads were told to publish again", &all, c.unsure.Load())
}

// isolatePeers drops what the node sends to the other nodes, until heal is called.
func (n *patroniNode) isolatePeers() (heal func()) { return faults()["half-open"](n.peers) }
