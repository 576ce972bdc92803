package push

import (
	"context"
	"sync"
	"time"

	"github.com/badged/badged/internal/notify/outbound"
	"github.com/badged/badged/pubsub"
)

// memoryQueue is a Queue in memory with the promises of the real one. Waits are
// over at once, unless patient is true: then devices that wait stay away.
type memoryQueue struct {
	patient bool

	mu      sync.Mutex
	devices map[string]*memoryDevice
	changed chan struct{}
	life    int64
	told    int
	waits   []memoryWait
}

type memoryDevice struct {
	due          outbound.DevicePush
	isDue, taken bool
	failures     int
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
func (q *memoryQueue) set(key string, p Push, alerts ...outbound.Alert) {
	q.update(func() {
		d := q.devices[key]
		if d == nil {
			d = &memoryDevice{due: outbound.DevicePush{DeviceID: key, RegisteredAt: time.Now()}}
			q.devices[key] = d
		}
		d.due.UserID, d.due.App, d.due.Environment, d.due.Token = p.UserID, p.App, p.Environment, p.Token
		d.due.Badge, d.due.Number, d.due.Retract, d.isDue = pubsub.Badge{Epoch: p.Epoch, Version: p.Version}, p.Number, p.Retract, true
		d.due.Alerts = append(d.due.Alerts, alerts...)
		d.due.Changes++
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

// NextDevices implements Queue.
func (q *memoryQueue) NextDevices(ctx context.Context, app, _ string, limit int) ([]outbound.DevicePush, error) {
	for {
		q.mu.Lock()
		var all []outbound.DevicePush
		for _, d := range q.devices {
			if d.isDue && !d.taken && d.due.App == app && len(all) < limit {
				d.taken = true
				due := d.due
				due.Attempts, due.DueAt = d.failures, time.Now()
				due.Generation = q.life // the sender
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
func (q *memoryQueue) settle(d outbound.DevicePush, report func(device *memoryDevice)) {
	q.update(func() {
		if device := q.devices[d.DeviceID]; device != nil && d.Generation == q.life {
			device.taken = false
			report(device)
		}
	})
}

// DeviceTold implements Queue.
func (q *memoryQueue) DeviceTold(d outbound.DevicePush, quiet time.Duration) {
	q.settle(d, func(device *memoryDevice) {
		q.told++
		device.failures = 0
		device.due.Alerts = device.due.Alerts[len(d.Alerts):]
		device.due.Retract = device.due.Retract[len(d.Retract):]
		device.isDue = len(device.due.Retract) > 0 || device.due.Changes != d.Changes || len(device.due.Alerts) > 0
		q.waits = append(q.waits, memoryWait{"told", "", quiet})
	})
}

// DeviceRetry implements Queue.
func (q *memoryQueue) DeviceRetry(d outbound.DevicePush, sent int, after time.Duration, reason string) {
	q.settle(d, func(device *memoryDevice) {
		if sent > 0 {
			device.failures = 0
			device.due.Alerts = device.due.Alerts[sent:]
		}
		device.failures++
		device.isDue = !q.patient
		q.waits = append(q.waits, memoryWait{"retry", reason, after})
	})
}

// DeviceHold implements Queue.
func (q *memoryQueue) DeviceHold(d outbound.DevicePush, after time.Duration) {
	q.settle(d, func(device *memoryDevice) {
		device.isDue = !q.patient
		q.waits = append(q.waits, memoryWait{"hold", "", after})
	})
}

// DeviceGone implements Queue.
func (q *memoryQueue) DeviceGone(d outbound.DevicePush) {
	q.settle(d, func(*memoryDevice) {
		delete(q.devices, d.DeviceID)
		q.waits = append(q.waits, memoryWait{"gone", "", 0})
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
