package privateredis

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestServerDiesWithItsParent runs itself in a second process, which starts a
// server and is then killed without a chance to stop it.
func TestServerDiesWithItsParent(t *testing.T) {
	const child = "PRIVATEREDIS_TEST_CHILD"
	if os.Getenv(child) != "" {
		srv, err := Start(t.Context(), Config{})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(srv.Addr())
		_, _ = io.Copy(io.Discard, os.Stdin) // until killed
		return
	}

	parent := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	parent.Env = append(os.Environ(), child+"=1", "TMPDIR="+t.TempDir())
	stdin, err := parent.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	addr, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var dial net.Dialer
	conn, err := dial.DialContext(t.Context(), "tcp", strings.TrimSpace(addr))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // "signal: killed"
	if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	_, err = conn.Read(make([]byte, 1))
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the server lives on: %v", err)
	}
}
