package connect

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/internal/shards"
)

// silence is how often Watch asks, and how long an answer may take.
const silence = 5 * time.Second

// Watch tells, while a command works on a shard, or on the only database, when that does not
// answer and when it does again, until stop is called. The command itself would wait without
// a word: a server that hangs keeps its connections. It may call tell at any time.
func Watch(ctx context.Context, s *shards.Shard, tell func(text string)) (stop func()) {
	return watch(ctx, s.Pool, s.Name, silence, tell)
}

func watch(ctx context.Context, pool *pgxpool.Pool, shard string, every time.Duration, tell func(text string)) (stop func()) {
	name := "the database"
	if shard != "" {
		name = "shard " + shard
	}
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for was := true; ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			is := answers(ctx, pool.Config().ConnConfig, every)
			switch {
			case ctx.Err() != nil:
				return
			case was && !is:
				tell(name + " does not answer; waiting for it")
			case is && !was:
				tell(name + " answers again")
			}
			was = is
		}
	})
	return func() {
		cancel()
		watching.Wait()
	}
}

// answers reports whether a server answers a new session in time, also by refusing it. The
// sessions of a pool may all be in use.
func answers(ctx context.Context, cfg *pgx.ConnConfig, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		_, refused := errors.AsType[*pgconn.PgError](err)
		return refused
	}
	_ = conn.Close(ctx) // it has answered
	return true
}
