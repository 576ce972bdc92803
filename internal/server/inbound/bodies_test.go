package inbound

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Bodies take no more memory than there is, and no holder more than its share. What they
// have taken is free again when they are answered.
func TestRoomForBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const room = 16 << 20 // of bodies: keys have 3 MiB, one key 2 MiB; users 1 MiB, one user 256 KiB
		bodies := NewBodies(room, NewMetrics(nil))
		answer := make(chan struct{})
		serve := func(holder Holder, length int, declared bool) error {
			done := make(chan error, 1)
			c := make(chan struct{})
			h := Deadlines(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				Vouch(r.Context(), holder)
				n, err := io.Copy(io.Discard, r.Body)
				if err == nil && n != int64(length) {
					err = errors.New("a part is missing")
				}
				done <- err
				if err == nil {
					<-answer
				}
				close(c)
			}), bodies)
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/", io.MultiReader(strings.NewReader(strings.Repeat("x", length))))
			if err != nil {
				t.Fatal(err)
			}
			if r.ContentLength = -1; declared {
				r.ContentLength = int64(length)
			}
			go h.ServeHTTP(discard{}, r)
			err = <-done
			if err != nil {
				<-c
			}
			return err
		}
		own := func(err error) bool {
			full, ok := errors.AsType[*RoomError](err)
			return ok && full.Own && full.RetryAfter > 0
		}
		a, b := Holder{Name: "a"}, Holder{Name: "b"}
		ann, ben := Holder{User: true, Name: "ann"}, Holder{User: true, Name: "ben"}
		for range 2 {
			if err := serve(a, 1<<20, true); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		if err := serve(a, 1, true); !own(err) {
			t.Errorf("a key takes more than its share: %v", err)
		}
		if waited := time.Since(began); waited != bodyWait {
			t.Errorf("it waited for %v", waited)
		}
		if err := serve(b, 1<<20, true); err != nil {
			t.Errorf("another key: %v", err)
		}
		if err := serve(b, 1, true); err == nil || own(err) {
			t.Errorf("keys take more than there is: %v", err)
		}
		if err := serve(ann, 300<<10, false); !own(err) {
			t.Errorf("a user takes more than its share without saying so: %v", err)
		}
		if err := serve(ann, 256<<10, true); err != nil {
			t.Errorf("a user: %v", err)
		}
		if err := serve(ben, 100<<10, false); err != nil {
			t.Errorf("another user: %v", err)
		}
		close(answer)
		synctest.Wait()
		if bodies.keys.Used()+bodies.users.Used() != 0 {
			t.Errorf("at the end %d and %d bytes are taken", bodies.keys.Used(), bodies.users.Used())
		}
	})
}

// discard is an answer that no client reads.
type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) WriteHeader(int)             {}
