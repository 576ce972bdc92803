package push

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/internal/base/metric"
	"github.com/badged/badged/internal/notify/outbound"
)

// Queue returns due devices and receives reports about them; usually it is an [outbound.Notifier].
// It is safe for concurrent use.
type Queue interface {
	// NextDevices returns up to limit devices of an app that are due, with tokens that are not
	// sealed. It blocks until a device is due; the only error is the error of ctx. For each device,
	// the sender reports the result with one of the other methods; these methods do not block.
	// Before this report, NextDevices does not return the device again.
	NextDevices(ctx context.Context, app, platform string, limit int) ([]outbound.DevicePush, error)
	// DeviceTold reports that a device got its number, and the alerts in d.Alerts and d.Retract.
	// The lists have only alerts that were sent or retracted; alerts that the sender has removed
	// from them remain due. Until quiet has passed, the device is due only if it has alerts.
	DeviceTold(d outbound.DevicePush, quiet time.Duration)
	// DeviceRetry reports that a push failed. told is the number of alerts, oldest first, that were
	// sent before the failure; the pushes of these alerts contained the number. The device is due
	// again after delay.
	DeviceRetry(d outbound.DevicePush, told int, delay time.Duration, reason string)
	// DeviceHold reports that no push was tried. The device is due again after delay.
	DeviceHold(d outbound.DevicePush, delay time.Duration)
	// DeviceGone reports that the vendor does not know a device any more. The queue must delete the
	// device, unless it was registered again meanwhile.
	DeviceGone(d outbound.DevicePush)
}

const (
	// inFlight is the maximum number of pushes of an app that have not been answered yet. If a
	// vendor answers in 100 ms, this permits about 5,000 pushes per second.
	inFlight = 512
	// batch is the maximum number of devices that one call of NextDevices returns.
	batch = 128
	// pushTimeout limits the duration of one push.
	pushTimeout = 15 * time.Second
	// grace is how long pushes in flight may continue when the sender stops.
	grace = 3 * time.Second

	firstBackoff   = 5 * time.Second
	lastBackoff    = time.Hour
	rejectedFirst  = time.Hour
	rejectedLatest = 24 * time.Hour
)

// Config configures a Sender. Queue is required.
type Config struct {
	Apps    Apps
	Queue   Queue
	Logger  *slog.Logger
	Metrics *Metrics
}

// Sender sends the pushes that are due.
type Sender struct {
	cfg    Config
	log    *slog.Logger
	routes map[string]*routes // by app
}

// NewSender returns a Sender. The Sender does nothing until Run is called. NewSender fails if cfg
// has no Queue.
func NewSender(cfg Config) (*Sender, error) {
	if cfg.Queue == nil {
		return nil, errors.New("push: Queue is required")
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.Metrics = cmp.Or(cfg.Metrics, NewMetrics(nil))
	s := &Sender{cfg: cfg, log: cfg.Logger, routes: map[string]*routes{}}
	for name, app := range cfg.Apps {
		s.routes[name] = newRoutes(app.Platform)
	}
	return s, nil
}

// Run sends pushes until ctx is done. Then it waits for the pushes in flight, at most for grace,
// and returns nil.
func (s *Sender) Run(ctx context.Context) error {
	if len(s.cfg.Apps) == 0 {
		<-ctx.Done()
		return nil
	}
	var sending sync.WaitGroup
	for _, app := range s.cfg.Apps {
		sending.Go(func() { s.deliver(ctx, app) })
	}
	sending.Wait()
	return nil
}

// deliver sends pushes to the due devices of an app until ctx is done.
func (s *Sender) deliver(ctx context.Context, app *App) {
	// Pushes in flight may continue for grace after ctx is done.
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })
	var inProgress sync.WaitGroup
	defer inProgress.Wait()
	slots := make(chan struct{}, inFlight)
	for {
		// Acquire the slots of a whole batch before reading the queue: calling NextDevices for each
		// free slot would cost too much.
		for range batch {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
		if !s.routes[app.Name].waitForAll(ctx) {
			return
		}
		all, err := s.cfg.Queue.NextDevices(ctx, app.Name, string(app.Platform), batch)
		if err != nil {
			return
		}
		for range batch - len(all) {
			<-slots
		}
		for _, due := range all {
			if ctx.Err() != nil {
				s.cfg.Queue.DeviceHold(due, 0)
				continue
			}
			inProgress.Go(func() {
				defer func() { <-slots }()
				s.handle(sending, app, due)
			})
		}
	}
}

