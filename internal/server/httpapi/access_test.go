package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/internal/server/httpapi"
)

func TestAccess(t *testing.T) {
	// The answer of each route to each client. Only publishers and admins may
	// publish or query many badges; a user's token is for that user only.
	routes := []struct{ act, name, method, target, contentType, body string }{
		{"publish", "publish", http.MethodPost, "/v1/events", plain, delivered("1")},
		{"read badges", "query", http.MethodPost, "/v1/badges/query", plain, `{"user_ids":["ada"]}`},
		{"", "badge", http.MethodGet, "/v1/users/ada/badge", "", ""},
		{"", "conversations", http.MethodGet, "/v1/users/ada/conversations", "", ""},
	}
	const (
		needsHeader = "401 give a key or token in the header Authorization: Bearer …"
		noPublisher = "401 the key is not one of a publisher: it must be in --publisher-keys or --keys-file"
		aToken      = "401 this looks like a user's token; to ACT, use a publisher's key"
		neither     = "401 neither a publisher's key nor a user's token"
	)
	for _, test := range []struct {
		name, authorization string
		// want is the answer of publish and query, then that of badge and
		// conversations.
		want [2]string
	}{
		{"no header", "", [2]string{needsHeader, needsHeader}},
		{"another scheme", "Basic " + publisherKey, [2]string{needsHeader, needsHeader}},
		{"no scheme", publisherKey, [2]string{needsHeader, needsHeader}},
		{"a scheme alone", "Bearer  ", [2]string{needsHeader, needsHeader}},
		{"a wrong key", "Bearer wrong", [2]string{noPublisher, neither}},
		{"the name of a key", "Bearer chat", [2]string{noPublisher, neither}},
		{"a publisher", "Bearer " + publisherKey, [2]string{"ok", "ok"}},
		{"a publisher with a scheme in capitals", "BEARER " + publisherKey, [2]string{"ok", "ok"}},
		{"an admin", "Bearer " + adminKey, [2]string{"ok", "ok"}},
		{"the user", "Bearer " + adaToken, [2]string{aToken, "ok"}},
		{"another user", "Bearer " + benToken, [2]string{aToken, "403 a user's token is for that user only"}},
		{"the user, too late", "Bearer " + oldToken, [2]string{aToken, "401 bad token: it has expired"}},
		{"a token without a signature", "Bearer x.y.z", [2]string{aToken, "401 bad token: it is not a JWT"}},
	} {
		for i, route := range routes {
			t.Run(test.name+"/"+route.name, func(t *testing.T) {
				f := newFixture(t)
				r := newRequest(t, route.method, route.target, strings.NewReader(route.body))
				r.Header["Authorization"] = nil // without the publisher's key
				if test.authorization != "" {
					r.Header.Set("Authorization", test.authorization)
				}
				r.Header.Set("Content-Type", route.contentType)
				a := send(t, f, r)
				want := strings.ReplaceAll(test.want[i/2], "ACT", route.act)
				if want == "ok" {
					if a.status != http.StatusOK && a.status != http.StatusAccepted {
						t.Errorf("answer is %d %s", a.status, a.body)
					}
					return
				}
				if got := a.story(t); got != want {
					t.Errorf("answer is %s, want %s", got, want)
				}
				wantChallenge := ""
				if a.status == http.StatusUnauthorized {
					wantChallenge = `Bearer realm="badged"`
				}
				if got := a.header.Get("WWW-Authenticate"); got != wantChallenge {
					t.Errorf("WWW-Authenticate = %q, want %q", got, wantChallenge)
				}
				if len(f.appender.calls) > 0 {
					t.Error("something was appended")
				}
			})
		}
	}
}

func TestWithoutKeysNoPublishing(t *testing.T) {
	api, err := httpapi.New(httpapi.Config{Appender: &appender{}, Badges: &fakeBadges{}, Tokens: tokens{}})
	if err != nil {
		t.Fatal(err)
	}
	if a := post(t, api, "/v1/events", plain, delivered("1")); a.status != http.StatusUnauthorized {
		t.Errorf("answer is %d", a.status)
	}
}

func TestNewNeedsItsParts(t *testing.T) {
	for name, cfg := range map[string]httpapi.Config{
		"an appender": {Badges: &fakeBadges{}, Tokens: tokens{}},
		"badges":      {Appender: &appender{}, Tokens: tokens{}},
		"tokens":      {Appender: &appender{}, Badges: &fakeBadges{}},
	} {
		if _, err := httpapi.New(cfg); err == nil {
			t.Errorf("New without %s succeeds", name)
		}
	}
}

func TestUnknownRoutes(t *testing.T) {
	for _, test := range []struct{ method, target, allow, want string }{
		{http.MethodGet, "/v1/events", "POST", "405 GET is not a method of /v1/events; use POST"},
		{http.MethodPut, "/v1/events", "POST", "405 PUT is not a method of /v1/events; use POST"},
		{http.MethodGet, "/v1/badges/query", "POST", "405 GET is not a method of /v1/badges/query; use POST"},
		{http.MethodPost, "/v1/users/ada/badge", "GET", "405 POST is not a method of /v1/users/ada/badge; use GET"},
		{http.MethodDelete, "/v1/users/ada/conversations", "GET", "405 DELETE is not a method of /v1/users/ada/conversations; use GET"},
		{http.MethodGet, "/v1/", "", "404 /v1/ is not a route of this API"},
		{http.MethodPost, "/v1/event", "", "404 /v1/event is not a route of this API"},
		{http.MethodGet, "/v1/users/ada", "", "404 /v1/users/ada is not a route of this API"},
		{http.MethodGet, "/v1/users/a/b/badge", "", "404 /v1/users/a/b/badge is not a route of this API"},
		{http.MethodGet, "/v2/users/ada/badge", "", "404 /v2/users/ada/badge is not a route of this API"},
	} {
		t.Run(test.method+" "+test.target, func(t *testing.T) {
			a := send(t, newFixture(t), newRequest(t, test.method, test.target, nil))
			if got := a.story(t); got != test.want {
				t.Errorf("answer is %s, want %s", got, test.want)
			}
			if got := a.header.Get("Allow"); got != test.allow {
				t.Errorf("Allow = %q, want %q", got, test.allow)
			}
		})
	}
}

