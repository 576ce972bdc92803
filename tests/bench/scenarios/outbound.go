package scenarios

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/load"
	"github.com/badged/badged/tests/bench/measure"
	"github.com/badged/badged/tests/bench/receivers"
	"github.com/badged/badged/tests/bench/rig"
	"github.com/badged/badged/tests/bench/ways"
)

// The measures of pushes and webhooks that have aims.
const (
	tellRate = "rate"
	tellTail = "delay p99"
)

// push measures how fast closed apps are told their numbers.
func push() contest.Scenario {
	return telling("push", "from events over HTTP to the vendors of closed apps, which verify and decrypt what they get", []teller{
		{"APNs", "a vendor over HTTP/2, a device a user", receivers.APNs},
		{"FCM", "a vendor over HTTP/2, a device a user", receivers.FCM},
		{"Web Push", "one push service over HTTP/2, a subscription a user", receivers.WebPush},
	})
}

// webhooks measures how fast other backends are told.
func webhooks() contest.Scenario {
	return telling("webhooks", "from events over HTTP to an endpoint over TLS, which verifies the signatures", []teller{
		{"one endpoint", "a call a user", receivers.Webhook},
	})
}

// teller is a side of such a scenario.
type teller struct {
	name, says string
	open       func(context.Context) (*receivers.Receiver, error)
}

func telling(name, says string, tellers []teller) contest.Scenario {
	s := contest.Scenario{Name: name, Says: says, Main: tellRate}
	for _, t := range tellers {
		s.Aims = append(s.Aims, contest.Aim{Measure: tellRate, Of: t.name, AtLeast: 3000}, contest.Aim{Measure: tellTail, Of: t.name, AtMost: 250})
	}
	s.Open = func(_ context.Context, r *rig.Rig, s contest.Scale) (*contest.Contest, error) {
		l := tellLoad{users: s.Pick(10_000, 100), flood: s.Duration, load: load.Load{
			Clients: s.Pick(2000, 100), Conversations: 10, Connections: 32,
			Rate: float64(s.Pick(500, 100)), WarmUp: min(5*time.Second, s.Duration/4), Measured: s.Duration,
		}}
		var sides []contest.Side
		for _, t := range tellers {
			sides = append(sides, contest.Side{Name: t.name, Says: t.says + "; " + l.String(), Run: func(ctx context.Context) ([]measure.Measure, error) { return l.round(ctx, r, t.open) }})
		}
		return contest.Of(sides...)
	}
	return s
}

// tellLoad is the load of a round: at first as many changes as can be told, then few.
type tellLoad struct {
	// users have a device each.
	users int
	// flood is how long a half of them waits to be told at any time.
	flood time.Duration
	// load then measures the time from the publisher's answer to the receiver.
	load load.Load
}

// String describes the load.
func (l tellLoad) String() string {
	return fmt.Sprintf("one process with all roles; rate: %d users, half of them waiting at any time, for %s; delay: %s of them", l.users, l.flood, l.load)
}

// toldAll is what receivers were told, and what they should have been.
type toldAll struct {
	take func() []receivers.Told
	// expected is the number of each user after all that was published, and numbers
	// what was told last.
	expected, numbers map[string]int64
	versions          map[string]int64
	// half is the half of the users to which each belongs, and missing how many of each
	// half were not told their number.
	half    map[string]int
	missing [2]int
	// waves is how often each half has changed.
	waves [2]int64
	// all is what was told since it was emptied last, and useful how much of it
	// changed a number.
	all    []receivers.Told
	useful int
}

// expect adds a message to the number of a user.
func (t *toldAll) expect(user string) {
	if t.numbers[user] == t.expected[user] {
		t.missing[t.half[user]]++
	}
	t.expected[user]++
}

// look takes in what was told since the last look.
func (t *toldAll) look() {
	for _, one := range t.take() {
		t.all = append(t.all, one)
		if one.Version <= t.versions[one.User] {
			continue
		}
		was, want := t.numbers[one.User], t.expected[one.User]
		t.numbers[one.User], t.versions[one.User] = one.Number, one.Version
		if was != one.Number {
			t.useful++
		}
		switch {
		case was != want && one.Number == want:
			t.missing[t.half[one.User]]--
		case was == want && one.Number != want:
			t.missing[t.half[one.User]]++
		}
	}
}

