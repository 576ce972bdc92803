package webhook

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/badged/badged/internal/notify/outbound"
	"github.com/badged/badged/pubsub"
)

func TestGoneDisables(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, e := serve(t, outbound.Webhook{}, func(received) (*http.Response, error) { return status(http.StatusGone) }, slowRefresh)
		q.badge("crm", "ada", 1, 1)
		time.Sleep(time.Hour)
		q.badge("crm", "ben", 1, 1)
		time.Sleep(100 * time.Hour)
		synctest.Wait()
		if n := len(e.all()); n != 1 {
			t.Errorf("%d calls, want 1", n)
		}
		if w := q.webhook("crm"); w.State != outbound.Disabled || w.Step == 0 || !strings.Contains(w.LastError, "410 Gone") {
			t.Errorf("the webhook is %+v", w)
		}
	})
}

// Redirects are failures, which a sender must not follow.
func TestRedirectsAreFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, e := serve(t, outbound.Webhook{}, func(received) (*http.Response, error) {
			return status(http.StatusFound, "Location", "https://other.example/")
		}, func(cfg *Config) {
			cfg.Caller.Client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		})
		q.badge("crm", "ada", 1, 1)
		<-e.came
		synctest.Wait()
		if w := q.webhook("crm"); w.LastStatus != http.StatusFound || !strings.Contains(w.LastError, "redirects are not followed") {
			t.Errorf("the webhook is %+v", w)
		}
	})
}

// An endpoint that never answers holds up no other.
func TestSlowEndpointDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(outbound.Webhook{Name: "slow", URL: "https://slow.example/hook"}, outbound.Webhook{Name: "fast", URL: "https://fast.example/hook"})
		e := newEndpoints(t)
		began := time.Now()
		e.answer = func(r received) (*http.Response, error) {
			if r.host == "slow.example" {
				r.sleep(time.Minute)
				return nil, errDown
			}
			return nil, nil //nolint:nilnil // the default answer
		}
		start(t, q, e)
		for i := range 500 {
			user := fmt.Sprint("user ", i)
			q.badge("slow", user, 1, 1)
			q.badge("fast", user, 1, 1)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		fast, slow := 0, 0
		for _, c := range e.all() {
			if c.host == "slow.example" {
				slow++
			} else {
				fast++
				if c.at.Sub(began) > time.Second {
					t.Errorf("a call of the fast endpoint came after %s", c.at.Sub(began))
				}
			}
		}
		if fast != 500 || slow != 32 {
			t.Errorf("the fast endpoint got %d calls, want 500; the slow one %d, want 32 in flight", fast, slow)
		}
	})
}

// Endpoints that ask for batches get up to that many users in a call.
func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(outbound.Webhook{Name: "crm", URL: "https://crm.example/hook", Batch: 100})
		e := newEndpoints(t)
		for i := range 250 {
			q.badge("crm", fmt.Sprint("user ", i), 1, 1)
		}
		start(t, q, e)
		time.Sleep(time.Second)
		synctest.Wait()
		var sizes []int
		for _, c := range e.all() {
			sizes = append(sizes, len(c.events))
		}
		slices.Sort(sizes)
		if !slices.Equal(sizes, []int{50, 100, 100}) {
			t.Errorf("the calls have %v events, want 50, 100 and 100", sizes)
		}
		if told := versions(t, e.all()); len(told) != 250 {
			t.Errorf("%d users were told, want 250", len(told))
		}
	})
}

// A permitted rate is kept.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(outbound.Webhook{Name: "crm", URL: "https://crm.example/hook", Rate: 60})
		e := newEndpoints(t)
		for i := range 30 {
			q.badge("crm", fmt.Sprint("user ", i), 1, 1)
		}
		start(t, q, e)
		time.Sleep(10*time.Second + 500*time.Millisecond)
		synctest.Wait()
		if n := len(e.all()); n < 10 || n > 11 {
			t.Errorf("%d calls in ten seconds, want 10 or 11 at 60 a minute", n)
		}
	})
}

