package splitting_test

import (
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/partition/copier"
	"github.com/badged/badged/internal/partition/replay"
	"github.com/badged/badged/internal/partition/splitting"
	"github.com/badged/badged/internal/user/erasure"
	"github.com/badged/badged/projector"
)

// Healed users have higher versions than a replay produces. The children preserve these versions,
// also of a user who is healed during the split: verify, explain, heal, export and erase work.
func TestSplitKeepsHealedUsers(t *testing.T) {
	t.Parallel()
	d := projectortest.New(t)
	users := halves()
	ann, ben := users[0], users[1]
	for n := range 3 {
		d.Append(t, foldtest.Deliver("c", int64(n+1), ann, ben))
	}
	d.Fold(t)
	d.StopFolding()
	heal := func(user string) {
		t.Helper()
		d.Exec(t, `UPDATE badged.users SET version = version + 5, total = 99 WHERE user_id = $1`, user)
		if _, version, err := replay.NewVerifier(d.Pool, d.Log).Heal(t.Context(), user); err != nil || version == 0 {
			t.Fatalf("healing %s gives version %d: %v", user, version, err)
		}
	}
	explain := func(user string, version int64) {
		t.Helper()
		e, err := replay.NewExplainer(d.Pool, d.Log).Explain(t.Context(), user, replay.Question{})
		if err != nil || !e.Agrees || e.Total != 3 {
			t.Errorf("explaining %s, who has version %d: %+v, %v", user, version, e, err)
		}
	}
	// kinds counts what is exported of a user.
	kinds := func(user string) string {
		t.Helper()
		found := map[string]int{}
		if _, err := erasure.Export(t.Context(), erasure.ExportConfig{Pool: d.Pool, Log: d.Log, UserID: user}, func(h erasure.Holding) error {
			found[h.Kind]++
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(found)
	}
	d.Exec(t, `INSERT INTO badged.devices (generation, changes, registered_at, attempts, partition_id, user_id, device_id, app, platform, environment, shows, token, fingerprint)
SELECT 1, 1, now(), 0, 0, u, 'phone', 'chat', 'fcm', '', 'total', '', '' FROM unnest($1::text[]) AS u`, users[:])
	for _, user := range users {
		heal(user)
		explain(user, d.Badge(t, user).Version)
	}
	before := kinds(ben)
	steps := map[copier.Step]bool{}
	if _, err := splitting.Split(t.Context(), splitting.Config{Pool: d.Pool, Log: d.Log, Partition: 0, Options: copier.Options{Progress: func(step copier.Step, _ int64) {
		if steps[step] {
			return
		}
		steps[step] = true
		if step == copier.CatchingUp {
			heal(ben)
		}
		if step == copier.CleaningUp {
			if err := d.Log.Refresh(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if got := kinds(ben); got != before {
			t.Errorf("during %q the export has %s, before it %s", step, got, before)
		}
	}}}); err != nil {
		t.Fatal(err)
	}
	if got, want := d.Lines(t, `SELECT partition_id || ' ' || user_id FROM badged.healed_users ORDER BY 1`), []string{"4 " + ann, "8 " + ben}; !slices.Equal(got, want) {
		t.Errorf("%q are healed, want %q", got, want)
	}
	verify(t, d)
	for _, user := range users {
		version := d.Badge(t, user).Version
		explain(user, version)
		if got := kinds(user); got != before {
			t.Errorf("the export of %s has %s, before the split %s", user, got, before)
		}
		heal(user)
		if got := d.Badge(t, user).Version; got <= version {
			t.Errorf("healed, %s has version %d after %d", user, got, version)
		}
	}
	verify(t, d)
	d.Start(t, func(cfg *projector.Config) {
		cfg.PollInterval, cfg.OwnershipInterval = 10*time.Millisecond, 100*time.Millisecond
	})
	if _, err := erasure.Erase(t.Context(), erasure.Config{Pool: d.Pool, Log: d.Log, Settle: -1, UserID: ben}); err != nil {
		t.Fatal(err)
	}
	if done, err := erasure.Write(t.Context(), io.Discard, nil, erasure.ExportConfig{Pool: d.Pool, Log: d.Log, UserID: ben}); err != nil || done.Holdings > 0 {
		t.Errorf("an erased user has %d holdings: %v", done.Holdings, err)
	}
	d.Append(t, foldtest.Named("more", foldtest.Deliver("c", 9, ann)))
	d.AwaitFolded(t)
	verify(t, d)
}
