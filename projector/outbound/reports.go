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
)

// reportKind is what became of a device or a call.
type reportKind int

const (
	reportTold  reportKind = iota
	reportSame             // it need not be told
	reportRetry            // it was not told
	reportHold             // it is not told now
	reportGone             // it does not exist any more
	callTold
	callRetry
	callQueue // it goes from the log to the queue
)

// report is what became of one device or call.
type report struct {
	kind   reportKind
	device DevicePush
	call   Call
	after  time.Duration
	reason string
}

func (r *report) row() row {
	if r.kind >= callTold {
		return r.call.row()
	}
	return r.device.row()
}

func (r *report) lane() lane {
	if r.kind >= callTold {
		return r.call.lane()
	}
	return r.device.lane()
}

// reports are to be stored, many at a time.
type reports struct {
	mu      sync.Mutex
	waiting []report
	// told are readers whose positions are to be moved.
	told map[*reader]struct{}
	wake chan struct{}
}

func newReports() reports { return reports{told: map[*reader]struct{}{}, wake: make(chan struct{}, 1)} }

// move lets the position of a reader be moved.
func (r *reports) move(told *reader) {
	r.mu.Lock()
	r.told[told] = struct{}{}
	r.mu.Unlock()
	r.again()
}

func (r *reports) add(some ...report) {
	if len(some) == 0 {
		return
	}
	r.mu.Lock()
	r.waiting = append(r.waiting, some...)
	r.mu.Unlock()
	r.again()
}

// again lets the reports be stored.
func (r *reports) again() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
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

// DeviceTold reports that a device was told its number, its alerts and what to retract. For so long
// after it only alerts are pushed to it. It does not block, as the other reports.
func (n *Notifier) DeviceTold(p DevicePush, quiet time.Duration) {
	n.reports.add(report{kind: reportTold, device: p, after: quiet})
}

// KeepRetract returns p as it is reported if its device was not told what to remove: that
// stays due.
func (p DevicePush) KeepRetract() DevicePush {
	p.moreToRetract = p.moreToRetract || len(p.Retract) > 0
	p.Retract = nil
	return p
}

// DeviceRetry reports that a push failed after that many of the alerts were told, oldest
// first, and with them the number. The device is due again after some time, or when it
// is registered with another token.
func (n *Notifier) DeviceRetry(p DevicePush, told int, after time.Duration, reason string) {
	p.Alerts = p.Alerts[:told]
	n.reports.add(report{kind: reportRetry, device: p, after: after, reason: reason})
}

// DeviceHold reports that a device is not told now, and is due again after some time.
// This is no failure.
func (n *Notifier) DeviceHold(p DevicePush, after time.Duration) {
	n.reports.add(report{kind: reportHold, device: p, after: after})
}

// DeviceGone deletes a device that its vendor does not know, unless it was registered
// again.
func (n *Notifier) DeviceGone(p DevicePush) { n.reports.add(report{kind: reportGone, device: p}) }

// CallTold reports that a webhook was told of a subject, or need not be told. A reminder is
// due again after some time; 0 is when the user changes.
func (n *Notifier) CallTold(c Call, again time.Duration) {
	if c.subject == nil || c.Type == UnreadReminder && !c.Same {
		n.reports.add(report{kind: callTold, call: c, after: again})
		return
	}
	n.metrics.reported(callTold, 1)
	n.settle(&c)
}

// settle gives back what is told by the log and stores nothing.
func (n *Notifier) settle(c *Call) {
	if !c.repeats() {
		n.lanes.give(c.lane(), c.row())
	}
	n.subjectDone(c.subject)
}

// CallRetry reports that a subject was not told, and is due again after some time. The
// position of the webhook waits for it; if it was refused, until CallsAccepted.
func (n *Notifier) CallRetry(c Call, after time.Duration, refused bool) {
	s := c.subject
	if s == nil {
		n.reports.add(report{kind: callRetry, call: c, after: after})
		return
	}
	n.metrics.reported(callRetry, 1)
	s.attempts, s.refused = s.attempts+1, refused
	n.giveBack(&c, after)
}

// CallHold reports that a subject was not tried, and is due again after some time.
func (n *Notifier) CallHold(c Call, after time.Duration) {
	if c.subject != nil {
		n.giveBack(&c, after)
		return
	}
	n.readers.of(c.Webhook, c.Partition).hold(c.row(), time.Now().Add(after))
	n.lanes.give(c.lane(), c.row())
}

// giveBack lets a subject be told later.
func (n *Notifier) giveBack(c *Call, after time.Duration) {
	c.subject.reader.giveBack(c.subject, time.Now().Add(after))
	if !c.repeats() {
		n.lanes.give(c.lane(), c.row())
	} else if after == 0 {
		n.lanes.look(c.Partition, map[lane]struct{}{c.lane(): {}})
	}
}

// CallsAccepted reports that a webhook accepts calls. What it has refused goes into the
// queue, so that the position need not wait for it.
func (n *Notifier) CallsAccepted(webhook string) {
	for _, r := range n.readers.ofWebhook(webhook) {
		for _, s := range r.takeRefused() {
			n.reports.add(report{kind: callQueue, after: time.Until(s.again), call: Call{
				Partition: r.partition, Webhook: webhook, Type: s.kind, Subject: s.name, QueuedAt: s.at, Attempts: s.attempts, subject: s,
			}})
		}
	}
}

