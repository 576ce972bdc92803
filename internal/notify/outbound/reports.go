package outbound

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/base/wait"
)

// reportKind is the kind of a report about a device or a call.
type reportKind int

const (
	reportTold  reportKind = iota
	reportSame             // the device needs no push
	reportRetry            // the push failed
	reportHold             // no push was tried
	reportGone             // the vendor does not know the device any more
	callTold
	callRetry
	callQueue // a subject of the log is added to the queue
)

// report is the result of a push or of a call.
type report struct {
	kind   reportKind
	device DevicePush
	call   Call
	delay  time.Duration
	reason string
}

func (r *report) row() row {
	if r.kind >= callTold {
		return r.call.row()
	}
	return r.device.row()
}

func (r *report) queueKey() queueKey {
	if r.kind >= callTold {
		return r.call.queueKey()
	}
	return r.device.queueKey()
}

// reports collects reports, so that one transaction stores many reports.
type reports struct {
	mu      sync.Mutex
	waiting []report
	// told has the readers whose positions must be moved, because all subjects of the reader's
	// oldest page were sent or added to the queue.
	told map[*reader]struct{}
	wake chan struct{}
}

func newReports() reports { return reports{told: map[*reader]struct{}{}, wake: make(chan struct{}, 1)} }

// move schedules a move of a reader's position.
func (r *reports) move(told *reader) {
	r.mu.Lock()
	r.told[told] = struct{}{}
	r.mu.Unlock()
	wait.Wake(r.wake)
}

func (r *reports) add(some ...report) {
	if len(some) == 0 {
		return
	}
	r.mu.Lock()
	r.waiting = append(r.waiting, some...)
	r.mu.Unlock()
	wait.Wake(r.wake)
}

func (r *reports) takeAll() []report {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.waiting
	r.waiting = nil
	return all
}

func (r *reports) takeTold() []*reader {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer clear(r.told)
	return slices.Collect(maps.Keys(r.told))
}

// DeviceTold reports that a device got its number, the alerts p.Alerts and the retractions
// p.Retract. For the duration `quiet` after this, only alerts are pushed to the device. DeviceTold
// does not block; nor do the other methods that report results.
func (n *Notifier) DeviceTold(p DevicePush, quiet time.Duration) {
	n.reports.add(report{kind: reportTold, device: p, delay: quiet})
}

// KeepRetract returns a copy of p with an empty Retract. Pass it to DeviceTold after a push that
// retracted no alerts: the device remains due, so that a later push retracts the alerts.
func (p DevicePush) KeepRetract() DevicePush {
	p.moreToRetract = p.moreToRetract || len(p.Retract) > 0
	p.Retract = nil
	return p
}

// DeviceRetry reports that a push failed. told is the number of alerts, oldest first, that were
// sent before the failure; the pushes of these alerts contained the number of the badge. The device
// is due again after delay, or as soon as it is registered again.
func (n *Notifier) DeviceRetry(p DevicePush, told int, delay time.Duration, reason string) {
	p.Alerts = p.Alerts[:told]
	n.reports.add(report{kind: reportRetry, device: p, delay: delay, reason: reason})
}

// DeviceHold reports that no push was tried, which does not count as a failure. The device is due
// again after delay.
func (n *Notifier) DeviceHold(p DevicePush, delay time.Duration) {
	n.reports.add(report{kind: reportHold, device: p, delay: delay})
}

// DeviceGone reports that the vendor does not know a device any more. It deletes the device,
// unless the device was registered again.
func (n *Notifier) DeviceGone(p DevicePush) { n.reports.add(report{kind: reportGone, device: p}) }

// CallTold reports that a webhook got an event, or does not need it. The subject of the call is due
// again when it changes and, unless c.RepeatAfter is 0, after c.RepeatAfter.
func (n *Notifier) CallTold(c Call) {
	if c.subject == nil || c.Type == UnreadReminder && !c.Unchanged {
		n.reports.add(report{kind: callTold, call: c, delay: c.RepeatAfter})
		return
	}
	n.metrics.reported(callTold, 1)
	n.settle(&c)
}

// settle completes a call about a subject of the log for which no row is stored.
func (n *Notifier) settle(c *Call) {
	if !c.repeats() {
		n.queues.finish(c.queueKey(), c.row())
	}
	n.subjectDone(c.subject)
}

// CallRetry reports that a call failed. Its subject is due again after delay. If the subject comes
// from the log, the position of the webhook cannot move past the subject until a call about the
// subject succeeds. refused is true if the call may have failed because of this subject alone; then
// the position can move sooner: when the webhook accepts another call, CallsAccepted moves the
// subject to the queue.
func (n *Notifier) CallRetry(c Call, delay time.Duration, refused bool) {
	s := c.subject
	if s == nil {
		n.reports.add(report{kind: callRetry, call: c, delay: delay})
		return
	}
	n.metrics.reported(callRetry, 1)
	s.attempts, s.refused = s.attempts+1, refused
	n.giveBack(&c, delay)
}

