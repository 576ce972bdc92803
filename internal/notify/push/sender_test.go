package push

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/badged/badged/internal/devtest/vendors"
	"github.com/badged/badged/internal/notify/outbound"
)

// run starts a sender. stop ends it and waits for it.
func run(t testing.TB, cfg Config) (stop func()) {
	t.Helper()
	s, err := NewSender(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the sender fails: %v", err)
		}
	})
}

// await waits until a condition of the queue holds.
func await(t testing.TB, q *memoryQueue, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if !q.wait(ctx, holds) {
		t.Fatalf("timed out before %s; reports: %v", what, q.waits)
	}
}

// every renames the apps of fakes to their platforms, so that one sender has
// them all.
func every(all []fake) Apps {
	apps := Apps{}
	for _, f := range all {
		f.app.Name = string(f.platform)
		apps[f.app.Name] = f.app
	}
	return apps
}

func (f *fake) due(version, number int64) Push {
	p := f.push(version, number)
	p.App = string(f.platform)
	return *p
}

func TestWhatIsDueIsSent(t *testing.T) {
	all, q := fakes(t), newQueue()
	registry := prometheus.NewRegistry()
	secrets := []string{all[0].phone, all[1].phone, "/push/browser"}
	stop := run(t, Config{Apps: every(all), Queue: q, Logger: newLog(t, secrets...), Metrics: NewMetrics(registry)})
	defer stop()
	for _, f := range all {
		q.set(string(f.platform), f.due(1, 3))
	}
	await(t, q, "the silent pushes are sent", q.idle)
	for _, f := range all {
		q.set(string(f.platform), f.due(3, 5), outbound.Alert{ConversationID: "lunch", Seq: 1, Title: "Ben", Body: "Pizza?"}, outbound.Alert{ConversationID: "lunch", Seq: 2, Title: "Ben", Body: "At noon"})
	}
	await(t, q, "the alerts are sent", q.idle)
	for _, f := range all {
		if n, ok := f.Phone(f.phone).Number(); !ok || n != 5 {
			t.Errorf("%s: the phone shows %d, want 5", f.platform, n)
		}
		if n := len(f.Phone(f.phone).Alerts()); n != 2 {
			t.Errorf("%s: the phone shows %d notifications, want 2", f.platform, n)
		}
		if n := len(f.Pushes()); n != 3 {
			t.Errorf("%s: %d pushes, want 3: alerts carry the number", f.platform, n)
		}
		sound(t, f.Vendor)
	}
	want := ""
	for _, platform := range []string{"apns", "fcm", "unifiedpush", "webpush"} {
		want += fmt.Sprintf("badged_push_pushes_total{kind=\"alert\",outcome=\"sent\",platform=%q} 2\n", platform) +
			fmt.Sprintf("badged_push_pushes_total{kind=\"silent\",outcome=\"sent\",platform=%q} 1\n", platform)
	}
	header := "# HELP badged_push_pushes_total Pushes by platform, kind (silent or alert) and outcome: sent; failed (the push is repeated later); rejected by the vendor; gone (the device was deleted); too_large (the number is pushed without the notification).\n# TYPE badged_push_pushes_total counter\n"
	if err := testutil.GatherAndCompare(registry, strings.NewReader(header+want), "badged_push_pushes_total"); err != nil {
		t.Error(err)
	}
	text, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range secrets {
		if strings.Contains(fmt.Sprint(text), secret) {
			t.Errorf("the metrics have the token %s", secret)
		}
	}
}

