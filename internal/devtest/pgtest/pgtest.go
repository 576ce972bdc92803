// Package pgtest gives tests real PostgreSQL databases. The tests of a package
// share one private server, which starts when the first test needs it. Each test
// gets its own database, cloned from a template in about ten milliseconds.
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
// If the server cannot start, the tests fail; they are never skipped.
//
// All databases of a server share its transaction ids: a writing transaction that
// a test keeps open becomes pending in the logs of other tests. A test that
// counts such transactions needs a server for itself: [Borrow]. One that kills its
// server, or creates roles, needs a new one: [NewServer].
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
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/internal/embedpg"
)

// A Template defines the content of a new database.
type Template struct {
	// Name identifies the template within the process. Only the first template
	// of a name is built; others of that name must be equal. The zero Template
	// is an empty database.
	Name string
	// Version, unless empty, identifies what Build makes, as [Hash] does: a cluster
	// with it is kept, and copied by later processes in place of building it.
	Version string
	// Build fills the database at url, for example by migrating it, and must
	// close its connections. It runs once per server.
	Build func(ctx context.Context, url string) error
	// Adopt, unless nil, changes what the database at url says of the server that built
	// it, once another has begun with a copy of its cluster.
	Adopt func(ctx context.Context, url string) error
}

// Templates define the content of several databases that belong together, such as
// those of a cluster of shards.
type Templates struct {
	// Name and Version are as those of a Template; Count is how many databases there
	// are.
	Name    string
	Version string
	Count   int
	// Build fills the databases; see [Template.Build].
	Build func(ctx context.Context, urls []string) error
	// Adopt is as that of a Template, for each database.
	Adopt func(ctx context.Context, url string) error
}

// Runner runs tests, as *testing.M does.
type Runner interface{ Run() int }

// shared is the server of this process's tests while Main runs them. It is
// package state because TestMain has no way to pass a value to the tests.
var shared struct {
	mu     sync.Mutex
	inMain bool
	server *Server
	err    error
	// idle are the servers that tests have borrowed and returned.
	idle []*Server
	// usual are the first templates with a version that a test wanted: servers begin
	// with them.
	usual Templates
}

// Main wraps the tests of a package so that they can use NewDB, and stops the
// server after them. It composes with other wrappers:
//
//	goleak.VerifyTestMain(pgtest.Main(m))
func Main(m Runner) Runner { return served{m} }

// served runs tests with a server.
type served struct{ tests Runner }

func (s served) Run() (code int) {
	shared.mu.Lock()
	shared.inMain = true
	shared.mu.Unlock()
	defer func() {
		shared.mu.Lock()
		defer shared.mu.Unlock()
		shared.inMain = false
		servers := shared.idle
		if shared.server != nil {
			servers = append(servers, shared.server)
		}
		for _, server := range servers {
			if err := server.stop(); err != nil {
				fmt.Fprintln(os.Stderr, "pgtest:", err)
				code = max(code, 1)
			}
		}
		shared.server, shared.idle = nil, nil
	}()
	return s.tests.Run()
}

// NewDB returns the connection string of a new database on the shared server,
// a copy of the template's. When the test ends, the database is dropped and its
// remaining connections are closed.
func NewDB(t testing.TB, template Template) string {
	t.Helper()
	return shares(t, template.alone()).NewDB(t, template)
}

// NewDBs is like NewDB, for several databases.
func NewDBs(t testing.TB, templates Templates) []string {
	t.Helper()
	return shares(t, templates).NewDBs(t, templates)
}

// alone returns the template as several.
func (t Template) alone() Templates {
	return Templates{
		Name: t.Name, Version: t.Version, Count: 1,
		Build: func(ctx context.Context, urls []string) error { return t.Build(ctx, urls[0]) },
		Adopt: t.Adopt,
	}
}

// shares returns the shared server, for templates.
func shares(t testing.TB, templates Templates) *Server {
	t.Helper()
	shared.mu.Lock()
	wants(templates)
	switch {
	case !shared.inMain:
		shared.err = errNoMain
	case shared.server == nil && shared.err == nil:
		shared.server, shared.err = start(context.WithoutCancel(t.Context()))
	}
	server, err := shared.server, shared.err
	shared.mu.Unlock()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	return server
}

