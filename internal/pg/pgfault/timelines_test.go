package pgfault

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A connection on an earlier timeline is refused. Timelines of other databases do not matter.
func TestTimelinesOfDatabases(t *testing.T) {
	var all Timelines
	names := map[string]string{}
	for _, url := range []string{"postgres://u@one,two/chat", "postgres://u@three/chat", "postgres://u@one,two/other"} {
		cfg, err := pgx.ParseConfig(url + "?sslmode=disable")
		if err != nil {
			t.Fatal(err)
		}
		names[url] = nameOf(cfg)
	}
	for i, step := range []struct {
		url      string
		timeline int64
		refused  bool
	}{
		{"postgres://u@one,two/chat", 1, false},
		{"postgres://u@one,two/chat", 2, false},
		{"postgres://u@one,two/chat", 1, true},
		{"postgres://u@one,two/chat", 0, false}, // a standby, if the URL allows one
		{"postgres://u@three/chat", 1, false},
		{"postgres://u@one,two/other", 1, false},
		{"postgres://u@one,two/chat", 2, false},
	} {
		// The zero connection suffices, since this test closes no connection.
		if err := all.admit(names[step.url], &pgconn.PgConn{}, step.timeline); errors.Is(err, ErrOldPrimary) != step.refused {
			t.Errorf("step %d: %v", i, err)
		}
		for _, d := range all.all {
			clear(d.byConn)
		}
	}
}
