package gateway

import (
	"context"
	"errors"
	"testing"
	"time"
)

// told is what a gateway says of devices.
type told struct {
	device Device
	open   bool
}

// recordedDevices implements Devices.
type recordedDevices chan told

func (r recordedDevices) Hold(_ context.Context, devices []Device, lease time.Duration) error {
	for _, d := range devices {
		r <- told{d, lease > 0}
	}
	return errors.New("the database is down") // which must not matter
}

// A device counts as open from its first session to its last, and sessions that name no device
// use no memory.
func TestPresence(t *testing.T) {
	heard := make(recordedDevices, 10)
	p := newPresence(heard)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 10)
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.run(ctx, func(err error) { failed <- err })
	}()
	expect := func(want told) {
		t.Helper()
		if got := <-heard; got != want {
			t.Errorf("heard %+v, want %+v", got, want)
		}
		if err := <-failed; err == nil {
			t.Error("the failure is not told")
		}
	}
	phone := Device{"ada", "phone"}
	first, second, nameless, bad := new(session), new(session), new(session), new(session)
	p.enter(nameless, "ada", "")
	p.enter(bad, "ada", "a\x00")
	if len(p.bySession) != 0 {
		t.Errorf("%d sessions without devices are remembered", len(p.bySession))
	}
	p.enter(first, "ada", "phone")
	expect(told{phone, true})
	p.enter(second, "ada", "phone")
	p.leave(first)
	if open, closed := p.take(true); len(open) != 1 || len(closed) != 0 {
		t.Errorf("with one of two sessions %v are open and %v closed", open, closed)
	}
	p.leave(second)
	p.leave(nameless)
	expect(told{phone, false})
	if open, closed := p.take(true); len(open)+len(closed)+len(p.bySession) != 0 {
		t.Errorf("after the last session %v are open and %v closed", open, closed)
	}
	cancel()
	<-done
}
