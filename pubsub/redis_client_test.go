package pubsub

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/badged/badged/internal/devtest/privateredis"
)

func startRedis(t *testing.T) *privateredis.Server {
	t.Helper()
	srv, err := privateredis.Start(t.Context(), privateredis.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Stop)
	return srv
}

func TestOpenRedisByURL(t *testing.T) {
	for _, test := range []struct {
		name, url string
		check     func(t *testing.T, c redis.UniversalClient)
	}{
		{"one server", "redis://u:p@localhost:1234/5?max_retries=7&protocol=3", func(t *testing.T, c redis.UniversalClient) {
			opt := c.(*redis.Client).Options()
			if opt.Addr != "localhost:1234" || opt.DB != 5 || opt.Username != "u" || opt.Password != "p" {
				t.Errorf("options %+v", opt)
			}
			if opt.MaxRetries != 0 || opt.Protocol != 2 || !opt.ContextTimeoutEnabled {
				t.Errorf("max retries %d, protocol %d", opt.MaxRetries, opt.Protocol)
			}
		}},
		{"unix socket", "unix:///run/redis.sock", func(t *testing.T, c redis.UniversalClient) {
			if opt := c.(*redis.Client).Options(); opt.Network != "unix" || opt.Addr != "/run/redis.sock" {
				t.Errorf("options %+v", opt)
			}
		}},
		{"cluster", "redis://a:1?addr=b:2&addr=c:3", func(t *testing.T, c redis.UniversalClient) {
			if got := strings.Join(c.(*redis.ClusterClient).Options().Addrs, " "); got != "a:1 b:2 c:3" {
				t.Errorf("seeds %s", got)
			}
		}},
		{"sentinels", "redis://a:1/2?master_name=m&addr=b:2", func(t *testing.T, c redis.UniversalClient) {
			if opt := c.(*redis.Client).Options(); opt.Addr != "FailoverClient" || opt.DB != 2 {
				t.Errorf("options %+v", opt)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			client, err := openRedis(test.url)
			if err != nil {
				t.Fatal(err)
			}
			test.check(t, client)
			if err := client.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNewRedisRefuses(t *testing.T) {
	const url = "redis://localhost:6379"
	for _, test := range []struct {
		name string
		cfg  RedisConfig
		want string
	}{
		{"no URL", RedisConfig{}, "scheme"},
		{"another scheme", RedisConfig{URL: "http://localhost"}, "scheme"},
		{"an unknown parameter", RedisConfig{URL: url + "?colour=red"}, "colour"},
		{"an unknown parameter of a cluster", RedisConfig{URL: url + "?addr=b:1&colour=red"}, "colour"},
		{"an unknown parameter of Sentinels", RedisConfig{URL: url + "?master_name=m&colour=red"}, "colour"},
		{"replicas", RedisConfig{URL: url + "?master_name=m&replica_only=true"}, "replica_only"},
		{"a password that is not encoded", RedisConfig{URL: "redis://:se/cret@localhost"}, "percent-encoded"},
		{"a negative timeout", RedisConfig{URL: url, PublishTimeout: -1}, "PublishTimeout"},
		{"a negative interval", RedisConfig{URL: url, PingInterval: -1}, "PingInterval"},
		{"a negative pong timeout", RedisConfig{URL: url, PongTimeout: -1}, "PongTimeout"},
		{"a short key", RedisConfig{URL: url, Keys: []string{strings.Repeat("k", 32), "k"}}, "key 2 has 1 bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := NewRedis(test.cfg)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got %v, want an error about %s", err, test.want)
			}
			if strings.Contains(err.Error(), "se") && strings.Contains(err.Error(), "cret") {
				t.Errorf("the error tells the password: %v", err)
			}
		})
	}
}

// TestLinkDialsOnce closes the connection of a link. go-redis would dial
// another, subscribe again, and hide the loss.
func TestLinkDialsOnce(t *testing.T) {
	srv := startRedis(t)
	client, err := openRedis(srv.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	link, err := openLink(t.Context(), client, everyTag, false, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer link.close(nil)
	if _, err := link.receive(); err != nil { // that it is subscribed
		t.Fatal(err)
	}
	if err := client.Do(t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := link.receive(); !errors.Is(err, io.EOF) {
		t.Errorf("receive: %v, want %v", err, io.EOF)
	}
	if err := link.send(link.subscribe, "c"); !errors.Is(err, errLinkEnded) {
		t.Errorf("subscribe: %v, want %v", err, errLinkEnded)
	}
	if _, err := link.receive(); !errors.Is(err, errLinkEnded) {
		t.Errorf("receive: %v, want %v", err, errLinkEnded)
	}
}

type updateChan chan *Update

func (h updateChan) HandleUpdate(u *Update) { h <- u }
func (updateChan) HandleRoom(*RoomUpdate)   {}
func (updateChan) HandleGap()               {}