// wants records what tests usually want. The caller holds shared.mu.
func wants(templates Templates) {
	if shared.usual.Version == "" {
		shared.usual = templates
	}
}

var errNoMain = errors.New("TestMain does not run the tests through pgtest.Main")

// UsePublic makes statements of tests find and create in the schema public what they name
// without a schema. Sessions of badged look into no schema.
func UsePublic(cfg *pgx.ConnConfig) {
	before := cfg.AfterConnect
	cfg.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if err := before(ctx, conn); err != nil {
			return err
		}
		return conn.Exec(ctx, `SET search_path = public`).Close()
	}
}

// Borrow returns a server that only this test uses, until it ends. Earlier tests
// may have used it: it has their templates and has given out transaction ids, but
// has no databases or sessions of theirs. The test must leave no roles and must not
// kill the server.
func Borrow(t testing.TB) *Server {
	t.Helper()
	server, err := borrow(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		shared.mu.Lock()
		defer shared.mu.Unlock()
		shared.idle = append(shared.idle, server)
	})
	return server
}

func borrow(ctx context.Context) (*Server, error) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.inMain {
		return nil, errNoMain
	}
	if n := len(shared.idle); n > 0 {
		server := shared.idle[n-1]
		shared.idle = shared.idle[:n-1]
		return server, nil
	}
	return start(ctx)
}

// Server is a private server that hands out databases. It is safe for
// concurrent use. Kill and Restart are for tests of faults.
type Server struct {
	*embedpg.Server

	// copying is how CREATE DATABASE copies a template.
	copying string

	mu        sync.Mutex
	templates map[string]*build
}

// build is the result of building a template's database.
type build struct {
	once sync.Once
	err  error
}

// NewServer starts a server for one test and stops it when the test ends. This
// takes half a second; prefer NewDB or Borrow.
func NewServer(t testing.TB) *Server {
	t.Helper()
	shared.mu.Lock()
	usual := shared.usual
	shared.mu.Unlock()
	s, err := startWith(t.Context(), usual)
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

// Settings returns the settings of the servers, for starting another server on
// the same data.
func Settings() map[string]string {
	return map[string]string{
		// Tests are small, and the servers of several packages run at once.
		"shared_buffers":  "64MB",
		"max_wal_size":    "256MB",
		"max_connections": "500", // a stack may have several databases
		// Autovacuum would start a worker for each of a hundred databases, again and again.
		"autovacuum_naptime": "1h",
		// Off by default; needed to test that a prepared transaction delays the log.
		"max_prepared_transactions": "4",
	}
}

// start starts a server of the process. The caller holds shared.mu.
func start(ctx context.Context) (*Server, error) { return startWith(ctx, shared.usual) }

// startWith starts a server in which templates with a version are built, if there is a
// cache.
func startWith(ctx context.Context, templates Templates) (*Server, error) {
	if templates.Version == "" {
		templates = Templates{}
	}
	c := openCache()
	cached := ""
	seed := func(ctx context.Context, version string) (dir string, release func(), err error) {
		cached, release, err = c.find(ctx, version, templates)
		return cached, release, err
	}
	pg, err := embedpg.Start(ctx, embedpg.Config{Settings: Settings(), Seed: seed})
	if err != nil && cached != "" {
		if err := c.forget(cached); err != nil {
			return nil, err
		}
		pg, err = embedpg.Start(ctx, embedpg.Config{Settings: Settings(), Seed: seed})
	}
	if err != nil {
		return nil, err
	}
	s := &Server{Server: pg, templates: make(map[string]*build)}
	if cached != "" && templates.Name != "" {
		b := new(build)
		b.once.Do(func() {}) // it is in the cluster
		s.templates[templates.Name] = b
		if err := s.adopt(ctx, templates); err != nil {
			return nil, errors.Join(err, s.stop()) //nolint:contextcheck // it must stop also when ctx is done
		}
	}
	if s.copying, err = copying(ctx, pg.URL()); err != nil {
		return nil, errors.Join(err, s.stop()) //nolint:contextcheck // it must stop also when ctx is done
	}
	return s, nil
}

// copying returns how CREATE DATABASE copies templates fastest. In memory that is by
// file, which takes half the processor time of the default, through the WAL. On a
// disk, each file would be synced.
func copying(ctx context.Context, url string) (strategy string, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	err = conn.QueryRow(ctx, `
SELECT CASE WHEN current_setting('server_version_num')::int >= 150000 AND starts_with(current_setting('data_directory'), '/dev/shm/')
    THEN ' STRATEGY file_copy' ELSE '' END`).Scan(&strategy)
	return strategy, err
}

// stopTimeout is ample for the last checkpoint of a test's data.
const stopTimeout = 30 * time.Second

func (s *Server) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return s.Stop(ctx)
}