// CallsRenewed reports that a webhook has other settings: what waits is due, as if it had not
// failed.
func (n *Notifier) CallsRenewed(webhook string) {
	for _, r := range n.readers.ofWebhook(webhook) {
		r.renew()
		n.lanes.look(r.partition, map[lane]struct{}{{name: webhook}: {}})
	}
}

// storeTimeout is how long storing reports may take when the notifier stops.
const storeTimeout = 2 * time.Second

// store stores reports until ctx is done, and then what is left.
func (n *Notifier) store(ctx context.Context) {
	var left []report
	backoff := firstBackoff
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
			defer cancel()
			if left, err := n.storeNext(last, left); err != nil {
				n.log.WarnContext(ctx, "cannot store what was told; it will be told again", "targets", len(left), "error", err)
			}
			return
		case <-n.reports.wake:
		}
		var err error
		if left, err = n.storeNext(ctx, left); err == nil {
			backoff = firstBackoff
			continue
		}
		if ctx.Err() != nil {
			continue
		}
		n.metrics.failed.Inc()
		n.log.WarnContext(ctx, "cannot store what was told, will try again", "error", err, "in", backoff)
		select {
		case <-ctx.Done():
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, lastBackoff)
		n.reports.again()
	}
}

// storeNext stores what is left of the reports and those that have come, and then moves the
// positions of webhooks. It returns the reports that it could not store.
func (n *Notifier) storeNext(ctx context.Context, left []report) ([]report, error) {
	come := n.reports.takeAll()
	left, err := n.storeAll(ctx, append(left, come...))
	if err != nil {
		return left, err
	}
	told := n.reports.takeTold() // with what was just stored
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

// batch is the reports that a statement stores.
type batch struct {
	partition int
	kind      reportKind
	lane      lane
}

// storeAll stores reports, and returns those that it could not store.
func (n *Notifier) storeAll(ctx context.Context, all []report) (left []report, err error) {
	batches := map[batch][]report{}
	for _, r := range all {
		b := batch{r.row().partition, r.kind, r.lane()}
		batches[b] = append(batches[b], r)
	}
	for b, some := range batches {
		if err != nil {
			left = append(left, some...)
			continue
		}
		// In the order of the index, in which others lock rows.
		slices.SortFunc(some, func(x, y report) int {
			return cmp.Or(cmp.Compare(x.row().first, y.row().first), cmp.Compare(x.row().last, y.row().last))
		})
		if err = n.transaction(ctx, func(tx pgx.Tx) error { return storeBatch(ctx, tx, b, some) }); err != nil {
			left, err = append(left, some...), fmt.Errorf("store what became of %d pushes or calls: %w", len(some), err)
			continue
		}
		rows := make([]row, len(some))
		for i := range some {
			rows[i] = some[i].row()
		}
		n.metrics.reported(b.kind, len(some))
		n.lanes.give(b.lane, rows...)
		for i := range some {
			if s := some[i].call.subject; s != nil {
				n.subjectDone(s)
			}
		}
	}
	return left, err
}

// storeBatch stores reports of one kind.
func storeBatch(ctx context.Context, tx pgx.Tx, b batch, some []report) error {
	if b.kind >= callTold {
		return storeCalls(ctx, tx, b, some)
	}
	first, last := make([]string, len(some)), make([]string, len(some))
	generations, changes := make([]int64, len(some)), make([]int64, len(some))
	versions, numbers := make([]int64, len(some)), make([]int64, len(some))
	texts, after := make([]string, len(some)), make([]time.Duration, len(some))
	var alerts settled
	for i := range some {
		r := &some[i]
		d := &r.device
		first[i], last[i], after[i] = r.row().first, r.row().last, r.after
		generations[i], changes[i] = d.Generation, d.Changes
		if b.kind == reportTold && d.moreToRetract {
			changes[i]-- // so that it is due again
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
	// Before the devices: one that has more alerts stays due.
	if err := alerts.store(ctx, tx, b.partition); err != nil {
		return err
	}
	var err error
	switch b.kind {
	case reportTold:
		if _, err = tx.Exec(ctx, statements.Of(b.partition, "lock devices"), first, last); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, statements.Of(b.partition, "store told devices"), first, last, generations, changes, texts, versions, numbers, after)
	case reportSame:
		_, err = tx.Exec(ctx, statements.Of(b.partition, "store devices that need not be told"), first, last, generations, changes)
	case reportRetry:
		// What was told before the failure is stored as told.
		told := slices.Clone(some)
		for i := range told {
			told[i].kind, told[i].after = reportTold, 0
			told[i].device.Retract, told[i].device.moreToRetract = nil, false
		}
		told = slices.DeleteFunc(told, func(r report) bool { return len(r.device.Alerts) == 0 })
		if len(told) > 0 {
			if err := storeBatch(ctx, tx, batch{b.partition, reportTold, b.lane}, told); err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, statements.Of(b.partition, "store devices that were not told"), first, last, generations, after, texts)
	case reportHold:
		_, err = tx.Exec(ctx, statements.Of(b.partition, "hold devices"), first, last, generations, after)
	case reportGone:
		_, err = tx.Exec(ctx, statements.Of(b.partition, "delete devices that are gone"), first, last, generations)
	}
	return err
}

// settled are alerts that were told or need not be.
type settled struct {
	users, devices, conversations []string
	seqs                          []int64
	sent                          []bool
	// retracted are alerts that devices were told to remove.
	retracted *settled
}

// retract adds the alerts that a device was told to remove.
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
