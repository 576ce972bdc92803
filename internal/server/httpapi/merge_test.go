package httpapi_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/badged/badged/internal/user/merging"
)

// A merge names both users, each validly, and not the same.
func TestMerge(t *testing.T) {
	o := &fakeOperations{}
	api := newOperationsAPI(t, o)
	if a := call(t, api, adminKey, "POST users/guest%201/merge", `{"into":"ada"}`); a.status != http.StatusOK || o.asked != "api ops merges guest 1 into ada" {
		t.Errorf("it answers %d %s and asks %q", a.status, a.body, o.asked)
	}
	for request, body := range map[string]string{
		"POST users/a%00b/merge": `{"into":"ada"}`, "POST users/guest/merge?all=1": `{"into":"ada"}`, "POST users/guest/merge": `{"into":""}`,
		"POST users/guest2/merge": `{}`, "POST users/guest3/merge": `{"into":"ada","from":"x"}`, "POST users/guest4/merge": ``,
	} {
		if a := call(t, api, adminKey, request, body); a.status != http.StatusBadRequest {
			t.Errorf("%s %s is answered with %d: %s", request, body, a.status, a.body)
		}
	}
	o.err = fmt.Errorf("merge: %w", merging.ErrSame)
	if a := call(t, api, adminKey, "POST users/ada/merge", `{"into":"ada"}`); a.status != http.StatusBadRequest {
		t.Errorf("a user merged into itself is answered with %d: %s", a.status, a.body)
	}
}
