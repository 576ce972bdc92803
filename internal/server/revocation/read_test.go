package revocation_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/schematest"
	"github.com/badged/badged/internal/server/revocation"
)

// pages notes which pages are read. It implements pgx.QueryTracer.
type pages struct {
	mu   sync.Mutex
	read []string
}

// TraceQueryStart implements pgx.QueryTracer.
func (p *pages) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	for _, direction := range []string{">", "<="} {
		if strings.Contains(q.SQL, "WHERE seq "+direction+" $1") {
			p.mu.Lock()
			p.read = append(p.read, fmt.Sprint(direction, q.Args[0]))
			p.mu.Unlock()
		}
	}
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (p *pages) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// take returns what was read since the last call.
func (p *pages) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	read := p.read
	p.read = nil
	return read
}

// traced returns a pool that waits little for locks, with what it reads.
func traced(t *testing.T, url string) (*pgxpool.Pool, *pages) {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	read := &pages{}
	cfg.ConnConfig.Tracer = read
	cfg.ConnConfig.RuntimeParams["lock_timeout"] = "10ms"
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool, read
}

// fill revokes the tokens of n users, the user with the number 1 first.
func fill(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	execute(t, pool, fmt.Sprintf(`INSERT INTO badged.revocations (seq, revoked_before, ended_at, user_id)
SELECT n, '%s', now(), 'user ' || n FROM generate_series(1, %d) AS n`, noon.Format(time.RFC3339), n))
	execute(t, pool, fmt.Sprintf(`UPDATE badged.revocation_counter SET last = %d`, n))
}

