package webhook

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/badged/badged/internal/notify/outbound"
)

// An endpoint that is down is called by the ladder, and paused after two days.
func TestLadder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, e := serve(t, outbound.Webhook{}, func(received) (*http.Response, error) { return nil, errDown }, slowRefresh)
		q.badge("crm", "ada", 1, 1)
		time.Sleep(72 * time.Hour)
		synctest.Wait()
		calls := e.all()
		wants := []time.Duration{
			5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute,
			time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
		}
		if len(calls) != len(wants)+1 {
			t.Fatalf("%d calls, want %d", len(calls), len(wants)+1)
		}
		for i, want := range wants {
			if wait := calls[i+1].at.Sub(calls[i].at); wait < want-want/10 || wait > want+want/10+time.Second {
				t.Errorf("the wait after call %d is %s, want about %s", i+1, wait, want)
			}
			if calls[i+1].id != calls[0].id {
				t.Errorf("call %d has the id %s, want that of the first, %s", i+2, calls[i+1].id, calls[0].id)
			}
		}
		if w := q.webhook("crm"); w.State != outbound.Paused || w.Step != len(wants)+1 || w.LastError != "connection refused" {
			t.Errorf("after the ladder the webhook is %+v", w)
		}

		// Resumed, it gets the newest state of every user who changed.
		q.badge("crm", "ada", 2, 2)
		q.badge("crm", "ben", 1, 1)
		e.mu.Lock()
		e.answer = nil
		e.mu.Unlock()
		q.set("crm", func(w *outbound.Webhook) { w.State = outbound.Active })
		time.Sleep(time.Minute)
		synctest.Wait()
		told := versions(t, e.all()[len(calls):])
		if want := map[string][]int64{"ada": {2}, "ben": {1}}; fmt.Sprint(told) != fmt.Sprint(want) {
			t.Errorf("resumed, the endpoint was told the versions %v, want %v", told, want)
		}
	})
}

// slowRefresh saves time in tests of days.
func slowRefresh(cfg *Config) { cfg.RefreshInterval = time.Minute }

// versions returns the versions that calls told, by user.
func versions(t *testing.T, calls []received) map[string][]int64 {
	t.Helper()
	told := map[string][]int64{}
	for _, c := range calls {
		for _, e := range c.events {
			var data struct {
				UserID  string `json:"user_id"`
				Version int64  `json:"version"`
			}
			if err := json.Unmarshal(e.Data, &data); err != nil {
				t.Fatal(err)
			}
			told[data.UserID] = append(told[data.UserID], data.Version)
		}
	}
	return told
}

// A success begins the ladder anew.
func TestSuccessResetsTheLadder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(outbound.Webhook{Name: "crm", URL: "https://crm.example/hook"})
		e := newEndpoints(t)
		down := true
		e.answer = func(received) (*http.Response, error) {
			e.mu.Lock()
			defer e.mu.Unlock()
			if down {
				return status(http.StatusBadGateway)
			}
			return nil, nil //nolint:nilnil // the default answer
		}
		start(t, q, e)
		for i := range 20 {
			q.badge("crm", fmt.Sprint("user ", i), 1, 1)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if w := q.webhook("crm"); w.Step == 0 || w.LastStatus != http.StatusBadGateway || w.FailingSince.IsZero() {
			t.Fatalf("after an hour the webhook is %+v", w)
		}
		before := len(e.all())
		// At first as many as may be in flight, then one at each step.
		if before > 40 {
			t.Errorf("an endpoint that is down got %d calls in an hour", before)
		}
		e.mu.Lock()
		down = false
		e.mu.Unlock()
		time.Sleep(time.Hour)
		synctest.Wait()
		if w := q.webhook("crm"); w.Step != 0 || w.LastError != "" || !w.FailingSince.IsZero() || !w.Due.IsZero() {
			t.Errorf("after a success the webhook is %+v", w)
		}
		if told := versions(t, e.all()[before:]); len(told) != 20 {
			t.Errorf("%d users were told, want 20: %v", len(told), slices.Sorted(maps.Keys(told)))
		}
	})
}

