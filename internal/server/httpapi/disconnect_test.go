package httpapi_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/badged/badged/internal/server/httpapi"
)

// fakeDisconnects is an httpapi.Disconnects that records the last request.
type fakeDisconnects struct {
	userID string
	revoke httpapi.Revoke
}

func (f *fakeDisconnects) Disconnect(_ context.Context, _, userID string, revoke httpapi.Revoke) (time.Time, error) {
	f.userID, f.revoke = userID, revoke
	if revoke.Before.Year() > 3000 {
		return time.Time{}, httpapi.ErrFuture
	}
	return revoke.Before, nil
}

func TestDisconnect(t *testing.T) {
	for _, tt := range []struct {
		name, user, body string
		want             string
		revoke           httpapi.Revoke
	}{
		{name: "no body", user: "ada", want: `202 {"user_id":"ada"}`},
		{name: "an empty object", user: "a%2Fb", body: `{}`, want: `202 {"user_id":"a/b"}`},
		{name: "nothing to revoke", user: "ada", body: `{"revoke":false}`, want: `202 {"user_id":"ada"}`},
		{name: "until now", user: "ada", body: `{"revoke":true}`, want: `202 {"user_id":"ada"}`, revoke: httpapi.Revoke{Now: true}},
		{
			name: "until a moment", user: "ada", body: `{"revoke_before":"2026-01-31T23:59:59.5+02:00"}`,
			want:   `202 {"user_id":"ada","revoked_before":"2026-01-31T21:59:59.5Z"}`,
			revoke: httpapi.Revoke{Before: time.Date(2026, 1, 31, 21, 59, 59, 5e8, time.UTC)},
		},
		{name: "both", user: "ada", body: `{"revoke":true,"revoke_before":"2026-01-31T23:59:59Z"}`, want: "400 give revoke or revoke_before, not both"},
		{name: "the first moment", user: "ada", body: `{"revoke_before":"0001-01-01T00:00:00Z"}`, want: "400 revoke_before must be a time such as 2026-01-31T23:59:59Z"},
		{name: "no time", user: "ada", body: `{"revoke_before":"yesterday"}`, want: "400 revoke_before must be a time such as 2026-01-31T23:59:59Z"},
		{
			name: "the future", user: "ada", body: `{"revoke_before":"3026-01-31T23:59:59Z"}`,
			want: "400 revoke_before must not be in the future: tokens that are issued until then would be refused",
		},
		{name: "a number", user: "ada", body: `{"revoke_before":1767225600}`, want: "400 revoke_before must not be a JSON number"},
		{name: "an unknown field", user: "ada", body: `{"before":"2026-01-31T23:59:59Z"}`, want: `400 unknown field "before"`},
		{name: "a bad user", user: "a%00b", want: "400 user id must not hold control characters"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &fakeDisconnects{}
			a := post(t, build(t, httpapi.Config{Disconnects: f}), "/v1/users/"+tt.user+"/disconnect", "", tt.body)
			got := "202 " + strings.TrimSpace(a.body)
			if a.status != http.StatusAccepted {
				got = a.story(t)
			}
			if got != tt.want {
				t.Errorf("the answer is %s, want %s", got, tt.want)
			}
			if revoke := f.revoke; a.status == http.StatusAccepted && (revoke.Now != tt.revoke.Now || !revoke.Before.Equal(tt.revoke.Before)) {
				t.Errorf("it revokes %+v, want %+v", revoke, tt.revoke)
			}
			if asked := f.userID != ""; asked != (a.status == http.StatusAccepted || tt.name == "the future") {
				t.Errorf("the answer is %d, and %q is disconnected", a.status, f.userID)
			}
		})
	}
}
