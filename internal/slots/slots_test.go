package slots_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/badged/badged/internal/slots"
)

// What takes long loses its slot, once.
func TestLongWorkLosesItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slots.New(1)
		enter := func(ctx context.Context) (entered chan func()) {
			entered = make(chan func(), 1)
			go func() {
				leave, ok := s.Take(ctx)
				if ok != (ctx.Err() == nil) {
					t.Errorf("taking a slot: %v, with the context %v", ok, ctx.Err())
				}
				entered <- leave
			}()
			synctest.Wait()
			return entered
		}
		first := <-enter(t.Context())
		second := enter(t.Context())
		canceled, cancel := context.WithCancel(t.Context())
		third := enter(canceled)
		if len(second) > 0 {
			t.Error("the slot was taken twice")
		}
		cancel()
		<-third
		leave := <-second // once the first has lost its slot
		first()
		fourth := enter(t.Context())
		if len(fourth) > 0 {
			t.Error("work that had lost its slot gave back that of another")
		}
		leave()
		(<-fourth)()
	})
}
