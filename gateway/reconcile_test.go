package gateway

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

// A lost update is found within an interval, whenever the client has connected.
func TestReconciliationReachesEachClientWithinTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const interval = time.Minute
		w := newPipedWorld(t, func(c *Config) { c.ReconcileInterval = interval })
		w.bus.setLose(true)
		for i := range 20 {
			user := fmt.Sprint("user", i)
			c, _ := w.connect(user)
			w.send(user, "c1", 1)
			heard := make(chan frame, 1)
			go func() { heard <- c.hear() }()
			time.Sleep(interval + reconcileGrace)
			synctest.Wait()
			select {
			case f := <-heard:
				if f.unread("c1") != 1 {
					t.Errorf("%s hears %s", user, f.raw)
				}
			default:
				t.Fatalf("%s has heard nothing within the interval", user)
			}
			time.Sleep(time.Duration(i) * interval / 20)
		}
		if n := w.counter(w.metrics.repairs); n != 20 {
			t.Errorf("%v repairs are counted", n)
		}
		if w.counter(w.metrics.compared) == 0 {
			t.Error("no user is counted as compared")
		}
		w.stop()
	})
}

// All places of a round have about the same number of users, and the place of a user stays the
// same.
func TestPlacesOfARound(t *testing.T) {
	for _, batches := range []int{1, 2, 7, 1000} {
		for hash := uint64(0); hash < math.MaxUint64-1<<54; hash += 1 << 54 {
			if share, place := float64(hash)/math.MaxUint64, placeOf(hash, batches); place != int(share*float64(batches)) {
				t.Fatalf("the place of %x in %d batches is %d", hash, batches, place)
			}
		}
	}
}