// CallHold reports that a call was not made. Its subject is due again after delay.
func (n *Notifier) CallHold(c Call, delay time.Duration) {
	if c.subject != nil {
		n.giveBack(&c, delay)
		return
	}
	n.readers.reader(c.Webhook, c.Partition).hold(c.row(), time.Now().Add(delay))
	n.queues.finish(c.queueKey(), c.row())
}

// giveBack returns the subject of a call to its page. The subject is due again after delay.
func (n *Notifier) giveBack(c *Call, delay time.Duration) {
	c.subject.reader.giveBack(c.subject, time.Now().Add(delay))
	if !c.repeats() {
		n.queues.finish(c.queueKey(), c.row())
	} else if delay == 0 {
		n.queues.markDue(c.Partition, map[queueKey]struct{}{c.queueKey(): {}})
	}
}

// CallsAccepted reports that the endpoint of a webhook accepts calls. Subjects from the log that
// the endpoint has refused are moved to the queue, so that the webhook's position in the log can
// move past them.
func (n *Notifier) CallsAccepted(webhook string) {
	for _, r := range n.readers.ofWebhook(webhook) {
		for _, s := range r.takeRefused() {
			n.reports.add(report{kind: callQueue, delay: time.Until(s.dueAt), call: Call{
				Partition: r.partition, Webhook: webhook, Type: s.kind, Subject: s.name, QueuedAt: s.queuedAt, Attempts: s.attempts, subject: s,
			}})
		}
	}
}

// CallsRenewed reports that a webhook has new settings. Subjects from the log that wait for a retry
// become due, and their number of failed calls becomes 0. Rows of the queue that CallHold has
// delayed become due, too.
func (n *Notifier) CallsRenewed(webhook string) {
	for _, r := range n.readers.ofWebhook(webhook) {
		r.renew()
		n.queues.markDue(r.partition, map[queueKey]struct{}{{name: webhook}: {}})
	}
}

// storeTimeout limits the time for storing the last reports when the notifier stops.
const storeTimeout = 2 * time.Second

// store stores reports until ctx is done. Then it stores the remaining reports and returns.
func (n *Notifier) store(ctx context.Context) {
	var left []report
	backoff := wait.Backoff{First: firstBackoff, Last: lastBackoff}
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
			defer cancel()
			if left, err := n.storeNext(last, left); err != nil {
				n.log.WarnContext(ctx, "cannot store which devices and webhooks were notified; they will be notified again", "targets", len(left), "error", err)
			}
			return
		case <-n.reports.wake:
		}
		var err error
		if left, err = n.storeNext(ctx, left); err == nil {
			backoff.Reset()
			continue
		}
		if ctx.Err() != nil {
			continue
		}
		n.metrics.failed.Inc()
		pause := backoff.Next()
		n.log.WarnContext(ctx, "cannot store which devices and webhooks were notified, will try again", "error", err, "in", pause)
		_ = wait.For(ctx, pause)
		wait.Wake(n.reports.wake)
	}
}

// storeNext stores the reports in left and all new reports. Then it moves the positions of
// webhooks. It returns the reports that it could not store.
func (n *Notifier) storeNext(ctx context.Context, left []report) ([]report, error) {
	come := n.reports.takeAll()
	left, err := n.storeAll(ctx, append(left, come...))
	if err != nil {
		return left, err
	}
	told := n.reports.takeTold() // includes the readers of the reports that were just stored
	if len(told) == 0 {
		return nil, nil
	}
	if err := n.movePositions(ctx, told); err != nil {
		for _, r := range told {
			n.reports.move(r)
		}
		return nil, err
	}
	return nil, nil
}

// batch identifies reports that one transaction can store together.
type batch struct {
	partition int
	kind      reportKind
	queue     queueKey
}

// storeAll stores reports, in one transaction for each batch. It returns the reports that it
// could not store.
func (n *Notifier) storeAll(ctx context.Context, all []report) (left []report, err error) {
	batches := map[batch][]report{}
	for _, r := range all {
		b := batch{r.row().partition, r.kind, r.queueKey()}
		batches[b] = append(batches[b], r)
	}
	for b, some := range batches {
		if err != nil {
			left = append(left, some...)
			continue
		}
		// Sort by the columns of the index: all transactions lock rows in this order.
		slices.SortFunc(some, func(x, y report) int {
			return cmp.Or(cmp.Compare(x.row().first, y.row().first), cmp.Compare(x.row().last, y.row().last))
		})
		if err = n.transaction(ctx, func(tx pgx.Tx) error { return storeBatch(ctx, tx, b, some) }); err != nil {
			left, err = append(left, some...), fmt.Errorf("store the results of %d pushes or calls: %w", len(some), err)
			continue
		}
		rows := make([]row, len(some))
		for i := range some {
			rows[i] = some[i].row()
		}
		n.metrics.reported(b.kind, len(some))
		n.queues.finish(b.queue, rows...)
		for i := range some {
			if s := some[i].call.subject; s != nil {
				n.subjectDone(s)
			}
		}
	}
	return left, err
}

