package privateredis

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

// start runs a server that ends with the test, and returns a client of it that
// neither retries nor waits.
func start(t *testing.T) (*Server, *redis.Client) {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, leaks) })
	srv, err := Start(t.Context(), Config{Args: []string{"--maxmemory", "64mb"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Stop)
	opt, err := redis.ParseURL(srv.URL())
	if err != nil {
		t.Fatal(err)
	}
	opt.MaxRetries, opt.DialerRetries, opt.ContextTimeoutEnabled = -1, 1, true
	client := redis.NewClient(opt)
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return srv, client
}

func ping(t *testing.T, c *redis.Client) {
	t.Helper()
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestStart(t *testing.T) {
	srv, client := start(t)
	ping(t, client)
	config, err := client.ConfigGet(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"bind": "127.0.0.1", "save": "", "appendonly": "no", "dir": srv.dir, "maxmemory": "67108864",
	} {
		if got := config[name]; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	srv.Stop()
	srv.Stop()
	if err := client.Ping(t.Context()).Err(); err == nil {
		t.Error("a stopped server answered")
	}
	if err := srv.Restart(t.Context()); err == nil {
		t.Error("a stopped server was restarted")
	}
}

func TestServersAreIndependent(t *testing.T) {
	_, a := start(t)
	_, b := start(t)
	if err := a.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := b.Get(t.Context(), "k").Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("the other server has the key: %v", err)
	}
}

func TestKillAndRestart(t *testing.T) {
	srv, client := start(t)
	if err := client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	srv.Kill()
	srv.Kill()
	if err := client.Ping(t.Context()).Err(); err == nil {
		t.Fatal("a killed server answered")
	}
	if err := srv.Pause(); err == nil {
		t.Error("a killed server was paused")
	}
	for range 2 { // from down, and while it runs
		if err := srv.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := client.Get(t.Context(), "k").Err(); !errors.Is(err, redis.Nil) {
			t.Errorf("the restarted server is not empty: %v", err)
		}
	}
}

func TestPauseAndResume(t *testing.T) {
	srv, client := start(t)
	ping(t, client)
	if err := srv.Pause(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := client.Ping(ctx).Err(); err == nil {
		t.Error("a paused server answered")
	}
	if err := srv.Resume(); err != nil {
		t.Fatal(err)
	}
	ping(t, client)
	if err := srv.Pause(); err != nil {
		t.Fatal(err)
	}
	srv.Stop() // ends a paused server too
}

func TestRestartNeedsItsPort(t *testing.T) {
	srv, _ := start(t)
	squatter := &Server{binary: srv.binary, dir: t.TempDir(), port: srv.port}
	if _, err := squatter.launch(t.Context()); !errors.Is(err, errPortTaken) {
		t.Errorf("launch on a port in use: %v, want %v", err, errPortTaken)
	}
}

// Servers of other processes may start between the kill and the restart.
func TestAKilledServerKeepsItsPort(t *testing.T) {
	srv, _ := start(t)
	srv.Kill()
	if reserved, err := reserve(t.Context(), srv.port); err == nil {
		_ = reserved.Close()
		t.Error("another server could take the port of a killed one")
	}
	if err := srv.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	srv.Stop()
	reserved, err := reserve(t.Context(), srv.port)
	if err != nil {
		t.Fatalf("the port of a stopped server is not free: %v", err)
	}
	_ = reserved.Close()
}

func TestStartErrorHasTheServersOutput(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	_, err := Start(t.Context(), Config{Args: []string{"--no-such-setting", "1"}})
	if err == nil {
		t.Fatal("a server with a bad setting started")
	}
	if want := "no-such-setting"; !strings.Contains(err.Error(), want) {
		t.Errorf("the error does not say %q: %v", want, err)
	}
}

func TestStartGivesUpWithItsContext(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ctx, Config{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Start: %v, want %v", err, context.Canceled)
	}
}
