package httpapi_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/describe"
	"github.com/badged/badged/internal/server/httpapi"
)

// target returns a path of a route, with the examples of its parameters.
func target(r describe.Route) string {
	path := r.Path
	for _, p := range r.Params {
		if p.In == "path" {
			path = strings.ReplaceAll(path, "{"+p.Name+"}", p.Example)
		}
	}
	return path
}

// askFor sends a route's first example as a request.
func askFor(t *testing.T, api http.Handler, r describe.Route, query, key string) answer {
	t.Helper()
	body, contentType := "", ""
	if len(r.Body) > 0 {
		body, contentType = r.Body[0].Example, r.Body[0].MediaType
	}
	return ask(t, api, key, r.Method, target(r)+query, contentType, body)
}

func TestEveryRouteIsDescribed(t *testing.T) {
	api := newAdminAPI(t, &explainer{})
	names := map[string]bool{}
	for _, r := range httpapi.Routes() {
		t.Run(r.Method+" "+r.Path, func(t *testing.T) {
			if r.Name == "" || names[r.Name] || r.Group == "" || r.Summary == "" || strings.HasSuffix(r.Summary, ".") {
				t.Errorf("name %q must be its own, group %q and summary %q must say something", r.Name, r.Group, r.Summary)
			}
			names[r.Name] = true
			// send checks the answers.
			if got := askFor(t, api, r, "", "").status; got != http.StatusUnauthorized {
				t.Errorf("without a key the status is %d", got)
			}
			if got, may := askFor(t, api, r, "", adaToken).status, slices.Contains(r.Access, httpapi.UserAccess); (got/100 == 2) != may {
				t.Errorf("with the user's token the status is %d; access by the description: %t", got, may)
			}
		})
	}
}

// A body that is compressed is refused by every route that has one, before it is read.
func TestCompressedBodies(t *testing.T) {
	api := newAdminAPI(t, &explainer{})
	tried := 0
	for _, r := range httpapi.Routes() {
		if len(r.Body) == 0 {
			continue
		}
		tried++
		for encoding, want := range map[string]int{"gzip": http.StatusUnsupportedMediaType, "br, identity": http.StatusUnsupportedMediaType, "Identity": 0} {
			request := newRequest(t, r.Method, target(r), strings.NewReader(r.Body[0].Example))
			request.Header.Set("Content-Type", r.Body[0].MediaType)
			request.Header.Set("Content-Encoding", encoding)
			request.Header.Set("Authorization", "Bearer "+adminKey)
			got := send(t, api, request)
			if hint := fmt.Sprintf("the body has the Content-Encoding %q: send it as it is, without that header", encoding); want != 0 && (got.status != want || !strings.Contains(got.story(t), hint)) || want == 0 && got.status/100 != 2 {
				t.Errorf("%s %s in %s: %d %s", r.Method, r.Path, encoding, got.status, got.body)
			}
		}
	}
	if tried < 7 {
		t.Errorf("only %d routes have a body", tried)
	}
}

// A body on a route that has none is refused before anything is done: it may hold a field, such as
// dry_run, that the client relies on.
func TestBodiesOfRoutesWithoutBody(t *testing.T) {
	tried := 0
	for _, r := range httpapi.Routes() {
		if len(r.Body) > 0 {
			continue
		}
		tried++
		o := &fakeOperations{}
		api := build(t, httpapi.Config{
			Devices: &fakeDevices{}, Disconnects: &fakeDisconnects{},
			Explainer: &explainer{}, Operations: o, Webhooks: &webhooks{},
		})
		askWith := func(body io.Reader) answer {
			request := newRequest(t, r.Method, target(r), body)
			request.Header.Set("Content-Type", "application/json")
			request.Header.Set("Authorization", "Bearer "+adminKey)
			return send(t, api, request)
		}
		for _, body := range []string{`{"dry_run":true}`, `{}`, ` `} {
			for name, reader := range map[string]io.Reader{"": strings.NewReader(body), " in chunks": io.MultiReader(strings.NewReader(body))} {
				if got := askWith(reader).story(t); !strings.HasPrefix(got, "400 the route has no body: send none") || o.asked+o.read != "" {
					t.Errorf("%s %s with the body %s%s: %s; did %s %s", r.Method, r.Path, body, name, got, o.asked, o.read)
				}
			}
		}
		if got := askWith(iotest.ErrReader(os.ErrDeadlineExceeded)).story(t); !strings.HasPrefix(got, "400 the route has no body: send none") {
			t.Errorf("%s %s with a body that does not come: %s", r.Method, r.Path, got)
		}
		for name, reader := range map[string]io.Reader{"an empty body": strings.NewReader(""), "an empty body in chunks": io.MultiReader()} {
			if a := askWith(reader); a.status/100 != 2 {
				t.Errorf("%s %s with %s: %d %s", r.Method, r.Path, name, a.status, a.body)
			}
		}
	}
	if tried < 20 {
		t.Errorf("only %d routes have no body", tried)
	}
}

