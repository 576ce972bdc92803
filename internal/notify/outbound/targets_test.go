package outbound_test

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/notify/outbound"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

// phone is the registration of a phone, whose token is that of its name.
func phone(user, device string) outbound.Registration {
	return outbound.Registration{
		UserID: user, DeviceID: device, App: "chat", Platform: "fcm", Shows: outbound.ShowsTotal,
		Token: []byte("token of " + device), Fingerprint: []byte(device),
	}
}

func put(t *testing.T, targets *outbound.Targets, r outbound.Registration) (created bool) {
	t.Helper()
	created, err := targets.PutDevice(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func device(t *testing.T, targets *outbound.Targets, user, id string) outbound.Device {
	t.Helper()
	d, err := targets.Device(t.Context(), user, id)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDevices(t *testing.T) {
	d := projectortest.New(t)
	targets := outbound.NewTargets(d.Pool, d.Log)
	if !put(t, targets, phone("ada", "phone")) {
		t.Error("a new device is not new")
	}
	first := device(t, targets, "ada", "phone")
	if diff := cmp.Diff(phone("ada", "phone"), first.Registration); diff != "" || first.Due == nil {
		t.Errorf("registered, due %v: %s", first.Due, diff)
	}

	// Apps register at each start: that makes nothing due.
	d.Exec(t, `UPDATE badged.devices SET due = NULL, told = 3, told_epoch = 'e', told_version = 7, told_at = now()`)
	if put(t, targets, phone("ada", "phone")) {
		t.Error("a device that registers again is new")
	}
	again := device(t, targets, "ada", "phone")
	if again.Due != nil || again.Told == nil || *again.Told != 3 || again.Generation <= first.Generation {
		t.Errorf("after the same registration: %+v", again)
	}
	// What failed is tried at once.
	d.Exec(t, `UPDATE badged.devices SET due = now() + interval '1h', held_until = now() + interval '1h', attempts = 2, last_error = 'x'`)
	put(t, targets, phone("ada", "phone"))
	if now := device(t, targets, "ada", "phone"); now.Due == nil || time.Until(*now.Due) > 0 || now.HeldUntil != nil || now.Attempts != 0 || now.LastError != nil {
		t.Errorf("after a registration behind failures: %+v", now)
	}
	other := phone("ada", "phone")
	other.Shows = outbound.ShowsMentions
	put(t, targets, other)
	if now := device(t, targets, "ada", "phone"); now.Due == nil || now.Told != nil || now.ToldVersion != nil {
		t.Errorf("after a registration with another number: %+v", now)
	}

	if err := targets.DeleteDevice(t.Context(), "ada", "phone"); err != nil {
		t.Fatal(err)
	}
	if err := targets.DeleteDevice(t.Context(), "ada", "phone"); !errors.Is(err, outbound.ErrNotFound) {
		t.Errorf("deleting it again: %v", err)
	}
	if _, err := targets.Device(t.Context(), "ada", "phone"); !errors.Is(err, outbound.ErrNotFound) {
		t.Errorf("reading it: %v", err)
	}
	put(t, targets, phone("ada", "phone"))
	if g := device(t, targets, "ada", "phone").Generation; g <= again.Generation {
		t.Errorf("a device that comes back has generation %d after %d: an old push could delete it", g, again.Generation)
	}
}

func TestTokenBelongsToOneUser(t *testing.T) {
	d := projectortest.New(t)
	targets := outbound.NewTargets(d.Pool, d.Log)
	for _, user := range []string{foldtest.User(0, 0), foldtest.User(1, 0), foldtest.User(0, 0)} {
		put(t, targets, phone(user, "phone"))
		if got := d.Lines(t, `SELECT user_id FROM badged.devices`); !cmp.Equal(got, []string{user}) {
			t.Errorf("after %s logged in, the phone belongs to %v", user, got)
		}
	}
}

func TestUserHasBoundedDevices(t *testing.T) {
	d := projectortest.New(t)
	targets := outbound.NewTargets(d.Pool, d.Log)
	for i := range outbound.MaxDevices {
		put(t, targets, phone("ada", fmt.Sprint("phone ", i)))
	}
	put(t, targets, phone("ben", "one more"))
	if _, err := targets.PutDevice(t.Context(), phone("ada", "one more")); !errors.Is(err, outbound.ErrTooManyDevices) {
		t.Errorf("one more device: %v", err)
	}
	device(t, targets, "ben", "one more") // which has the same token, and keeps it
	put(t, targets, phone("ada", "phone 7"))
	if all, err := targets.Devices(t.Context(), "ada"); err != nil || len(all) != outbound.MaxDevices {
		t.Errorf("%d devices, %v", len(all), err)
	}
}

// A registration for a token of a user that is revoked changes nothing, and deletes nothing.
func TestDevicesOfRevokedTokens(t *testing.T) {
	d := projectortest.New(t)
	targets := outbound.NewTargets(d.Pool, d.Log)
	now := time.Now()
	put(t, targets, phone("ada", "phone"))
	put(t, targets, phone("ben", "another"))
	pgtest.Exec(t, d.Pool, `INSERT INTO badged.revocations (user_id, seq, revoked_before, ended_at) VALUES ('ada', 1, $1, now())`, now)
	old := eventlog.WithRights(t.Context(), eventlog.Right{UserID: "ada", IssuedAt: now.Add(-time.Second), ExpiresAt: now.Add(time.Hour)})
	before := d.Lines(t, `SELECT d::text FROM badged.devices AS d ORDER BY 1`)
	if _, err := targets.PutDevice(old, phone("ada", "another")); !errors.Is(err, eventlog.ErrRevoked) {
		t.Errorf("registering: %v", err)
	}
	if err := targets.DeleteDevice(old, "ada", "phone"); !errors.Is(err, eventlog.ErrRevoked) {
		t.Errorf("deleting: %v", err)
	}
	if after := d.Lines(t, `SELECT d::text FROM badged.devices AS d ORDER BY 1`); !cmp.Equal(before, after) {
		t.Errorf("the devices changed: %s", cmp.Diff(before, after))
	}
	fresh := eventlog.WithRights(t.Context(), eventlog.Right{UserID: "ada", IssuedAt: now.Add(time.Second), ExpiresAt: now.Add(time.Hour)})
	if _, err := targets.PutDevice(fresh, phone("ada", "another")); err != nil {
		t.Errorf("a token that was issued later: %v", err)
	}
}

// putWebhook stores a webhook that is told of events of some types.
func putWebhook(t *testing.T, targets *outbound.Targets, name string, types ...string) outbound.Webhook {
	t.Helper()
	w := outbound.Webhook{
		Name: name, URL: "https://" + name + ".example", Secrets: [][]byte{[]byte("secret")}, Events: types, Batch: 1, State: outbound.Active,
	}
	if err := targets.PutWebhook(t.Context(), w, 0); err != nil {
		t.Fatal(err)
	}
	return w
}

func TestWebhooks(t *testing.T) {
	d := projectortest.New(t)
	targets := outbound.NewTargets(d.Pool, d.Log)
	crm := putWebhook(t, targets, "crm", outbound.DriftFound)
	old, err := targets.Webhook(t.Context(), "crm")
	if err != nil {
		t.Fatal(err)
	}
	if err := targets.PutWebhook(t.Context(), crm, old.Generation); err != nil {
		t.Fatal(err)
	}
	for _, stale := range []int64{0, old.Generation} {
		if err := targets.PutWebhook(t.Context(), crm, stale); !errors.Is(err, outbound.ErrChanged) {
			t.Errorf("replacing what is not there any more: %v", err)
		}
	}
	got, err := targets.Webhook(t.Context(), "crm")
	crm.Generation, crm.CreatedAt, crm.UpdatedAt = got.Generation, got.CreatedAt, got.UpdatedAt
	if diff := cmp.Diff(crm, got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	p := events.PartitionOf("ada", foldtest.Partitions)
	for range 2 {
		if err := targets.Enqueue(t.Context(), p, outbound.DriftFound, "ada", "ada"); err != nil {
			t.Fatal(err)
		}
		if err := targets.Enqueue(t.Context(), p, outbound.DeadletterBuried, "0/1/2"); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"crm drift.found ada, 2 changes"}
	if got := d.Lines(t, `SELECT format('%s %s %s, %s changes', webhook, type, subject, changes) FROM badged.webhook_queue`); !cmp.Equal(want, got) {
		t.Errorf("the queue has %q, want %q", got, want)
	}
	if due, err := targets.DueEvents(t.Context(), "crm", "other"); err != nil || !maps.Equal(due, map[string]int64{"crm": 1, "other": 0}) {
		t.Errorf("due are %v, %v", due, err)
	}
	d.Exec(t, `UPDATE badged.webhook_queue SET due = clock_timestamp() + interval '1 hour'`)
	if due, err := targets.DueEvents(t.Context(), "crm"); err != nil || due["crm"] != 0 {
		t.Errorf("in an hour due are %v, %v", due, err)
	}
	if err := targets.DeleteWebhook(t.Context(), "crm"); err != nil {
		t.Fatal(err)
	}
	if err := targets.DeleteWebhook(t.Context(), "crm"); !errors.Is(err, outbound.ErrNotFound) {
		t.Errorf("deleting it again: %v", err)
	}
	if got := d.Lines(t, `SELECT webhook FROM badged.webhook_queue`); len(got) != 0 {
		t.Errorf("the queue still has %q", got)
	}
}

func TestRecordsOfCalls(t *testing.T) {
	d := projectortest.New(t)
	targets := outbound.NewTargets(d.Pool, d.Log)
	crm := putWebhook(t, targets, "crm", outbound.DriftFound)
	read := func() outbound.Webhook {
		t.Helper()
		w, err := targets.Webhook(t.Context(), "crm")
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	record := func(url string, generation int64, state outbound.State, l outbound.Ladder) outbound.Webhook {
		t.Helper()
		if err := targets.RecordCall(t.Context(), outbound.Webhook{Name: "crm", URL: url, Generation: generation, State: state, Ladder: l}); err != nil {
			t.Fatal(err)
		}
		return read()
	}
	generation, made := read().Generation, read().CreatedAt
	later := func(minutes int) time.Time { return made.Add(time.Duration(minutes) * time.Minute) }
	failed := outbound.Ladder{Step: 3, Due: later(9), FailingSince: later(1), LastFailureAt: later(2), LastStatus: 500, LastError: "no"}
	record(crm.URL, generation, outbound.Paused, failed)
	// Another process, which has not heard yet that the webhook is paused.
	if got := record(crm.URL, generation, outbound.Active, failed); got.State != outbound.Paused || !cmp.Equal(got.Ladder, failed) {
		t.Errorf("after a call failed: %+v", got)
	}

	if err := targets.PutWebhook(t.Context(), crm, generation); err != nil {
		t.Fatal(err)
	}
	again := read()
	for _, earlier := range []struct {
		what, url string
		ladder    outbound.Ladder
	}{
		{"a failure", crm.URL, outbound.Ladder{Step: 1, LastSuccessAt: later(3), LastFailureAt: later(4), LastError: "no"}},
		{"a success at another URL", "https://crm.example/other", outbound.Ladder{LastSuccessAt: later(3)}},
		{"a success before the failure", crm.URL, outbound.Ladder{LastSuccessAt: later(1)}},
	} {
		if got := record(earlier.url, generation, outbound.Disabled, earlier.ladder); !cmp.Equal(got, again) {
			t.Errorf("after %s with earlier settings: %+v", earlier.what, got)
		}
	}
	want := again
	want.LastSuccessAt, want.LastStatus, want.LastError = later(3), 204, ""
	if got := record(crm.URL, generation, outbound.Disabled, outbound.Ladder{LastSuccessAt: later(3), LastStatus: 204}); !cmp.Equal(got, want) {
		t.Errorf("after a call with earlier settings succeeded: %+v", got)
	}
}

// A letter is queued in the transaction that buries it, for webhooks that want it.
func TestBuriedLettersAreQueued(t *testing.T) {
	d := projectortest.New(t)
	targets := outbound.NewTargets(d.Pool, d.Log)
	for name, eventType := range map[string]string{"ops": outbound.DeadletterBuried, "crm": outbound.DriftFound} {
		putWebhook(t, targets, name, eventType)
	}
	d.Exec(t, `INSERT INTO badged.dead_letters (partition_id, transaction_id, "offset", uuid, reason)
SELECT 1, '7', n, gen_random_uuid(), 'broken' FROM generate_series(1, 2) AS n`)
	want := []string{"ops deadletter.buried 1 in 1", "ops deadletter.buried 2 in 1"}
	if got := d.Lines(t, `SELECT format('%s %s %s in %s', webhook, type, subject, partition_id) FROM badged.webhook_queue ORDER BY subject`); !cmp.Equal(want, got) {
		t.Errorf("the queue has %q, want %q", got, want)
	}
}

// A webhook that becomes active is tried at once, whatever its changes wait for.
func TestActiveWebhookIsTriedAtOnce(t *testing.T) {
	d := projectortest.New(t)
	targets := outbound.NewTargets(d.Pool, d.Log)
	w := outbound.Webhook{Name: "ops", URL: "https://hooks.example/", Secrets: [][]byte{}, Events: []string{outbound.DriftFound}, Batch: 1}
	for _, state := range []outbound.State{outbound.Paused, outbound.Active} {
		w.State = state
		old, err := targets.Webhook(t.Context(), w.Name)
		if err != nil && !errors.Is(err, outbound.ErrNotFound) {
			t.Fatal(err)
		}
		if err := targets.PutWebhook(t.Context(), w, old.Generation); err != nil {
			t.Fatal(err)
		}
		if state == outbound.Paused {
			if err := targets.Enqueue(t.Context(), 0, outbound.DriftFound, "ada"); err != nil {
				t.Fatal(err)
			}
			d.Exec(t, `UPDATE badged.webhook_queue SET due = now() + interval '1 day', attempts = 11`)
		}
	}
	if got := d.Lines(t, `SELECT format('%s %s', due <= clock_timestamp(), attempts) FROM badged.webhook_queue`); !cmp.Equal([]string{"t 0"}, got) {
		t.Errorf("due and attempts are %q", got)
	}
}
