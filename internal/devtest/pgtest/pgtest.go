// Package pgtest gives tests real PostgreSQL databases. The tests of a package share one private
// server, which starts when a test first needs it. Each test gets a database of its own, which is
// copied from a template in about ten milliseconds.
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
// All databases of a server share its transaction ids. So if a test keeps a transaction open that
// has written, the transaction becomes pending in the logs of other tests. A test that counts
// pending transactions needs a server for itself: [Borrow]. A test that kills its server or creates
// roles needs a new server: [NewServer].
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

	"github.com/badged/badged/internal/pg/embedpg"
)

// A Template defines the content of a new database, or of several databases that belong together,
// such as the databases of a cluster.
type Template struct {
	// Name identifies the template in the process. Only the first template with a name is built, so
	// all templates with the same name must be equal. The zero Template is an empty database.
	Name string
	// Version, unless empty, identifies the code of Build, usually by [Hash]. Then the result of
	// Build is cached, and later processes with the same Version copy it.
	Version string
	// Count is the number of databases; 0 means 1.
	Count int
	// Build fills the databases, for example by migrating them. It must close its connections. It
	// is called once per server.
	Build func(ctx context.Context, urls []string) error
	// Adopt, unless nil, is called when the databases come from the cache. It changes what a
	// database stores about the server that built it.
	Adopt func(ctx context.Context, url string) error
}

// Runner runs tests, as *testing.M does.
type Runner interface{ Run() int }

// shared has the servers for the tests of this process while Main runs them. It is a package
// variable because TestMain cannot pass a value to tests.
var shared struct {
	mu     sync.Mutex
	inMain bool
	server *Server
	err    error
	// idle has the servers that tests have borrowed and returned.
	idle []*Server
	// usual is the first template with a version that a test has used. New servers start with a
	// copy of its cached cluster.
	usual Template
}

// Main wraps the tests of a package, so that they can use NewDB. It stops the servers after the
// tests. It can be combined with other wrappers:
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

// NewDB returns the connection string of a new database on the shared server. The database is a
// copy of the template. When the test ends, its connections are closed and the database is dropped.
func NewDB(t testing.TB, template Template) string {
	t.Helper()
	return NewDBs(t, template)[0]
}

// NewDBs is like NewDB, for a template of several databases.
func NewDBs(t testing.TB, template Template) []string {
	t.Helper()
	return shares(t, template).NewDBs(t, template)
}

// shares returns the shared server. It starts the server when it is called for the first time.
func shares(t testing.TB, template Template) *Server {
	t.Helper()
	shared.mu.Lock()
	wants(template)
	switch {
	case !shared.inMain:
		shared.err = errNoMain
	case shared.server == nil && shared.err == nil:
		if shared.server, shared.err = start(context.WithoutCancel(t.Context())); shared.err == nil {
			shared.server.keeps = true
		}
	}
	server, err := shared.server, shared.err
	shared.mu.Unlock()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	return server
}

// wants stores the first template that has a version. The caller must hold shared.mu.
func wants(template Template) {
	if shared.usual.Version == "" {
		shared.usual = template
	}
}

var errNoMain = errors.New("TestMain does not run the tests through pgtest.Main")

// UsePublic sets the search path of a test's sessions to the schema public, so that statements can
// use and create tables there without naming a schema. The search path of badged's own sessions is
// empty.
func UsePublic(cfg *pgx.ConnConfig) {
	before := cfg.AfterConnect
	cfg.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if err := before(ctx, conn); err != nil {
			return err
		}
		return conn.Exec(ctx, `SET search_path = public`).Close()
	}
}

// Borrow returns a server for the exclusive use of this test, until the test ends. Earlier tests
// may have used the server: it has their templates and has assigned transaction ids, but their
// databases and sessions are gone. The test must not leave roles behind, and must not kill the
// server.
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

