package operations_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/internal/notify/outbound"
	"github.com/badged/badged/internal/notify/seal"
	"github.com/badged/badged/internal/notify/webhook"
	"github.com/badged/badged/internal/operations"
)

// caller is an operations.WebhookCaller that records its calls.
type caller struct {
	rate    int
	err     error
	asked   []string
	secrets [][]byte
	// during runs once, while an endpoint is asked for permission.
	during func()
}

func (c *caller) Handshake(_ context.Context, url string) (int, error) {
	c.asked = append(c.asked, "OPTIONS "+url)
	if during := c.during; during != nil {
		c.during = nil
		during()
	}
	return c.rate, c.err
}

func (c *caller) Test(_ context.Context, w outbound.Webhook) webhook.Answer {
	c.asked = append(c.asked, fmt.Sprintf("POST %s for %s, batch %d", w.URL, w.Name, w.Batch))
	c.secrets = w.Secrets
	return webhook.Answer{Status: 204, Duration: 100 * time.Millisecond}
}

func newWebhooks(t *testing.T) (*database, *caller, *operations.Webhooks, *seal.Box) {
	t.Helper()
	d := newDatabase(t)
	box, err := seal.ParseKeys([]string{"one=" + base64.StdEncoding.EncodeToString(make([]byte, 32))})
	if err != nil {
		t.Fatal(err)
	}
	c := &caller{}
	return d, c, operations.NewWebhooks(operations.WebhooksConfig{Cluster: d.cluster, Box: box, Caller: c}), box
}

const aSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func TestWebhookHasASecret(t *testing.T) {
	d, c, webhooks, box := newWebhooks(t)
	settings := operations.WebhookSettings{URL: "https://crm.example/hook?token=s3cret", Events: []string{outbound.BadgeChanged}}
	made, created, err := webhooks.Put(t.Context(), operations.OSUser(), "crm", settings)
	if err != nil || !created || len(made.Secrets) != 1 || !strings.HasPrefix(made.Secrets[0], "whsec_") {
		t.Fatalf("made %+v, %v, %v", made, created, err)
	}
	if made.Batch != 1 || made.State != "active" || made.Categories != nil {
		t.Errorf("the defaults are wrong: %+v", made)
	}
	// It is shown once, and stored sealed.
	if again, err := webhooks.Get(t.Context(), "crm"); err != nil || again.Secrets != nil {
		t.Errorf("read again: %+v, %v", again, err)
	}
	stored, err := outbound.NewTargets(d.pool, d.log).Webhook(t.Context(), "crm")
	if err != nil {
		t.Fatal(err)
	}
	sealed := stored.Secrets[0]
	err = operations.OpenWebhook(box, &stored)
	if err != nil || "whsec_"+base64.StdEncoding.EncodeToString(stored.Secrets[0]) != made.Secrets[0] {
		t.Errorf("the stored secret is another: %v", err)
	}
	if bytes.Contains(sealed, stored.Secrets[0]) {
		t.Error("the secret is stored in the open")
	}

	// Settings without secrets keep it; those with some replace it.
	settings.Batch = new(100)
	kept, created, err := webhooks.Put(t.Context(), operations.OSUser(), "crm", settings)
	if err != nil || created || kept.Secrets != nil || kept.Batch != 100 {
		t.Errorf("replaced: %+v, %v, %v", kept, created, err)
	}
	if _, err := webhooks.Test(t.Context(), operations.OSUser(), "crm"); err != nil || !bytes.Equal(c.secrets[0], stored.Secrets[0]) {
		t.Errorf("the secret did not stay: %v", err)
	}
	settings.Secrets = []string{aSecret, made.Secrets[0]}
	if rotated, _, err := webhooks.Put(t.Context(), operations.OSUser(), "crm", settings); err != nil || rotated.Secrets != nil {
		t.Errorf("rotated: %+v, %v", rotated, err)
	}
	if _, err := webhooks.Test(t.Context(), operations.OSUser(), "crm"); err != nil || len(c.secrets) != 2 {
		t.Errorf("%d secrets sign, want 2: %v", len(c.secrets), err)
	}

	rows, err := d.pool.Query(t.Context(), `SELECT to_jsonb(a)::text FROM badged.audit AS a`)
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var entry string
		if err := rows.Scan(&entry); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(entry, "s3cret") || strings.Contains(entry, "whsec") || !strings.Contains(entry, "crm") {
			t.Errorf("an entry of the audit trail is %s", entry)
		}
	}
}