// An event that the endpoint cannot take climbs the ladder alone.
func TestOneBadEventHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, e := serve(t, outbound.Webhook{Batch: 10}, func(r received) (*http.Response, error) {
			if strings.Contains(string(r.body), "poison") {
				return status(http.StatusUnprocessableEntity)
			}
			return nil, nil //nolint:nilnil // the default answer
		}, slowRefresh)
		q.badge("crm", "ada", 1, 1)
		q.badge("crm", "poison", 1, 1)
		time.Sleep(10 * time.Second) // those in its call were told at the second attempt
		for i := range int64(1000) {
			q.badge("crm", "ben", i+1, i%2)
			time.Sleep(time.Minute)
		}
		synctest.Wait()
		told := versions(t, e.all())
		if n := len(told["ben"]); n != 1000 {
			t.Errorf("%d of 1000 changes of another user were told", n)
		}
		if n := len(told["poison"]); n < 5 || n > 10 {
			t.Errorf("the bad event was tried %d times in 17 hours", n)
		}
		if len(told["ada"]) < 1 {
			t.Error("the user in the same call was not told")
		}
		if w := q.webhook("crm"); w.Step != 0 || w.State != outbound.Active {
			t.Errorf("the webhook is %+v", w)
		}
	})
}

// However many calls fail together or one after the other, the ladder of the
// webhook counts rounds: what fails for a moment waits for the first step.
func TestStepsAreRounds(t *testing.T) {
	for _, c := range []struct {
		name string
		took time.Duration // by a call
		gap  time.Duration // between changes
	}{
		{"together", 100 * time.Millisecond, 0},
		{"one after the other", time.Millisecond, 10 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, _ := serve(t, outbound.Webhook{}, func(r received) (*http.Response, error) {
					r.sleep(c.took)
					return status(http.StatusInternalServerError)
				})
				for i := range 40 {
					q.put("crm", outbound.Call{Type: outbound.BadgeChanged, Subject: fmt.Sprint("user ", i), Badge: badge("ada", 1, 1), Attempts: i % 12})
					time.Sleep(c.gap)
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				if w := q.webhook("crm"); w.Step != 1 || w.State != outbound.Active || w.Due.Sub(w.FailingSince) > 6*time.Second {
					t.Errorf("after a moment of failures the webhook is %+v", w)
				}
				time.Sleep(5 * time.Second)
				synctest.Wait()
				if w := q.webhook("crm"); w.Step != 2 || w.Due.Sub(w.LastFailureAt) > 34*time.Second {
					t.Errorf("after the call at the first step the webhook is %+v", w)
				}
			})
		})
	}
}

// Calls that wait for their turn are not made once the webhook waits.
func TestWaitingCallsAreHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(outbound.Webhook{Name: "crm", URL: "https://crm.example/hook", Rate: 60})
		e := newEndpoints(t)
		e.answer = func(received) (*http.Response, error) { return status(http.StatusInternalServerError) }
		for i := range 32 {
			q.badge("crm", fmt.Sprint("user ", i), 1, 1)
		}
		start(t, q, e)
		time.Sleep(8 * time.Second) // five calls, and less than the first step
		synctest.Wait()
		if n := len(e.all()); n != tripAfter {
			t.Errorf("%d calls, want %d", n, tripAfter)
		}
	})
}

// An event that the endpoint cannot take does not keep a webhook from finding out
// that the endpoint works again.
func TestBadEventIsNotTheProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		q, e := serve(t, outbound.Webhook{}, func(r received) (*http.Response, error) {
			if time.Since(began) < time.Second || strings.Contains(string(r.body), "poison") {
				return status(http.StatusBadRequest)
			}
			return nil, nil //nolint:nilnil // the default answer
		})
		for i := range 5 {
			q.badge("crm", fmt.Sprint("user ", i), 1, 1)
		}
		q.put("crm", outbound.Call{Type: outbound.BadgeChanged, Subject: "poison", Badge: badge("poison", 1, 1), Attempts: 10})
		for i := range int64(45) { // until after the second step
			time.Sleep(time.Second)
			q.badge("crm", "poison", i+2, i)
		}
		synctest.Wait()
		told := map[string]bool{}
		for _, c := range e.all() {
			if c.at.Sub(began) >= time.Second {
				told[c.events[0].Subject] = true
			}
		}
		for i := range 5 {
			if user := fmt.Sprint("user ", i); !told[user] {
				t.Errorf("%s was not told in 45 s", user)
			}
		}
	})
}

// A webhook that works again says so, also if no other call follows.
func TestSuccessAfterAFailureIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		q, e := serve(t, outbound.Webhook{}, func(received) (*http.Response, error) {
			if calls.Add(1) == 2 {
				return status(http.StatusServiceUnavailable)
			}
			return nil, nil //nolint:nilnil // the default answer
		})
		q.badge("crm", "ada", 1, 1)
		<-e.came
		time.Sleep(3 * time.Second)
		q.badge("crm", "ben", 1, 1)
		<-e.came
		<-e.came // the second attempt
		succeededAt := time.Now()
		time.Sleep(2 * time.Second) // of the bubble; more than a refresh takes
		synctest.Wait()
		if w := q.webhook("crm"); w.LastError != "" || !w.FailingSince.IsZero() || !w.LastSuccessAt.Equal(succeededAt) {
			t.Errorf("after the success the webhook is %+v", w)
		}
	})
}

