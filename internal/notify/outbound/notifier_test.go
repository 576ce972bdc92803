package outbound_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/notify/outbound"
	"github.com/badged/badged/internal/partition/splitting"
	"github.com/badged/badged/projector"
)

// bench is a database with a notifier.
type bench struct {
	*projectortest.Database
	targets  *outbound.Targets
	notifier *outbound.Notifier
	// hears is the notifier if it is in the process that folds.
	hears atomic.Pointer[outbound.Notifier]
	// said is up to where the projector has said what it folded, by partition.
	said [foldtest.Partitions]atomic.Pointer[events.Position]
	// stop stops the notifier.
	stop func()
}

// newBench returns a database with a notifier that runs.
func newBench(t *testing.T) *bench {
	t.Helper()
	d := projectortest.New(t)
	b := &bench{Database: d, targets: outbound.NewTargets(d.Pool, d.Log)}
	d.Folded = func(folded projector.FoldedBatch) {
		if n := b.hears.Load(); n != nil {
			n.Folded(outbound.Batch(folded))
		}
		b.said[folded.Partition].Store(&folded.To)
	}
	b.start(t, nil)
	return b
}

// start runs a notifier that looks often, after it has stopped the one before; change may be nil.
func (b *bench) start(t *testing.T, change func(*outbound.NotifierConfig)) {
	t.Helper()
	if b.stop != nil {
		b.stop()
	}
	cfg := outbound.NotifierConfig{
		Pool: b.Pool, Layouts: b.Log,
		PollInterval: 2 * time.Millisecond, CallInterval: 2 * time.Millisecond, IdleInterval: 5 * time.Millisecond,
		OwnershipInterval: 100 * time.Millisecond,
	}
	// A new owner tells devices again. On a busy machine, one that works is silent too.
	cfg.SetSilence(time.Minute)
	if change != nil {
		change(&cfg)
	}
	n, err := outbound.NewNotifier(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b.notifier, b.stop = n, projectortest.Run(t, n.Run)
}

// hold stores that the gateway has connections of devices for a while; 0 ends that.
func (b *bench) hold(t *testing.T, gateway string, names []outbound.DeviceName, lease time.Duration) {
	t.Helper()
	if err := b.targets.HoldDevices(t.Context(), gateway, names, lease); err != nil {
		t.Fatal(err)
	}
}

// awaitChange waits until the only device has changed since a push was taken.
func (b *bench) awaitChange(t *testing.T, p outbound.DevicePush) {
	t.Helper()
	projectortest.Until(t, "a change of the device", func() bool {
		return b.Lines(t, `SELECT (changes > $1)::text FROM badged.devices`, p.Changes)[0] == "true"
	})
}

// next takes the next device of the app chat that must be told.
func (b *bench) next(t *testing.T) outbound.DevicePush {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	due, err := b.notifier.NextDevices(ctx, "chat", "fcm", 1)
	if err != nil {
		t.Fatalf("waited in vain for a device that is due: %v", err)
	}
	return due[0]
}

// awaitQuiet waits until the notifier has read everything and nothing is due. Senders
// wait for devices meanwhile, and must get none.
func (b *bench) awaitQuiet(t *testing.T) {
	t.Helper()
	if all := b.drain(t, func(outbound.DevicePush) {}); len(all) > 0 {
		t.Errorf("%d devices were due although all were told", len(all))
	}
}

// unordered compares lists as sets.
var unordered = cmpopts.SortSlices(func(a, b string) bool { return a < b })

// drain takes devices of the app chat and reports them, until the notifier has read
// everything and nothing is due. It returns those that it took.
func (b *bench) drain(t *testing.T, report func(p outbound.DevicePush)) (all []outbound.DevicePush) {
	t.Helper()
	for {
		all = append(all, b.take(t, report)...)
		// A call that ends while it takes devices gives them back.
		if len(b.due(t)) == 0 {
			return all
		}
	}
}

// take takes devices and reports them until nothing is due for a moment.
func (b *bench) take(t *testing.T, report func(p outbound.DevicePush)) []outbound.DevicePush {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	taken := make(chan []outbound.DevicePush, 1)
	go func() {
		var all []outbound.DevicePush
		for {
			due, err := b.notifier.NextDevices(ctx, "chat", "fcm", 100)
			if err != nil {
				taken <- all
				return
			}
			for _, p := range due {
				report(p)
			}
			all = append(all, due...)
		}
	}()
	b.awaitRest(t)
	cancel()
	return <-taken
}

// awaitRest waits until the notifier has read everything and nothing is due.
func (b *bench) awaitRest(t testing.TB) {
	t.Helper()
	b.AwaitFolded(t)
	projectortest.Until(t, "nothing due", func() bool {
		for p := range foldtest.Partitions {
			folded, read := b.Position(t, p), b.position(t, p)
			if read.Before(folded) || len(b.Lines(t, `SELECT 'revised' FROM badged.`+events.Topic(p)+`_offsets AS f JOIN badged.notifier_partitions AS n ON n.partition_id = $1
WHERE f.consumer_group = $2 AND n.revision <> f.revision`, p, events.ProjectorGroup)) > 0 {
				return false
			}
		}
		return len(b.due(t)) == 0
	})
}

// due returns what is due, and what the notifier has begun.
func (b *bench) due(t testing.TB) []string {
	t.Helper()
	return b.Lines(t, `SELECT user_id FROM badged.devices WHERE due <= clock_timestamp()
UNION ALL SELECT conversation_id FROM badged.room_rounds WHERE changed AND due <= clock_timestamp() OR began_at IS NOT NULL
UNION ALL SELECT 'revision' FROM badged.notifier_partitions WHERE after_user IS NOT NULL`)
}

func (b *bench) position(t testing.TB, partition int) events.Position {
	t.Helper()
	p, err := events.PositionOf(t.Context(), b.Pool, partition, events.NotifierGroup)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func expectNumber(t *testing.T, p outbound.DevicePush, user string, number int64) {
	t.Helper()
	if p.UserID != user || p.Number != number {
		t.Fatalf("%s is told %d, want %s told %d", p.UserID, p.Number, user, number)
	}
}

func TestDeviceIsToldWhatChanged(t *testing.T) {
	b := newBench(t)
	ada, ben := foldtest.User(0, 0), foldtest.User(1, 0)
	b.Happen(t, foldtest.Deliver("chat", 1, ada, ben))
	put(t, b.targets, phone(ada, "phone"))
	first := b.next(t)
	expectNumber(t, first, ada, 1)
	if string(first.Token) != "token of phone" || first.Badge.Total != 1 || first.Badge.Epoch == "" || first.Told != nil {
		t.Errorf("the first push: %+v", first)
	}
	b.notifier.DeviceTold(first, 0)
	b.awaitQuiet(t)

	b.Happen(t, foldtest.Deliver("chat", 2, ada, ben))
	second := b.next(t)
	expectNumber(t, second, ada, 2)
	// It changes while the push is under way.
	b.Happen(t, foldtest.Deliver("chat", 3, ada, ben))
	b.awaitChange(t, second)
	b.notifier.DeviceTold(second, 0)
	third := b.next(t)
	expectNumber(t, third, ada, 3)

	b.notifier.DeviceRetry(third, 0, 0, "the vendor is down")
	again := b.next(t)
	expectNumber(t, again, ada, 3)
	if again.Attempts != 1 || again.Told != nil {
		t.Errorf("after a failure: %d attempts, told %v", again.Attempts, again.Told)
	}
	if d := device(t, b.targets, ada, "phone"); *d.LastError != "the vendor is down" || d.Attempts != 1 {
		t.Errorf("after a failure: %+v", d)
	}
	b.notifier.DeviceTold(again, time.Hour)
	b.awaitQuiet(t)
	b.Happen(t, foldtest.Event("read", events.ConversationRead, "chat", foldtest.UpTo(3), ada))
	b.awaitChange(t, again)
	if d := device(t, b.targets, ada, "phone"); d.Due == nil || time.Until(*d.Due) < 50*time.Minute {
		t.Errorf("within its quiet time it is due at %v", d.Due)
	}
}

// A process that has not heard yet that a partition was split, and finds nothing of it in the
// tables, has nothing to do there. A position that is missing otherwise is an error.
func TestASplitIsNoError(t *testing.T) {
	b := newBench(t)
	b.stop()
	b.Fold(t)
	if _, err := splitting.Split(t.Context(), splitting.Config{Pool: b.Pool, Log: b.Log, Partition: 0}); err != nil {
		t.Fatal(err)
	}
	if err := b.notifier.Drain(t.Context(), 0); err != nil {
		t.Errorf("after the split: %v", err)
	}
	b.Exec(t, `DELETE FROM badged.notifier_partitions WHERE partition_id = 1`)
	if err := b.notifier.Drain(t.Context(), 1); !errors.Is(err, pgx.ErrNoRows) {
		t.Errorf("without its row: %v", err)
	}
}

func TestWhatIsDueIsMeasured(t *testing.T) {
	b := newBench(t)
	registry := prometheus.NewRegistry()
	b.start(t, func(cfg *outbound.NotifierConfig) { cfg.Metrics = outbound.NewMetrics(registry) })
	b.putCRM(t)
	b.Happen(t, foldtest.Deliver("chat", 1, foldtest.User(0, 0)))
	put(t, b.targets, phone(foldtest.User(0, 0), "phone"))
	b.next(t)
	if err := b.notifier.Measure(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	want := `# HELP badged_notifier_due Rows that are due now, by target and partition that this process owns; counted up to 100000 in a partition.
# TYPE badged_notifier_due gauge
badged_notifier_due{partition="0",target="device"} 1
badged_notifier_due{partition="0",target="webhook"} 0
# HELP badged_notifier_webhook_behind_events Folded events that were not processed for a webhook yet, by webhook and partition that this process owns.
# TYPE badged_notifier_webhook_behind_events gauge
badged_notifier_webhook_behind_events{partition="0",webhook="crm"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "badged_notifier_due", "badged_notifier_webhook_behind_events"); err != nil {
		t.Error(err)
	}
}

// Measuring a notifier that is not behind reads no row of the log, however long that is.
func TestMeasuringReadsNoLog(t *testing.T) {
	b := newBench(t)
	ada := foldtest.User(0, 0)
	put(t, b.targets, phone(ada, "phone"))
	b.expectSaid(t, "phone: 0")
	b.Happen(t, foldtest.Deliver("chat", 1, ada))
	b.expectSaid(t, "phone: 1")
	b.stop()
	b.Exec(t, `INSERT INTO badged.events_p00 (transaction_id, "offset", uuid, own, events, payload, metadata)
SELECT '3', i, gen_random_uuid(), own, events, payload, metadata FROM badged.events_p00, generate_series(1, 20000) AS i`)
	b.Exec(t, `ANALYZE badged.events_p00`)
	plan := strings.Join(b.Lines(t, `EXPLAIN (ANALYZE, COSTS off, TIMING off) `+outbound.MeasureStatement(0), events.ProjectorGroup, events.NotifierGroup), "\n")
	if !regexp.MustCompile(`on events_p00\S* .*rows=0 loops=1`).MatchString(plan) {
		t.Errorf("the plan is\n%s", plan)
	}
}

// A device that shows what it should is no work for senders.
func TestSameNumberIsNotTold(t *testing.T) {
	b := newBench(t)
	ada := foldtest.User(0, 0)
	put(t, b.targets, phone(ada, "phone"))
	mentions := phone(ada, "watch")
	mentions.Shows = outbound.ShowsMentions
	put(t, b.targets, mentions)
	for range 2 {
		p := b.next(t)
		expectNumber(t, p, ada, 0)
		b.notifier.DeviceTold(p, 0)
	}
	b.awaitQuiet(t) // until that is stored, what they were told is not known
	b.Happen(t, foldtest.Deliver("chat", 1, ada))
	p := b.next(t)
	expectNumber(t, p, ada, 1)
	if p.DeviceID != "phone" {
		t.Errorf("%s is told", p.DeviceID)
	}
	b.notifier.DeviceTold(p, 0)
	b.awaitQuiet(t)
	if d := device(t, b.targets, ada, "watch"); *d.Told != 0 || d.Due != nil {
		t.Errorf("the watch: told %d, due %v", *d.Told, d.Due)
	}
}

// A push may come although it failed, or although its sender was killed: then the
// device shows what the queue does not know, and must be told also what it was told
// before.
func TestPushesThatMayHaveComeAreFollowed(t *testing.T) {
	for _, tt := range []struct {
		name string
		ends func(t *testing.T, b *bench, p outbound.DevicePush)
	}{
		{"it failed", func(_ *testing.T, b *bench, p outbound.DevicePush) {
			b.notifier.DeviceRetry(p, 0, 0, "the connection broke")
		}},
		{"its sender was killed", func(t *testing.T, b *bench, _ outbound.DevicePush) {
			b.start(t, nil)
		}},
		{"it failed, and the app was started", func(t *testing.T, b *bench, p outbound.DevicePush) {
			b.notifier.DeviceRetry(p, 0, time.Hour, "the connection broke")
			projectortest.Until(t, "the failure to be stored", func() bool {
				return b.Lines(t, `SELECT attempts::text FROM badged.devices`)[0] == "1"
			})
			put(t, b.targets, phone(p.UserID, "phone"))
		}},
		{"the app was started meanwhile", func(t *testing.T, b *bench, p outbound.DevicePush) {
			put(t, b.targets, phone(p.UserID, "phone"))
			b.notifier.DeviceTold(p, 0) // of the former registration
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			ada := foldtest.User(0, 0)
			put(t, b.targets, phone(ada, "phone"))
			first := b.next(t)
			b.notifier.DeviceTold(first, 0)
			b.awaitQuiet(t)
			b.Happen(t, foldtest.Deliver("chat", 1, ada))
			sent := b.next(t)
			expectNumber(t, sent, ada, 1)
			b.Happen(t, foldtest.Event("read", events.ConversationRead, "chat", foldtest.UpTo(1), ada))
			b.awaitChange(t, sent)
			tt.ends(t, b, sent)
			again := b.next(t)
			expectNumber(t, again, ada, 0)
			b.notifier.DeviceTold(again, 0)
			b.notifier.DeviceTold(sent, 0) // late: it must not hide the newer
			b.awaitQuiet(t)
			if d := device(t, b.targets, ada, "phone"); *d.Told != 0 {
				t.Errorf("the device was told 0, and the table has %d", *d.Told)
			}
		})
	}
}

// A device that its vendor does not know is deleted, unless it came back.
func TestGoneDevice(t *testing.T) {
	b := newBench(t)
	ada := foldtest.User(0, 0)
	put(t, b.targets, phone(ada, "phone"))
	p := b.next(t)
	other := phone(ada, "phone")
	other.Fingerprint = []byte("other")
	put(t, b.targets, other)
	b.notifier.DeviceGone(p)
	p = b.next(t)
	if string(device(t, b.targets, ada, "phone").Fingerprint) != "other" {
		t.Error("the former registration is back")
	}
	b.notifier.DeviceGone(p)
	projectortest.Until(t, "the device to be gone", func() bool { return len(b.Lines(t, `SELECT device_id FROM badged.devices`)) == 0 })
}

// A device with connections to several gateways is released by the last of them.
func TestDeviceOfSeveralGateways(t *testing.T) {
	b := newBench(t)
	ada := foldtest.User(0, 0)
	put(t, b.targets, phone(ada, "phone"))
	b.expectSaid(t, "phone: 0")
	name := []outbound.DeviceName{{UserID: ada, DeviceID: "phone"}}
	b.hold(t, "killed", name, time.Millisecond)
	projectortest.Until(t, "the end of a lease", func() bool { return time.Now().After(*device(t, b.targets, ada, "phone").HeldUntil) })
	b.hold(t, "east", name, time.Hour)
	b.hold(t, "west", name, time.Hour) // the phone has moved
	b.hold(t, "west", name, time.Hour)
	b.hold(t, "east", name, 0)
	b.Happen(t, saying("Lunch?", foldtest.Deliver("chat", 1, ada)))
	b.awaitRest(t)
	if d := device(t, b.targets, ada, "phone"); d.Due == nil || time.Until(*d.Due) < 50*time.Minute {
		t.Errorf("the phone, which another gateway holds, is due at %v", d.Due)
	}
	b.hold(t, "west", name, 0)
	b.expectSaid(t, `phone: 1 "Lunch?"`)
}

// Nothing is pushed while the app of a device is open; what waits comes afterwards.
func TestConnectedDeviceIsHeld(t *testing.T) {
	b := newBench(t)
	ada := foldtest.User(0, 0)
	put(t, b.targets, phone(ada, "phone"))
	put(t, b.targets, phone(ada, "tablet"))
	b.expectSaid(t, "phone: 0", "tablet: 0")
	names := []outbound.DeviceName{{UserID: ada, DeviceID: "phone"}, {UserID: ada, DeviceID: "unknown"}, {UserID: foldtest.User(1, 0), DeviceID: "phone"}}
	b.hold(t, "gateway", names, time.Hour)
	b.Happen(t, saying("Lunch?", foldtest.Deliver("chat", 1, ada)))
	b.expectSaid(t, `tablet: 1 "Lunch?"`)
	if d := device(t, b.targets, ada, "phone"); d.Due == nil || time.Until(*d.Due) < 50*time.Minute {
		t.Errorf("the phone is due at %v", d.Due)
	}
	b.hold(t, "gateway", names, 0)
	b.expectSaid(t, `phone: 1 "Lunch?"`)

	// One that connects while it is due is held too.
	b.Happen(t, foldtest.Deliver("chat", 2, ada))
	projectortest.Until(t, "a due phone", func() bool { return device(t, b.targets, ada, "phone").Due != nil })
	b.hold(t, "gateway", names, time.Hour)
	b.expectSaid(t, "tablet: 2")
}

// An app that is open shows numbers that no push has told. Afterwards the device must
// be told also the number that it was told before.
func TestNumberAfterTheAppWasOpenIsNotKnown(t *testing.T) {
	b := newBench(t)
	ada := foldtest.User(0, 0)
	put(t, b.targets, phone(ada, "phone"))
	b.Happen(t, foldtest.Deliver("chat", 1, ada))
	sent := b.next(t)
	for sent.Number != 1 {
		b.notifier.DeviceTold(sent, 0)
		sent = b.next(t)
	}
	names := []outbound.DeviceName{{UserID: ada, DeviceID: "phone"}}
	b.hold(t, "gateway", names, time.Hour)
	b.notifier.DeviceTold(sent, 0) // what comes after it, through the socket, is newer
	projectortest.Until(t, "the report", func() bool { return device(t, b.targets, ada, "phone").ToldAt != nil })
	b.Happen(t, foldtest.Event("read", events.ConversationRead, "chat", foldtest.UpTo(1), ada), foldtest.Deliver("chat", 2, ada))
	projectortest.Until(t, "a due phone", func() bool { return device(t, b.targets, ada, "phone").Due != nil })
	b.hold(t, "gateway", names, 0)
	expectNumber(t, b.next(t), ada, 1)
}

// An app that closes ends neither the interval of silent pushes nor the wait after a
// failure.
func TestClosingTheAppEndsNoOtherWait(t *testing.T) {
	b := newBench(t)
	ada := foldtest.User(0, 0)
	names := []outbound.DeviceName{{UserID: ada, DeviceID: "phone"}}
	openAndClose := func() {
		for _, lease := range []time.Duration{time.Minute, 0} {
			b.hold(t, "gateway", names, lease)
		}
	}
	expectWait := func(after string) {
		projectortest.Until(t, "a due phone", func() bool { return device(t, b.targets, ada, "phone").Due != nil })
		openAndClose()
		if d := device(t, b.targets, ada, "phone"); time.Until(*d.Due) < 50*time.Minute {
			t.Errorf("after %s the phone is due at %v", after, d.Due)
		}
	}
	put(t, b.targets, phone(ada, "phone"))
	b.notifier.DeviceTold(b.next(t), time.Hour)
	projectortest.Until(t, "the report", func() bool { return device(t, b.targets, ada, "phone").Due == nil })
	b.Happen(t, foldtest.Deliver("chat", 1, ada))
	expectWait("a silent push")
	b.Happen(t, saying("Lunch?", foldtest.Deliver("chat", 2, ada)))
	openAndClose()
	p := b.next(t)
	expectNumber(t, p, ada, 2)
	b.notifier.DeviceRetry(p, 0, time.Hour, "DeviceTokenNotForTopic")
	projectortest.Until(t, "the report", func() bool { return device(t, b.targets, ada, "phone").Attempts == 1 })
	expectWait("a failure")

	// The app registers again: the cause of the failure may be gone.
	put(t, b.targets, phone(ada, "phone"))
	expectNumber(t, b.next(t), ada, 2)
}

// ending is a context that ends while a statement runs, too late to stop it.
type ending struct{ context.Context } //nolint:containedctx // it is a context

func (ending) Err() error { return context.Canceled }

// A call that ends while it takes devices returns them, or leaves them to others.
func TestEndingCallLosesNoDevice(t *testing.T) {
	b := newBench(t)
	ada := foldtest.User(0, 0)
	put(t, b.targets, phone(ada, "phone"))
	due, err := b.notifier.NextDevices(ending{t.Context()}, "chat", "fcm", 1)
	if err != nil {
		due = append(due, b.next(t))
	}
	expectNumber(t, due[0], ada, 0)
	b.notifier.DeviceTold(due[0], 0)
	b.awaitQuiet(t)
}
