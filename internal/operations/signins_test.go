package operations_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/internal/operations"
)

// Wrong keys of a minute from one address are one entry. Those of many addresses
// do not fill the trail.
func TestFailedSignIns(t *testing.T) {
	d := newDatabase(t)
	s := operations.NewSignIns(d.pool, slog.New(slog.DiscardHandler))
	const many = 1000
	var all sync.WaitGroup
	for range many {
		all.Go(func() { s.Failed("admin", netip.MustParsePrefix("203.0.113.7/32")) })
	}
	s.Failed("publisher", netip.Prefix{})
	all.Wait()
	for i := range many {
		s.Failed("publisher", netip.MustParsePrefix(fmt.Sprintf("10.0.%d.%d/32", i/256, i%256)))
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Run(stopped); err != nil {
		t.Fatal(err)
	}
	tokens := operations.NewSignIns(d.pool, slog.New(slog.DiscardHandler)) // of users: they leave entries to wrong keys
	for i := range many {
		tokens.BadToken(netip.MustParsePrefix(fmt.Sprintf("10.1.%d.%d/32", i/256, i%256)))
	}
	tokens.Failed("admin", netip.MustParsePrefix("203.0.113.7/32"))
	if err := tokens.Run(stopped); err != nil {
		t.Fatal(err)
	}
	trail := d.trail(t)
	if want := `api by 203.0.113.7/32: signin.failed {"key_of":"admin","times":1,`; len(trail) != 28 || !strings.HasPrefix(trail[6], want) ||
		!strings.HasPrefix(trail[0], `api by other addresses: signin.failed {"key_of":"user","times":995,`) {
		t.Errorf("%d entries:\n%s", len(trail), strings.Join(trail, "\n"))
	}
	trail = trail[7:]
	for i := range trail {
		trail[i] = regexp.MustCompile(`,"since":"[^"]+"`).ReplaceAllString(trail[i], "")
	}
	slices.Reverse(trail)
	if len(trail) != 21 {
		t.Fatalf("%d entries, want 20 and one for all other addresses:\n%s", len(trail), strings.Join(trail, "\n"))
	}
	want := []string{
		`api by 203.0.113.7/32: signin.failed {"key_of":"admin","times":1000}: failed: refused`,
		`api by 10.0.0.0/32: signin.failed {"key_of":"publisher","times":1}: failed: refused`,
	}
	if diff := cmp.Diff(want, trail[:2]); diff != "" {
		t.Errorf("the first entries (-want +got):\n%s", diff)
	}
	for _, want := range []string{`api by other addresses: signin.failed {"key_of":"publisher","times":982}: failed: refused`, `api by unknown address: signin.failed {"key_of":"publisher","times":1}: failed: refused`} {
		if !slices.Contains(trail, want) {
			t.Errorf("there is no entry %s:\n%s", want, strings.Join(trail, "\n"))
		}
	}
	expectFault(t, verifyAudit(t, d.pool, operations.AuditHead{}), "")
}

// failingOnce is a database that is unavailable at first. It keeps the arguments of each
// statement.
type failingOnce struct {
	operations.DB
	got [][]any
}

func (f *failingOnce) Exec(_ context.Context, _ string, args ...any) (pgconn.CommandTag, error) {
	f.got = append(f.got, args)
	if len(f.got) == 1 {
		return pgconn.CommandTag{}, errors.New("the database is away")
	}
	return pgconn.CommandTag{}, nil
}

// Entries are written each minute. What a database did not take comes a minute
// later.
func TestFailedSignInsAreRecordedEachMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &failingOnce{}
		s := operations.NewSignIns(db, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		s.Failed("admin", netip.MustParsePrefix("203.0.113.7/32"))
		time.Sleep(90 * time.Second) // of the bubble
		s.Failed("admin", netip.MustParsePrefix("203.0.113.7/32"))
		time.Sleep(10 * time.Minute) // of the bubble
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if len(db.got) != 2 || !strings.Contains(fmt.Sprint(db.got[0]), `"times":1,`) || !strings.Contains(fmt.Sprint(db.got[1]), `"times":2,`) {
			t.Errorf("the entries are %v", db.got)
		}
	})
}