func storeBatch(ctx context.Context, tx pgx.Tx, b batch, some []report) error {
	if b.kind >= callTold {
		return storeCalls(ctx, tx, b, some)
	}
	first, last := make([]string, len(some)), make([]string, len(some))
	generations, changes := make([]int64, len(some)), make([]int64, len(some))
	versions, numbers := make([]int64, len(some)), make([]int64, len(some))
	texts, delay := make([]string, len(some)), make([]time.Duration, len(some))
	var alerts settled
	for i := range some {
		r := &some[i]
		d := &r.device
		first[i], last[i], delay[i] = r.row().first, r.row().last, r.delay
		generations[i], changes[i] = d.Generation, d.Changes
		if b.kind == reportTold && d.moreToRetract {
			changes[i]-- // the count then differs from the count in the row, so the device remains due
		}
		versions[i], numbers[i], texts[i] = d.Badge.Version, d.Number, r.reason
		if b.kind == reportTold {
			texts[i] = d.Badge.Epoch
		}
		if b.kind == reportTold || b.kind == reportRetry {
			alerts.add(d, d.Alerts, true)
		}
		alerts.add(d, d.dropped, false)
		if b.kind == reportTold {
			alerts.retract(d)
		}
	}
	// Store alerts before devices: a device stays due if it has further alerts.
	if err := alerts.store(ctx, tx, b.partition); err != nil {
		return err
	}
	var err error
	switch b.kind {
	case reportTold:
		if _, err = tx.Exec(ctx, statements.Of(b.partition, "lock devices"), first, last); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, statements.Of(b.partition, "store told devices"), first, last, generations, changes, texts, versions, numbers, delay)
	case reportSame:
		_, err = tx.Exec(ctx, statements.Of(b.partition, "store devices that need not be told"), first, last, generations, changes)
	case reportRetry:
		// The alerts that were sent before the failure are stored as sent.
		told := slices.Clone(some)
		for i := range told {
			told[i].kind, told[i].delay = reportTold, 0
			told[i].device.Retract, told[i].device.moreToRetract = nil, false
		}
		told = slices.DeleteFunc(told, func(r report) bool { return len(r.device.Alerts) == 0 })
		if len(told) > 0 {
			if err := storeBatch(ctx, tx, batch{b.partition, reportTold, b.queue}, told); err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, statements.Of(b.partition, "store devices that were not told"), first, last, generations, delay, texts)
	case reportHold:
		_, err = tx.Exec(ctx, statements.Of(b.partition, "hold devices"), first, last, generations, delay)
	case reportGone:
		_, err = tx.Exec(ctx, statements.Of(b.partition, "delete devices that are gone"), first, last, generations)
	}
	return err
}

// settled has alerts that were sent, and alerts that will never be sent. sent distinguishes them.
type settled struct {
	users, devices, conversations []string
	seqs                          []int64
	sent                          []bool
	// retracted has the alerts that a push has retracted.
	retracted *settled
}

// retract adds the alerts of d.Retract to s.retracted, after a push has retracted them.
func (s *settled) retract(d *DevicePush) {
	if len(d.Retract) == 0 {
		return
	}
	if s.retracted == nil {
		s.retracted = &settled{}
	}
	for _, a := range d.Retract {
		s.retracted.add(d, []Alert{{ConversationID: a.ConversationID, Seq: a.Seq}}, true)
	}
}

func (s *settled) add(d *DevicePush, alerts []Alert, sent bool) {
	for i := range alerts {
		s.users, s.devices = append(s.users, d.UserID), append(s.devices, d.DeviceID)
		s.conversations, s.seqs, s.sent = append(s.conversations, alerts[i].ConversationID), append(s.seqs, alerts[i].Seq), append(s.sent, sent)
	}
}

func (s *settled) store(ctx context.Context, tx pgx.Tx, partition int) error {
	if len(s.users) > 0 {
		if _, err := tx.Exec(ctx, statements.Of(partition, "settle alerts"), s.users, s.devices, s.conversations, s.seqs, s.sent); err != nil {
			return err
		}
	}
	if r := s.retracted; r != nil {
		if _, err := tx.Exec(ctx, statements.Of(partition, "retract alerts"), r.users, r.devices, r.conversations, r.seqs); err != nil {
			return err
		}
	}
	return nil
}
