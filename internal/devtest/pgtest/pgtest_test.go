package pgtest_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/badged/badged/internal/devtest/pgtest"
)

// without makes the test binary run its tests with a TestMain that does not
// use pgtest.
const without = "PGTEST_WITHOUT_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(without) != "" {
		os.Exit(m.Run())
	}
	goleak.VerifyTestMain(pgtest.Main(m))
}

func execute(ctx context.Context, url, sql string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(ctx))
}

func mustExec(t *testing.T, url, sql string) {
	t.Helper()
	if err := execute(t.Context(), url, sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// counted is a template with a table t, and counts how often it is built.
func counted() (pgtest.Template, *atomic.Int32) {
	builds := new(atomic.Int32)
	return pgtest.Template{Name: "counted, with a \"name\"", Build: func(ctx context.Context, urls []string) error {
		builds.Add(1)
		return execute(ctx, urls[0], "CREATE TABLE t (n int)")
	}}, builds
}

func TestTemplateIsBuiltOnceAndCopied(t *testing.T) {
	server := pgtest.NewServer(t)
	template, builds := counted()
	t.Run("in parallel", func(t *testing.T) {
		for range 8 {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				// Each copy has the table, and no copy another's row.
				mustExec(t, server.NewDB(t, template), "INSERT INTO t VALUES (1); ALTER TABLE t ADD UNIQUE (n)")
			})
		}
	})
	if n := builds.Load(); n != 1 {
		t.Errorf("the template was built %d times", n)
	}
}

func TestDatabaseIsDroppedAfterItsTest(t *testing.T) {
	var url string
	t.Run("test", func(sub *testing.T) {
		url = pgtest.NewDB(sub, pgtest.Template{})
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			sub.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) }) // after the test
	})
	if err := execute(t.Context(), url, "SELECT 1"); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("after the test: %v", err)
	}
}

func TestBorrowedServersAreReused(t *testing.T) {
	template, builds := counted()
	seen := map[*pgtest.Server]bool{}
	for range 2 {
		t.Run("test", func(t *testing.T) {
			one, other := pgtest.Borrow(t), pgtest.Borrow(t)
			if one == other {
				t.Fatal("two borrowers have the same server")
			}
			for _, server := range []*pgtest.Server{one, other} {
				seen[server] = true
				mustExec(t, server.NewDB(t, template), "INSERT INTO t VALUES (1)")
			}
		})
	}
	if n := builds.Load(); len(seen) != 2 || n != 2 {
		t.Errorf("%d servers were started and %d templates built, want 2", len(seen), n)
	}
}

func TestKillAndRestartKeepDatabases(t *testing.T) {
	server := pgtest.NewServer(t)
	template, builds := counted()
	url := server.NewDB(t, template)
	mustExec(t, url, "INSERT INTO t VALUES (1)")
	server.Kill()
	if err := execute(t.Context(), url, "SELECT 1"); err == nil {
		t.Error("a killed server answers")
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustExec(t, url, "DO $$ BEGIN ASSERT (SELECT n FROM t) = 1; END $$")
	server.NewDB(t, template)
	if n := builds.Load(); n != 1 {
		t.Errorf("the template was built %d times", n)
	}
}

// failing is a test that records its failure.
type failing struct {
	testing.TB
	said string
}

func (f *failing) Fatalf(format string, args ...any) {
	f.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// fails runs part of a test that should fail and returns the failure.
func fails(t *testing.T, part func(t testing.TB)) string {
	t.Helper()
	f := &failing{TB: t}
	var wg sync.WaitGroup
	wg.Go(func() { part(f) })
	wg.Wait()
	return f.said
}

func TestTemplateWhoseBuildFails(t *testing.T) {
	server := pgtest.NewServer(t)
	template := pgtest.Template{Name: "broken", Build: func(context.Context, []string) error {
		return errors.New("no such migration")
	}}
	for range 2 {
		said := fails(t, func(t testing.TB) { server.NewDB(t, template) })
		if !strings.Contains(said, "no such migration") {
			t.Errorf("the test failed with %q", said)
		}
	}
}

// Without pgtest.Main the server would never be stopped.
func TestTestMainWithoutMain(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestDatabaseIsDroppedAfterItsTest$")
	cmd.Env = append(os.Environ(), without+"=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "pgtest.Main") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestTemplatesOfSeveralDatabases(t *testing.T) {
	builds := 0
	templates := pgtest.Template{Name: "two " + rand.Text(), Count: 2, Build: func(ctx context.Context, urls []string) (err error) {
		builds++
		for i, url := range urls {
			err = errors.Join(err, execute(ctx, url, fmt.Sprintf("CREATE TABLE t%d (n int)", i)))
		}
		return err
	}}
	for range 2 {
		for i, url := range pgtest.NewDBs(t, templates) {
			mustExec(t, url, fmt.Sprintf("INSERT INTO t%d VALUES (1); ALTER TABLE t%d ADD UNIQUE (n)", i, i))
		}
	}
	if builds != 1 {
		t.Errorf("the templates were built %d times", builds)
	}
}
