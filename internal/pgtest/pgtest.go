// Package pgtest gives tests real PostgreSQL databases: one private server for
// the tests of a package, started when the first of them needs it, and a
// database of its own for each test, cloned from a template in some ten
// milliseconds.
//
//	func TestMain(m *testing.M) { os.Exit(pgtest.Main(m).Run()) }
//
//	var migrated = pgtest.Template{Name: "migrated", Build: migrate}
//
//	func TestX(t *testing.T) {
//		pool, err := pgxpool.New(t.Context(), pgtest.NewDB(t, migrated))
//		…
//	}
//
// Where no server can be started the tests fail: they are never skipped.
//
// All databases of a server share its transaction ids and their horizon: a
// test that keeps a writing transaction open delays what others see in their
// logs. Such a test, and one that kills its server, takes one for itself with
// [NewServer].
package pgtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/embedpg"
)

// A Template says what a new database holds.
type Template struct {
	// Name identifies the template within the process: the first with a name
	// is built, and the others are taken to be the same. The zero Template is
	// an empty database.
	Name string
	// Build fills the database at url, such as by migrating it, and leaves no
	// connection open. It runs once for each server.
	Build func(ctx context.Context, url string) error
}

// Runner is what runs tests: *testing.M.
type Runner interface{ Run() int }

// shared is the server of the tests of this process, while Main runs them. It
// is the package's only state: TestMain and the tests have nothing in common
// through which it could be passed.
var shared struct {
	mu     sync.Mutex
	inMain bool
	server *Server
	err    error
}

// Main wraps the tests of a package so that they can use NewDB; the server is
// stopped when they have run. It composes with others that wrap tests:
//
//	goleak.VerifyTestMain(pgtest.Main(m))
func Main(m Runner) Runner { return served{m} }

// served is tests that have a server.
type served struct{ tests Runner }

func (s served) Run() (code int) {
	shared.mu.Lock()
	shared.inMain = true
	shared.mu.Unlock()
	defer func() {
		shared.mu.Lock()
		defer shared.mu.Unlock()
		shared.inMain = false
		if shared.server == nil {
			return
		}
		if err := shared.server.stop(); err != nil {
			fmt.Fprintln(os.Stderr, "pgtest:", err)
			code = max(code, 1)
		}
		shared.server = nil
	}()
	return s.tests.Run()
}

// NewDB returns the connection string of a new database that is dropped, with
// whatever connections are left to it, when the test ends. It is a copy of the
// template's, on the server that all tests of the package share.
func NewDB(t testing.TB, template Template) string {
	t.Helper()
	shared.mu.Lock()
	switch {
	case !shared.inMain:
		shared.err = errors.New("TestMain does not run the tests through pgtest.Main")
	case shared.server == nil && shared.err == nil:
		shared.server, shared.err = start(context.WithoutCancel(t.Context()))
	}
	server, err := shared.server, shared.err
	shared.mu.Unlock()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	return server.NewDB(t, template)
}

// Server is a private server that hands out databases. It is safe for
// concurrent use. Its Kill and Restart are for tests of faults.
type Server struct {
	*embedpg.Server

	mu        sync.Mutex
	templates map[string]*build
}

// build is a template's database in the making.
type build struct {
	once sync.Once
	err  error
}

// NewServer starts a server for one test, which stops when the test ends. That
// takes about half a second: a test that shares well uses NewDB.
func NewServer(t testing.TB) *Server {
	t.Helper()
	s, err := start(t.Context())
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})
	return s
}

// Settings are those of the servers, for another that is to go on with the data
// of one.
func Settings() map[string]string {
	return map[string]string{
		// Tests are many and small, and the packages' servers run side by side.
		"shared_buffers":  "64MB",
		"max_wal_size":    "256MB",
		"max_connections": "200",
		// Off by default; a transaction that is prepared holds up the log too.
		"max_prepared_transactions": "4",
	}
}

func start(ctx context.Context) (*Server, error) {
	pg, err := embedpg.Start(ctx, embedpg.Config{Settings: Settings()})
	if err != nil {
		return nil, err
	}
	return &Server{Server: pg, templates: make(map[string]*build)}, nil
}

// stopTimeout is ample for the last checkpoint of a test's data.
const stopTimeout = 30 * time.Second

func (s *Server) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return s.Stop(ctx)
}

// NewDB returns the connection string of a new database on s; see the function
// NewDB.
func (s *Server) NewDB(t testing.TB, template Template) string {
	t.Helper()
	source := "template0"
	if template.Name != "" {
		var err error
		// Built for all tests, not only for the first that asks.
		if source, err = s.template(context.WithoutCancel(t.Context()), template); err != nil {
			t.Fatalf("pgtest: template %s: %v", template.Name, err)
		}
	}
	name := "test_" + strings.ToLower(rand.Text())
	if err := s.exec(t.Context(), "CREATE DATABASE "+name+" TEMPLATE "+quoted(source)); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		// The test's own context has ended by now.
		ctx := context.WithoutCancel(t.Context())
		if err := s.exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})
	return s.DatabaseURL(name)
}

// Run runs a client program of the server's version, such as pg_dump, and
// returns what it prints. input may be nil.
func (s *Server) Run(t testing.TB, input []byte, program string, args ...string) []byte {
	t.Helper()
	var out, said bytes.Buffer
	cmd := exec.CommandContext(t.Context(), s.Program(program), args...) //nolint:gosec // from the server's own directory
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &out, &said
	if err := cmd.Run(); err != nil {
		t.Fatalf("pgtest: %s: %v\n%s", program, err, &said)
	}
	return out.Bytes()
}

// template builds a template's database unless that has been done, and returns
// its name.
func (s *Server) template(ctx context.Context, template Template) (string, error) {
	name := "template_" + template.Name
	s.mu.Lock()
	b, found := s.templates[template.Name]
	if !found {
		b = new(build)
		s.templates[template.Name] = b
	}
	s.mu.Unlock()
	b.once.Do(func() {
		if b.err = s.exec(ctx, "CREATE DATABASE "+quoted(name)); b.err != nil {
			return
		}
		if b.err = template.Build(ctx, s.DatabaseURL(name)); b.err != nil {
			return
		}
		// Nobody may be connected to a database that is copied.
		b.err = s.exec(ctx, "ALTER DATABASE "+quoted(name)+" ALLOW_CONNECTIONS false")
	})
	return name, b.err
}

func quoted(name string) string { return pgx.Identifier{name}.Sanitize() }

// exec runs a statement that cannot be in a transaction, on a connection of its
// own: a connection kept would be lost with a server that a test kills.
func (s *Server) exec(ctx context.Context, sql string) (err error) {
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	if _, err := conn.Exec(ctx, sql); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}