func TestEveryParameterIsDescribed(t *testing.T) {
	api := newAdminAPI(t, &explainer{})
	for _, r := range httpapi.Routes() {
		if r.Method != http.MethodGet {
			continue
		}
		query := url.Values{}
		for _, p := range r.Params {
			if p.In == "query" {
				query.Set(p.Name, p.Example)
			}
		}
		if a := askFor(t, api, r, "?"+query.Encode(), adminKey); a.status != http.StatusOK {
			t.Errorf("%s with its parameters %v is answered with %d %s", r.Path, query, a.status, a.body)
		}
		if got := askFor(t, api, r, "?frobnicate=1", adminKey).story(t); got != `400 "frobnicate" is not a parameter of this route` {
			t.Errorf("%s with another parameter: %s", r.Path, got)
		}
	}
}

// Every example of a body is accepted and valid; with an unknown field it is
// neither.
func TestBodiesAreAsDescribed(t *testing.T) {
	api := newAdminAPI(t, &explainer{})
	doc := document(t)
	for _, r := range httpapi.Routes() {
		for _, c := range r.Body {
			if a := ask(t, api, adminKey, r.Method, target(r), c.MediaType, c.Example); a.status/100 != 2 {
				t.Errorf("the example of %s in %s is answered with %d %s", r.Path, c.MediaType, a.status, a.body)
			}
			strange := strings.Replace(c.Example, "{", `{"frobnicate":1,`, 1)
			if a := ask(t, api, adminKey, r.Method, target(r), c.MediaType, strange); a.status != http.StatusBadRequest {
				t.Errorf("an unknown field of %s in %s is answered with %d %s", r.Path, c.MediaType, a.status, a.body)
			}
			if c.Model == nil {
				continue
			}
			if doc.Validate([]byte(strange), "paths", r.Path, strings.ToLower(r.Method), "requestBody", "content", c.MediaType, "schema") == nil {
				t.Errorf("an unknown field of %s in %s is as described", r.Path, c.MediaType)
			}
		}
	}
}

// Decode and the JSON Schema accept the same events, except for rules that
// JSON Schema cannot express: bytes, control characters, and mentions among
// the users.
func TestEventsAreAsDescribed(t *testing.T) {
	doc := document(t)
	for _, kind := range events.Types() {
		if kind.Reserved {
			continue
		}
		e := kind.Example
		e.ID = "1"
		good, err := e.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		check := func(what string, event []byte) {
			t.Helper()
			e, refused := events.Decode(event)
			if refused == nil {
				refused = e.CheckReserved()
			}
			invalid := doc.Validate(event, "components", "schemas", "Event")
			if (refused == nil) != (invalid == nil) {
				t.Errorf("%s of %s: decoding: %v; schema: %v\n%s", what, kind.Type, refused, invalid, event)
			}
		}
		check("the example", good)
		for _, field := range append(kind.Required, kind.Optional...) {
			check("another name for "+field, []byte(strings.Replace(string(good), `"`+field+`"`, `"frobnicate"`, 1)))
		}
		for _, edit := range []struct{ from, to string }{
			{`"id":"1"`, `"id":""`},
			{`"id":"1"`, `"ID":"1"`},
			{`"id":"1"`, `"id":1`},
			{`"id":"1"`, `"id":"1","frobnicate":"x"`},
			{`"id":"1"`, `"id":"1","publishedby":"chat"`},
			{`"id":"1"`, `"id":"1","traceparent":"00-1-2-00","tracestate":"a=b","subject":"s","dataschema":"d","datacontenttype":"application/json"`},
			{`"id":"1"`, `"id":"` + strings.Repeat("x", events.MaxNameBytes) + `"`},
			{`"id":"1"`, `"id":"` + strings.Repeat("x", events.MaxNameBytes+1) + `"`},
			{`"id":"1"`, `"id":"1","time":"2026-11-21T04:11:46.5+01:00"`},
			{`"id":"1"`, `"id":"1","time":"yesterday"`},
			{`"specversion":"1.0"`, `"specversion":"0.3"`},
			{`"source":"chat",`, ``},
			{string(kind.Type), "message.frobnicated"},
			{`"user_ids":["ada"`, `"user_ids":["ada",""`},
			{`"user_ids":["ada"`, `"user_ids":["ada",7`},
			{`"user_ids":["ada"]`, `"user_ids":[]`},
			{`"conversation_id":"design-crew"`, `"conversation_id":null`},
			{`"seq":42`, `"seq":0`},
			{`"seq":42`, `"seq":4.5`},
			{`"seq":42`, `"seq":9223372036854775807`},
			{`"up_to_seq":42`, `"up_to_seq":-1`},
			{`"level":"mentions"`, `"level":"some"`},
			{`"category":"likes"`, `"category":"` + strings.Repeat("x", events.MaxCategoryBytes+1) + `"`},
		} {
			if changed := strings.Replace(string(good), edit.from, edit.to, 1); changed != string(good) {
				check(edit.to, []byte(changed))
			}
		}
		for name, value := range map[string]string{"seq": "7", "up_to_seq": "7", "level": `"all"`, "category": `"likes"`, "message_id": `"m"`} {
			if !strings.Contains(string(good), `"`+name+`"`) {
				check("a field "+name, []byte(strings.Replace(string(good), `"data":{`, `"data":{"`+name+`":`+value+`,`, 1)))
			}
		}
	}
}
