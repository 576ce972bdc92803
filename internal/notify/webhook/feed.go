package webhook

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/sony/gobreaker"
	"golang.org/x/time/rate"

	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/notify/outbound"
)

// tripAfter is the number of consecutive failed calls after which all events of the webhook are
// delayed by the waits of the ladder. After fewer failures only the failed events are delayed: the
// endpoint may be unable to accept these events, but may accept all others.
const tripAfter = 5

// recovery is how long the circuit breaker refuses all calls after it has opened. It is shorter
// than the first wait of the ladder, so that the ladder determines the time of the next call.
const recovery = time.Second

// ahead determines how many changes are read from the queue in advance: ahead times Config.Calls.
// Reading a single change whenever a call ends would cost more than the calls.
const ahead = 2

// probes is the number of changes that are read from the queue while an endpoint fails. One of
// them is sent to test the endpoint, preferably a change without failed calls.
const probes = 16

// recordInterval is the minimum time between two writes of a webhook's state, except urgent writes:
// see record.
const recordInterval = 5 * time.Second

// recordTimeout limits a call of Store.RecordCall. In a healthy database, RecordCall takes much
// less time.
const recordTimeout = 5 * time.Second

// feed makes the calls of one webhook.
type feed struct {
	*Sender
	// breaker is a circuit breaker. After tripAfter consecutive failures it opens and refuses
	// calls. After the duration `recovery` it permits one call at a time; a success closes it.
	breaker *gobreaker.CircuitBreaker
	limit   *rate.Limiter
	// slots limits the calls in progress.
	slots chan struct{}
	// changed gets a value when a call has ended or the webhook has changed.
	changed chan struct{}
	told    memory

	mu      sync.Mutex
	webhook outbound.Webhook
	// calling is the number of calls in progress, including calls that wait for a slot.
	calling int
	// rounds is the step of the ladder that the webhook gets when the breaker opens. A failure
	// increments rounds, unless the call began before roundEnds: so concurrent failures count only
	// once. roundEnds is the end of the wait that belongs to the step `rounds`.
	rounds    int
	roundEnds time.Time
	// recordedAt is the time of the last write to the store. recordings is the number of writes
	// in progress.
	recordedAt time.Time
	recordings int
	// unrecorded is true until the store has the last failure, or the first success after this
	// failure.
	unrecorded bool
	// recording serializes the writes to the store, so that the last write has the newest state.
	recording sync.Mutex
}

// call is one call of a webhook, about one or more changes.
type call struct {
	*feed
	// webhook has the settings with which the body was made, and the Ladder at the start of the
	// call.
	webhook outbound.Webhook
	began   time.Time
	changes []outbound.Call
	id      string
	kind    string // Content-Type
	body    []byte
	answer  Answer
	// err is the reason why the call failed or was refused by the breaker. If the call panicked,
	// answer has only this error.
	err error
}

func newFeed(s *Sender, w outbound.Webhook) *feed {
	f := &feed{
		Sender: s, changed: make(chan struct{}, 1), slots: make(chan struct{}, s.cfg.Calls),
		limit: rate.NewLimiter(rate.Inf, 1),
		breaker: gobreaker.NewCircuitBreaker(gobreaker.Settings{
			Timeout:     recovery,
			ReadyToTrip: func(counts gobreaker.Counts) bool { return counts.ConsecutiveFailures >= tripAfter },
		}),
	}
	f.update(w, time.Now())
	return f
}

// update gives the feed the webhook w that was read from the store; the read began at readAt.
// unrecorded reports whether the caller must call record.
func (f *feed) update(w outbound.Webhook, readAt time.Time) (unrecorded bool) {
	f.mu.Lock()
	// If this process has stored a state since readAt, or still has to store a state, the Ladder
	// and the State in memory are newer than the Ladder and the State in w.
	switch {
	case w.Generation != f.webhook.Generation:
		f.told.forget()
		f.cfg.Queue.CallsRenewed(w.Name)
		was := f.webhook
		f.unrecorded = was.LastError == "" && succeededBefore(&w, was.URL, was.LastSuccessAt, was.LastStatus)
	case f.unrecorded || f.recordings > 0 || f.recordedAt.After(readAt):
		w.Ladder, w.State = f.webhook.Ladder, f.webhook.State
	}
	f.webhook = w
	unrecorded = f.unrecorded && f.recordings == 0
	f.mu.Unlock()
	limit := rate.Inf
	if w.Rate > 0 {
		limit = rate.Every(time.Minute / time.Duration(w.Rate))
	}
	f.limit.SetLimit(limit)
	wait.Wake(f.changed)
	return unrecorded
}

