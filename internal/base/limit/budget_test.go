package limit

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget[string](10, 6)
		take := func(key string, n int64, wait time.Duration, want Shortage) {
			t.Helper()
			if got := b.Take(key, n, wait); got != want {
				t.Errorf("%d for %s: %d, want %d", n, key, got, want)
			}
		}
		take("ada", 5, 0, Enough)
		take("ada", 2, 0, OfHolder)
		take("ben", 6, 0, OfAll)
		take("ben", 5, 0, Enough)
		began := time.Now()
		take("cat", 1, time.Second, OfAll)
		if took := time.Since(began); took != time.Second {
			t.Errorf("it waits for %v", took)
		}

		// Requests are granted in their order. A request whose holder has used its share
		// does not block the others.
		served := make(chan string, 3)
		for _, key := range []string{"ada", "cat", "dan"} {
			go func() {
				take(key, 4, time.Minute, Enough)
				served <- key
			}()
			synctest.Wait()
		}
		for _, step := range []struct {
			from string
			n    int64
			next string
		}{{"ben", 5, "cat"}, {"ada", 5, "ada"}, {"cat", 4, "dan"}} {
			b.Give(step.from, step.n)
			synctest.Wait()
			if len(served) != 1 {
				t.Fatalf("%d are served at once", len(served))
			}
			if key := <-served; key != step.next {
				t.Errorf("%s is served before %s", key, step.next)
			}
		}
		b.Give("ada", 4)
		b.Give("dan", 4)
		if b.Used() != 0 || len(b.byKey) != 0 || b.waiting.Len() != 0 {
			t.Errorf("at the end %d is in use, by %d holders, and %d wait", b.Used(), len(b.byKey), b.waiting.Len())
		}
	})
}