func TestReports(t *testing.T) {
	registered := time.Now()
	for _, tt := range []struct {
		name         string
		fault        vendors.Fault
		kind, reason string
		least, limit time.Duration
	}{
		{"a device that is gone", vendors.Fault{Status: 410, Reason: "Unregistered"}, "gone", "", 0, 0},
		{"one that was registered since", vendors.Fault{Status: 410, Reason: "Unregistered", Timestamp: registered.Add(-time.Hour)}, "retry", "Unregistered before it was registered", time.Hour, 2 * time.Hour},
		{"one that was not", vendors.Fault{Status: 410, Reason: "Unregistered", Timestamp: registered.Add(time.Hour)}, "gone", "", 0, 0},
		{"a failure", vendors.Fault{Status: 500, Reason: "InternalServerError"}, "retry", "InternalServerError", 5 * time.Second, 6 * time.Second},
		{"a vendor that names a time", vendors.Fault{Status: 503, Reason: "Shutdown", Header: http.Header{"Retry-After": {"60"}}}, "retry", "Shutdown", time.Minute, 72 * time.Second},
		{"a device that is refused", vendors.Fault{Status: 400, Reason: "DeviceTokenNotForTopic"}, "retry", "DeviceTokenNotForTopic", time.Hour, 2 * time.Hour},
		{"a connection that breaks", vendors.Fault{Reset: true}, "retry", "", 5 * time.Second, 6 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, q := vendors.NewAPNs(t), newQueue()
			q.patient = true
			f := fake{&a.Vendor, APNs, load(t, &a.Vendor, a.Entry()), []byte("0a1b2c3d"), "0a1b2c3d"}
			f.Script(func(string) *vendors.Fault { return &tt.fault })
			defer run(t, Config{Apps: every([]fake{f}), Queue: q, Logger: newLog(t, f.phone)})()
			q.set("phone", f.due(1, 1))
			await(t, q, "the report", func() bool { return len(q.waits) > 0 })
			got := q.waits[0]
			if got.kind != tt.kind || tt.reason != "" && got.reason != tt.reason || got.after < tt.least || got.after > tt.limit {
				t.Errorf("reports %+v, want %s %q after %s to %s", got, tt.kind, tt.reason, tt.least, tt.limit)
			}
			if strings.Contains(got.reason, f.phone) {
				t.Errorf("the reason %q has the token", got.reason)
			}
		})
	}
}

func TestAPauseHoldsTheRouteOnly(t *testing.T) {
	w, other, q := vendors.NewWebPush(t), vendors.NewWebPush(t), newQueue()
	q.patient = true
	entry := w.Entry()
	app := load(t, &w.Vendor, entry)
	app.vendor.(*webPush).client = &http.Client{Transport: both{w, other}}
	slow := func(string) *vendors.Fault {
		return &vendors.Fault{Status: 429, Header: http.Header{"Retry-After": {"120"}}}
	}
	w.Script(slow)
	defer run(t, Config{Apps: Apps{"chat": app}, Queue: q, Logger: newLog(t, "/push/")})()
	push := func(v *vendors.WebPush, user string) {
		token, err := json.Marshal(v.Subscribe(t, user))
		if err != nil {
			t.Fatal(err)
		}
		q.set(user, Push{UserID: user, App: "chat", Token: token, Epoch: "e", Version: 1, Number: 2})
	}
	push(w, "ada")
	await(t, q, "the first push is refused", func() bool { return len(q.waits) == 1 })
	push(w, "ben")
	await(t, q, "the second is held", func() bool { return len(q.waits) == 2 })
	if got := q.waits[1]; got.kind != "hold" || got.after < 100*time.Second || got.after > 150*time.Second {
		t.Errorf("reports %+v, want a hold of about two minutes", got)
	}
	push(other, "chloe") // whose service accepts: that its key is another's is refused below
	await(t, q, "the push to another service", func() bool { return len(q.waits) == 3 })
	if got := q.waits[2]; got.kind == "hold" {
		t.Error("a pause of one push service holds the pushes of another")
	}
}

// both trusts two services.
type both [2]*vendors.WebPush

func (b both) RoundTrip(r *http.Request) (*http.Response, error) {
	for _, w := range b {
		if strings.HasSuffix(w.URL, r.URL.Host) {
			return w.Server.Client().Transport.RoundTrip(r)
		}
	}
	return nil, fmt.Errorf("no service has %s", r.URL.Host)
}

func TestUnreachableRoutesRest(t *testing.T) { synctest.Test(t, testUnreachableRoutesRest) }

