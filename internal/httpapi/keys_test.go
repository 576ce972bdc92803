package httpapi_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/badged/badged/internal/httpapi"
	"github.com/badged/badged/internal/keyring"
)

// scopedKeys is a file with a key of every kind and scope. The secret of each is
// its name. The examples of the routes are of the user ada, and of the source chat.
const scopedKeys = `keys:
- {name: publisher, kind: publisher, %s}
- {name: reading, kind: publisher, read: yes, %s}
- {name: disconnecting, kind: publisher, disconnect: yes, %s}
- {name: disconnecting-others, kind: publisher, disconnect: yes, users: [b*], %s}
- {name: own-source, kind: publisher, sources: [chat], %s}
- {name: other-source, kind: publisher, sources: [crm, crm/*], read: yes, %s}
- {name: own-type, kind: publisher, types: [message.*], %s}
- {name: other-type, kind: publisher, types: [conversation.read, room.*], read: yes, %s}
- {name: own-users, kind: publisher, users: [ad*, ben, chloe], read: yes, %s}
- {name: other-users, kind: publisher, users: [ad-*, be], read: yes, %s}
- {name: reader, kind: reader, %s}
- {name: reader-of-own, kind: reader, users: [a*, ben], %s}
- {name: reader-of-others, kind: reader, users: [b*], %s}
- {name: admin, kind: admin, %s}
- {name: old-publisher, kind: publisher, expires: 2020-01-31T00:00:00Z, %s}
- {name: old-reader, kind: reader, expires: 2020-01-31T00:00:00Z, %s}
- {name: old-admin, kind: admin, expires: 2020-01-31T00:00:00Z, %s}
- {name: slow, kind: publisher, rate: 0.1, %s}
- {name: small, kind: publisher, quota: 2, %s}
`

// keysOf writes a file of keys, with the hashes of their names as secrets, and
// returns them beside those of mustKeys.
func keysOf(t *testing.T, file string, registry prometheus.Registerer) *keyring.Ring {
	t.Helper()
	var text strings.Builder
	for line := range strings.Lines(file) {
		if _, rest, ok := strings.Cut(line, "name: "); ok {
			name, _, _ := strings.Cut(rest, ",")
			line = fmt.Sprintf(line, "secret: "+keyring.Hash(name))
		}
		text.WriteString(line)
	}
	path := filepath.Join(t.TempDir(), "keys.yaml")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, errs := keyring.New(keyring.Config{
		Publishers: []string{"chat=" + publisherKey}, Admins: []string{"ops=" + adminKey}, File: path, Registerer: registry,
	})
	if len(errs) > 0 {
		t.Fatal(errors.Join(errs...))
	}
	return keys
}

// fullAPI is an API with all routes, over fakes.
func fullAPI(t *testing.T, a httpapi.Appender, keys *keyring.Ring) *httpapi.API {
	t.Helper()
	api, err := httpapi.New(httpapi.Config{
		Appender: a, Badges: &fakeBadges{}, Tokens: tokens{}, Devices: &fakeDevices{}, Disconnects: &fakeDisconnects{},
		Explainer: &explainer{}, Operations: &operations{}, Webhooks: &webhooks{}, Keys: keys,
	})
	if err != nil {
		t.Fatal(err)
	}
	return api
}

