package webhook

import (
	"encoding/json"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/badged/badged/internal/notify/outbound"
)

const month = 30 * 24 * time.Hour

// A webhook that failed while the clock of the store was a month ahead is called again once
// that is right.
func TestWebhookIsCalledAfterAWrongClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ahead atomic.Int64
		now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		var down atomic.Bool
		down.Store(true)
		ahead.Store(int64(month))
		q, e := serve(t, outbound.Webhook{}, func(received) (*http.Response, error) {
			if down.Load() {
				return nil, errDown
			}
			return nil, nil //nolint:nilnil // the default answer
		}, func(cfg *Config) { cfg.Now = now })
		for i := range int64(tripAfter) {
			q.badge("crm", strconv.FormatInt(i, 10), 1, 1)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if w := q.webhook("crm"); w.Step == 0 || w.Due.Before(time.Now().Add(month)) {
			t.Fatalf("after ten minutes the webhook is %+v", w)
		}
		ahead.Store(0)
		down.Store(false)
		before := len(e.all())
		time.Sleep(27 * time.Hour)
		synctest.Wait()
		if len(e.all()) == before {
			t.Error("it is not called in 27 hours")
		}
		if w := q.webhook("crm"); w.Step != 0 || !w.Due.IsZero() {
			t.Errorf("after a call that succeeded it is %+v", w)
		}
	})
}

// A stretch that began in the future began now, and no wait is longer than the setting.
func TestReminderAfterAWrongClock(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	f := &feed{Sender: &Sender{cfg: Config{RemindAfter: map[string]time.Duration{OtherCategories: time.Hour}, Now: func() time.Time { return now }}}}
	known, err := json.Marshal(map[string]stretch{"chat": {Since: now.Add(month)}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []outbound.Call{{SentState: known}, {QueuedAt: now.Add(month)}} {
		c.Type, c.Badge = outbound.UnreadReminder, badge("ada", 1, 1)
		if _, tell, err := f.news(outbound.Webhook{}, &c); err != nil || tell || c.RepeatAfter != time.Hour {
			t.Errorf("it is due: %t, again after %s, want an hour: %v", tell, c.RepeatAfter, err)
		}
		now = now.Add(time.Hour)
		later := outbound.Call{Type: outbound.UnreadReminder, Badge: c.Badge, SentState: c.NewState}
		if _, tell, err := f.news(outbound.Webhook{}, &later); err != nil || !tell {
			t.Errorf("an hour later it is due: %t, %v", tell, err)
		}
		now = now.Add(-time.Hour)
	}
}