// Server is a private server on which tests create databases. It is safe for concurrent use. Kill
// and Restart are for tests of faults.
type Server struct {
	*embedpg.Server

	// copying is the clause of CREATE DATABASE that says how to copy a template.
	copying string

	mu        sync.Mutex
	templates map[string]*built

	// keeps is true if session stays open between statements. It is set only for the shared server:
	// a test with a server of its own may kill it or count its sessions.
	keeps     bool
	sessionMu sync.Mutex
	session   *pgx.Conn
}

// built records whether the databases of a template were built.
type built struct {
	once sync.Once
	err  error
}

// NewServer starts a server for one test and stops it when the test ends. This takes half a second,
// so prefer NewDB or Borrow.
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

// Settings returns the settings of all servers of this package. A test can use them to start
// another server on the same data.
func Settings() map[string]string {
	return map[string]string{
		// Small buffers suffice for tests, and the servers of several packages run at the same
		// time.
		"shared_buffers":  "64MB",
		"max_wal_size":    "256MB",
		"max_connections": "500", // a stack may have several databases
		// Otherwise autovacuum would repeatedly start a worker for each of a hundred databases.
		"autovacuum_naptime": "1h",
		// This is off by default. It is needed to test that a prepared transaction delays the log.
		"max_prepared_transactions": "4",
	}
}

// start starts a server with the usual template. The caller must hold shared.mu.
func start(ctx context.Context) (*Server, error) { return startWith(ctx, shared.usual) }

// startWith starts a server. If the template has a version and there is a cache, the template is
// already built in the new server.
func startWith(ctx context.Context, template Template) (*Server, error) {
	if template.Version == "" {
		template = Template{}
	}
	version, err := embedpg.Version(ctx)
	if err != nil {
		return nil, err
	}
	cluster, unlock, err := cached(ctx, version, template)
	if err != nil {
		return nil, err
	}
	pg, err := embedpg.Start(ctx, embedpg.Config{Settings: Settings(), Seed: cluster})
	unlock()
	if err != nil && cluster != "" {
		err = fmt.Errorf("start with the cluster %s of the cache: %w: remove it, or turn the cache off with %s=off", cluster, err, cacheVariable)
	}
	if err != nil {
		return nil, err
	}
	s := &Server{Server: pg, copying: copying(version, pg.URL()), templates: make(map[string]*built)}
	if cluster != "" && template.Name != "" {
		b := new(built)
		b.once.Do(func() {}) // so build does nothing
		s.templates[template.Name] = b
		if err := s.adopt(ctx, template); err != nil {
			return nil, errors.Join(err, s.stop()) //nolint:contextcheck // it must stop also when ctx is done
		}
	}
	return s, nil
}

// copying returns the STRATEGY clause with which CREATE DATABASE copies templates fastest, "" for
// the default. If the data is in memory, copying files takes half the processor time of the
// default, which copies through the WAL. On a disk it would be slower, because each file is synced.
func copying(version, url string) string {
	major := 0
	_, _ = fmt.Sscanf(version, "postgres (PostgreSQL) %d", &major)
	if major >= 15 && strings.Contains(url, "host=%2Fdev%2Fshm") {
		return " STRATEGY file_copy"
	}
	return ""
}

// stopTimeout bounds the last checkpoint of a server. It takes far less time with the data of
// tests.
const stopTimeout = 30 * time.Second

func (s *Server) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if s.session != nil {
		_ = s.session.Close(ctx) // otherwise the server ends the session
	}
	return s.Stop(ctx)
}

// NewDB is like the function NewDB, on the server s.
func (s *Server) NewDB(t testing.TB, template Template) string {
	t.Helper()
	return s.NewDBs(t, template)[0]
}

// NewDBs is like the function NewDBs, on the server s.
func (s *Server) NewDBs(t testing.TB, template Template) []string {
	t.Helper()
	sources := []string{"template0"}
	if template.Name != "" {
		shared.mu.Lock()
		wants(template)
		shared.mu.Unlock()
		var err error
		// All tests share the built template, so the end of the first test must not cancel building
		// it.
		if sources, err = s.build(context.WithoutCancel(t.Context()), template); err != nil {
			t.Fatalf("pgtest: template %s: %v", template.Name, err)
		}
	}
	urls := make([]string, len(sources))
	for i, source := range sources {
		urls[i] = s.copy(t, source)
	}
	return urls
}