// Every route admits exactly the kinds of keys that its description names, and of
// those the ones whose scope has the user, source and type of its example.
func TestEveryRouteWithEveryKey(t *testing.T) {
	const (
		publishes   = 1 << iota // may publish the example
		reads                   // may read the badge of ada
		readsBen                // and that of ben
		disconnects             // may disconnect ada
		expired
	)
	keys := map[string]struct {
		scheme string
		may    int
	}{
		publisherKey:           {httpapi.PublisherAccess, publishes | reads | readsBen | disconnects},
		"publisher":            {httpapi.PublisherAccess, publishes},
		"reading":              {httpapi.PublisherAccess, publishes | reads | readsBen},
		"own-source":           {httpapi.PublisherAccess, publishes},
		"other-source":         {httpapi.PublisherAccess, reads | readsBen},
		"own-type":             {httpapi.PublisherAccess, publishes},
		"other-type":           {httpapi.PublisherAccess, reads | readsBen},
		"own-users":            {httpapi.PublisherAccess, publishes | reads | readsBen},
		"other-users":          {httpapi.PublisherAccess, 0},
		"slow":                 {httpapi.PublisherAccess, publishes},
		"small":                {httpapi.PublisherAccess, publishes},
		"reader":               {httpapi.ReaderAccess, reads | readsBen},
		"reader-of-own":        {httpapi.ReaderAccess, reads | readsBen},
		"reader-of-others":     {httpapi.ReaderAccess, readsBen},
		"disconnecting":        {httpapi.PublisherAccess, publishes | disconnects},
		"disconnecting-others": {httpapi.PublisherAccess, 0},
		adminKey:               {httpapi.AdminAccess, publishes | reads | readsBen | disconnects},
		"admin":                {httpapi.AdminAccess, publishes | reads | readsBen | disconnects},
		"old-publisher":        {httpapi.PublisherAccess, expired},
		"old-reader":           {httpapi.ReaderAccess, expired},
		"old-admin":            {httpapi.AdminAccess, expired},
	}
	if lines := strings.Count(scopedKeys, "name: "); len(keys) != lines+2 {
		t.Errorf("%d keys of %d are tried", len(keys)-2, lines)
	}
	for _, r := range httpapi.Routes() {
		needs := reads
		switch {
		case r.Path == "/v1/events":
			needs = publishes
		case r.Path == "/v1/badges/query":
			needs = reads | readsBen
		case r.Path == "/v1/users/{user}/disconnect":
			needs = disconnects
		case strings.HasPrefix(r.Path, "/admin/"):
			needs = 0
		}
		t.Run(r.Method+" "+r.Path, func(t *testing.T) {
			for secret, key := range keys {
				a := &appender{}
				api := fullAPI(t, a, keysOf(t, scopedKeys, nil))
				got := askFor(t, api, r, "", "Bearer "+secret)
				switch {
				case key.may == expired:
					if want := "401 the key " + secret + " has expired"; got.story(t) != want {
						t.Errorf("with %s: %d %s, want %s", secret, got.status, got.body, want)
					}
				case slices.Contains(r.Access, key.scheme) && key.may&needs == needs:
					if got.status/100 != 2 {
						t.Errorf("with %s: %d %s", secret, got.status, got.body)
					}
				case !strings.HasPrefix(got.story(t), "403 the key "): // and not that it is unknown
					t.Errorf("with %s: %d %s", secret, got.status, got.body)
				}
				if (len(a.calls) > 0) != (r.Path == "/v1/events" && got.status == http.StatusAccepted) {
					t.Errorf("with %s the answer is %d, and %d requests are stored", secret, got.status, len(a.calls))
				}
			}
		})
	}
}

// scoped is an event of a source and type for users, in JSON.
func scoped(source, typ, users string) string {
	more := `"conversation_id":"c","seq":1`
	if users != "" {
		more += `,"user_ids":` + users
	}
	return fmt.Sprintf(`{"specversion":"1.0","id":"1","source":%q,"type":%q,"data":{%s}}`, source, typ, more)
}

