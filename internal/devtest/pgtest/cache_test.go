package pgtest_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/badged/badged/internal/devtest/pgtest"
)

// Servers that start at once, and later ones, begin with a copy of one cluster. Each adopts
// what another built.
func TestClustersAreMadeOnceAndCopied(t *testing.T) {
	t.Setenv("PGTEST_CACHE", pgtest.OpenDir(t))
	builds := new(atomic.Int32)
	template := pgtest.Template{Name: "cached", Version: pgtest.Hash("cache_test.go"), Build: func(ctx context.Context, urls []string) error {
		builds.Add(1)
		return execute(ctx, urls[0], "CREATE TABLE cached (n int); CREATE TABLE servers AS SELECT pg_postmaster_start_time() AS start")
	}, Adopt: func(ctx context.Context, url string) error {
		return execute(ctx, url, "UPDATE servers SET start = pg_postmaster_start_time()")
	}}
	use := func(server *pgtest.Server) {
		t.Helper()
		mustExec(t, server.NewDB(t, template), `INSERT INTO cached VALUES (1); ALTER TABLE cached ADD UNIQUE (n);
DO $$ BEGIN ASSERT (SELECT start = pg_postmaster_start_time() FROM servers), 'of another server'; END $$`)
	}
	use(pgtest.NewServer(t)) // which tells what servers begin with
	before := builds.Load()
	var started sync.WaitGroup
	for range 4 {
		started.Go(func() { use(pgtest.NewServer(t)) })
	}
	started.Wait()
	use(pgtest.NewServer(t))
	if n := builds.Load() - before; n != 1 {
		t.Errorf("the template was built %d times", n)
	}

	t.Setenv("PGTEST_CACHE", "off")
	use(pgtest.NewServer(t))
	if n := builds.Load() - before; n != 2 {
		t.Errorf("without the cache the template was built %d times", n)
	}
}

func TestHash(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a.sql", "one")
	first := pgtest.Hash(dir)
	write("a_test.go", "of no matter")
	if again := pgtest.Hash(dir); again != first || first == "" {
		t.Errorf("the hash is %q, then %q", first, again)
	}
	write("a.sql", "two")
	if other := pgtest.Hash(dir); other == first {
		t.Error("another content has the same hash")
	}
	if none := pgtest.Hash(dir, filepath.Join(dir, "missing")); none != "" {
		t.Errorf("without a file the hash is %q", none)
	}
}
