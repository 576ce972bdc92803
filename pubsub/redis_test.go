package pubsub_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/badged/badged/internal/devtest/privateredis"
	"github.com/badged/badged/pubsub"
	"github.com/badged/badged/pubsub/pubsubtest"
)

// startRedis runs a Redis that ends with the test.
func startRedis(t testing.TB, args ...string) *privateredis.Server {
	t.Helper()
	srv, err := privateredis.Start(t.Context(), privateredis.Config{Args: args})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Stop)
	return srv
}

// newRedis returns a bus that ends with the test. Timeouts that cfg leaves
// open are too long to expire on a busy machine.
func newRedis(t testing.TB, cfg pubsub.RedisConfig) *pubsub.Redis {
	t.Helper()
	for _, timeout := range []*time.Duration{&cfg.PublishTimeout, &cfg.PongTimeout} {
		if *timeout == 0 {
			*timeout = pubsubtest.Patience
		}
	}
	bus, err := pubsub.NewRedis(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bus.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return bus
}

// newClient returns a client of srv that ends with the test.
func newClient(t testing.TB, srv *privateredis.Server) *redis.Client {
	t.Helper()
	opt, err := redis.ParseURL(srv.URL())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(opt)
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return client
}

// proxy passes connections on to a Redis until the test ends, and returns its
// address. up and down return where it writes what clients and Redis send, given the
// ends of a connection; nil passes everything on. With a config it speaks TLS.
func proxy(t *testing.T, srv *privateredis.Server, config *tls.Config, up, down func(to, from net.Conn) io.Writer) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // ends with the test
	if err != nil {
		t.Fatal(err)
	}
	addr = l.Addr().String()
	if config != nil {
		l = tls.NewListener(l, config)
	}
	var running sync.WaitGroup
	pass := func(to, from net.Conn, filter func(to, from net.Conn) io.Writer) {
		running.Go(func() {
			defer to.Close()
			w := io.Writer(to)
			if filter != nil {
				w = filter(to, from)
			}
			_, _ = io.Copy(w, from)
		})
	}
	running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", srv.Addr()) //nolint:noctx // loopback
			if err != nil {
				_ = client.Close()
				continue
			}
			pass(server, client, up)
			pass(client, server, down)
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		running.Wait() // the clients have closed their connections
	})
	return addr
}