// held is the verdict of a push that was not tried because its route pauses, or because too many
// other pushes are in flight.
const held Verdict = "held"

// handle sends the due pushes to one device, and reports the result.
func (s *Sender) handle(ctx context.Context, app *App, due outbound.DevicePush) {
	defer func() {
		if v := recover(); v != nil {
			s.log.ErrorContext(ctx, "a push panicked, will try again", "app", app.Name, "error", v, "stack", string(debug.Stack()))
			s.cfg.Queue.DeviceRetry(due, 0, backoff(due.Attempts, firstBackoff, lastBackoff), "internal error")
		}
	}()
	sent, outcome := s.tell(ctx, app, &due)
	s.report(ctx, app, due, sent, outcome)
}

// tell sends the alerts of a device. If no alert was sent, and if the app permits silent pushes, it
// sends a silent push with the number. If a push fails, except because an alert is too large, tell
// stops and returns the outcome of this push. sent is the number of alerts up to and including the
// last alert that was sent; it counts earlier alerts that were too large.
func (s *Sender) tell(ctx context.Context, app *App, due *outbound.DevicePush) (sent int, _ Outcome) {
	silent := Push{
		UserID: due.UserID, DeviceID: due.DeviceID, App: due.App, Environment: due.Environment, Token: due.Token,
		Epoch: due.Badge.Epoch, Version: due.Badge.Version, Number: due.Number, Retract: due.Retract,
	}
	route := app.vendor.route(&silent)
	for i := range due.Alerts {
		p := silent
		p.Alert = &due.Alerts[i]
		switch outcome := s.send(ctx, app, route, &p, due.DueAt); outcome.Verdict {
		case Sent:
			sent = i + 1
		case TooLarge: // if no alert can be sent, only the number is sent
		default:
			return sent, outcome
		}
	}
	switch {
	case !app.silent: // without silent pushes, no push can retract alerts
		return sent, Outcome{Verdict: Sent}
	case sent > 0: // the retractions remain due: a silent push sends them after app.interval
		*due = due.KeepRetract()
		return sent, Outcome{Verdict: Sent}
	}
	return 0, s.send(ctx, app, route, &silent, due.DueAt)
}

// send sends a push, unless the route of the push pauses or too many other pushes are in flight.
func (s *Sender) send(ctx context.Context, app *App, route string, p *Push, due time.Time) Outcome {
	routes := s.routes[app.Name]
	flight, wait := routes.enter(route, p.UserID)
	if wait > 0 {
		return Outcome{Verdict: held, After: wait}
	}
	kind := "silent"
	if p.Alert != nil {
		kind = "alert"
	}
	sending, cancel := context.WithTimeout(ctx, pushTimeout)
	defer cancel()
	s.cfg.Metrics.inFlight.Inc()
	outcome := Outcome{Verdict: Failed} // the outcome if the vendor's code panics
	defer func() {
		s.cfg.Metrics.inFlight.Dec()
		routes.leave(flight, outcome)
	}()
	outcome = app.vendor.send(sending, p)
	if outcome.Pause {
		s.pause(ctx, app, route, outcome)
	}
	s.cfg.Metrics.pushes.WithLabelValues(string(app.Platform), kind, string(outcome.Verdict)).Inc()
	if outcome.Verdict == Sent && !due.IsZero() {
		s.cfg.Metrics.seconds.WithLabelValues(string(app.Platform)).Observe(max(0, time.Since(due).Seconds()))
	}
	return outcome
}