func TestWhatIsNews(t *testing.T) {
	one := func(version, total int64, chat, likes int64) *outbound.Call {
		b := badge("ada", version, total)
		b.Categories = map[string]pubsub.Numbers{}
		if chat > 0 {
			b.Categories["chat"] = pubsub.Numbers{Total: chat}
		}
		if likes > 0 {
			b.Categories["likes/many"] = pubsub.Numbers{Total: likes}
		}
		return &outbound.Call{Type: outbound.BadgeChanged, Subject: "ada", Badge: b}
	}
	in := func(c *outbound.Call, conversations int64) *outbound.Call {
		c.Badge.UnreadConversations, c.Badge.Categories["chat"] = conversations, pubsub.Numbers{Total: c.Badge.Categories["chat"].Total, UnreadConversations: conversations}
		return c
	}
	later := func(c *outbound.Call) *outbound.Call {
		c.Badge.Epoch = "another"
		return c
	}
	for _, c := range []struct {
		name   string
		filter []string
		told   *outbound.Call // before; nil for nothing
		now    *outbound.Call
		want   bool
	}{
		{"never told", nil, nil, one(1, 1, 1, 0), true},
		{"never told, and zero", nil, nil, one(2, 0, 0, 0), true},
		{"the same numbers in a newer version", nil, one(1, 1, 1, 0), one(3, 1, 1, 0), false},
		{"the same numbers in a new epoch", nil, one(1, 1, 1, 0), later(one(1, 1, 1, 0)), true},
		{"the same numbers of the filter in a new epoch", []string{"chat"}, one(1, 1, 1, 0), later(one(1, 1, 1, 0)), true},
		{"another total", nil, one(1, 1, 1, 0), one(2, 2, 2, 0), true},
		{"another category of the same total", nil, one(1, 1, 1, 0), one(2, 1, 0, 1), true},
		{"cleared", nil, one(1, 1, 1, 0), one(2, 0, 0, 0), true},
		{"a category of the filter", []string{"chat"}, one(1, 1, 1, 0), one(2, 2, 2, 0), true},
		{"a category below the filter", []string{"likes"}, one(1, 1, 1, 0), one(2, 2, 1, 1), true},
		{"a category beyond the filter", []string{"chat"}, one(1, 1, 1, 0), one(2, 2, 1, 1), false},
		{"a category of the filter is cleared", []string{"chat"}, one(1, 1, 1, 0), one(2, 0, 0, 0), true},
		{"the same messages in more conversations", nil, in(one(1, 2, 2, 0), 1), in(one(2, 2, 2, 0), 2), true},
		{"the same messages in more conversations of the filter", []string{"chat"}, in(one(1, 2, 2, 0), 1), in(one(2, 2, 2, 0), 2), true},
		{"conversations beyond the filter", []string{"likes"}, in(one(1, 2, 2, 0), 1), in(one(2, 2, 2, 0), 2), false},
		{"told nothing that is known", []string{"chat"}, nil, one(1, 1, 0, 1), true},
	} {
		w, f := outbound.Webhook{Categories: c.filter}, &feed{Sender: &Sender{}}
		if c.told != nil {
			if _, _, err := f.news(w, c.told); err != nil {
				t.Fatal(err)
			}
		}
		if _, got, err := f.news(w, c.now); err != nil || got != c.want {
			t.Errorf("%s: news %v, %v, want %v", c.name, got, err, c.want)
		}
	}
}

// Letters and drift are told as they are; a letter that an operator removed is
// not.
func TestLettersAndDrift(t *testing.T) {
	f := &feed{Sender: &Sender{}}
	for _, c := range []struct {
		change outbound.Call
		want   string // the data; "" for no event
	}{
		{
			outbound.Call{Type: outbound.DeadletterBuried, Subject: "7", Letter: &outbound.DeadLetter{ID: 7, Partition: new(3), Position: "746/5", Reason: "invalid event", At: time.Unix(0, 0).UTC()}},
			`{"id":7,"partition":3,"position":"746/5","reason":"invalid event","at":"1970-01-01T00:00:00Z"}`,
		},
		{
			outbound.Call{Type: outbound.DeadletterBuried, Subject: "8", Letter: &outbound.DeadLetter{ID: 8, Origin: "kafka/chat/3/1045", Reason: "invalid event", At: time.Unix(0, 0).UTC()}},
			`{"id":8,"origin":"kafka/chat/3/1045","reason":"invalid event","at":"1970-01-01T00:00:00Z"}`,
		},
		{outbound.Call{Type: outbound.DeadletterBuried, Subject: "7"}, ""},
		{
			outbound.Call{Type: outbound.DriftFound, Subject: "ada", Badge: badge("ada", 2, 5)},
			`{"user_id":"ada","epoch":"e","version":2,"total":5,"mentions":0,"unread_conversations":1,"unseen":5,"categories":{"chat":{"total":5,"mentions":0,"unread_conversations":1,"unseen":5}}}`,
		},
	} {
		data, tell, err := f.news(outbound.Webhook{}, &c.change)
		if err != nil || tell != (c.want != "") || tell && string(data) != c.want {
			t.Errorf("%s: %s, %v, %v, want %s", c.change.Type, data, tell, err, c.want)
		}
	}
	if _, _, err := f.news(outbound.Webhook{}, &outbound.Call{Type: outbound.BadgeChanged, Subject: "ada"}); err == nil {
		t.Error("a change without a badge is told")
	}
}