func testUnreachableRoutesRest(t *testing.T) {
	rs := newRoutes(WebPush)
	for i := range unreachable {
		f, wait := rs.enter("push.example", "ada")
		if wait != 0 {
			t.Fatalf("rests after %d failures", i)
		}
		rs.leave(f, Outcome{Verdict: Failed, Unreachable: true})
	}
	if _, wait := rs.enter("push.example", "ada"); wait < unreachableRest/2 {
		t.Errorf("rests for %s after %d failures in a row", wait, unreachable)
	}
	f, wait := rs.enter("other.example", "ada")
	if wait != 0 {
		t.Fatalf("another route rests for %s", wait)
	}
	time.Sleep(2 * slowAnswer) // in the bubble of synctest
	rs.leave(f, Outcome{Verdict: Sent})
	if len(rs.byName) != 1 {
		t.Errorf("%d routes are remembered, want 1: a slow one is as an unknown one", len(rs.byName))
	}
}

// traffic enters pushes of different users into the routes of a test.
type traffic struct {
	*routes
	users int
}

// enter enters n pushes of a route, and fails the test unless there is room for exactly
// room of them.
func (tr *traffic) enter(t *testing.T, name string, n, room int) (entered []*flight) {
	t.Helper()
	for range n {
		tr.users++
		f, wait := tr.routes.enter(name, fmt.Sprint("user ", tr.users))
		if f != nil {
			entered = append(entered, f)
		} else if wait != busyHold {
			t.Errorf("a push to %s waits %s, want %s", name, wait, busyHold)
		}
	}
	if len(entered) != room {
		t.Errorf("%d pushes of %d enter the route %s, want %d", len(entered), n, name, room)
	}
	return entered
}

func (tr *traffic) leave(all ...*flight) {
	for _, f := range all {
		tr.routes.leave(f, Outcome{Verdict: Sent})
	}
}

// However many routes are slow, they leave room for those that are fast.
func TestSlowRoutesShareRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rs := &traffic{routes: newRoutes(WebPush)}
		rs.leave(rs.enter(t, "fast.example", 1, 1)...)
		time.Sleep(time.Hour)
		var slow []*flight
		for i := range slowInFlight {
			slow = append(slow, rs.enter(t, fmt.Sprint(i, ".example"), 1, 1)...)
		}
		rs.enter(t, "unknown.example", 1, 0)
		time.Sleep(pushTimeout - time.Second)
		fast := rs.enter(t, "fast.example", slowInFlight, slowInFlight)
		rs.leave(fast...)
		rs.leave(slow[0]) // with a success
		slow = append(slow[1:], rs.enter(t, "0.example", 2, 1)...)
		time.Sleep(2 * slowAnswer)
		rs.leave(slow...)
		if rs.slow != 0 || rs.young.Len() != 0 || len(rs.routes.users) != 0 {
			t.Errorf("%d slow and %d other pushes of %d users are in flight at the end", rs.slow, rs.young.Len(), len(rs.routes.users))
		}
		if len(rs.byName) != 1 {
			t.Errorf("%d routes are remembered, want the fast one", len(rs.byName))
		}
	})
}

// A route that answered fast and then holds pushes is slow, also if it answers others.
func TestAFastRouteBecomesSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rs := &traffic{routes: newRoutes(WebPush)}
		rs.leave(rs.enter(t, "example", 1, 1)...)
		held := rs.enter(t, "example", slowInFlight, slowInFlight)
		time.Sleep(2 * slowAnswer)
		rs.enter(t, "example", 1, 0)
		rs.enter(t, "unknown.example", 1, 0)
		rs.leave(held[:slowInFlight/2]...)
		answered := rs.enter(t, "example", 1, 1)
		rs.leave(answered...)
		rs.enter(t, "example", slowInFlight, slowInFlight/2)
	})
}

// One user has a bounded part of what is in flight, on whichever routes.
func TestAUserHasPartOfWhatIsInFlight(t *testing.T) {
	rs := newRoutes(APNs)
	var last *flight
	for i := range userInFlight {
		f, wait := rs.enter([]string{"production", "sandbox"}[i%2], "ada")
		if wait != 0 {
			t.Fatalf("push %d waits %s", i, wait)
		}
		last = f
	}
	if _, wait := rs.enter("production", "ada"); wait != busyHold {
		t.Errorf("a user with %d in flight waits %s, want %s", userInFlight, wait, busyHold)
	}
	if _, wait := rs.enter("production", "ben"); wait != 0 {
		t.Errorf("another user waits %s", wait)
	}
	rs.leave(last, Outcome{Verdict: Sent})
	if _, wait := rs.enter("production", "ada"); wait != 0 {
		t.Errorf("a user with room waits %s", wait)
	}
}

