package gateway

import (
	"context"
	"sync"
	"time"
)

// Device is a device of a user, under the id with which it was registered for pushes.
type Device struct{ UserID, ID string }

// Devices learns which devices have their app open, and so need no pushes.
type Devices interface {
	// Hold notes that the apps of devices are open, for so long at least; 0 means
	// that they are closed. It is safe for concurrent use.
	Hold(ctx context.Context, devices []Device, lease time.Duration) error
}

// A device counts as connected for a lease, which is renewed in time. A gateway that
// is killed renews none.
const (
	presenceLease = 60 * time.Second
	presenceRenew = 25 * time.Second
)

// presence are the devices of the sessions that named theirs. It takes memory for
// these sessions only.
type presence struct {
	devices Devices // nil if nothing wants to know

	mu sync.Mutex
	of map[*session]Device
	// open counts the sessions of each device.
	open map[Device]int
	// changed are devices whose first session has begun, or the last has ended.
	changed map[Device]struct{}
	wake    chan struct{}
}

func newPresence(devices Devices) *presence {
	return &presence{devices: devices, of: map[*session]Device{}, open: map[Device]int{}, changed: map[Device]struct{}{}, wake: make(chan struct{}, 1)}
}

// enter notes that a session is of a device; an id that no device can have is ignored.
func (p *presence) enter(s *session, userID, deviceID string) {
	if p.devices == nil || !canBeID(deviceID) {
		return
	}
	d := Device{userID, deviceID}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of[s] = d
	if p.open[d]++; p.open[d] == 1 {
		p.change(d)
	}
}

// leave notes that a session has ended.
func (p *presence) leave(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d, ok := p.of[s]
	if !ok {
		return
	}
	delete(p.of, s)
	if p.open[d]--; p.open[d] == 0 {
		delete(p.open, d)
		p.change(d)
	}
}

// change lets run tell of a device. The caller holds the mutex.
func (p *presence) change(d Device) {
	p.changed[d] = struct{}{}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// run tells which devices are connected until ctx is done. What cannot be told is told
// with the next renewal, and leases of closed devices end by themselves.
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

// take returns the devices to tell of: those that changed, or also all that are open.
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
