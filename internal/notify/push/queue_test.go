package push

import (
	"context"
	"sync"
	"time"
)

// memoryQueue is a Queue in memory with the promises of the real one. Waits are
// over at once, unless patient is set: then devices that wait stay away.
type memoryQueue struct {
	patient bool

	mu      sync.Mutex
	devices map[string]*memoryDevice
	changed chan struct{}
	life    int
	told    int
	waits   []memoryWait
}

type memoryDevice struct {
	due          Due
	changes      int64
	isDue, taken bool
	failures     int
}

// memoryRow says what was taken, and by which sender.
type memoryRow struct {
	device  *memoryDevice
	changes int64
	life    int
}

type memoryWait struct {
	kind, reason string
	after        time.Duration
}

func newQueue() *memoryQueue {
	return &memoryQueue{devices: map[string]*memoryDevice{}, changed: make(chan struct{})}
}

// update changes the queue, and wakes those that wait for it.
func (q *memoryQueue) update(change func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	change()
	close(q.changed)
	q.changed = make(chan struct{})
}

// set registers a device, or changes its number.
func (q *memoryQueue) set(key string, p Push, alerts ...Alert) {
	q.update(func() {
		d := q.devices[key]
		if d == nil {
			d = &memoryDevice{due: Due{RegisteredAt: time.Now()}}
			q.devices[key] = d
		}
		d.due.Push, d.isDue = p, true
		d.due.Alerts = append(d.due.Alerts, alerts...)
		d.changes++
	})
}

// kill forgets what was taken, and ignores the sender that took it.
func (q *memoryQueue) kill() {
	q.update(func() {
		q.life++
		for _, d := range q.devices {
			d.taken = false
		}
	})
}

// Next implements Queue.
func (q *memoryQueue) Next(ctx context.Context, app string, _ Platform, limit int) ([]Due, error) {
	for {
		q.mu.Lock()
		var all []Due
		for _, d := range q.devices {
			if d.isDue && !d.taken && d.due.App == app && len(all) < limit {
				d.taken = true
				due := d.due
				due.Attempts, due.DueAt = d.failures, time.Now()
				due.Row = memoryRow{d, d.changes, q.life}
				all = append(all, due)
			}
		}
		changed := q.changed
		q.mu.Unlock()
		if len(all) > 0 {
			return all, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// settle applies a report, unless its sender was killed.
func (q *memoryQueue) settle(d Due, report func(device *memoryDevice, row memoryRow)) {
	row, _ := d.Row.(memoryRow)
	q.update(func() {
		if row.life == q.life {
			row.device.taken = false
			report(row.device, row)
		}
	})
}

// Told implements Queue.
func (q *memoryQueue) Told(d Due, quiet time.Duration) {
	q.settle(d, func(device *memoryDevice, row memoryRow) {
		q.told++
		device.failures = 0
		device.due.Alerts = device.due.Alerts[len(d.Alerts):]
		device.due.Retract = device.due.Retract[len(d.Retract):]
		device.isDue = len(device.due.Retract) > 0 || device.changes != row.changes || len(device.due.Alerts) > 0
		q.waits = append(q.waits, memoryWait{"told", "", quiet})
	})
}

// Retry implements Queue.
func (q *memoryQueue) Retry(d Due, sent int, after time.Duration, reason string) {
	q.settle(d, func(device *memoryDevice, _ memoryRow) {
		if sent > 0 {
			device.failures = 0
			device.due.Alerts = device.due.Alerts[sent:]
		}
		device.failures++
		device.isDue = !q.patient
		q.waits = append(q.waits, memoryWait{"retry", reason, after})
	})
}

// Hold implements Queue.
func (q *memoryQueue) Hold(d Due, after time.Duration) {
	q.settle(d, func(device *memoryDevice, _ memoryRow) {
		device.isDue = !q.patient
		q.waits = append(q.waits, memoryWait{"hold", "", after})
	})
}

// Gone implements Queue.
func (q *memoryQueue) Gone(d Due, reason string) {
	q.settle(d, func(device *memoryDevice, _ memoryRow) {
		for key, other := range q.devices {
			if other == device {
				delete(q.devices, key)
			}
		}
		q.waits = append(q.waits, memoryWait{"gone", reason, 0})
	})
}

// wait waits until a condition holds. It returns false if ctx is done before.
func (q *memoryQueue) wait(ctx context.Context, holds func() bool) bool {
	for {
		q.mu.Lock()
		ok, changed := holds(), q.changed
		q.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// idle reports whether nothing is due. The caller holds mu.
func (q *memoryQueue) idle() bool {
	for _, d := range q.devices {
		if d.isDue {
			return false
		}
	}
	return true
}