// report reports the result for a device to the queue.
func (s *Sender) report(ctx context.Context, app *App, due outbound.DevicePush, sent int, outcome Outcome) {
	queue := s.cfg.Queue
	if outcome.Verdict == Gone && !outcome.Since.IsZero() && due.RegisteredAt.After(outcome.Since) {
		outcome = Outcome{Verdict: Rejected, Reason: outcome.Reason + " before it was registered"}
	}
	if outcome.Verdict != Sent && outcome.Verdict != held {
		s.log.DebugContext(ctx, "a push was not sent", "app", app.Name, "user", due.UserID, "device", due.DeviceID,
			"outcome", outcome.Verdict, "reason", outcome.Reason, "error", outcome.Err)
	}
	failures := due.Attempts
	if sent > 0 {
		failures = 0
	}
	switch outcome.Verdict {
	case Sent:
		queue.DeviceTold(due, app.interval)
	case held:
		if sent == 0 {
			queue.DeviceHold(due, spread(outcome.After))
			return
		}
		due = due.KeepRetract()
		due.Alerts = due.Alerts[:sent] // the remaining alerts are still due; the next attempt calls DeviceHold
		queue.DeviceTold(due, app.interval)
	case Gone:
		queue.DeviceGone(due)
	case Failed:
		queue.DeviceRetry(due, sent, max(spread(outcome.After), backoff(failures, firstBackoff, lastBackoff)), outcome.Reason)
	case Rejected, TooLarge:
		queue.DeviceRetry(due, sent, backoff(failures, rejectedFirst, rejectedLatest), outcome.Reason)
	}
}

// pause makes a route pause. An app of FCM has only one route, so pause makes the whole app
// pause: no devices are read from its queue until the pause has ended.
func (s *Sender) pause(ctx context.Context, app *App, route string, outcome Outcome) {
	if !s.routes[app.Name].pause(route, outcome.After, app.Platform == FCM) {
		return
	}
	s.cfg.Metrics.pauses.WithLabelValues(string(app.Platform)).Inc()
	s.log.WarnContext(ctx, "pushes pause: the vendor asks for it, or refuses the app's settings",
		"app", app.Name, "route", route, "reason", outcome.Reason, "pause", outcome.After)
}

// backoff returns the wait after a number of consecutive failures.
func backoff(failures int, first, last time.Duration) time.Duration {
	return spread(min(first<<min(failures, 20), last))
}

// spread adds a random time, up to a fifth of d, to d, so that pushes that failed together are
// not retried together.
func spread(d time.Duration) time.Duration {
	return d + rand.N(d/5+1) //nolint:gosec // G404: spreads load, guards nothing
}

// Metrics are the metrics of a Sender.
type Metrics struct {
	pushes   *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	pauses   *prometheus.CounterVec
	inFlight prometheus.Gauge
}

// NewMetrics returns metrics registered with r, or unregistered metrics if r is nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		pushes: metric.CounterVec(r, "badged_push_pushes_total", "Pushes by platform, kind (silent or alert) and outcome: sent; failed (the push is repeated later); rejected by the vendor; gone (the device was deleted); too_large (the number is pushed without the notification).", "platform", "kind", "outcome"),
		seconds: metric.HistogramVec(r, "badged_push_seconds", "Seconds from when the push to a device became due until the vendor accepted it.",
			[]float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800}, "platform"),
		pauses:   metric.CounterVec(r, "badged_push_pauses_total", "Pauses of pushes, because a vendor asked for a pause or refused the settings of an app.", "platform"),
		inFlight: metric.Gauge(r, "badged_push_in_flight", "Pushes that were sent to a vendor, which has not answered yet."),
	}
	for _, p := range []Platform{APNs, FCM, WebPush, UnifiedPush} {
		m.pauses.WithLabelValues(string(p))
		m.seconds.WithLabelValues(string(p))
		for _, kind := range []string{"silent", "alert"} {
			m.pushes.WithLabelValues(string(p), kind, string(Sent))
		}
	}
	return m
}
