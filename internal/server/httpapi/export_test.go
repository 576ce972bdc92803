package httpapi_test

import (
	"errors"
	"net/http"
	"testing"
)

// An export is recorded before it is read, or refused.
func TestExport(t *testing.T) {
	o := &fakeOperations{}
	api := newOperationsAPI(t, o)
	a := call(t, api, adminKey, "GET users/a%20%22b%22/export", "")
	if a.status != http.StatusOK || a.header.Get("Content-Type") != "application/jsonl" || a.body != exported || o.asked != `export a "b"` || o.read != `api ops user.export {a "b"}` {
		t.Errorf("it answers %d %s, asks %q and records %q", a.status, a.body, o.asked, o.read)
	}
	for request, want := range map[string]int{"GET users/a%00b/export": http.StatusBadRequest, "GET users/ada/export?all=1": http.StatusBadRequest} {
		if a := call(t, api, adminKey, request, ""); a.status != want {
			t.Errorf("%s is answered with %d: %s", request, a.status, a.body)
		}
	}
	if a := call(t, api, adminKey, "GET users/stranger/export", ""); a.status != http.StatusOK || o.read != "api ops user.export {}" {
		t.Errorf("of a user that badged has no data of it answers %d and records %q", a.status, o.read)
	}
	o.err = errors.New("the trail is away")
	if a := call(t, api, adminKey, "GET users/ada/export", ""); a.status != http.StatusInternalServerError {
		t.Errorf("without a trail it answers %d: %s", a.status, a.body)
	}
}

// An export that fails before its first line is a problem, and one that fails later a
// broken connection: a part cannot be taken for the whole.
func TestExportFails(t *testing.T) {
	o := &fakeOperations{exportErr: errors.New("the database is gone")}
	if a := call(t, newOperationsAPI(t, o), adminKey, "GET users/ada/export", ""); a.status != http.StatusInternalServerError || a.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("it answers %d as %s", a.status, a.header.Get("Content-Type"))
	}
	o.exportErr = errCut
	defer func() {
		if r := recover(); r != any(http.ErrAbortHandler) {
			t.Errorf("an export that is cut off ends with %v", r)
		}
	}()
	call(t, newOperationsAPI(t, o), adminKey, "GET users/ada/export", "")
}
