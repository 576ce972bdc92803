package httpapi_test

import (
	"encoding/json"
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

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/accesstest"
	"github.com/badged/badged/internal/server/httpapi"
	"github.com/badged/badged/internal/server/keyring"
)

// keysOf writes a file of keys and returns them beside those of mustKeys.
func keysOf(t *testing.T, registry prometheus.Registerer, file ...accesstest.Key) *keyring.Ring {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.yaml")
	if err := os.WriteFile(path, []byte(accesstest.File(file...)), 0o600); err != nil {
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
	return build(t, httpapi.Config{
		Appender: a, Devices: &fakeDevices{}, Disconnects: &fakeDisconnects{},
		Explainer: &explainer{}, Operations: &fakeOperations{}, Webhooks: &webhooks{}, Keys: keys,
	})
}

// Every route admits exactly the kinds of keys that accesstest and its description name,
// and of those the ones whose scope has the user, source and type of its example.
func TestEveryRouteWithEveryKey(t *testing.T) {
	of := map[keyring.Kind]string{keyring.Publisher: httpapi.PublisherAccess, keyring.Reader: httpapi.ReaderAccess, keyring.Admin: httpapi.AdminAccess}
	keys := append(accesstest.Keys(), accesstest.Unlimited(publisherKey, adminKey)...)
	for _, r := range httpapi.Routes() {
		t.Run(r.Method+" "+r.Path, func(t *testing.T) {
			route, known := accesstest.Routes()[r.Method+" "+r.Path]
			if !known {
				t.Fatal("accesstest does not say what this route admits")
			}
			var described []string
			for _, kind := range route.Kinds {
				described = append(described, of[kind])
			}
			if route.Token != accesstest.NoToken {
				described = append(described, httpapi.UserAccess)
			}
			if !slices.Equal(r.Access, described) {
				t.Errorf("it is described to admit %q, want %q", r.Access, described)
			}
			for _, key := range keys {
				a := &appender{}
				api := fullAPI(t, a, keysOf(t, nil, accesstest.Keys()...))
				got := askFor(t, api, r, "", key.Name)
				switch {
				case key.Expired:
					if want := "401 the key " + key.Name + " has expired"; got.story(t) != want {
						t.Errorf("with %s: %d %s, want %s", key.Name, got.status, got.body, want)
					}
				case route.Admits(key):
					if got.status/100 != 2 {
						t.Errorf("with %s: %d %s", key.Name, got.status, got.body)
					}
				case !strings.HasPrefix(got.story(t), "403 the key "): // and not that it is unknown
					t.Errorf("with %s: %d %s", key.Name, got.status, got.body)
				}
				if (len(a.calls) > 0) != (r.Path == "/v1/events" && got.status == http.StatusAccepted) {
					t.Errorf("with %s the answer is %d, and %d requests are stored", key.Name, got.status, len(a.calls))
				}
			}
		})
	}
}

// Every key may publish exactly the types of events that accesstest names for it.
func TestEveryEventWithEveryKey(t *testing.T) {
	for _, typ := range events.Types() {
		if typ.Reserved {
			continue
		}
		body, err := json.Marshal(typ.Example)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range append(accesstest.Keys(), accesstest.Unlimited(publisherKey, adminKey)...) {
			api := fullAPI(t, &appender{}, keysOf(t, nil, accesstest.Keys()...))
			got := publishAs(t, api, key.Name, string(body))
			want := http.StatusForbidden
			switch route := (accesstest.Route{Kinds: []keyring.Kind{keyring.Publisher, keyring.Admin}, Rights: accesstest.ToPublish(typ.Type)}); {
			case key.Expired:
				want = http.StatusUnauthorized
			case route.Admits(key):
				want = http.StatusAccepted
			}
			if got.status != want {
				t.Errorf("%s with %s: %d %s, want %d", typ.Type, key.Name, got.status, got.body, want)
			}
		}
	}
}

// publishAs publishes a body of JSON with a key.
func publishAs(t *testing.T, api http.Handler, key, body string) answer {
	t.Helper()
	return ask(t, api, key, http.MethodPost, "/v1/events", plain, body)
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
	api := fullAPI(t, f, keysOf(t, registry, accesstest.Key{
		Name: "crm", Kind: keyring.Publisher, Fields: ", sources: [crm, crm/*], types: [message.*, room.posted, room.joined], users: [acme-*, bob]",
	}))
	publish := func(events ...string) string {
		a := publishAs(t, api, "crm", "["+strings.Join(events, ",")+"]")
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
event 0 type: "room.recalled" concerns all members of a room, and the key crm, which is for the users acme-*, bob, has no rooms`},
		{[]string{scoped("crm", "room.posted", "")}, denied + `
event 0 type: "room.posted" concerns all members of a room, and the key crm, which is for the users acme-*, bob, has no rooms`},
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
# HELP badged_keys_refused_total Requests that were refused because their key does not permit them, by key and reason.
# TYPE badged_keys_refused_total counter
badged_keys_refused_total{key="crm",kind="publisher",reason="room"} 1
badged_keys_refused_total{key="crm",kind="publisher",reason="source"} 3
badged_keys_refused_total{key="crm",kind="publisher",reason="type"} 1
# HELP badged_keys_requests_total Requests with a valid key, by key.
# TYPE badged_keys_requests_total counter
badged_keys_requests_total{key="chat",kind="publisher"} 0
badged_keys_requests_total{key="crm",kind="publisher"} 7
badged_keys_requests_total{key="ops",kind="admin"} 0
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "badged_keys_events_total", "badged_keys_refused_total", "badged_keys_requests_total"); err != nil {
		t.Error(err)
	}
}

// Rooms are a scope beside users: an event of a room is checked for both.
func TestRoomsOfAKey(t *testing.T) {
	f := &appender{}
	api := fullAPI(t, f, keysOf(t, nil, accesstest.Key{
		Name: "eu", Kind: keyring.Publisher, Fields: ", users: [eu-*], rooms: [eu/*, lobby]",
	}))
	const denied = "403 the key eu may not publish some of these events; nothing was stored\n"
	for _, test := range []struct{ typ, room, users, want string }{
		{"room.joined", "eu/town", `["eu-ada"]`, ""},
		{"room.left", "lobby", `["eu-ada"]`, ""},
		{"room.posted", "eu/town", "", ""},
		{"room.joined", "eu/town", `["us-bob"]`, `event 0 data.user_ids[0]: "us-bob" is not a user of the key eu, which has eu-*`},
		{"room.posted", "lobby2", "", `event 0 data.conversation_id: "lobby2" is not a room of the key eu, which has eu/*, lobby`},
		{"room.recalled", "EU/town", "", `event 0 data.conversation_id: "EU/town" is not a room of the key eu, which has eu/*, lobby`},
		{"message.delivered", "us/direct", `["eu-ada"]`, ""}, // no room: the key's users alone have it
	} {
		data := map[string]any{"conversation_id": test.room}
		if test.users != "" {
			data["user_ids"] = json.RawMessage(test.users)
		}
		if test.typ != "room.joined" && test.typ != "room.left" {
			data["seq"] = 1
		}
		body, err := json.Marshal(map[string]any{"specversion": "1.0", "id": "1", "source": "chat", "type": test.typ, "data": data})
		if err != nil {
			t.Fatal(err)
		}
		got := publishAs(t, api, "eu", string(body))
		if test.want == "" && got.status != http.StatusAccepted || test.want != "" && got.story(t) != denied+test.want {
			t.Errorf("%s: %d %s, want %s", body, got.status, got.body, test.want)
		}
	}
}

func TestPublishingMoreThanTheKeyMay(t *testing.T) {
	f := &appender{}
	api := fullAPI(t, f, keysOf(t, nil, accesstest.Keys()...))
	publish := func(key string, n int) answer {
		return publishAs(t, api, key, "["+strings.Join(slices.Repeat([]string{delivered("1")}, n), ",")+"]")
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

	if got, want := publish("small", 3).story(t), "403 the key small may publish 2 events a day, and the request has 3"; got != want {
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