func TestPushesInFlightEndWhenTheSenderStops(t *testing.T) {
	f, q := fakes(t)[0], newQueue()
	held, came := make(chan struct{}), make(chan struct{})
	f.Script(func(string) *vendors.Fault {
		close(came)
		return &vendors.Fault{Hold: held}
	})
	stop := run(t, Config{Apps: every([]fake{f}), Queue: q, Logger: newLog(t, f.phone)})
	q.set("phone", f.due(1, 1))
	<-came
	stopped := make(chan struct{})
	go func() { defer close(stopped); stop() }()
	close(held)
	<-stopped
	if q.told != 1 {
		t.Errorf("%d pushes are reported as sent, want 1: %v", q.told, q.waits)
	}
}

func TestPanicsAreRetries(t *testing.T) {
	q := newQueue()
	app := &App{Name: "chat", Platform: FCM, silent: true, vendor: panicking{}}
	defer run(t, Config{Apps: Apps{"chat": app}, Queue: q, Logger: newLog(t, "a-token-of-a-phone")})()
	q.set("phone", Push{App: "chat", Token: []byte("a-token-of-a-phone")})
	await(t, q, "the reports", func() bool { return len(q.waits) > userInFlight })
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, got := range q.waits {
		if got.kind != "retry" || got.reason != "internal error" {
			t.Errorf("reports %+v", got)
		}
	}
}

// attempts is a vendor of a test: it notes the alerts that it was sent, and answers them by
// a function.
type attempts struct {
	answer func(ctx context.Context, p *Push) Outcome

	mu   sync.Mutex
	sent []string // user and seq of those that were accepted
}

func (a *attempts) route(*Push) string { return "" }

func (a *attempts) send(ctx context.Context, p *Push) Outcome {
	outcome := a.answer(ctx, p)
	if outcome.Verdict == Sent {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.sent = append(a.sent, fmt.Sprint(p.UserID, " ", p.Alert.Seq))
	}
	return outcome
}

// alertsOf returns that many alerts of a user, and what attempts notes of them in order.
func alertsOf(user string, n int64) (alerts []outbound.Alert, sent []string) {
	for seq := range n {
		alerts = append(alerts, outbound.Alert{ConversationID: "lunch", Seq: seq + 1, Body: "Pizza?"})
		sent = append(sent, fmt.Sprint(user, " ", seq+1))
	}
	return alerts, sent
}

// A device with many alerts gets each once and in order, also from a vendor that is
// slow or fails now and then.
func TestEachAlertIsSentOnce(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer func(ctx context.Context, p *Push, try int) Outcome
	}{
		{"a slow vendor", func(ctx context.Context, _ *Push, _ int) Outcome {
			select {
			case <-time.After(pushTimeout / 2):
				return Outcome{Verdict: Sent}
			case <-ctx.Done():
				return failed(ctx.Err())
			}
		}},
		{"a vendor that fails", func(_ context.Context, p *Push, try int) Outcome {
			if p.Alert.Seq%4 == 0 && try == 1 {
				return Outcome{Verdict: Failed, Reason: "InternalServerError"}
			}
			return Outcome{Verdict: Sent}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, tries := newQueue(), map[int64]int{}
				q.patient = tt.name == "a slow vendor" // nothing may fail
				a := &attempts{answer: func(ctx context.Context, p *Push) Outcome {
					tries[p.Alert.Seq]++ // one device has one push in flight
					return tt.answer(ctx, p, tries[p.Alert.Seq])
				}}
				app := &App{Name: "chat", Platform: FCM, silent: true, vendor: a}
				defer run(t, Config{Apps: Apps{"chat": app}, Queue: q})()
				alerts, want := alertsOf("ada", 20)
				q.set("phone", Push{UserID: "ada", App: "chat", Token: []byte("token")}, alerts...)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				q.wait(ctx, q.idle)
				if diff := cmp.Diff(want, a.sent); diff != "" {
					t.Errorf("alerts (-want +got):\n%s", diff)
				}
				for _, w := range q.waits {
					if w.kind == "retry" && w.after > 2*firstBackoff {
						t.Errorf("waits %s after a failure behind a success", w.after)
					}
				}
			})
		})
	}
}

