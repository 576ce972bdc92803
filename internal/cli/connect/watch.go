package connect

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/cluster"
)

// silence is the time between two probes of Watch. A database must also answer a probe within this
// time.
const silence = 5 * time.Second

// Watch probes a database until `stop` is called. It calls `tell` when the database stops
// answering, and when it has begun to answer again. Use it while a command works on the database: a
// server that hangs does not close its connections, so the command would block without saying why.
// Watch calls `tell` from another goroutine.
func Watch(ctx context.Context, s *cluster.Database, tell func(text string)) (stop func()) {
	return watch(ctx, s.Pool, s.Label(), silence, tell)
}

func watch(ctx context.Context, pool *pgxpool.Pool, name string, interval time.Duration, tell func(text string)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	was := true
	watching.Go(func() {
		_ = wait.Every(ctx, interval, func(ctx context.Context) {
			is := answers(ctx, pool.Config().ConnConfig, interval)
			switch {
			case ctx.Err() != nil:
				return
			case was && !is:
				tell(name + " does not answer; waiting for it")
			case is && !was:
				tell(name + " answers again")
			}
			was = is
		})
	})
	return func() {
		cancel()
		watching.Wait()
	}
}

// answers reports whether a server accepts or refuses a new session within the given time. It
// does not use the pool, since all sessions of the pool may be in use.
func answers(ctx context.Context, cfg *pgx.ConnConfig, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		_, refused := errors.AsType[*pgconn.PgError](err)
		return refused
	}
	_ = conn.Close(ctx) // ignore the error, since the server has answered
	return true
}
