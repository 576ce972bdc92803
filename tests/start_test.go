package tests

import (
	"net"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// The server starts before Postgres, as after a boot of the machine, and waits for it.
func TestServeWaitsForPostgres(t *testing.T) {
	t.Parallel()
	l, database := newLink(t, newDatabase(t))
	heal := l.cut()
	p := start(t, nil, "serve", "--listen=127.0.0.1:0", "--database-url="+database)
	p.awaitSays("waiting for Postgres")
	heal()
	p.awaitReady()
	p.saysNoError()
}

// Postgres fails again and again while the server starts: at the first session, at the
// migrations, at the first session of a pool, and later.
func TestServeStartsOverDroppedConnections(t *testing.T) {
	t.Parallel()
	l, database := newLink(t, newDatabase(t))
	l.dropped = []int64{1, 3, 5, 8, 13}
	p := launch(t, nil, "serve", "--listen=127.0.0.1:0", "--migrate", "--database-url="+database)
	p.saysNoError()
}

func TestServeThatWaitsForPostgresCanBeStopped(t *testing.T) {
	t.Parallel()
	l, database := newLink(t, newDatabase(t))
	defer l.cut()()
	p := start(t, nil, "serve", "--listen=127.0.0.1:0", "--database-url="+database)
	p.awaitSays("waiting for Postgres")
	p.mustStop()
}

func TestServeNotifiesSystemd(t *testing.T) {
	t.Parallel()
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	hears := func(want string) {
		t.Helper()
		if err := socket.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 256)
		n, err := socket.Read(b)
		if got := string(b[:n]); err != nil || got != want {
			t.Fatalf("systemd is told %q (%v), want %q", got, err, want)
		}
	}
	p := launch(t, func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+socket.LocalAddr().String())
	}, "serve", "--listen=127.0.0.1:0", "--database-url="+newDatabase(t))
	hears("READY=1")
	p.mustStop()
	hears("STOPPING=1")
}
