package tests

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// issued returns a token with the time at which it was issued.
func issued(t *testing.T, user string, at time.Time) string {
	t.Helper()
	return issuedWith(t, user, at, nil)
}

// issuedWith is issued with further claims, which override the usual claims. It uses another library
// than badged, as a chat backend does.
func issuedWith(t *testing.T, user string, at time.Time, claims map[string]any) string {
	t.Helper()
	all := jwt.MapClaims{"sub": user, "iat": at.Unix(), "exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(all, claims)
	token := jwt.NewWithClaims(jwt.SigningMethodHS256, all)
	kid, secret, _ := strings.Cut(jwtKeys, "=HS256:")
	token.Header["kid"] = kid
	signed, err := token.SignedString([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

// disconnect asks a process to disconnect a user.
func disconnect(t *testing.T, p *process, user, body string) {
	t.Helper()
	wantStatus(t, publisherKey, http.MethodPost, p.url+"/v1/users/"+user+"/disconnect", "application/json", body, http.StatusAccepted)
}

// A revoked token is refused by every gateway from then on: with Redis, without Redis, and by a
// process that starts later.
func TestRevokedTokens(t *testing.T) {
	t.Parallel()
	database, redis := newDatabase(t), newRedis(t)
	more := []string{"--redis-url=" + redis.URL()}
	api := serve(t, database, append(more, "--roles=api,projector")...)
	gateways := []*process{serve(t, database, append(more, "--roles=gateway")...), serve(t, database, append(more, "--roles=gateway")...)}

	now := time.Now()
	for _, tt := range []struct {
		user, when string
		before     func()
	}{
		{"ann", "with Redis", func() {}},
		{"bob", "without Redis", redis.Kill},
	} {
		stolen, fresh := issued(t, tt.user, now.Add(-time.Hour)), issued(t, tt.user, now)
		var thieves, owners, others []*client
		for _, g := range gateways {
			thieves = append(thieves, connectWith(t, g.url, stolen))
			owners = append(owners, connectWith(t, g.url, fresh))
			others = append(others, connect(t, g.url, "cat"))
		}
		for _, c := range slices.Concat(thieves, owners, others) {
			c.awaitTotal(0)
		}
		tt.before()
		disconnect(t, api, tt.user, `{"revoke_before":"`+now.Add(-time.Minute).Format(time.RFC3339)+`"}`)
		for i := range gateways {
			if code := thieves[i].awaitEnd(); code != 4001 {
				t.Errorf("gateway %d %s: the thief's connection ended with %d", i, tt.when, code)
			}
			if code := owners[i].awaitEnd(); code != 4203 {
				t.Errorf("gateway %d %s: the owner's connection ended with %d", i, tt.when, code)
			}
		}
		for i, g := range gateways {
			refuses(t, g, stolen)
			connectWith(t, g.url, fresh).awaitTotal(0)
			others[i].say(`{"t":"read_all","id":7}`)
			others[i].await("an answer", func() bool { return others[i].answers[7] == "ok" })
		}
		badge := api.url + "/v1/users/" + tt.user + "/badge"
		wantStatus(t, stolen, http.MethodGet, badge, "", "", http.StatusUnauthorized)
		wantStatus(t, fresh, http.MethodGet, badge, "", "", http.StatusOK)
	}
	refuses(t, serve(t, database, append(more, "--roles=gateway")...), issued(t, "ann", now.Add(-time.Hour)))
}

// refuses fails unless a process refuses a revoked token on every route.
func refuses(t *testing.T, p *process, jwt string) {
	t.Helper()
	if code := connectWith(t, p.url, jwt).awaitEnd(); code != 4001 {
		t.Errorf("a connection with a revoked token ends with %d", code)
	}
	for _, request := range []struct{ method, path, body string }{{http.MethodGet, "/v1/sse", ""}, {http.MethodPost, "/v1/commands", `{"t":"read_all"}`}} {
		status, _, answer := requestAs(t, jwt, request.method, p.url+request.path, "application/json", request.body)
		if status != http.StatusUnauthorized || !strings.Contains(answer, "it was revoked") {
			t.Errorf("%s with a revoked token is answered with %d %s", request.path, status, answer)
		}
	}
}