// NewDB is like the function NewDB, on s.
func (s *Server) NewDB(t testing.TB, template Template) string {
	t.Helper()
	if template.Name == "" {
		return s.copy(t, "template0")
	}
	return s.NewDBs(t, template.alone())[0]
}

// NewDBs is like the function NewDBs, on s.
func (s *Server) NewDBs(t testing.TB, templates Templates) []string {
	t.Helper()
	shared.mu.Lock()
	wants(templates)
	shared.mu.Unlock()
	// All tests share the result, so the first test's context must not end it.
	sources, err := s.template(context.WithoutCancel(t.Context()), templates)
	if err != nil {
		t.Fatalf("pgtest: template %s: %v", templates.Name, err)
	}
	urls := make([]string, len(sources))
	for i, source := range sources {
		urls[i] = s.copy(t, source)
	}
	return urls
}

// copy returns a copy of a database.
func (s *Server) copy(t testing.TB, source string) string {
	t.Helper()
	name := "test_" + strings.ToLower(rand.Text())
	if err := s.exec(t.Context(), "CREATE DATABASE "+name+" TEMPLATE "+quoted(source)+s.copying); err != nil {
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

// template builds the databases of templates unless that has been done, and returns
// their names.
func (s *Server) template(ctx context.Context, templates Templates) ([]string, error) {
	names, urls := make([]string, templates.Count), make([]string, templates.Count)
	for i := range names {
		names[i] = templateName(templates, i)
		urls[i] = s.DatabaseURL(names[i])
	}
	s.mu.Lock()
	b, found := s.templates[templates.Name]
	if !found {
		b = new(build)
		s.templates[templates.Name] = b
	}
	s.mu.Unlock()
	b.once.Do(func() {
		for _, name := range names {
			if b.err = s.exec(ctx, "CREATE DATABASE "+quoted(name)); b.err != nil {
				return
			}
		}
		if b.err = templates.Build(ctx, urls); b.err != nil {
			return
		}
		// Postgres cannot copy a database that has connections.
		for _, name := range names {
			if b.err = s.exec(ctx, "ALTER DATABASE "+quoted(name)+" ALLOW_CONNECTIONS false"); b.err != nil {
				return
			}
		}
	})
	return names, b.err
}

// adopt adapts the databases of templates, which another server has built, to this one.
func (s *Server) adopt(ctx context.Context, templates Templates) error {
	if templates.Adopt == nil {
		return nil
	}
	for i := range templates.Count {
		name := templateName(templates, i)
		if err := s.exec(ctx, "ALTER DATABASE "+quoted(name)+" ALLOW_CONNECTIONS true"); err != nil {
			return err
		}
		if err := templates.Adopt(ctx, s.DatabaseURL(name)); err != nil {
			return fmt.Errorf("adopt the template %s: %w", name, err)
		}
		if err := s.exec(ctx, "ALTER DATABASE "+quoted(name)+" ALLOW_CONNECTIONS false"); err != nil {
			return err
		}
	}
	return nil
}

func templateName(templates Templates, i int) string {
	return fmt.Sprintf("template_%s_%d", templates.Name, i)
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