// run makes calls until ctx is done. Then it waits for the calls in progress. Their context is
// `calling`, which ends later than ctx.
func (f *feed) run(ctx, calling context.Context) {
	var running sync.WaitGroup
	defer func() {
		running.Wait()
		f.mu.Lock()
		unrecorded := f.unrecorded
		f.mu.Unlock()
		if unrecorded {
			f.record(calling, true)
		}
	}()
	for ctx.Err() == nil {
		w, limit, pause := f.turn()
		if limit == 0 || pause > 0 {
			_, _ = wait.Signal(ctx, f.changed, cmp.Or(pause, math.MaxInt64))
			continue
		}
		take := limit
		if w.Step > 0 {
			take = probes
		}
		changes, err := f.cfg.Queue.NextCalls(ctx, w.Name, take)
		if err != nil {
			return // ctx is done
		}
		// Send changes without failed calls first: a change that has failed may be one that the
		// endpoint cannot accept, and then its call does not show whether the endpoint works
		// again.
		slices.SortStableFunc(changes, func(a, b outbound.Call) int { return cmp.Compare(a.Attempts, b.Attempts) })
		// A call may have failed while NextCalls was blocked, so compute the limit again.
		if w, limit, pause = f.turn(); pause > 0 {
			limit = 0
		}
		for _, c := range changes[min(limit, len(changes)):] {
			f.cfg.Queue.CallHold(c, max(pause, recovery))
		}
		for _, c := range f.calls(ctx, w, changes[:min(limit, len(changes))]) {
			f.began(1)
			running.Go(func() {
				defer f.began(-1)
				f.perform(ctx, calling, c)
			})
		}
	}
}

func (f *feed) began(n int) {
	f.mu.Lock()
	f.calling += n
	f.mu.Unlock()
	if n < 0 {
		wait.Wake(f.changed)
	}
}

// turn returns the webhook, the maximum number of changes to read from the queue now (limit), and
// how long to wait before reading them.
func (f *feed) turn() (w outbound.Webhook, limit int, wait time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.webhook.State != outbound.Active: // the next refresh stops this feed
	case f.webhook.Step > 0 || f.breaker.State() != gobreaker.StateClosed:
		limit = max(1-f.calling, 0) // one call at a time suffices to test whether the endpoint works again
	default:
		waiting := ahead * f.cfg.Calls / f.webhook.Batch
		if free := f.cfg.Calls + waiting - f.calling; free > waiting/2 {
			limit = free * f.webhook.Batch
		}
	}
	return f.webhook, limit, waitUntil(f.webhook.Due, f.cfg.Now())
}

// calls groups changes into calls. If a change need not be sent, such as a badge whose numbers the
// endpoint has already received, calls makes no call for it and reports it with CallTold. A change
// whose call has failed before gets a separate call, because the endpoint may be unable to accept
// this change.
func (f *feed) calls(ctx context.Context, w outbound.Webhook, changes []outbound.Call) []*call {
	var all []*call
	var together []outbound.Call
	var events []event
	add := func(changes []outbound.Call, events []event) {
		c := &call{feed: f, webhook: w, changes: changes}
		if c.body, c.kind, c.id, c.err = encode(events, w.Batch > 1); c.err != nil {
			f.cannotTell(ctx, w, c.err, changes...)
			return
		}
		all = append(all, c)
	}
	for _, c := range changes {
		data, isNews, err := f.news(w, &c)
		switch {
		case err != nil:
			f.cannotTell(ctx, w, err, c)
		case !isNews:
			f.cfg.Queue.CallTold(c)
		case c.Attempts > 0:
			add([]outbound.Call{c}, []event{eventOf(f.cfg.Caller.Origin, w.Name, c, data)})
		default:
			together, events = append(together, c), append(events, eventOf(f.cfg.Caller.Origin, w.Name, c, data))
			if len(together) == w.Batch {
				add(together, events)
				together, events = nil, nil
			}
		}
	}
	if len(together) > 0 {
		add(together, events)
	}
	return all
}

