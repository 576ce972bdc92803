package brokers

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/bridge/ingest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/schematest"
	"github.com/badged/badged/projector"
)

// kills is how often each test of faults kills a process, a leader or Postgres.
var kills = flag.Int("kills", 3, "how often the tests kill processes, leaders and Postgres")

// binary is the program under test.
var binary string

func TestMain(m *testing.M) { os.Exit(pgtest.Main(built{m}).Run()) }

// built wraps the run of the tests: it builds the binary first.
type built struct{ *testing.M }

func (b built) Run() int {
	dir, err := os.MkdirTemp("", "badged-brokers-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	binary = filepath.Join(dir, "badged")
	build := exec.CommandContext(context.Background(), "go", "build", "-o", binary, "./cmd/badged")
	build.Dir = "../.."
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build the program under test:", err)
		return 1
	}
	return b.M.Run()
}

// partitions is the number of partitions of the log.
const partitions = 4

// database is a migrated database.
type database struct {
	url  string
	pool *pgxpool.Pool
	log  *events.Log
}

func newDatabase(t *testing.T) *database {
	t.Helper()
	return open(t, pgtest.NewDB(t, schematest.Migrated(partitions)))
}

// newServer returns a migrated database on a new Postgres server, which the test may kill.
func newServer(t *testing.T) (*database, *pgtest.Server) {
	t.Helper()
	s := pgtest.NewServer(t)
	return open(t, s.NewDB(t, schematest.Migrated(partitions))), s
}

// restart kills Postgres and starts it again.
func restart(t *testing.T, s *pgtest.Server) {
	t.Helper()
	s.Kill()
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, url string) *database {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	projector.ConfigurePool(cfg)
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	log, err := events.Open(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	return &database{url, pool, log}
}

// number returns the number that a query returns, or -1 while Postgres is down.
func (d *database) number(t *testing.T, sql string) (n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := d.pool.QueryRow(ctx, sql).Scan(&n); err != nil {
		return -1
	}
	return n
}

// read returns how many messages were read.
func (d *database) read(t *testing.T) int {
	t.Helper()
	return d.number(t, `SELECT coalesce(sum(messages), 0)::int FROM badged.ingest_positions`)
}

// appended returns how many events the log has, including repeated events.
func (d *database) appended(t *testing.T) (n int) {
	t.Helper()
	for p := range partitions {
		n += d.number(t, "SELECT coalesce(sum(events), 0)::int FROM badged."+events.Topic(p))
	}
	return n
}

// letters returns the dead letters in the form "ORIGIN: REASON".
func (d *database) letters(t *testing.T) []string {
	t.Helper()
	rows, _ := d.pool.Query(t.Context(), `SELECT origin || ': ' || reason FROM badged.dead_letters ORDER BY id`)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// await polls until so returns true.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	for !so() {
		select {
		case <-deadline:
			t.Fatalf("waited in vain for %s", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// process is a running `badged ingest`, or another command.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	url  string
	out  lockedBuffer
	done chan struct{}
}

// lockedBuffer collects the output of a process. It is safe for concurrent use.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.WriteString(line + "\n")
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// run starts `badged ingest` and waits until it is ready.
func run(t *testing.T, d *database, from string) *process {
	t.Helper()
	return launch(t, d, "ingest", "--from="+from, "--max-lag=0")
}

// launch starts a command and waits until it is ready.
func launch(t *testing.T, d *database, args ...string) *process {
	t.Helper()
	p := &process{t: t, done: make(chan struct{})}
	p.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), binary, append(args, "--listen=127.0.0.1:0", "--database-url="+d.url)...)
	p.cmd.Env = environment()
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan string, 1)
	go func() {
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			p.out.add(lines.Text())
			if url, ok := strings.CutPrefix(lines.Text(), "badged: ready on "); ok {
				ready <- url
			}
		}
		_ = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("badged %s said:\n%s", args[0], &p.out)
		}
	})
	select {
	case p.url = <-ready:
	case <-p.done:
		t.Fatalf("badged %s ended:\n%s", args[0], &p.out)
	}
	return p
}

// kill kills the process and waits until it has ended.
func (p *process) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	<-p.done
}

// get returns the answer of the process at a path.
func (p *process) get(path string) string {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.url+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(b)
}

// fails runs `badged ingest`, which must fail, and returns its output.
func fails(t *testing.T, d *database, from string) string {
	t.Helper()
	return failsAs(t, d, "ingest", "--from="+from)
}

// failsAs runs a command, which must fail, and returns its output.
func failsAs(t *testing.T, d *database, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, append(args, "--listen=127.0.0.1:0", "--database-url="+d.url)...)
	cmd.Env = environment()
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Errorf("badged %v succeeds", args)
	}
	return string(out)
}

// environment returns this process's environment without settings of badged.
func environment() (env []string) {
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "BADGED_") {
			env = append(env, v)
		}
	}
	return env
}

// event returns event n in structured mode, for one of 1,000 users.
func event(n int) []byte {
	return fmt.Appendf(nil, `{"specversion":"1.0","id":"%d","source":"chat","type":"message.delivered","data":{"conversation_id":"c%d","user_ids":["user-%d"],"seq":%d}}`,
		n, n%100, n%1000, n+1)
}

// URLs of streams and brokers are checked before connecting, and errors contain no secrets.
func TestURLs(t *testing.T) {
	for url, want := range map[string]string{
		"nats://ann:hunter2@h:4222":                      "nats://ann:***@h:4222/: the URL names no stream; want nats://USER:PASSWORD@HOST:4222/STREAM",
		"nats://hunter2@h:4222/CHAT?subjects=a":          `nats://***@h:4222/CHAT: there is no parameter "subjects"`,
		"nats://ann:hunter2@h:4222/CHAT,CALLS?subject=a": "subject needs one stream",
		"nats://ann:hunter2@h:4222/CHAT?creds=/no/file":  "creds: ",
		"nats://ann:hunter2@h:4222/CHAT?ca=/no/file":     "ca: ",
		"kafka://ann:hunter2@h:9092":                     "the URL names no topic; want kafka://",
		"kafka://ann:hunter2@h:9092/chat?sasl=md5":       `sasl must be plain, scram-sha-256 or scram-sha-512, is "md5"`,
		"kafka://h:9092/chat?sasl=plain":                 "sasl needs USER:PASSWORD@",
		"kafka://ann:hunter2@h:9092/chat?group=a":        `there is no parameter "group"`,
		"nats://ann:hunter2@h:4222/CHAT?tls=maybe":       `tls must be true or false, is "maybe"`,
	} {
		_, errs := ingest.Parse([]string{url})
		if len(errs) != 1 || !strings.Contains(errs[0].Error(), want) || strings.Contains(errs[0].Error(), "hunter2") {
			t.Errorf("%s: %v, want %s", url, errs, want)
		}
	}
	sources, errs := ingest.Parse([]string{"nats://ann:hunter2@one:4222,two:4222/CHAT,CALLS?tls=true"})
	if len(errs) > 0 || sources[0].Name != "nats" || fmt.Sprint(sources[0].Streams) != "[CHAT CALLS]" || sources[0].Shown != "nats://ann:***@one:4222,two:4222/CHAT,CALLS" {
		t.Errorf("%+v %v", sources, errs)
	}
}