// tellInterval is how often receivers are asked what they were told; what they were
// told has their time.
const tellInterval = 2 * time.Millisecond

// until looks until done returns true, or fails after a time without news.
func (t *toldAll) until(ctx context.Context, done func() bool) error {
	tick := time.NewTicker(tellInterval)
	defer tick.Stop()
	news, at := len(t.all), time.Now()
	for t.look(); !done(); t.look() {
		if len(t.all) != news {
			news, at = len(t.all), time.Now()
		}
		if time.Since(at) > load.Patience {
			return fmt.Errorf("%d of %d users were not told their number: %w", t.missing[0]+t.missing[1], len(t.half), measure.ErrWrong)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// everything reports whether all that was published was told.
func (t *toldAll) everything() bool { return t.missing == [2]int{} }

func (l tellLoad) round(ctx context.Context, r *rig.Rig, open func(context.Context) (*receivers.Receiver, error)) (_ []measure.Measure, err error) {
	to, err := open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	d, err := deployTelling(ctx, r, to)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Stop(ctx)) }()
	a := load.NewAPI(d.API, l.load.Connections)
	defer a.Close()
	t := &toldAll{take: to.Take, expected: map[string]int64{}, numbers: map[string]int64{}, versions: map[string]int64{}, half: map[string]int{}}
	for half, users := range l.halves() {
		for _, u := range users {
			t.half[u] = half
		}
	}
	if err := l.register(ctx, to, a, t); err != nil {
		return nil, err
	}
	// A webhook is called some time after it was made; connections are made.
	for half := range t.waves {
		if err := l.change(ctx, a, t, half); err != nil {
			return nil, err
		}
	}
	if err := t.until(ctx, t.everything); err != nil {
		return nil, err
	}
	var rate float64
	used, err := r.Meter(ctx, func(ctx context.Context) (int, error) {
		before, began := t.useful, time.Now()
		if err := l.floodAll(ctx, a, t); err != nil {
			return 0, err
		}
		rate = float64(t.useful-before) / time.Since(began).Seconds()
		return t.useful - before, nil
	})
	if err != nil {
		return nil, err
	}
	if err := t.until(ctx, t.everything); err != nil {
		return nil, err
	}
	delays, err := l.delays(ctx, a, t)
	if err != nil {
		return nil, err
	}
	measures := append([]measure.Measure{measure.Of(tellRate, "told/s", rate)}, delays...)
	totals, err := a.Totals(ctx, l.all())
	err = errors.Join(err, measure.Check(totals, t.expected))
	for _, wrong := range to.Violations() {
		err = errors.Join(err, fmt.Errorf("the receiver complains: %s: %w", wrong, measure.ErrWrong))
	}
	return append(measures, used.Resources...), err
}

// deployTelling starts the product with what a receiver needs.
func deployTelling(ctx context.Context, r *rig.Rig, to *receivers.Receiver) (_ *rig.Deployment, err error) {
	url, drop, err := r.Database(ctx)
	if err != nil {
		return nil, err
	}
	d := &rig.Deployment{Drop: drop, Database: url}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Stop(ctx))
		}
	}()
	if _, _, err := r.RunBinary(ctx, "migrate", "up", "--database-url="+url); err != nil {
		return nil, err
	}
	cmd := r.Command(ctx, append([]string{"serve", "--listen=127.0.0.1:0", "--database-url=" + url}, to.Args...)...)
	cmd.Env = append(cmd.Env, to.Env...)
	s, err := rig.StartServer(cmd)
	if err != nil {
		return nil, err
	}
	d.Servers, d.API = append(d.Servers, s), s.URL
	return d, nil
}

// all returns all users.
func (l tellLoad) all() []string {
	users := make([]string, l.users)
	for i := range users {
		users[i] = load.UserOf(i)
	}
	return users
}

func (l tellLoad) halves() [2][]string {
	users := l.all()
	return [2][]string{users[:l.users/2], users[l.users/2:]}
}

