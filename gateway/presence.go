package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/badged/badged/internal/base/wait"
)

// Device is a device of a user. ID is the id with which the device is registered for pushes.
type Device struct{ UserID, ID string }

// Devices records which devices have their app open. These devices get no pushes.
type Devices interface {
	// Hold records that the apps of devices are open. The record expires after the duration
	// `lease`. If lease is 0, Hold records that the apps are closed. Hold is safe for concurrent
	// use.
	Hold(ctx context.Context, devices []Device, lease time.Duration) error
}

// A device counts as connected for the duration of a lease, which the gateway renews regularly.
// If a gateway is killed, its leases expire.
const (
	presenceLease = 60 * time.Second
	presenceRenew = 25 * time.Second
)

// presence reports to Devices which devices have sessions on this gateway. It knows the device
// of a session only if the client has named the device in its hello.
type presence struct {
	devices Devices // nil: presence is not recorded

	mu        sync.Mutex
	bySession map[*session]Device
	// open counts the sessions of each device.
	open map[Device]int
	// changed are the devices that must be reported to Devices, because their first session has
	// begun or their last session has ended.
	changed map[Device]struct{}
	wake    chan struct{}
}

func newPresence(devices Devices) *presence {
	return &presence{devices: devices, bySession: map[*session]Device{}, open: map[Device]int{}, changed: map[Device]struct{}{}, wake: make(chan struct{}, 1)}
}

// enter records the device of a session. It ignores text that cannot be a device id.
func (p *presence) enter(s *session, userID, deviceID string) {
	if p.devices == nil || !canBeID(deviceID) {
		return
	}
	d := Device{userID, deviceID}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bySession[s] = d
	if p.open[d]++; p.open[d] == 1 {
		p.change(d)
	}
}

// leave removes a session that has ended.
func (p *presence) leave(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d, ok := p.bySession[s]
	if !ok {
		return
	}
	delete(p.bySession, s)
	if p.open[d]--; p.open[d] == 0 {
		delete(p.open, d)
		p.change(d)
	}
}

// change makes run report a device. The caller holds the mutex.
func (p *presence) change(d Device) {
	p.changed[d] = struct{}{}
	wait.Wake(p.wake)
}

// run reports connected and disconnected devices to Devices until ctx is done. If a report fails,
// run calls the function `failed`. It does not repeat the report at once: the next renewal reports
// all connected devices, and the leases of disconnected devices expire.
func (p *presence) run(ctx context.Context, failed func(error)) {
	if p.devices == nil {
		return
	}
	renew := time.NewTicker(presenceRenew)
	defer renew.Stop()
	for {
		all := false
		select {
		case <-ctx.Done():
			return
		case <-renew.C:
			all = true
		case <-p.wake:
		}
		open, closed := p.take(all)
		for _, told := range []struct {
			devices []Device
			lease   time.Duration
		}{{closed, 0}, {open, presenceLease}} {
			if len(told.devices) == 0 {
				continue
			}
			if err := p.devices.Hold(ctx, told.devices, told.lease); err != nil && ctx.Err() == nil {
				failed(err)
			}
		}
	}
}

// take returns the devices that must be reported now, and clears changed. These are the changed
// devices and, if the parameter `all` is true, all devices that have sessions.
func (p *presence) take(all bool) (open, closed []Device) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for d := range p.changed {
		if p.open[d] == 0 {
			closed = append(closed, d)
		} else if !all {
			open = append(open, d)
		}
	}
	clear(p.changed)
	if all {
		for d := range p.open {
			open = append(open, d)
		}
	}
	return open, closed
}