// A pause that begins while alerts of a device are sent holds the rest of them.
func TestAPauseHoldsTheNextAlert(t *testing.T) {
	q := newQueue()
	q.patient = true
	came, paused := make(chan struct{}), make(chan struct{})
	a := &attempts{answer: func(_ context.Context, p *Push) Outcome {
		if p.UserID == "ben" {
			return Outcome{Verdict: Failed, Reason: "TooManyRequests", After: time.Minute, Pause: true}
		}
		close(came)
		<-paused
		return Outcome{Verdict: Sent}
	}}
	app := &App{Name: "chat", Platform: APNs, silent: true, vendor: a}
	defer run(t, Config{Apps: Apps{"chat": app}, Queue: q})()
	alerts, sent := alertsOf("ada", 3)
	q.set("ada's", Push{UserID: "ada", App: "chat"}, alerts...)
	<-came
	q.set("ben's", Push{UserID: "ben", App: "chat"}, alerts[0])
	await(t, q, "the pause", func() bool { return len(q.waits) > 0 })
	close(paused)
	await(t, q, "the hold", func() bool { return q.waits[len(q.waits)-1].kind == "hold" })
	if diff := cmp.Diff(sent[:1], a.sent); diff != "" {
		t.Errorf("alerts (-want +got):\n%s", diff)
	}
	if left := q.devices["ada's"].due.Alerts; len(left) != 2 || left[0].Seq != 2 {
		t.Errorf("%v are left, want the second and the third", left)
	}
}

type panicking struct{}

func (panicking) route(*Push) string                  { return "" }
func (panicking) send(context.Context, *Push) Outcome { panic("a mistake") }

// TestPhonesEndRight changes numbers while vendors fail in every way and the
// sender is killed, and compares the phones with the tables at the end.
func TestPhonesEndRight(t *testing.T) {
	all := fakes(t)
	apps, histories := every(all), 0
	rapid.Check(t, func(rt *rapid.T) {
		q := newQueue()
		histories++
		epoch := fmt.Sprint("epoch ", histories)
		faults := []*vendors.Fault{
			nil,
			{Reset: true},
			{Reset: true, Deliver: true},
			{Status: 503, Reason: "UNAVAILABLE"},
			{GoAway: true},
			{Status: 429, Reason: "TooManyRequests"},
			{Status: 500, Reason: "INTERNAL", Deliver: true},
		}
		var mu sync.Mutex
		plan := rapid.SliceOfN(rapid.IntRange(0, len(faults)-1), 8, 40).Draw(rt, "faults")
		for _, f := range all {
			f.Script(func(string) *vendors.Fault {
				mu.Lock()
				defer mu.Unlock()
				if len(plan) == 0 {
					return nil
				}
				next := faults[plan[0]]
				plan = plan[1:]
				return next
			})
		}
		cfg := Config{Apps: apps, Queue: q}
		stop := run(t, cfg)
		numbers := map[Platform]int64{}
		steps := rapid.SliceOfN(rapid.IntRange(-1, 9), 5, 30).Draw(rt, "steps")
		for i, step := range steps {
			if step < 0 { // kill -9, and another sender at once
				old := stop
				q.kill()
				defer old()
				stop = run(t, cfg)
				continue
			}
			for _, f := range all {
				p := f.due(int64(i+1), int64(step))
				p.Epoch = epoch
				numbers[f.platform] = p.Number
				if step%3 == 0 {
					q.set(string(f.platform), p, outbound.Alert{ConversationID: "lunch", Seq: int64(i + 1), Title: "Ben", Body: "Pizza?"})
				} else {
					q.set(string(f.platform), p)
				}
			}
		}
		q.kill()
		defer stop()
		for _, f := range all {
			f.Script(nil)
		}
		last := run(t, cfg) // without the pauses of those before
		defer last()
		await(t, q, "everything is told", q.idle)
		for _, f := range all {
			want, changed := numbers[f.platform]
			if n, _ := f.Phone(f.phone).Number(); changed && n != want {
				rt.Errorf("%s: the phone shows %d, and the tables have %d", f.platform, n, want)
			}
			for _, wrong := range f.Violations() {
				rt.Errorf("%s: the vendor complains: %s", f.platform, wrong)
			}
		}
	})
}