// A user is reminded once of each stretch in which a category was unread.
func TestReminders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(outbound.Webhook{Name: "mail", URL: "https://mail.example/hook"})
		e := newEndpoints(t)
		start(t, q, e, slowRefresh, func(cfg *Config) {
			cfg.RemindAfter = map[string]time.Duration{"chat": time.Hour, "*": 24 * time.Hour}
		})
		version := int64(0)
		set := func(categories map[string]int64) {
			version++
			b := badge("ada", version, 0)
			b.Categories = map[string]pubsub.Numbers{}
			for name, n := range categories {
				b.Categories[name] = pubsub.Numbers{Total: n}
			}
			q.put("mail", outbound.Call{Type: outbound.UnreadReminder, Subject: "ada", Badge: b})
		}
		began := time.Now()
		var got []string
		seen := 0
		look := func() {
			synctest.Wait()
			for _, c := range e.all()[seen:] {
				seen++
				var data reminder
				if err := json.Unmarshal(c.events[0].Data, &data); err != nil {
					t.Fatal(err)
				}
				for _, category := range slices.Sorted(maps.Keys(data.UnreadSince)) {
					got = append(got, fmt.Sprintf("%s at %s since %s", category, c.at.Sub(began).Round(time.Minute), data.UnreadSince[category].Sub(began).Round(time.Minute)))
				}
			}
		}
		expect := func(want ...string) {
			t.Helper()
			look()
			if !slices.Equal(got, want) {
				t.Errorf("reminders %q, want %q", got, want)
			}
			got = nil
		}
		set(map[string]int64{"chat": 1})
		time.Sleep(30 * time.Minute)
		set(map[string]int64{"chat": 2, "likes": 1})
		time.Sleep(29 * time.Minute)
		expect()
		time.Sleep(2 * time.Minute)
		expect("chat at 1h0m0s since 0s")
		set(map[string]int64{"chat": 3, "likes": 1}) // the same stretch
		time.Sleep(5 * time.Hour)
		expect()
		set(map[string]int64{"likes": 1}) // chat is read
		time.Sleep(54 * time.Minute)      // 6h55m
		set(map[string]int64{"chat": 1, "likes": 1})
		time.Sleep(time.Hour + time.Minute)
		expect("chat at 7h55m0s since 6h55m0s")
		time.Sleep(24 * time.Hour)
		expect("likes at 24h30m0s since 30m0s")
		set(map[string]int64{})
		set(map[string]int64{"chat": 1})
		time.Sleep(30 * time.Minute)
		set(map[string]int64{}) // read in time
		time.Sleep(48 * time.Hour)
		expect()
	})
}

// An endpoint is told of no more categories than a badge shows, whatever the event.
func TestEventsOfManyCategories(t *testing.T) {
	f := &feed{Sender: &Sender{cfg: Config{RemindAfter: map[string]time.Duration{OtherCategories: 0}, Now: time.Now}}}
	b := badge("ada", 1, 2*pubsub.MaxCategories)
	b.Categories = map[string]pubsub.Numbers{}
	for i := range 2 * pubsub.MaxCategories {
		b.Categories[fmt.Sprintf("project-%04d", i)] = pubsub.Numbers{Total: 1}
	}
	for _, typ := range []string{outbound.BadgeChanged, outbound.UnreadReminder, outbound.DriftFound} {
		c := outbound.Call{Type: typ, Subject: "ada", Badge: b, QueuedAt: time.Now()}
		text, tell, err := f.news(outbound.Webhook{}, &c)
		var data reminder
		if err == nil {
			err = json.Unmarshal(text, &data)
		}
		if err != nil || !tell || data.Total != b.Total || len(data.Categories) != pubsub.MaxCategories || !data.MoreCategories || len(data.UnreadSince) > pubsub.MaxCategories {
			t.Errorf("%s has %d categories, %d reminders, more: %v; %v, %v", typ, len(data.Categories), len(data.UnreadSince), data.MoreCategories, tell, err)
		}
	}
}

// A stopped sender finishes its calls, and gives back what it took.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, e := serve(t, outbound.Webhook{}, func(received) (*http.Response, error) {
			time.Sleep(2 * time.Second)
			return nil, nil //nolint:nilnil // the default answer
		})
		q.badge("crm", "ada", 1, 1)
		time.Sleep(time.Second)
		e.stop()
		if r := q.rows["crm"]["ada"]; r.taken || !r.due.IsZero() {
			t.Errorf("the call in progress was not reported: %+v", r)
		}

		e.answer = func(r received) (*http.Response, error) {
			r.sleep(time.Hour)
			return nil, errDown
		}
		stop := start(t, q, e)
		q.badge("crm", "ada", 2, 2)
		time.Sleep(time.Second)
		began := time.Now()
		stop()
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("stopping took %s", took)
		}
	})
}