// connectPatience is a parameter of the URLs of databases. A busy machine may let a new session
// wait for longer than the 5 seconds after which programs give up without it.
const connectPatience = "&connect_timeout=60"

// copy creates a copy of a database for a test.
func (s *Server) copy(t testing.TB, source string) string {
	t.Helper()
	name := "test_" + strings.ToLower(rand.Text())
	if err := s.exec(t.Context(), "CREATE DATABASE "+name+" TEMPLATE "+quoted(source)+s.copying); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		// The test's own context is done when this function is called.
		ctx := context.WithoutCancel(t.Context())
		if err := s.exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})
	return s.DatabaseURL(name) + connectPatience
}

// Run runs a client program of the server's version, such as pg_dump, with input as its standard
// input. It returns the program's standard output. input may be nil.
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

// build builds the databases of a template, unless they are already built on this server. It
// returns their names.
func (s *Server) build(ctx context.Context, template Template) ([]string, error) {
	names := template.databases()
	urls := make([]string, len(names))
	for i, name := range names {
		urls[i] = s.DatabaseURL(name)
	}
	s.mu.Lock()
	b, found := s.templates[template.Name]
	if !found {
		b = new(built)
		s.templates[template.Name] = b
	}
	s.mu.Unlock()
	b.once.Do(func() {
		for _, name := range names {
			if b.err = s.exec(ctx, "CREATE DATABASE "+quoted(name)); b.err != nil {
				return
			}
		}
		if b.err = template.Build(ctx, urls); b.err != nil {
			return
		}
		// CREATE DATABASE cannot copy a database that has connections.
		for _, name := range names {
			if b.err = s.exec(ctx, "ALTER DATABASE "+quoted(name)+" ALLOW_CONNECTIONS false"); b.err != nil {
				return
			}
		}
	})
	return names, b.err
}

// adopt calls Adopt for the databases of a template that another server has built.
func (s *Server) adopt(ctx context.Context, template Template) error {
	if template.Adopt == nil {
		return nil
	}
	for _, name := range template.databases() {
		if err := s.exec(ctx, "ALTER DATABASE "+quoted(name)+" ALLOW_CONNECTIONS true"); err != nil {
			return err
		}
		if err := template.Adopt(ctx, s.DatabaseURL(name)); err != nil {
			return fmt.Errorf("adopt the template %s: %w", name, err)
		}
		if err := s.exec(ctx, "ALTER DATABASE "+quoted(name)+" ALLOW_CONNECTIONS false"); err != nil {
			return err
		}
	}
	return nil
}

// databases returns the names of the databases in which the template is built.
func (t Template) databases() []string {
	names := make([]string, max(t.Count, 1))
	for i := range names {
		names[i] = fmt.Sprintf("template_%s_%d", t.Name, i)
	}
	return names
}

func quoted(name string) string { return pgx.Identifier{name}.Sanitize() }

// exec runs a statement that cannot be in a transaction block. On the shared server it uses the
// same session again, since opening a session takes more processor time than most statements.
func (s *Server) exec(ctx context.Context, sql string) (err error) {
	s.sessionMu.Lock()
	defer s.sessionMu.Unlock()
	if s.session != nil && s.session.Ping(ctx) != nil { // a test has ended all sessions
		_ = s.session.Close(ctx)
		s.session = nil
	}
	if s.session == nil {
		if s.session, err = pgx.Connect(ctx, s.URL()); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	if _, err = s.session.Exec(ctx, sql); err != nil {
		err = fmt.Errorf("%s: %w", sql, err)
	}
	if !s.keeps {
		err = errors.Join(err, s.session.Close(ctx))
		s.session = nil
	}
	return err
}
