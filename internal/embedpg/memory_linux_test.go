package embedpg

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Something still looks at the shared memory of a server that was killed. It starts once that
// has ended.
func TestRestartWhileItsMemoryIsInUse(t *testing.T) {
	refused := make(chan bool, 1)
	log := slog.NewTextHandler(writer(func(line []byte) {
		if bytes.Contains(line, []byte(memoryInUse)) {
			select {
			case refused <- true:
			default:
			}
		}
	}), &slog.HandlerOptions{Level: slog.LevelDebug})
	s := mustStart(t, Config{Log: slog.New(log)})
	content, err := os.ReadFile(filepath.Join(s.pgdata, "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	var key, id uintptr
	const keyLine, readOnly = 6, 0o10000
	if _, err := fmt.Sscan(strings.Split(string(content), "\n")[keyLine], &key, &id); err != nil {
		t.Fatalf("%v in\n%s", err, content)
	}
	memory, _, errno := syscall.Syscall(syscall.SYS_SHMAT, id, 0, readOnly)
	if errno != 0 {
		t.Fatalf("attach the shared memory: %v", errno)
	}
	s.Kill()
	restarted := make(chan error)
	go func() { restarted <- s.Restart(t.Context()) }()
	release := sync.OnceFunc(func() {
		if _, _, errno := syscall.Syscall(syscall.SYS_SHMDT, memory, 0, 0); errno != 0 {
			t.Errorf("detach the shared memory: %v", errno)
		}
	})
	for {
		select {
		case <-refused:
			release()
			continue
		case err = <-restarted:
		}
		break
	}
	release()
	if err != nil {
		t.Fatal(err)
	}
	mustStop(t, s)
}

type writer func([]byte)

// Write implements io.Writer.
func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}