// subscribe opens a subscription that has joined users.
func subscribe(t testing.TB, bus pubsub.Bus, users ...pubsub.Address) (pubsub.Subscription, *pubsubtest.Recorder) {
	t.Helper()
	r := pubsubtest.NewRecorder()
	s, err := bus.Subscribe(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Join(t.Context(), users...); err != nil {
		t.Fatal(err)
	}
	return s, r
}

func publish(t testing.TB, bus pubsub.Bus, updates ...pubsub.Update) {
	t.Helper()
	if err := bus.Publish(t.Context(), updates, nil); err != nil {
		t.Fatal(err)
	}
}

func TestRedis(t *testing.T) {
	srv := startRedis(t)
	pubsubtest.Run(t, func(t *testing.T) pubsub.Bus {
		return newRedis(t, pubsub.RedisConfig{URL: srv.URL() + patient})
	})
}

func TestSignedRedis(t *testing.T) {
	srv := startRedis(t)
	pubsubtest.Run(t, func(t *testing.T) pubsub.Bus {
		return newRedis(t, pubsub.RedisConfig{URL: srv.URL() + patient, Keys: longKeys("new secret", "old secret")})
	})
}

// TestRedisTLS connects to Redis through a proxy that terminates TLS.
func TestRedisTLS(t *testing.T) {
	srv := startRedis(t)
	// The certificate that net/http keeps for tests.
	web := httptest.NewTLSServer(nil)
	config := &tls.Config{Certificates: web.TLS.Certificates, MinVersion: tls.VersionTLS12}
	web.Close()
	url := "rediss://" + proxy(t, srv, config, nil, nil)

	bus := newRedis(t, pubsub.RedisConfig{URL: url + "?skip_verify=true"})
	u := pubsub.Address{ID: "alice"}
	_, r := subscribe(t, bus, u)
	publish(t, bus, pubsubtest.NewUpdate(u, 1))
	r.AwaitVersion(t, u, 1)

	err := newRedis(t, pubsub.RedisConfig{URL: url}).Wake(t.Context(), []int{1})
	var unknown x509.UnknownAuthorityError
	if !errors.As(err, &unknown) {
		t.Errorf("with an untrusted certificate: %v", err)
	}
}

func TestRedisUnixSocket(t *testing.T) {
	socket := t.TempDir() + "/redis.sock"
	startRedis(t, "--unixsocket", socket)
	bus := newRedis(t, pubsub.RedisConfig{URL: "unix://" + socket})
	u := pubsub.Address{ID: "alice"}
	_, r := subscribe(t, bus, u)
	publish(t, bus, pubsubtest.NewUpdate(u, 1))
	r.AwaitVersion(t, u, 1)
}

// TestRedisJoinsProcesses checks that updates published by one process arrive
// at another.
func TestRedisJoinsProcesses(t *testing.T) {
	srv := startRedis(t)
	projector := newRedis(t, pubsub.RedisConfig{URL: srv.URL() + patient})
	gateway := newRedis(t, pubsub.RedisConfig{URL: srv.URL() + patient})
	u := pubsub.Address{ID: "alice", Partition: 3}
	_, r := subscribe(t, gateway, u)
	publish(t, projector, pubsubtest.NewUpdate(u, 1))
	r.AwaitVersion(t, u, 1)

	ctx, cancel := context.WithCancel(t.Context())
	w := pubsubtest.Listen(ctx, projector)
	w.AwaitWake(t, gateway, 3)
	cancel()
	if err := w.Wait(t); err != nil {
		t.Error(err)
	}
}

// TestRedisWire pins what other programs see on Redis.
func TestRedisWire(t *testing.T) {
	srv := startRedis(t)
	bus := newRedis(t, pubsub.RedisConfig{URL: srv.URL() + patient})
	client := newClient(t, srv)
	channels := []string{"badged:{p03}:u:alice", "badged:{p12}:u:{b}:c", "badged:{p100}:u:x", "badged:wake"}
	ps := client.Subscribe(t.Context(), channels...)
	defer ps.Close()
	for range channels {
		if _, err := ps.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	users := []pubsub.Address{{ID: "alice", Partition: 3}, {ID: "{b}:c", Partition: 12}, {ID: "x", Partition: 100}}
	for i, u := range users {
		publish(t, bus, pubsubtest.NewUpdate(u, int64(i)))
	}
	if err := bus.Wake(t.Context(), []int{3, 12}); err != nil {
		t.Fatal(err)
	}

	for i, u := range users {
		msg, err := ps.ReceiveMessage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got pubsub.Update
		if err := json.Unmarshal([]byte(msg.Payload), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(pubsubtest.NewUpdate(u, int64(i)), got); msg.Channel != channels[i] || diff != "" {
			t.Errorf("on channel %s, want %s (-want +got):\n%s", msg.Channel, channels[i], diff)
		}
	}
	msg, err := ps.ReceiveMessage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if msg.Channel != "badged:wake" || msg.Payload != "[3,12]" {
		t.Errorf("a wake is %q on channel %s", msg.Payload, msg.Channel)
	}
}

func TestRedisMalformedMessages(t *testing.T) {
	srv := startRedis(t)
	bus := newRedis(t, pubsub.RedisConfig{URL: srv.URL() + patient})
	client := newClient(t, srv)
	u := pubsub.Address{ID: "alice", Partition: 3}
	_, r := subscribe(t, bus, u)
	ctx, cancel := context.WithCancel(t.Context())
	w := pubsubtest.Listen(ctx, bus)
	w.AwaitWake(t, bus, 1)

	ofAnother, err := json.Marshal(pubsubtest.NewUpdate(pubsub.Address{ID: "bob", Partition: 3}, 1))
	if err != nil {
		t.Fatal(err)
	}
	malformed := []string{
		"", "{", "null", "[]", `"x"`, "\xff", `{"user_id":1}`, `{"version":1e30}`, `{"version":1.5}`,
		strings.Repeat("[", 100_000), string(ofAnother),
	}
	for _, payload := range malformed {
		if err := client.Publish(t.Context(), "badged:{p03}:u:alice", payload).Err(); err != nil {
			t.Fatal(err)
		}
	}
	publish(t, bus, pubsubtest.NewUpdate(u, 1))
	r.AwaitVersion(t, u, 1)
	if got := r.Updates(); len(got) != 1 {
		t.Errorf("%d updates arrived, want 1", len(got))
	}
	if got := bus.Stats().Malformed; got != uint64(len(malformed)) {
		t.Errorf("%d malformed messages were counted, want %d", got, len(malformed))
	}

	for _, payload := range []string{"", "{}", "[1.5]", `["2"]`} {
		if err := client.Publish(t.Context(), "badged:wake", payload).Err(); err != nil {
			t.Fatal(err)
		}
	}
	w.AwaitWake(t, bus, 2)
	cancel()
	if err := w.Wait(t); err != nil {
		t.Error(err)
	}
	if got, want := bus.Stats().Malformed, uint64(len(malformed)+4); got != want {
		t.Errorf("%d malformed messages were counted, want %d", got, want)
	}
}
