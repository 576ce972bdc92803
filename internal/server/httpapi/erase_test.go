package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/badged/badged/internal/partition/rebuild"
	"github.com/badged/badged/internal/pg/pgsession"
	"github.com/badged/badged/internal/user/erasure"
)

// An erasure is answered with what it did, or with what to do instead.
func TestErase(t *testing.T) {
	o := &fakeOperations{}
	api := newOperationsAPI(t, o)
	a := call(t, api, adminKey, "POST users/a%20%22b%22/erase", "")
	if a.status != http.StatusOK || !strings.Contains(a.body, `"partition":3,"erased":2`) || o.asked != `api ops erases a "b"` {
		t.Errorf("it answers %d %s and asks %q", a.status, a.body, o.asked)
	}
	for request, want := range map[string]int{"POST users/a%00b/erase": http.StatusBadRequest, "POST users/ada/erase?force=1": http.StatusBadRequest} {
		if a := call(t, api, adminKey, request, ""); a.status != want {
			t.Errorf("%s is answered with %d: %s", request, a.status, a.body)
		}
	}
	for _, tc := range []struct {
		err    error
		status int
		detail string
	}{
		{&pgsession.OwnerError{Role: "badged_server"}, http.StatusConflict, "badged user erase` as the owner"},
		{&rebuild.RunningError{PID: 7, Application: "badged rebuild"}, http.StatusConflict, "badged rebuild"},
		{erasure.ErrArchived, http.StatusConflict, "archived"},
		{erasure.ErrNotFolded, http.StatusServiceUnavailable, "projector"},
	} {
		o.err = fmt.Errorf("erase a user: %w", tc.err)
		if a := call(t, api, adminKey, "POST users/ada/erase", ""); a.status != tc.status || !strings.Contains(a.body, tc.detail) {
			t.Errorf("%v is answered with %d: %s", tc.err, a.status, a.body)
		}
	}
}