// cannotTell logs an error and schedules a retry for changes whose event could not be made.
func (f *feed) cannotTell(ctx context.Context, w outbound.Webhook, err error, changes ...outbound.Call) {
	f.log.ErrorContext(ctx, "cannot make the event of a webhook, will try again later", "webhook", w.Name, "error", err)
	f.notTold(changes)
	for _, c := range changes {
		wait, _ := waitAfter(c.Attempts + 1)
		f.cfg.Queue.CallRetry(c, wait, true)
	}
}

// perform waits for a free slot and for the rate limit, makes a call, and reports the result to
// the queue.
func (f *feed) perform(ctx, calling context.Context, c *call) {
	select {
	case f.slots <- struct{}{}:
		defer func() { <-f.slots }()
	case <-ctx.Done():
		f.hold(c, 0)
		return
	}
	if f.limit.Wait(ctx) != nil {
		f.hold(c, 0)
		return
	}
	// Another call may have failed while this call waited.
	w, _, wait := f.turn()
	if wait > 0 || w.State != outbound.Active {
		f.hold(c, max(wait, recovery))
		return
	}
	c.webhook.Ladder, c.began = w.Ladder, time.Now()
	f.post(calling, c)
	switch {
	case c.err == nil:
		f.succeeded(calling, c)
	case calling.Err() != nil: // this process stops; the next process repeats the call
		f.hold(c, 0)
	case isRefused(c.err):
		f.hold(c, recovery)
	default:
		f.failed(calling, c)
	}
}

// isRefused reports whether the circuit breaker has refused a call, so that the endpoint was not
// called.
func isRefused(err error) bool {
	return errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests)
}

// post makes a call, unless the circuit breaker refuses it. It sets c.answer and c.err.
func (f *feed) post(ctx context.Context, c *call) {
	defer func() {
		if v := recover(); v != nil {
			f.log.ErrorContext(ctx, "the call of a webhook panicked", "webhook", c.webhook.Name, "error", v, "stack", string(debug.Stack()))
			c.err = errors.New("badged failed to make the call; its log says why")
			c.answer.Err = c.err
		}
		if !isRefused(c.err) {
			f.cfg.Metrics.called(c.webhook.Name, c.answer)
		}
	}()
	_, c.err = f.breaker.Execute(func() (any, error) {
		c.answer = f.cfg.Caller.post(ctx, c.webhook, c.id, c.kind, c.body)
		return nil, c.answer.Err
	})
}

// notTold removes the users of changes from f.told, so that their numbers are sent again.
func (f *feed) notTold(changes []outbound.Call) {
	for _, c := range changes {
		if c.Type == outbound.BadgeChanged {
			f.told.forget(c.Subject)
		}
	}
}

// hold reports to the queue that a call was not made: the changes of the call are due again after
// delay.
func (f *feed) hold(c *call, delay time.Duration) {
	f.notTold(c.changes)
	for _, change := range c.changes {
		f.cfg.Queue.CallHold(change, delay)
	}
}

// succeeded reports to the queue, and records in the store, that the endpoint has accepted a
// call.
func (f *feed) succeeded(ctx context.Context, c *call) {
	f.cfg.Queue.CallsAccepted(c.webhook.Name)
	for _, change := range c.changes {
		f.cfg.Queue.CallTold(change)
	}
	f.cfg.Metrics.events.WithLabelValues(c.webhook.Name).Add(float64(len(c.changes)))
	now := f.cfg.Now()
	f.mu.Lock()
	if c.webhook.Generation != f.webhook.Generation {
		isNews := succeededBefore(&f.webhook, c.webhook.URL, now, c.answer.Status)
		f.unrecorded = f.unrecorded || isNews
		f.mu.Unlock()
		if isNews {
			f.record(ctx, true)
		}
		return
	}
	before := f.webhook.Ladder
	f.webhook.Ladder = outbound.Ladder{LastSuccessAt: now, LastFailureAt: before.LastFailureAt, LastStatus: c.answer.Status}
	if before.LastError != "" || before.LastSuccessAt.IsZero() {
		f.unrecorded = true // there may be no later call that records the success
	}
	f.mu.Unlock()
	if before.Step > 0 {
		f.log.InfoContext(ctx, "a webhook works again", "webhook", c.webhook.Name, "failing_since", before.FailingSince)
	}
	f.record(ctx, before.Step > 0 || !before.Due.IsZero())
}