// An endpoint is asked before it is called, and not again until that changes.
func TestEndpointIsAskedOnce(t *testing.T) {
	_, c, webhooks, _ := newWebhooks(t)
	c.rate = 60
	settings := operations.WebhookSettings{URL: "https://crm.example/1", Events: []string{outbound.DriftFound}}
	for _, step := range []struct {
		name   string
		change func()
		want   string
	}{
		{"new", func() {}, "OPTIONS https://crm.example/1"},
		{"the same", func() {}, ""},
		{"more events", func() { settings.Events = append(settings.Events, outbound.DeadletterBuried) }, ""},
		{"another URL", func() { settings.URL = "https://crm.example/2" }, "OPTIONS https://crm.example/2"},
		{"paused", func() { settings.State = "paused" }, ""},
		{"active again", func() { settings.State = "active" }, "OPTIONS https://crm.example/2"},
	} {
		step.change()
		c.asked = nil
		w, _, err := webhooks.Put(t.Context(), operations.OSUser(), "crm", settings)
		if got := strings.Join(c.asked, ", "); err != nil || got != step.want || w.Rate != 60 {
			t.Errorf("%s: asked %q, want %q; rate %d, %v", step.name, got, step.want, w.Rate, err)
		}
	}
	c.err = errors.New("the endpoint refuses webhooks")
	settings.URL = "https://crm.example/3"
	if _, _, err := webhooks.Put(t.Context(), operations.OSUser(), "crm", settings); err == nil || err.Error() != "url: the endpoint refuses webhooks" {
		t.Errorf("a refusal returned %v", err)
	}
	if w, err := webhooks.Get(t.Context(), "crm"); err != nil || w.URL != "https://crm.example/2" {
		t.Errorf("after a refusal the webhook is %+v, %v", w, err)
	}
}

// An endpoint may take seconds to answer. What another operator did meanwhile stays: a
// replaced secret would be in use again, and its holder could forge calls.
func TestPutsDoNotUndoEachOther(t *testing.T) {
	_, c, webhooks, _ := newWebhooks(t)
	const leaked, fresh = aSecret, "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	settings := operations.WebhookSettings{URL: "https://crm.example/1", Events: []string{outbound.DriftFound}, Secrets: []string{leaked}}
	put := func(s operations.WebhookSettings) (operations.Webhook, bool) {
		t.Helper()
		w, created, err := webhooks.Put(t.Context(), operations.OSUser(), "crm", s)
		if err != nil {
			t.Fatal(err)
		}
		return w, created
	}
	signs := func() string {
		t.Helper()
		if _, err := webhooks.Test(t.Context(), operations.OSUser(), "crm"); err != nil {
			t.Fatal(err)
		}
		all := ""
		for _, secret := range c.secrets {
			all += "whsec_" + base64.StdEncoding.EncodeToString(secret)
		}
		return all
	}
	put(settings)

	c.during = func() {
		rotated := settings
		rotated.Secrets = []string{fresh}
		put(rotated)
	}
	moved := settings
	moved.URL, moved.Secrets = "https://crm.example/2", nil
	if w, created := put(moved); w.URL != moved.URL || created || len(w.Secrets) > 0 {
		t.Errorf("after a secret was replaced meanwhile: %+v, created %t", w, created)
	}
	if got := signs(); got != fresh {
		t.Errorf("calls are signed with %s, want %s", got, fresh)
	}

	// One that is deleted meanwhile is made anew, with a secret of its own.
	c.during = func() {
		if err := webhooks.Delete(t.Context(), operations.OSUser(), "crm"); err != nil {
			t.Error(err)
		}
	}
	moved.URL = "https://crm.example/3"
	w, created := put(moved)
	if !created || len(w.Secrets) != 1 || signs() != w.Secrets[0] {
		t.Errorf("after it was deleted meanwhile: %+v, created %t", w, created)
	}
}