// register registers a device for each user, or a webhook for all. Devices are told
// the number 0.
func (l tellLoad) register(ctx context.Context, to *receivers.Receiver, a *load.API, t *toldAll) error {
	call := func(ctx context.Context, method, path, body string) error {
		caller := *a
		if strings.HasPrefix(path, "/admin/") {
			caller.Key = receivers.AdminKey
		}
		_, err := caller.Do(ctx, method, path, "application/json", []byte(body), http.StatusCreated)
		return err
	}
	users := l.all()
	if to.AtOnce {
		return to.Register(ctx, call, users[0])
	}
	registering, groupCtx := errgroup.WithContext(ctx)
	registering.SetLimit(l.load.Connections)
	for _, u := range users {
		registering.Go(func() error { return to.Register(groupCtx, call, u) })
	}
	if err := registering.Wait(); err != nil {
		return err
	}
	return t.until(ctx, func() bool { return len(t.all) >= l.users })
}

// floodAll lets one half of the users after the other change, each as soon as all of
// that half were told their last change. So there is always something to tell, and no
// change is conflated with another.
func (l tellLoad) floodAll(ctx context.Context, a *load.API, t *toldAll) error {
	end := time.Now().Add(l.flood)
	for half := range t.waves {
		if err := l.change(ctx, a, t, half); err != nil {
			return err
		}
	}
	for {
		next := -1
		if err := t.until(ctx, func() bool {
			next = slices.Index(t.missing[:], 0)
			return next >= 0 || !time.Now().Before(end)
		}); err != nil {
			return err
		}
		if !time.Now().Before(end) {
			return nil
		}
		if err := l.change(ctx, a, t, next); err != nil {
			return err
		}
	}
}

// waveUsers is how many users an event of a wave has.
const waveUsers = 500

// change publishes a message to each user of a half.
func (l tellLoad) change(ctx context.Context, a *load.API, t *toldAll, half int) error {
	t.waves[half]++
	users := l.halves()[half]
	for _, u := range users {
		t.expect(u)
	}
	for i, some := range slices.Collect(slices.Chunk(users, waveUsers)) {
		conversation := fmt.Sprintf("wave-%d-%d", half, i)
		event, err := json.Marshal(map[string]any{
			"specversion": "1.0", "id": fmt.Sprintf("%s/%d", conversation, t.waves[half]), "source": ways.EventSource, "type": "message.delivered",
			"data": map[string]any{"conversation_id": conversation, "seq": t.waves[half], "user_ids": some, "sender_id": "sender"},
		})
		if err != nil {
			return err
		}
		if err := a.Publish(ctx, event); err != nil {
			return err
		}
	}
	return nil
}

// delays publishes single messages at a rate and measures the time from the answer to
// the publisher until the receiver was told.
func (l tellLoad) delays(ctx context.Context, a *load.API, t *toldAll) ([]measure.Measure, error) {
	messages, err := l.load.Schedule()
	if err != nil {
		return nil, err
	}
	first := map[string]int64{} // the number before
	numbers := make([]int64, len(messages))
	for i, m := range messages {
		u := load.UserOf(m.Client)
		if _, known := first[u]; !known {
			first[u] = t.expected[u]
		}
		t.expect(u)
		numbers[i] = t.expected[u]
	}
	t.all = nil
	o, err := load.Send(ctx, a.Deliver, messages)
	if err != nil {
		return nil, err
	}
	if err := t.until(ctx, t.everything); err != nil {
		return nil, err
	}
	// When each user was told each number, or a later one.
	reached := map[string][]time.Time{}
	slices.SortStableFunc(t.all, func(x, y receivers.Told) int { return x.At.Compare(y.At) })
	repeats := 0
	for _, one := range t.all {
		n := one.Number - first[one.User] - int64(len(reached[one.User]))
		if n <= 0 {
			repeats++
		}
		for range n {
			reached[one.User] = append(reached[one.User], one.At)
		}
	}
	var delays []float64
	for i, m := range messages {
		if m.Due < l.load.WarmUp {
			continue
		}
		u := load.UserOf(m.Client)
		at := reached[u][numbers[i]-first[u]-1]
		delays = append(delays, max(0, measure.Milliseconds(at.Sub(o.Start)-o.Accepted[i])))
	}
	slices.Sort(delays)
	return []measure.Measure{
		measure.Of("delay p50", "ms", measure.Percentile(delays, 50)),
		measure.Of(tellTail, "ms", measure.Percentile(delays, 99)),
		measure.Of("delay max", "ms", measure.Percentile(delays, 100)),
		measure.Of("repeats", "told", float64(repeats)),
	}, nil
}
