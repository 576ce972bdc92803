package embedpg

import (
	"context"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// No process is left of a server that is killed while clients connect. One would wait for
// ever for a lock of another that was killed, and keep the server from starting again.
func TestKillWhileClientsConnect(t *testing.T) {
	s := mustStart(t, Config{})
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		var connected, g sync.WaitGroup
		for range 8 {
			connected.Add(1)
			g.Go(func() {
				first := sync.OnceFunc(connected.Done)
				for ctx.Err() == nil {
					if conn, err := pgx.Connect(ctx, s.URL()); err == nil {
						first()
						_ = conn.Close(ctx)
					}
				}
			})
		}
		connected.Wait()
		s.Kill()
		cancel()
		g.Wait()
		entries, err := os.ReadDir("/proc")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if pid, err := strconv.Atoi(e.Name()); err == nil && servesFrom(t.Context(), pid, s.pgdata) {
				t.Errorf("process %d is left", pid)
			}
		}
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