// everyRoute sends a valid request to each route and calls check with the
// answer.
func everyRoute(t *testing.T, f *fixture, check func(t *testing.T, a answer)) {
	t.Helper()
	t.Run("publish", func(t *testing.T) { check(t, post(t, f, "/v1/events", plain, delivered("1"))) })
	t.Run("query", func(t *testing.T) { check(t, post(t, f, "/v1/badges/query", plain, `{"user_ids":["ada"]}`)) })
	t.Run("badge", func(t *testing.T) { check(t, get(t, f, "/v1/users/ada/badge")) })
	t.Run("await", func(t *testing.T) { check(t, get(t, f, "/v1/users/ada/badge?at_least=1")) })
	t.Run("conversations", func(t *testing.T) { check(t, get(t, f, "/v1/users/ada/conversations")) })
}

func TestStoreThatCannotBeReached(t *testing.T) {
	_, refused := pgconn.Connect(t.Context(), "postgres://127.0.0.1:1/chat?sslmode=disable")
	var connect *pgconn.ConnectError
	if !errors.As(refused, &connect) {
		t.Fatalf("connecting to a closed port gives %v", refused)
	}
	const again = "; repeat the request; repeated events count once"
	for name, test := range map[string]struct {
		err        error
		want       string
		retryAfter string
	}{
		"a closed port":               {refused, "cannot be reached", "1"},
		"the connection breaks":       {&net.OpError{Op: "read", Err: errors.New("connection reset")}, "cannot be reached", "1"},
		"the connection ends":         {fmt.Errorf("receive: %w", io.ErrUnexpectedEOF), "cannot be reached", "1"},
		"the connection is closed":    {io.EOF, "cannot be reached", "1"},
		"no answer in time":           {context.DeadlineExceeded, "does not answer in time", "1"},
		"a statement takes too long":  {&pgconn.PgError{Code: "57014", Message: "secret"}, "does not answer in time", "1"},
		"a lock takes too long":       {&pgconn.PgError{Code: "55P03", Message: "secret"}, "does not answer in time", "1"},
		"Postgres shuts down":         {&pgconn.PgError{Code: "57P01", Message: "secret"}, "is starting or stopping", "1"},
		"Postgres starts":             {&pgconn.PgError{Code: "57P03", Message: "secret"}, "is starting or stopping", "1"},
		"Postgres has no more room":   {&pgconn.PgError{Code: "53300", Message: "secret"}, "has no connection left", "1"},
		"Postgres has no memory":      {&pgconn.PgError{Code: "53200", Message: "secret"}, "is out of memory", "1"},
		"the disk is full":            {&pgconn.PgError{Code: "53100", Message: "secret"}, "has no space left on its disk and nothing was stored", "10"},
		"the disk fails":              {&pgconn.PgError{Code: "58030", Message: "secret"}, "cannot write to its disk and nothing was stored", "10"},
		"Postgres is a standby":       {&pgconn.PgError{Code: "25006", Message: "secret"}, "is read-only and nothing was stored", "10"},
		"a pooler lost its backend":   {&pgconn.PgError{Code: "08006", Message: "secret"}, "cannot be reached", "1"},
		"wrapped, as the log does it": {fmt.Errorf("append 3 events: %w", &pgconn.PgError{Code: "57P02"}), "is starting or stopping", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.appender.err, f.badges.err = test.err, test.err
			everyRoute(t, f, func(t *testing.T, a answer) {
				if got, want := a.story(t), "503 the database "+test.want+again; got != want {
					t.Errorf("answer is %s, want %s", got, want)
				}
				if got := a.header.Get("Retry-After"); got != test.retryAfter {
					t.Errorf("Retry-After = %q, want %s", got, test.retryAfter)
				}
				if !strings.Contains(f.log.String(), "request failed") {
					t.Error("nothing was logged")
				}
			})
		})
	}
}

func TestInternalErrorsAreNotShown(t *testing.T) {
	for name, err := range map[string]error{
		"a statement that is wrong":       &pgconn.PgError{Code: "42P01", Message: "relation secret does not exist"},
		"a constraint":                    &pgconn.PgError{Code: "23514", Message: "secret violates"},
		"a transaction that is abandoned": &pgconn.PgError{Code: "25P02", Message: "secret"},
		"an error without a code":         &pgconn.PgError{Message: "secret"},
		"anything else":                   errors.New("secret at 203.0.113.9"),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.appender.err, f.badges.err = err, err
			everyRoute(t, f, func(t *testing.T, a answer) {
				if got, want := a.story(t), "500 internal error; the server has logged it"; got != want {
					t.Errorf("answer is %s, want %s", got, want)
				}
				if got := a.header.Get("Retry-After"); got != "" {
					t.Errorf("Retry-After = %q", got)
				}
				if !strings.Contains(f.log.String(), "secret") {
					t.Errorf("the log does not say why: %s", f.log)
				}
			})
		})
	}
}

func TestAClientThatLeftIsNotAnswered(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f.badges.err = ctx.Err()
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/users/ada/badge", nil)
	if a := send(t, f, r); a.body != "" {
		t.Errorf("answer is %d %s", a.status, a.body)
	}
	if f.log.Len() > 0 {
		t.Errorf("logged %s", f.log)
	}
}
