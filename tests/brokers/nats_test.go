package brokers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// natsCluster is a cluster of JetStream in this process.
type natsCluster struct {
	options []*server.Options
	servers []*server.Server
}

// startNATS starts a cluster of n servers with a user ann.
func startNATS(t *testing.T, n int) *natsCluster {
	t.Helper()
	c := &natsCluster{}
	var routes []*url.URL
	for range n { // fixed ports, so that a restarted server has the same port
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", freePort(t))})
	}
	for i := range n {
		o := &server.Options{
			ServerName: fmt.Sprintf("n%d", i), Host: "127.0.0.1", Port: freePort(t), JetStream: true, StoreDir: t.TempDir(),
			NoLog: true, NoSigs: true, Username: "ann", Password: "hunter2", JetStreamMaxStore: 4 << 30, JetStreamMaxMemory: 1 << 30,
		}
		if n > 1 {
			port, err := strconv.Atoi(routes[i].Port())
			if err != nil {
				t.Fatal(err)
			}
			o.Cluster, o.Routes = server.ClusterOpts{Name: "tests", Host: "127.0.0.1", Port: port}, routes
		}
		c.options, c.servers = append(c.options, o), append(c.servers, start(t, o))
	}
	for _, s := range c.servers {
		awaitNATS(t, s)
	}
	t.Cleanup(func() {
		for _, s := range c.servers {
			s.Shutdown()
			s.WaitForShutdown()
		}
	})
	return c
}

// freePort returns a port on which no process listens.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func start(t *testing.T, o *server.Options) *server.Server {
	t.Helper()
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	return s
}

func awaitNATS(t *testing.T, s *server.Server) {
	t.Helper()
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the server of NATS is not ready")
	}
}

// hosts returns HOST:PORT of every server, separated by commas.
func (c *natsCluster) hosts() string {
	var all []string
	for _, o := range c.options {
		all = append(all, fmt.Sprintf("127.0.0.1:%d", o.Port))
	}
	return strings.Join(all, ",")
}

// from returns the URL for --from.
func (c *natsCluster) from(rest string) string { return "nats://ann:hunter2@" + c.hosts() + "/" + rest }

