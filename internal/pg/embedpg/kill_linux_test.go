package embedpg

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Kill ends every process of a server, also while clients connect. A surviving process could
// wait forever for a lock of a killed process, and prevent the server from starting again.
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
		if left := processes(s.pgdata); len(left) > 0 {
			t.Errorf("the processes %d are left", left)
		}
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