// failed reports to the queue, and records in the store, that a call failed. If the breaker is open
// or the step of the webhook is above 0, the endpoint seems to fail for all events: failed then
// increases the step, so that the next wait is longer. If the endpoint answered 410 Gone, failed
// disables the webhook.
func (f *feed) failed(ctx context.Context, c *call) {
	attempts := 1
	for _, change := range c.changes {
		attempts = max(attempts, change.Attempts+1)
	}
	now := f.cfg.Now()
	asked := c.answer.retryAfter
	open := f.breaker.State() != gobreaker.StateClosed

	f.mu.Lock()
	w := &f.webhook
	same := c.webhook.Generation == w.Generation
	first, moved := false, false
	if same {
		first = w.FailingSince.IsZero()
		if first {
			w.FailingSince, f.rounds, f.roundEnds = now, 0, time.Time{}
		}
		if !c.began.Before(f.roundEnds) {
			f.rounds++
			f.roundEnds = time.Now().Add(shortestWait(f.rounds))
		}
		w.LastFailureAt, w.LastStatus, w.LastError = now, c.answer.Status, c.err.Error()
		// If several concurrent calls fail, only the first failure increases the step.
		moved = (open || w.Step > 0) && w.Step == c.webhook.Step
		switch {
		case c.answer.Status == http.StatusGone:
			w.State, w.Step, moved = outbound.Disabled, len(ladder)+1, true
		case moved:
			if w.Step++; w.Step == 1 {
				w.Step = f.rounds
			}
			wait, more := waitAfter(w.Step)
			if w.Due = now.Add(max(wait, asked)); !more {
				w.State = outbound.Paused
			}
		case asked > 0:
			moved = true
			w.Due = now.Add(max(asked, waitUntil(w.Due, now)))
		}
		f.unrecorded = true
	}
	is := *w
	f.mu.Unlock()

	wait, alone := waitUntil(is.Due, now), len(c.changes) == 1
	if alone {
		afterFailure, _ := waitAfter(attempts)
		wait = max(wait, afterFailure)
	}
	wait = max(wait, asked)
	f.notTold(c.changes)
	for _, change := range c.changes {
		f.cfg.Queue.CallRetry(change, wait, alone && asked == 0)
	}
	switch {
	case !same:
		return
	case moved && is.State != outbound.Active:
		f.log.ErrorContext(ctx, "a webhook is no longer called; to resume it, set its state to active", "webhook", is.Name, "state", is.State,
			"failing_since", is.FailingSince, "status", is.LastStatus, "error", is.LastError)
	case first:
		f.log.WarnContext(ctx, "a webhook fails, will try again", "webhook", is.Name, "in", wait, "status", is.LastStatus, "error", is.LastError)
	}
	f.record(ctx, moved)
}

// record stores the state of the webhook. Unless urgent is true, it does so only if recordInterval
// has passed since the last write, which limits the number of writes. A failure that is therefore
// not stored is stored at the next refresh of the webhooks.
func (f *feed) record(ctx context.Context, urgent bool) {
	f.mu.Lock()
	if !urgent && time.Since(f.recordedAt) < recordInterval {
		f.mu.Unlock()
		return
	}
	f.recordings++
	f.recordedAt = time.Now()
	f.mu.Unlock()

	f.recording.Lock()
	defer f.recording.Unlock()
	f.mu.Lock()
	w := f.webhook
	waited := f.unrecorded
	f.unrecorded = false
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	err := f.cfg.Store.RecordCall(ctx, w)
	f.mu.Lock()
	f.recordings--
	f.recordedAt = time.Now()
	if err != nil && w.Generation == f.webhook.Generation {
		f.unrecorded = f.unrecorded || waited || urgent
	}
	f.mu.Unlock()
	if err != nil {
		f.storeFailed(ctx, "cannot record the state of a webhook", err)
	}
	f.cfg.Metrics.show(w)
}
