package keyring_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/devtest/schematest"
	"github.com/badged/badged/internal/server/keyring"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m).Run()) }

func newPool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	return projectortest.NewPool(t, pgtest.NewDB(t, schematest.Migrated(1)), nil)
}

// server is a process with a key of a quota.
type server struct {
	*keyring.Ring
	file string
	now  atomic.Int64
	stop func()
}

func newServer(t *testing.T, q keyring.Quotas, quota int) *server {
	t.Helper()
	s := &server{file: filepath.Join(t.TempDir(), "keys.yaml")}
	s.limit(t, quota)
	s.now.Store(time.Date(2027, 1, 31, 12, 0, 0, 0, time.UTC).Unix())
	var errs []error
	if s.Ring, errs = keyring.New(keyring.Config{File: s.file, Now: func() time.Time { return time.Unix(s.now.Load(), 0) }}); len(errs) > 0 {
		t.Fatal(errs)
	}
	s.Share(q)
	s.stop = projectortest.Run(t, s.Run)
	return s
}

// limit writes the file, with a quota.
func (s *server) limit(t *testing.T, quota int) {
	t.Helper()
	text := fmt.Sprintf("keys:\n- {name: crm, kind: publisher, secret: %q, quota: %d}\n", keyring.Hash("secret"), quota)
	if err := os.WriteFile(s.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// spend publishes n events and reports whether the quota allowed it.
func (s *server) spend(t *testing.T, n int) bool {
	t.Helper()
	k, _ := s.Find("secret")
	err := k.Spend(t.Context(), n)
	if over, ok := errors.AsType[*keyring.LimitError](err); ok && over.RetryAfter > 11*time.Hour && over.RetryAfter <= 12*time.Hour {
		return false
	}
	if err != nil {
		t.Error(err)
	}
	return err == nil
}

// Processes that publish at the same time use a quota up and never exceed it. One that
// stops gives back what it has taken; one that is killed has taken a hundredth at most.
func TestQuotaOfSeveralProcesses(t *testing.T) {
	q := keyring.SharedQuotas{Pool: newPool(t)}
	const quota = 5000
	servers := []*server{newServer(t, q, quota), newServer(t, q, quota), newServer(t, q, quota)}
	var all sync.WaitGroup
	var published atomic.Int64
	for i := range 12 {
		all.Go(func() {
			for n := 1 + i; servers[i%3].spend(t, n); {
				published.Add(int64(n))
			}
		})
	}
	all.Wait()
	if n := published.Load(); n > quota || n < quota-12*3 {
		t.Errorf("%d events were published, of a quota of %d", n, quota)
	}

	for _, s := range servers {
		s.now.Add(24 * 60 * 60)
	}
	if !servers[0].spend(t, 10) {
		t.Fatal("the next day begins without a quota")
	}
	killed := quota/100 - 10 // that it has taken and not used
	servers[1].spend(t, 1)
	servers[1].stop() // gives back the rest
	again := newServer(t, q, quota)
	again.now.Add(24 * 60 * 60)
	if again.spend(t, quota-11-killed+1) {
		t.Error("a process that starts does not know what was published before")
	}
	if !again.spend(t, quota-11-killed) {
		t.Error("what was not used is not left")
	}
	if again.spend(t, 1) {
		t.Error("more than the quota was published")
	}
	again.now.Add(2)
	if !servers[0].spend(t, killed) {
		t.Error("a part that a process has taken is not its own")
	}
}

// A process sees what another one takes in the same moment.
func TestQuotaThatIsTakenMeanwhile(t *testing.T) {
	q := keyring.SharedQuotas{Pool: newPool(t)}
	day := time.Date(2027, 1, 31, 0, 0, 0, 0, time.UTC)
	if _, _, err := q.Take(t.Context(), "crm", day, 100, 1, 1); err != nil {
		t.Fatal(err)
	}
	other, err := q.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // it was committed
	if _, err := other.Exec(t.Context(), `SELECT FROM badged.key_quotas FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	took := make(chan int64)
	go func() {
		part, _, err := q.Take(t.Context(), "crm", day, 100, 10, 1)
		if err != nil {
			t.Error(err)
		}
		took <- part
	}()
	for waits := false; !waits; {
		if err := q.Pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waits); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := other.Exec(t.Context(), `UPDATE badged.key_quotas SET taken = taken + 95`); err != nil {
		t.Fatal(err)
	}
	if err := other.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if part := <-took; part != 4 {
		t.Errorf("of the 4 events that are left it takes %d", part)
	}
}

// A quota that is lowered counts at once: what a process has taken of the former one and
// not used is no part of it. One that is raised loses nothing.
func TestChangedQuota(t *testing.T) {
	q := keyring.SharedQuotas{Pool: newPool(t)}
	const quota = 5000
	servers := []*server{newServer(t, q, quota), newServer(t, q, quota)}
	for _, s := range servers {
		if !s.spend(t, 1) { // and takes 50
			t.Fatal("the day begins without a quota")
		}
		s.limit(t, 10)
		s.Reload(t.Context())
	}
	if servers[0].spend(t, 10) {
		t.Error("more than the lowered quota was published")
	}
	for _, s := range servers {
		s.now.Add(2) // the answer that nothing is left counts for a second
	}
	if !servers[1].spend(t, 1) || !servers[0].spend(t, 7) {
		t.Error("what is left of the lowered quota cannot be published")
	}
	if servers[1].spend(t, 1) {
		t.Error("the 11th event was published")
	}
	for _, s := range servers {
		s.now.Add(2)
		s.limit(t, quota)
		s.Reload(t.Context())
	}
	if servers[0].spend(t, quota-9) || !servers[0].spend(t, quota-10) {
		t.Error("the raised quota is not 5000 with the 10 that were used")
	}
}

// broken are quotas that cannot be read.
type broken struct {
	keyring.SharedQuotas
	asked atomic.Int32
	hang  func()
}

func (b *broken) Take(context.Context, string, time.Time, int64, int64, int64) (part, taken int64, err error) {
	b.asked.Add(1)
	b.hang()
	return 0, 0, errors.New("no database")
}

// A quota that is not known allows nothing. It is asked for again a second after the answer, so
// requests that wait for a database that hangs do not hang one after the other.
func TestUnknownQuota(t *testing.T) {
	q := &broken{}
	s := newServer(t, q, 1000)
	q.hang = func() { s.now.Add(2) }
	k, _ := s.Find("secret")
	for range 20 {
		if err := k.Spend(t.Context(), 1); err == nil || err.Error() != "no database" {
			t.Fatalf("error %v", err)
		}
	}
	s.now.Add(1)
	if err := k.Spend(t.Context(), 1); err == nil || q.asked.Load() != 2 {
		t.Errorf("asked %d times, error %v", q.asked.Load(), err)
	}
}

// Loading the file again and again, as a storm of SIGHUPs does, disturbs no request, and
// gives no event more than the quota.
func TestReloadsUnderLoad(t *testing.T) {
	const quota = 500
	s := newServer(t, keyring.SharedQuotas{Pool: newPool(t)}, quota)
	var published atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for s.spend(t, 1) {
				published.Add(1)
			}
		})
	}
	for i := range 200 {
		if i%10 == 5 {
			s.limit(t, quota-i%3)
		}
		s.Reload(t.Context())
	}
	s.limit(t, quota)
	s.Reload(t.Context())
	all.Wait()
	// Some were refused while what another quota had left was on its way back.
	s.now.Add(1)
	for s.spend(t, 1) {
		published.Add(1)
	}
	if n := published.Load(); n != quota {
		t.Errorf("%d events were published, of a quota of %d", n, quota)
	}
}