// An operator may change the settings while a call is in progress, or before its success is
// recorded, and no other call may follow.
func TestSuccessWithEarlierSettingsIsRecorded(t *testing.T) {
	for _, change := range []struct {
		url   string
		after time.Duration // since the call began, which takes three seconds
		kept  bool
	}{
		{"https://crm.example/hook", 0, true},
		{"https://crm.example/hook", 3500 * time.Millisecond, true},
		{"https://crm.example/other", 0, false},
		{"https://crm.example/other", 3500 * time.Millisecond, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := make(chan struct{}, 1)
			q, _ := serve(t, outbound.Webhook{}, func(r received) (*http.Response, error) {
				began <- struct{}{}
				r.sleep(3 * time.Second)
				return nil, nil //nolint:nilnil // the default answer
			})
			q.fail(errDown)
			q.badge("crm", "ada", 1, 1)
			<-began
			time.Sleep(change.after)
			q.fail(nil)
			q.set("crm", func(w *outbound.Webhook) { w.URL = change.url })
			time.Sleep(6 * time.Second) // more than a call and a refresh take
			synctest.Wait()
			if w := q.webhook("crm"); w.LastSuccessAt.IsZero() == change.kept {
				t.Errorf("after %+v the webhook is %+v", change, w)
			}
		})
	}
}

// A failure is recorded soon, also if no other call follows and after others were
// recorded just before.
func TestFailuresAreRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, e := serve(t, outbound.Webhook{}, func(r received) (*http.Response, error) {
			if r.events[0].Subject == "ada" {
				return nil, nil //nolint:nilnil // the default answer
			}
			return status(http.StatusFound)
		})
		q.badge("crm", "ada", 1, 1)
		<-e.came
		synctest.Wait() // the success comes before the failure
		q.badge("crm", "ben", 1, 1)
		<-e.came
		failedAt := time.Now()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if w := q.webhook("crm"); w.LastStatus != http.StatusFound || w.LastError == "" || !w.FailingSince.Equal(failedAt) {
			t.Errorf("two seconds after a failure the webhook is %+v", w)
		}
		q.fail(errDown)
		q.badge("crm", "eve", 1, 1)
		<-e.came
		failedAt = time.Now()
		time.Sleep(1200 * time.Millisecond) // a refresh
		q.fail(nil)
		time.Sleep(1200 * time.Millisecond) // less than until the events are tried again
		synctest.Wait()
		if w := q.webhook("crm"); !w.LastFailureAt.Equal(failedAt) {
			t.Errorf("the failure that could not be recorded at first is not recorded: %+v", w)
		}
		q.badge("crm", "fay", 1, 1)
		<-e.came
		failedAt = time.Now()
		e.stop()
		if w := q.webhook("crm"); !w.LastFailureAt.Equal(failedAt) {
			t.Errorf("the failure before the sender stopped is not recorded: %+v", w)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			code   int
			header string
			want   time.Duration
		}{
			{http.StatusServiceUnavailable, time.Now().Add(30 * time.Minute).UTC().Format(http.TimeFormat), 30 * time.Minute},
			{http.StatusTooManyRequests, "3600", time.Hour},
			{http.StatusTooManyRequests, "99999999", 24 * time.Hour},
			{http.StatusTooManyRequests, "99999999999999999999", 24 * time.Hour},
			{http.StatusTooManyRequests, "-5", 5 * time.Second},
			{http.StatusTooManyRequests, "soon", 5 * time.Second},
		} {
			q := newQueue(outbound.Webhook{Name: "crm", URL: "https://crm.example/hook"})
			e := newEndpoints(t)
			e.answer = func(received) (*http.Response, error) {
				e.mu.Lock()
				defer e.mu.Unlock()
				if len(e.calls) == 1 {
					return status(c.code, "Retry-After", c.header)
				}
				return nil, nil //nolint:nilnil // the default answer
			}
			began := time.Now()
			stop := start(t, q, e)
			q.badge("crm", "ada", 1, 1)
			<-e.came
			synctest.Wait()
			if c.want > time.Minute {
				q.badge("crm", "ben", 1, 1) // nothing else is sent either
			}
			<-e.came
			wait := e.all()[1].at.Sub(began)
			if wait < c.want-c.want/10 || wait > c.want+c.want/10 {
				t.Errorf("after %d with Retry-After %q the next call came after %s, want %s", c.code, c.header, wait, c.want)
			}
			stop()
		}
	})
}
