package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/accesstest"
)

// describedRoute is a route of a server, as the server's OpenAPI document describes it.
type describedRoute struct {
	name, method, path string
	// bodies are the examples of bodies by content type. A route without examples has one
	// empty body.
	bodies map[string]string
}

// describedRoutes returns the routes that a server describes at a URL.
func describedRoutes(t *testing.T, url string) []describedRoute {
	t.Helper()
	var api struct {
		Paths map[string]map[string]struct {
			Parameters []struct{ Name, In, Example string }
			Body       struct {
				Content map[string]struct{ Example json.RawMessage }
			} `json:"requestBody"`
		}
	}
	get(t, url+"/openapi.json", &api)
	var all []describedRoute
	for path, methods := range api.Paths {
		for method, of := range methods {
			r := describedRoute{method: strings.ToUpper(method), path: path, bodies: map[string]string{}}
			r.name = r.method + " " + path
			for _, parameter := range of.Parameters {
				if parameter.In == "path" {
					r.path = strings.ReplaceAll(r.path, "{"+parameter.Name+"}", parameter.Example)
				}
			}
			for contentType, content := range of.Body.Content {
				r.bodies[contentType] = string(content.Example)
				var text string // of several lines
				if json.Unmarshal(content.Example, &text) == nil {
					r.bodies[contentType] = text
				}
			}
			if len(r.bodies) == 0 {
				r.bodies[""] = ""
			}
			all = append(all, r)
		}
	}
	return all
}

// statusOf returns the status of the answer to a request with a secret. If the request is
// refused, it also returns the answer. For a WebSocket the status is 401 if the first frame is
// bye.
func (r describedRoute) statusOf(t *testing.T, url, secret, from, contentType, body string) (status int, answer string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if r.path == "/v1/ws" {
		c, err := open(t, url, secret, http.DefaultClient)
		if err != nil {
			t.Fatal(err)
		}
		defer c.close()
		if err := c.write(`{"t":"hello"}`); err != nil {
			t.Fatal(err)
		}
		_, frame, err := c.conn.Read(ctx)
		switch {
		case err == nil && strings.Contains(string(frame), `"t":"snapshot"`):
			return http.StatusOK, ""
		case err == nil && strings.Contains(string(frame), `"t":"bye","code":4`):
			return http.StatusUnauthorized, string(frame)
		}
		t.Fatalf("the first frame is %s, %v", frame, err)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, url+r.path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if secret != "" {
		req.Header.Set("Authorization", "Bearer "+secret)
	}
	req.Header.Set("X-Forwarded-For", from)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode < http.StatusBadRequest {
		return res.StatusCode, "" // the body is not read: it may be endless
	}
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// Every route that a server describes admits exactly the keys and tokens that accesstest names,
// with each content type and each type of event.
func TestEveryRouteWithEverySecret(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.yaml")
	writeFile(t, file, accesstest.File(accesstest.Keys()...))
	p := serve(t, newDatabase(t), "--keys-file="+file, "--admin-keys=ops="+adminKey, "--trusted-proxies=127.0.0.0/8", "--internal-listen=127.0.0.1:0")
	internal := p.internal()
	now := time.Now()
	disconnect(t, p, "ada", `{"revoke_before":"`+now.Add(-time.Minute).Format(time.RFC3339)+`"}`)

	var asked int
	// try sends the examples of a route, each from another address: the server slows down
	// an address that sends wrong secrets.
	try := func(r describedRoute, what, secret string, admitted bool) {
		t.Helper()
		for contentType, body := range r.bodies {
			asked++
			from := fmt.Sprintf("10.1.%d.%d", asked/256, asked%256)
			url := p.url
			if accesstest.Routes()[r.name].Internal {
				url = internal
			}
			status, answer := r.statusOf(t, url, secret, from, contentType, body)
			refused := status == http.StatusUnauthorized || status == http.StatusForbidden
			if refused == admitted || status >= http.StatusInternalServerError {
				t.Errorf("%s %s with %s is answered with %d %s; is it to be admitted: %t", r.name, contentType, what, status, answer, admitted)
			}
		}
	}

	routes, known := describedRoutes(t, internal), accesstest.Routes()
	forged := issued(t, "ada", now)
	forged = forged[:strings.LastIndex(forged, ".")+1] + strings.Repeat("A", 43)
	tokens := []struct {
		name, secret string
		// admits lists the kinds of routes that admit this token.
		admits []accesstest.Token
	}{
		{"the token of ada", issued(t, "ada", now), []accesstest.Token{accesstest.OfTheUser, accesstest.OfAllKinds, accesstest.OfAnyUser}},
		{"her token for a category", issuedWith(t, "ada", now, map[string]any{"badged_categories": []string{"chat"}}), []accesstest.Token{accesstest.OfTheUser, accesstest.OfAnyUser}},
		{"the token of ben", issued(t, "ben", now), []accesstest.Token{accesstest.OfAnyUser}},
		{"her revoked token", issued(t, "ada", now.Add(-time.Hour)), nil},
		{"her expired token", expiredToken(t, "ada"), nil},
		{"her token without iat", issuedWith(t, "ada", now, map[string]any{"iat": nil}), nil},
		{"her token with a misspelt restriction", issuedWith(t, "ada", now, map[string]any{"Badged_Categories": []string{"chat"}}), nil},
		{"a forged token", forged, nil},
		{"a secret that no key has", "frobnicate", nil},
		{"nothing", "", nil},
	}
	for _, r := range routes {
		route, ok := known[r.name]
		if !ok {
			t.Fatalf("accesstest does not say what %s admits", r.name)
		}
		for _, tt := range tokens {
			admitted := route.Open
			for _, by := range tt.admits {
				admitted = admitted || route.Token == by
			}
			try(r, tt.name, tt.secret, admitted)
		}
		delete(known, r.name)
	}
	for name := range known {
		t.Errorf("accesstest has %s, which is no route", name)
	}
	// These routes come after the tests of tokens, since they disconnect and erase users.
	known = accesstest.Routes()
	for _, r := range routes {
		for _, key := range append(accesstest.Keys(), accesstest.Unlimited(publisherKey, adminKey)...) {
			try(r, "the key "+key.Name, key.Name, known[r.name].Admits(key))
		}
	}
	publish := known["POST /v1/events"]
	for _, typ := range events.Types() {
		if typ.Reserved {
			continue
		}
		body, err := json.Marshal(typ.Example)
		if err != nil {
			t.Fatal(err)
		}
		r := describedRoute{name: string(typ.Type), method: http.MethodPost, path: "/v1/events", bodies: map[string]string{events.ContentType: string(body)}}
		publish.Rights = accesstest.ToPublish(typ.Type)
		for _, key := range append(accesstest.Keys(), accesstest.Unlimited(publisherKey, adminKey)...) {
			try(r, "the key "+key.Name, key.Name, publish.Admits(key))
		}
	}
	p.mustStop()
}