func TestEventsBeyondTheScopeOfTheKey(t *testing.T) {
	f := &appender{}
	registry := prometheus.NewRegistry()
	api := fullAPI(t, f, keysOf(t, `keys:
- {name: crm, kind: publisher, sources: [crm, crm/*], types: [message.*, room.posted, room.joined], users: [acme-*, bob], %s}
`, registry))
	publish := func(events ...string) string {
		r := newRequest(t, http.MethodPost, "/v1/events", strings.NewReader("["+strings.Join(events, ",")+"]"))
		r.Header.Set("Content-Type", plain)
		r.Header.Set("Authorization", "Bearer crm")
		a := send(t, api, r)
		if a.status == http.StatusAccepted {
			return "ok"
		}
		return a.story(t)
	}
	const denied = "403 the key crm may not publish some of these events; nothing was stored"
	const good = `["acme-ada","bob"]`
	for _, test := range []struct {
		events []string
		want   string
	}{
		{[]string{scoped("crm", "message.delivered", good), scoped("crm/eu", "message.recalled", good)}, "ok"},
		{[]string{scoped("crm", "message.delivered", good), scoped("chat", "message.delivered", good)}, denied + `
event 1 source: "chat" is not a source of the key crm, which has crm, crm/*`},
		{[]string{scoped("crmeu", "message.delivered", `["acme","acme-ada","bobby"]`)}, denied + `
event 0 source: "crmeu" is not a source of the key crm, which has crm, crm/*
event 0 data.user_ids[0]: "acme" is not a user of the key crm, which has acme-*, bob
event 0 data.user_ids[2]: "bobby" is not a user of the key crm, which has acme-*, bob`},
		{[]string{scoped("crm", "room.recalled", "")}, denied + `
event 0 type: "room.recalled" is not a type of the key crm, which has message.*, room.posted, room.joined
event 0 type: "room.recalled" reaches every member of a room, and the key crm is for the users acme-*, bob`},
		{[]string{scoped("crm", "room.posted", "")}, denied + `
event 0 type: "room.posted" reaches every member of a room, and the key crm is for the users acme-*, bob`},
	} {
		before := len(f.calls)
		if got := publish(test.events...); got != test.want {
			t.Errorf("%s\ngives %s\nwant %s", test.events, got, test.want)
		}
		if stored := len(f.calls) > before; stored != (test.want == "ok") {
			t.Errorf("%s: stored is %t", test.events, stored)
		}
	}
	// An event that is invalid says so first.
	if got := publish(scoped("chat", "message.frobnicated", good)); !strings.HasPrefix(got, "400 ") {
		t.Errorf("an invalid event: %s", got)
	}
	many := slices.Repeat([]string{scoped("chat", "message.delivered", good)}, 200)
	if got := publish(many...); strings.Count(got, "\nevent ") != 100 {
		t.Errorf("of 200 events these are named: %s", got)
	}

	want := `
# HELP badged_keys_events_total Events stored over HTTP, by the key that published them.
# TYPE badged_keys_events_total counter
badged_keys_events_total{key="chat",kind="publisher"} 0
badged_keys_events_total{key="crm",kind="publisher"} 2
badged_keys_events_total{key="ops",kind="admin"} 0
# HELP badged_keys_refused_total Requests refused because of what their key may not do, by key and reason.
# TYPE badged_keys_refused_total counter
badged_keys_refused_total{key="crm",kind="publisher",reason="source"} 3
badged_keys_refused_total{key="crm",kind="publisher",reason="type"} 1
badged_keys_refused_total{key="crm",kind="publisher",reason="user"} 1
# HELP badged_keys_requests_total Requests with a key that was valid, by key.
# TYPE badged_keys_requests_total counter
badged_keys_requests_total{key="chat",kind="publisher"} 0
badged_keys_requests_total{key="crm",kind="publisher"} 7
badged_keys_requests_total{key="ops",kind="admin"} 0
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "badged_keys_events_total", "badged_keys_refused_total", "badged_keys_requests_total"); err != nil {
		t.Error(err)
	}
}

func TestPublishingMoreThanTheKeyMay(t *testing.T) {
	f := &appender{}
	api := fullAPI(t, f, keysOf(t, scopedKeys, nil))
	publish := func(key string, n int) answer {
		r := newRequest(t, http.MethodPost, "/v1/events", strings.NewReader("["+strings.Join(slices.Repeat([]string{delivered("1")}, n), ",")+"]"))
		r.Header.Set("Content-Type", plain)
		r.Header.Set("Authorization", "Bearer "+key)
		return send(t, api, r)
	}
	if a := publish("slow", 3); a.status != http.StatusAccepted {
		t.Fatalf("the first request: %d %s", a.status, a.body)
	}
	a := publish("slow", 1)
	if got, want := a.story(t), "429 the key slow may publish 0.1 events a second; nothing was stored, publish it again after Retry-After"; got != want {
		t.Errorf("over the rate: %s, want %s", got, want)
	}
	if got := a.header.Get("Retry-After"); got != "30" { // three events at one in ten seconds
		t.Errorf("Retry-After = %s", got)
	}

	if got, want := publish("small", 3).story(t), "403 the key small may publish 2 events a day, and these are 3"; got != want {
		t.Errorf("more than a day's quota: %s, want %s", got, want)
	}
	f.err = errors.New("the disk is full")
	if a := publish("small", 2); a.status != http.StatusInternalServerError {
		t.Errorf("while nothing can be stored: %d %s", a.status, a.body)
	}
	f.err = nil
	if a := publish("small", 2); a.status != http.StatusAccepted {
		t.Errorf("events that were not stored count: %d %s", a.status, a.body)
	}
	a = publish("small", 1)
	if got, want := a.story(t), "429 the key small may publish 2 events a day, and has used 2; nothing was stored, publish it again after Retry-After"; got != want || a.header.Get("Retry-After") == "" {
		t.Errorf("over the quota: %s, want %s", got, want)
	}
	if len(f.calls) != 2 {
		t.Errorf("%d requests are stored, want 2", len(f.calls))
	}
}
