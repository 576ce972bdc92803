package operations_test

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/internal/operations"
)

// Changes of keys are in the audit trail, those with which a process starts only if
// they are new.
func TestKeyLoads(t *testing.T) {
	d := newDatabase(t)
	for range 2 { // processes, one after the other
		k := operations.NewKeyLoads(d.pool, slog.New(slog.DiscardHandler))
		k.Loaded(operations.KeyLoad{Started: true, Keys: []string{"chat", "crm"}})
		stop(t, k)
	}
	k := operations.NewKeyLoads(d.pool, slog.New(slog.DiscardHandler))
	k.Loaded(operations.KeyLoad{Keys: []string{"chat", "ops"}, Added: []string{"ops"}, Changed: []string{"chat"}, Removed: []string{"crm"}})
	k.Loaded(operations.KeyLoad{Keys: []string{"chat", "ops"}, Changed: []string{"chat"}})
	stop(t, k)
	trail := d.trail(t)
	for i := range trail {
		trail[i] = regexp.MustCompile(`by [^ ]+/\d+:`).ReplaceAllString(trail[i], "by HOST:")
	}
	slices.Reverse(trail)
	want := []string{
		`file by HOST: keys.load {"keys":["chat","crm"]}: `,
		`file by HOST: keys.load {"keys":["chat","ops"],"added":["ops"],"changed":["chat"],"removed":["crm"]}: `,
		`file by HOST: keys.load {"keys":["chat","ops"],"changed":["chat"]}: `,
	}
	if diff := cmp.Diff(want, trail); diff != "" {
		t.Errorf("the trail (-want +got):\n%s", diff)
	}
	expectFault(t, verifyAudit(t, d.pool, operations.AuditHead{}), "")
}

// stop lets k write what is waiting.
func stop(t *testing.T, k *operations.KeyLoads) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := k.Run(ctx); err != nil {
		t.Fatal(err)
	}
}

// A change that the database did not take is recorded later, before the next.
func TestKeyLoadsWaitForTheDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &failingOnce{}
		k := operations.NewKeyLoads(db, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- k.Run(ctx) }()
		k.Loaded(operations.KeyLoad{Keys: []string{"a"}})
		synctest.Wait()
		k.Loaded(operations.KeyLoad{Keys: []string{"b"}})
		time.Sleep(time.Minute) // of the bubble
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, args := range db.got {
			got = append(got, fmt.Sprint(args[1]))
		}
		if diff := cmp.Diff([]string{`{"keys":["a"]}`, `{"keys":["a"]}`, `{"keys":["b"]}`}, got); diff != "" {
			t.Errorf("attempts (-want +got):\n%s", diff)
		}
	})
}