func TestWebhookSettingsAreChecked(t *testing.T) {
	_, c, webhooks, _ := newWebhooks(t)
	const url = "https://crm.example/hook"
	drift := []string{outbound.DriftFound}
	for _, test := range []struct {
		name     string
		settings operations.WebhookSettings
		want     string
	}{
		{"crm", operations.WebhookSettings{}, "url must begin with https://; events must name at least one of badge.changed, unread.reminder, deadletter.buried, drift.found"},
		{"CRM", operations.WebhookSettings{URL: url, Events: drift}, "the name must have 1 to 63 lower-case letters, digits, dashes and underscores, the first a letter or digit"},
		{"crm", operations.WebhookSettings{URL: "http://crm.example/hook", Events: drift}, "url must begin with https://"},
		{"crm", operations.WebhookSettings{URL: "https://10.1.2.3/hook", Events: drift}, "url belongs to a private network"},
		{"crm", operations.WebhookSettings{URL: url + strings.Repeat("x", 3000), Events: drift}, "url must have at most 2048 bytes"},
		{"crm", operations.WebhookSettings{URL: url, Events: []string{"badge.changed", "badge.change", "badge.changed"}}, "events[1] must be one of badge.changed, unread.reminder, deadletter.buried, drift.found; events[2] is named twice"},
		{"crm", operations.WebhookSettings{URL: url, Events: []string{"unread.reminder"}}, "events[0]: the server has no --remind-after, so it sends no reminders"},
		{"crm", operations.WebhookSettings{URL: url, Events: drift, Batch: new(101)}, "batch must be from 1 to 100, is 101"},
		{"crm", operations.WebhookSettings{URL: url, Events: drift, Batch: new(0)}, "batch must be from 1 to 100, is 0"},
		{"crm", operations.WebhookSettings{URL: url, Events: drift, State: "on"}, "state must be active, paused or disabled"},
		{"crm", operations.WebhookSettings{URL: url, Events: drift, Categories: []string{"chat", "a\x00b", "chat"}}, "categories[1] must not hold control characters; categories[2] is named twice"},
		{"crm", operations.WebhookSettings{URL: url, Events: drift, Secrets: []string{aSecret, "secret", "whsec_###", "whsec_c2hvcnQ="}}, "secrets[1] must begin with whsec_; secrets[2] must be base64 after whsec_; secrets[3] must have 24 to 64 bytes, has 5"},
		{"crm", operations.WebhookSettings{URL: url, Events: drift, Secrets: []string{aSecret, aSecret, aSecret, aSecret, aSecret, aSecret}}, "secrets must be at most 5"},
	} {
		_, _, err := webhooks.Put(t.Context(), operations.OSUser(), test.name, test.settings)
		if _, ok := errors.AsType[*operations.InvalidWebhookError](err); !ok || err.Error() != test.want {
			t.Errorf("%+v:\n got %v\nwant %s", test.settings, err, test.want)
		}
	}
	if len(c.asked) > 0 {
		t.Errorf("endpoints were asked: %q", c.asked)
	}
}

func TestNoWebhook(t *testing.T) {
	d, _, webhooks, _ := newWebhooks(t)
	if _, _, err := webhooks.Put(t.Context(), ops, "other", operations.WebhookSettings{URL: "https://crm.example/", Events: []string{outbound.DriftFound}}); err != nil {
		t.Fatal(err)
	}
	before := d.trail(t)
	for _, name := range []string{"crm", "", "\x00", "\xff", "a\x00b", "CRM", "a/b", strings.Repeat("a", 10_000)} {
		_, get := webhooks.Get(t.Context(), name)
		_, test := webhooks.Test(t.Context(), ops, name)
		for _, err := range []error{get, test, webhooks.Delete(t.Context(), ops, name)} {
			if !errors.Is(err, operations.ErrNoWebhook) {
				t.Errorf("the error of %.20q is %v", name, err)
			}
		}
	}
	// The trail has the attempts with a name that a webhook may have, and nothing that no webhook can be called.
	attempts := []string{`api by ops: webhooks.delete {"webhook":"crm"}: failed: there is no such webhook`, `api by ops: webhooks.test {"webhook":"crm"}: failed: there is no such webhook`}
	if diff := cmp.Diff(append(attempts, before...), d.trail(t)); diff != "" {
		t.Errorf("the trail (-want +got):\n%s", diff)
	}
}