// lock keeps others from a table until release is called.
func lock(t *testing.T, pool *pgxpool.Pool, table string) (release func()) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, tx, `LOCK TABLE badged.`+table+` IN ACCESS EXCLUSIVE MODE`)
	return func() {
		t.Helper()
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// Reading many rows takes many statements. One that fails is repeated, and none before it. Until
// all rows are read no token is to be admitted, and what is revoked meanwhile is known at once.
func TestPagesThatFailAreRepeated(t *testing.T) {
	url := pgtest.NewDB(t, schematest.Migrated(1))
	pool, read := traced(t, url)
	const rows = 2*revocation.PageRows + 10
	fill(t, pool, rows)
	l := revocation.New(pool, revocation.Config{})
	if err := l.Check(); err == nil {
		t.Error("before anything is read, tokens may be admitted")
	}
	step := func(more bool, pages ...string) {
		t.Helper()
		if got, err := l.Read(t.Context()); err != nil || got != more {
			t.Fatalf("there is more: %t, want %t, %v", got, more, err)
		}
		if got := read.take(); !slices.Equal(got, pages) {
			t.Errorf("%q is read, want %q", got, pages)
		}
	}
	latest := fmt.Sprint(">", rows)
	step(true, ">9223372036854775807", latest, fmt.Sprint("<=", rows)) // the database, and the latest page
	if !l.Revoked(fmt.Sprint("user ", rows), time.Time{}) || l.Revoked("user 1", time.Time{}) {
		t.Error("the latest page is not read first")
	}
	if err := l.Check(); err == nil || !strings.Contains(err.Error(), "5000 users") {
		t.Errorf("after one page of three, tokens may be admitted: %v", err)
	}

	release := lock(t, pool, "erased_revocations")
	for range 2 {
		if _, err := l.Read(t.Context()); err == nil {
			t.Fatal("a locked table is read")
		}
	}
	release()
	other := load(t, newPoolOf(t, url))
	other.end(t, "ann", noon)
	read.take()
	step(true, latest, fmt.Sprint("<=", rows-revocation.PageRows))
	if !l.Revoked("ann", time.Time{}) {
		t.Error("what is revoked while rows are read is not known")
	}
	latest = fmt.Sprint(">", rows+1)
	step(false, latest, fmt.Sprint("<=", rows-2*revocation.PageRows))
	if err := l.Check(); err != nil {
		t.Errorf("after the last page: %v", err)
	}
	if n := l.Users(); n != rows+1 || !l.Revoked("user 1", time.Time{}) || l.Revoked("user 0", time.Time{}) {
		t.Errorf("%d users are known, want %d", n, rows+1)
	}
	step(false, latest)

	// Many that are new are pages too.
	execute(t, pool, fmt.Sprintf(`UPDATE badged.revocations SET seq = seq + %d, revoked_before = revoked_before + interval '1 day'`, rows+1))
	execute(t, pool, fmt.Sprintf(`UPDATE badged.revocation_counter SET last = %d`, 2*(rows+1)))
	step(false, latest, fmt.Sprint(">", rows+1+revocation.PageRows), fmt.Sprint(">", rows+1+2*revocation.PageRows))
	if !l.Revoked(fmt.Sprint("user ", rows), noon.Add(time.Hour)) || !l.Revoked("ann", noon.Add(time.Hour)) {
		t.Error("what is new is not known")
	}
}

// meanwhile calls a function while Postgres reads a page of what is old.
type meanwhile struct{ do func(ctx context.Context) }

// TraceQueryStart implements pgx.QueryTracer.
func (m *meanwhile) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if strings.Contains(q.SQL, "WHERE seq <= $1") {
		m.do(ctx)
	}
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (m *meanwhile) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// While a process reads millions of rows, to revoke tokens waits for no page of them.
func TestRevokingWaitsForNoOlderRows(t *testing.T) {
	cfg, err := pgxpool.ParseConfig(pgtest.NewDB(t, schematest.Migrated(1)))
	if err != nil {
		t.Fatal(err)
	}
	read := &meanwhile{}
	cfg.ConnConfig.Tracer = read
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	fill(t, pool, 10)
	l := revocation.New(pool, revocation.Config{})
	revoked := false
	read.do = func(ctx context.Context) { // at most as long as a page may take
		if _, err := l.End(ctx, "ann", noon); err != nil {
			t.Errorf("revoke tokens while a page is read: %v", err)
		}
		revoked = l.Revoked("ann", time.Time{})
	}
	if err := l.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !revoked || !l.Revoked("ann", time.Time{}) || !l.Revoked("user 1", time.Time{}) || l.Revoked("bob", time.Time{}) {
		t.Error("what is revoked while a page is read is not known, or the page is not")
	}
}

func newPoolOf(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// After reads that failed, only what is new is read, and what was known stays in force
// meanwhile. A process that could not read for long admits no tokens until it can.
func TestReadsAfterAFailure(t *testing.T) {
	pool, read := traced(t, pgtest.NewDB(t, schematest.Migrated(1)))
	p := load(t, pool)
	p.end(t, "ann", noon)
	p.await(t, "ann")
	release := lock(t, pool, "revocations")
	for range 3 {
		if err := p.Load(t.Context()); err == nil {
			t.Fatal("a locked table is read")
		}
	}
	if err := p.Check(); err != nil {
		t.Errorf("right after the last read: %v", err)
	}
	p.Age(revocation.StaleAfter)
	if err := p.Check(); err == nil || !strings.Contains(err.Error(), "could not be read for 10s") {
		t.Errorf("long after the last read: %v", err)
	}
	if !p.Revoked("ann", time.Time{}) {
		t.Error("what was revoked is forgotten while the table cannot be read")
	}
	release()
	other := load(t, pool)
	other.end(t, "bob", noon)
	read.take()
	if err := p.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := read.take(), []string{">1"}; !slices.Equal(got, want) {
		t.Errorf("%q is read after a failure, want %q", got, want)
	}
	p.await(t, "bob")
	if err := p.Check(); err != nil || !p.Revoked("bob", time.Time{}) {
		t.Errorf("bob's tokens are revoked: %t, %v", p.Revoked("bob", time.Time{}), err)
	}
}

// A request is not answered as one that is in force while the process cannot read it.
func TestEndThatCannotBeRead(t *testing.T) {
	pool, _ := traced(t, pgtest.NewDB(t, schematest.Migrated(1)))
	p := load(t, pool)
	release := lock(t, pool, "erased_revocations")
	var unread *revocation.PartialReadError
	if holds, err := p.End(t.Context(), "ann", noon); !errors.As(err, &unread) {
		t.Fatalf("tokens that were issued before %s are revoked, %v", holds, err)
	}
	release()
	p.end(t, "bob", noon)
	for _, user := range []string{"ann", "bob"} {
		p.await(t, user)
		if !p.Revoked(user, time.Time{}) {
			t.Errorf("the tokens of %s are not revoked", user)
		}
	}
	release = lock(t, pool, "revocations")
	defer release()
	if holds, err := p.End(t.Context(), "cat", noon); err == nil || errors.As(err, &unread) {
		t.Errorf("tokens that were issued before %s are revoked, %v", holds, err)
	}
}

// After a restart, Postgres may have lost commits, and given their numbers to others: all rows
// are read again. What is new is known at once, and what was known stays so until all are read.
func TestRestartedDatabase(t *testing.T) {
	server := pgtest.Borrow(t)
	pool, read := traced(t, server.NewDB(t, schematest.Migrated(1)))
	fill(t, pool, revocation.PageRows+10)
	p := load(t, pool)
	latest := revocation.PageRows + 10
	server.Kill()
	if err := p.Load(t.Context()); err == nil {
		t.Fatal("a server that is away is read")
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	execute(t, pool, fmt.Sprintf(`UPDATE badged.revocations SET user_id = 'ann' WHERE seq = %d`, latest)) // the same number, another row
	read.take()
	if more, err := p.Read(t.Context()); err != nil || !more {
		t.Fatalf("there is more: %t, %v", more, err)
	}
	if got, want := read.take(), []string{fmt.Sprint(">", latest), fmt.Sprint(">", latest), fmt.Sprint("<=", latest)}; !slices.Equal(got, want) {
		t.Errorf("%q is read after a restart, want %q", got, want)
	}
	p.await(t, "ann")
	for _, user := range []string{"ann", "user 1", fmt.Sprint("user ", latest)} {
		if !p.Revoked(user, time.Time{}) {
			t.Errorf("while all rows are read again, the tokens of %s are not revoked", user)
		}
	}
	if err := p.Check(); err != nil {
		t.Errorf("while all rows are read again: %v", err)
	}
	if more, err := p.Read(t.Context()); err != nil || more {
		t.Fatalf("there is more: %t, %v", more, err)
	}
	if !p.Revoked("ann", time.Time{}) || !p.Revoked("user 1", time.Time{}) || p.Revoked(fmt.Sprint("user ", latest), time.Time{}) {
		t.Error("rows that the database lost are in force")
	}
	if len(p.ended) > 0 {
		t.Errorf("the connections of %s are to end, whose tokens were revoked before", <-p.ended)
	}
}
