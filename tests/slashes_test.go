package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// User ids with characters that have a meaning in URL paths work like any others: such users get
// messages, and can be read, disconnected, exported and erased.
func TestIdsInPaths(t *testing.T) {
	t.Parallel()
	database := oneDatabase(t)
	p := serve(t, database, "--admin-keys=ops="+adminKey)
	for i, user := range []string{"/", "//", "/a", "a/", "%2F", "%", "?", "#", ".", "..", "a b", "+"} {
		quoted, err := json.Marshal(user)
		if err != nil {
			t.Fatal(err)
		}
		position := publish(t, p, delivered(fmt.Sprint("c", i), 1, string(quoted)))
		path := url.PathEscape(user)
		if strings.Trim(user, ".") == "" {
			path = strings.ReplaceAll(user, ".", "%2E")
		}
		wantTotal(t, p, path, position, 1)
		for _, route := range []struct {
			method, path, body, want string
			status                   int
		}{
			{http.MethodGet, "v1/users/%s/conversations", "", fmt.Sprintf(`"c%d"`, i), http.StatusOK},
			{http.MethodGet, "v1/users/%s/devices", "", `"devices"`, http.StatusOK},
			{http.MethodPost, "v1/users/%s/disconnect", `{}`, "", http.StatusAccepted},
			{http.MethodGet, "admin/v1/users/%s/explain", "", fmt.Sprintf(`"user_id":%s`, quoted), http.StatusOK},
			{http.MethodGet, "admin/v1/users/%s/export", "", `"kind":"user"`, http.StatusOK},
			{http.MethodPost, "admin/v1/users/%s/erase", "", `"erased":1`, http.StatusOK},
		} {
			status, _, answer := requestAs(t, adminKey, route.method, p.url+"/"+fmt.Sprintf(route.path, path), "application/json", route.body)
			if status != route.status || !strings.Contains(answer, route.want) {
				t.Errorf("%s %s of %q: %d %s", route.method, route.path, user, status, answer)
			}
		}
	}
}
