package connect

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/badged/badged/internal/devtest/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

// A command that works on a server that hangs says so: its statements would wait without a
// word.
func TestWatchTellsOfASilentServer(t *testing.T) {
	server := pgtest.NewServer(t)
	defer server.Resume() // before its databases are dropped
	pool, err := pgxpool.New(t.Context(), server.NewDB(t, pgtest.Template{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	told := make(chan string, 100) // a busy machine may be silent too
	stop := watch(t.Context(), pool, "shard a", 500*time.Millisecond, func(text string) { told <- text })
	for _, step := range []struct {
		do   func()
		want string
	}{
		{server.Pause, "shard a does not answer; waiting for it"},
		{server.Resume, "shard a answers again"},
	} {
		step.do()
		patience := time.After(time.Minute)
		for text := ""; text != step.want; {
			select {
			case text = <-told:
			case <-patience:
				t.Fatalf("waited in vain for %q", step.want)
			}
		}
	}
	stop()
}
