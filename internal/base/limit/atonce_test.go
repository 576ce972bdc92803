package limit

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := NewAtOnce[string](2, time.Second)
		enter := func(key string) func() {
			leave, ok := a.Enter(t.Context(), key)
			if !ok {
				t.Fatalf("%s finds no place", key)
			}
			return leave
		}
		first, second := enter("ada"), enter("ada")
		began := time.Now()
		if _, ok := a.Enter(t.Context(), "ada"); ok || time.Since(began) != time.Second {
			t.Errorf("a third enters: %t after %v", ok, time.Since(began))
		}
		enter("ben")() // another key has its own places
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, ok := a.Enter(gone, "ada"); ok {
			t.Error("a caller who has gone enters")
		}
		go func() {
			time.Sleep(time.Second / 2)
			first()
		}()
		began = time.Now()
		third := enter("ada") // waits for a place
		if time.Since(began) != time.Second/2 {
			t.Errorf("the third enters after %v", time.Since(began))
		}
		second()
		third()
		if len(a.byKey) != 0 {
			t.Errorf("%d keys are remembered", len(a.byKey))
		}
		unlimited := NewAtOnce[string](0, 0)
		for range 100 {
			if _, ok := unlimited.Enter(t.Context(), "ada"); !ok {
				t.Fatal("there is a bound")
			}
		}
	})
}