// connect returns a client.
func (c *natsCluster) connect(t *testing.T) jetstream.JetStream {
	t.Helper()
	conn, err := nats.Connect(strings.ReplaceAll("nats://"+c.hosts(), ",", ",nats://"), nats.UserInfo("ann", "hunter2"),
		nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// createStream creates a stream. It repeats the request, since a request that is sent before the cluster
// has elected a leader is never answered.
func createStream(t *testing.T, js jetstream.JetStream, cfg jetstream.StreamConfig) {
	t.Helper()
	await(t, "a stream", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := js.CreateOrUpdateStream(ctx, cfg)
		return err == nil
	})
}

func publish(t *testing.T, js jetstream.JetStream, msg *nats.Msg) {
	t.Helper()
	if _, err := js.PublishMsg(t.Context(), msg); err != nil {
		t.Fatal(err)
	}
}

// Messages of a stream in the structured and the binary mode become events. A message that is no event
// becomes a dead letter with its place in the stream. A filter skips other subjects.
func TestJetStream(t *testing.T) {
	t.Parallel()
	d, c := newDatabase(t), startNATS(t, 1)
	js := c.connect(t)
	createStream(t, js, jetstream.StreamConfig{Name: "CHAT", Subjects: []string{"chat.>"}})
	p := run(t, d, c.from("CHAT?subject=chat.events"))
	publish(t, js, &nats.Msg{Subject: "chat.events", Data: event(1)})
	publish(t, js, &nats.Msg{Subject: "chat.other", Data: []byte("not for badged")})
	publish(t, js, &nats.Msg{Subject: "chat.events", Data: []byte("hello")})
	publish(t, js, &nats.Msg{Subject: "chat.events", Header: nats.Header{
		"ce-specversion": {"1.0"}, "ce-source": {"chat%20room"}, "ce-type": {"message.delivered"}, "content-type": {"application/json"},
	}, Data: []byte(`{"conversation_id":"c","user_ids":["ann"],"seq":1}`)})
	await(t, "three messages", func() bool { return d.read(t) == 3 })
	if n := d.appended(t); n != 2 {
		t.Errorf("the log has %d events", n)
	}
	if got := d.letters(t); len(got) != 1 || !strings.HasPrefix(got[0], "nats/CHAT/3: invalid event: is not valid JSON") {
		t.Errorf("dead letters: %q", got)
	}
	await(t, "no backlog", func() bool {
		return strings.Contains(p.get("/metrics"), `badged_ingest_backlog{broker="nats",partition="0",stream="CHAT"} 0`)
	})
	// Another process continues at the position of this one.
	p.kill()
	publish(t, js, &nats.Msg{Subject: "chat.events", Data: event(2)})
	run(t, d, c.from("CHAT?subject=chat.events"))
	await(t, "the fourth", func() bool { return d.read(t) == 4 })
	if n := d.appended(t); n != 3 {
		t.Errorf("the log has %d events", n)
	}
}

// If a stream drops messages before they are read, badged reports it. A stream that was deleted and
// created again is read from its first message.
func TestJetStreamLosesMessages(t *testing.T) {
	t.Parallel()
	d, c := newDatabase(t), startNATS(t, 1)
	js := c.connect(t)
	stream := jetstream.StreamConfig{Name: "CHAT", Subjects: []string{"chat"}, MaxMsgs: 3}
	createStream(t, js, stream)
	publish(t, js, &nats.Msg{Subject: "chat", Data: event(0)})
	p := run(t, d, c.from("CHAT"))
	await(t, "the first", func() bool { return d.read(t) == 1 })
	p.kill()
	for i := range 8 {
		publish(t, js, &nats.Msg{Subject: "chat", Data: event(i + 1)})
	}
	p = run(t, d, c.from("CHAT"))
	await(t, "what is left", func() bool { return d.read(t) == 4 })
	if got := d.letters(t); len(got) != 1 || !strings.HasPrefix(got[0], "nats/CHAT/lost: the broker deleted up to 5 messages") {
		t.Errorf("dead letters: %q", got)
	}
	if err := js.DeleteStream(t.Context(), "CHAT"); err != nil {
		t.Fatal(err)
	}
	await(t, "the trouble", func() bool { return strings.Contains(p.get("/readyz"), "CHAT") })
	createStream(t, js, stream)
	publish(t, js, &nats.Msg{Subject: "chat", Data: event(20)})
	await(t, "the message of the new stream", func() bool { return d.read(t) == 5 })
	if !strings.Contains(p.out.String(), "was deleted and created again") {
		t.Error("it does not say so")
	}
}

// Streams and settings that cannot work are refused, and the error says what to do.
func TestJetStreamRefusals(t *testing.T) {
	t.Parallel()
	d, c := newDatabase(t), startNATS(t, 1)
	js := c.connect(t)
	createStream(t, js, jetstream.StreamConfig{Name: "WORK", Subjects: []string{"work"}, Retention: jetstream.WorkQueuePolicy})
	for from, want := range map[string]string{
		c.from("NONE"): "there is no stream NONE; create it",
		c.from("WORK"): "retention limits",
		strings.Replace(c.from("WORK"), "hunter2", "wrong", 1): "Authorization Violation",
		"nats://ann:hunter2@127.0.0.1:1/CHAT":                  "connect to NATS at nats://127.0.0.1:1",
	} {
		if said := fails(t, d, from); !strings.Contains(said, want) || strings.Contains(said, "hunter2") || strings.Contains(said, "wrong@") {
			t.Errorf("%s: %s", from, said)
		}
	}
}

// Two processes ingest from a replicated stream in a cluster of three servers, while messages are
// published. In turn a process is killed, the leader of the stream is shut down, and Postgres is killed.
// Every message is in the log once.
func TestJetStreamOverKills(t *testing.T) {
	d, postgres := newServer(t)
	c := startNATS(t, 3)
	js := c.connect(t)
	createStream(t, js, jetstream.StreamConfig{Name: "CHAT", Subjects: []string{"chat"}, Replicas: 3, Duplicates: 10 * time.Minute})
	processes := []*process{run(t, d, c.from("CHAT")), run(t, d, c.from("CHAT"))}

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var published atomic.Int64
	done := make(chan error, 1)
	go func() { done <- publishAll(ctx, js, &published) }()
	for kill := range *kills {
		before := d.read(t)
		await(t, "progress after a kill", func() bool { return d.read(t) > before+200 })
		time.Sleep(rand.N(20 * time.Millisecond)) // the moment is random
		switch kill % 3 {
		case 0:
			i := kill / 3 % 2
			processes[i].kill()
			processes[i] = run(t, d, c.from("CHAT"))
		case 1:
			c.restartLeader(t, js)
		case 2:
			restart(t, postgres)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	n := int(published.Load())
	await(t, fmt.Sprintf("%d messages", n), func() bool { return d.read(t) >= n })
	if read, appended := d.read(t), d.appended(t); read != n || appended != n {
		t.Errorf("of %d messages %d were read, and the log has %d events", n, read, appended)
	}
	if got := d.letters(t); len(got) > 0 {
		t.Errorf("dead letters: %q", got)
	}
}

// publishAll publishes until ctx is done, and repeats messages that were not acknowledged: the stream
// drops repetitions by their ids.
func publishAll(ctx context.Context, js jetstream.JetStream, published *atomic.Int64) error {
	for ctx.Err() == nil {
		first := int(published.Load())
		acks := make([]jetstream.PubAckFuture, 100)
		for try := 0; ; try++ {
			failed := false
			for i := range acks {
				msg := &nats.Msg{Subject: "chat", Data: event(first + i)}
				ack, err := js.PublishMsgAsync(msg, jetstream.WithMsgID(fmt.Sprint(first+i)), jetstream.WithRetryAttempts(0))
				if err != nil {
					return err
				}
				acks[i] = ack
			}
			timeout, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
			for _, ack := range acks {
				select {
				case <-ack.Ok():
				case <-ack.Err(): //nolint:errcheck // published again below
					failed = true
				case <-timeout.Done():
					failed = true
				}
			}
			cancel()
			if !failed {
				break
			}
			if try > 60 {
				return fmt.Errorf("messages from %d on are not acknowledged", first)
			}
			time.Sleep(100 * time.Millisecond) // until there is a leader
		}
		published.Add(int64(len(acks)))
	}
	return nil
}

// restartLeader shuts down the leader of the stream and starts it again.
func (c *natsCluster) restartLeader(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	leader := ""
	await(t, "a leader", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		stream, err := js.Stream(ctx, "CHAT")
		if err == nil && stream.CachedInfo().Cluster != nil {
			leader = stream.CachedInfo().Cluster.Leader
		}
		return leader != ""
	})
	for i, o := range c.options {
		if o.ServerName != leader {
			continue
		}
		c.servers[i].Shutdown()
		c.servers[i].WaitForShutdown()
		c.servers[i] = start(t, o)
		awaitNATS(t, c.servers[i])
	}
	await(t, "the replicas", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		stream, err := js.Stream(ctx, "CHAT")
		if err != nil || stream.CachedInfo().Cluster == nil || stream.CachedInfo().Cluster.Leader == "" {
			return false
		}
		for _, r := range stream.CachedInfo().Cluster.Replicas {
			if !r.Current {
				return false
			}
		}
		return true
	})
}
