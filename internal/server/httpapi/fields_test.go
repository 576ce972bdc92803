package httpapi_test

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/badged/badged/internal/base/describe"
	"github.com/badged/badged/internal/server/httpapi"
)

// fieldsOf returns the names of the fields of a body that is a struct.
func fieldsOf(c describe.Content) (names []string) {
	of := reflect.TypeOf(c.Model)
	if of == nil || of.Kind() != reflect.Struct || c.MediaType != "application/json" {
		return nil
	}
	for i := range of.NumField() {
		if name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ","); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// Every route refuses bodies that encoding/json would change before it decodes them, or would
// decode to something else than the client has written.
func TestBodiesAreDecodedStrictly(t *testing.T) {
	api := newAdminAPI(t, &explainer{})
	routes, refused := 0, func(r describe.Route, body, want string) {
		t.Helper()
		if got := ask(t, api, adminKey, r.Method, target(r), plain, body).story(t); got != want {
			t.Errorf("%s %s with %q: %s\nwant %s", r.Method, r.Path, body, got, want)
		}
	}
	for _, r := range httpapi.Routes() {
		if len(r.Body) == 0 {
			continue
		}
		fields := fieldsOf(r.Body[0])
		if len(fields) > 0 {
			routes++
			refused(r, `null`, "400 the body must be a JSON object, is a JSON null")
			refused(r, `["x"]`, "400 the body must be a JSON object, is a JSON array")
			refused(r, `{"frobnicate":1}`, `400 unknown field "frobnicate"`)
		}
		for _, field := range fields {
			for _, name := range []string{strings.ToUpper(field), strings.ToUpper(field[:1]) + field[1:], strings.ReplaceAll(field, "s", "ſ")} {
				if name != field {
					refused(r, `{"`+name+`":null}`, fmt.Sprintf("400 unknown field %q", name))
				}
			}
			at := 5 + len(field) // the first byte of a text that is a value
			refused(r, `{"`+field+`":"x`+"\xff"+`"}`, fmt.Sprintf("400 the body is not valid JSON: invalid UTF-8 at byte %d, in %s", at+1, field))
			for _, half := range []string{`\ud800......`, `\udc00......`} {
				refused(r, `{"`+field+`":"`+half+`"}`, fmt.Sprintf("400 the body is not valid JSON: invalid surrogate pair `%s` in string at byte %d, in %s", half, at, field))
			}
			refused(r, `{"`+field+`":null,"`+field+`":null}`, "400 "+field+" is given twice")
			refused(r, "{\""+field+"\xff\":1}", fmt.Sprintf("400 the body is not valid JSON: invalid UTF-8 at byte %d", 2+len(field)))
		}
	}
	if routes < 7 {
		t.Errorf("only %d routes have a body with fields", routes)
	}
}

// A list is refused if one of its texts is not valid Unicode, and an object inside the body too.
func TestUnicodeInside(t *testing.T) {
	api := newAdminAPI(t, &explainer{})
	for body, want := range map[string]string{
		`{"user_ids":["ada","a` + "\xff" + `"]}`:  "400 the body is not valid JSON: invalid UTF-8 at byte 21, in user_ids[1]",
		`{"user_ids":["a\ud800"]}`:                "400 the body is not valid JSON: invalid surrogate pair `\\ud800\"]}` in string at byte 15, in user_ids[0]",
		`{"user_ids":["ada",5]}`:                  "400 user_ids[1] must not be a JSON number",
		`{"user_ids":["ada"],"user_\u0069ds":[]}`: "400 user_ids is given twice",
		`{"user_ids":"` + strings.Repeat("x", 9):  "400 the body is not valid JSON: it ends too early",
	} {
		if got := post(t, api, "/v1/badges/query", "application/json", body).story(t); got != want {
			t.Errorf("%q: %s\nwant %s", body, got, want)
		}
	}
	if a := post(t, api, "/v1/badges/query", "application/json", `{"user_ids":["\ud83d\ude00","\ufffd"]}`); a.status != http.StatusOK || !strings.Contains(a.body, `"😀"`) {
		t.Errorf("a whole surrogate pair is answered with %d %s", a.status, a.body)
	}
}

// A field at the top level must not be empty. null counts as absent.
func TestEmptyFields(t *testing.T) {
	api := newAdminAPI(t, &explainer{})
	for body, want := range map[string]string{
		`{"user":"","max_load":1}`:                         "400 user must not be empty: give a value, or leave it out",
		`{"max_load":1e999}`:                               "400 max_load must not be a JSON number 1e999",
		`{"partition":1.5}`:                                "400 partition must not be a JSON number 1.5",
		`{"partition":1` + strings.Repeat("0", 1000) + `}`: "400 partition must not be a JSON number 1" + strings.Repeat("0", 39),
		`{"user":[ ]}`:                                     "400 user must not be a JSON array",
		`{} {}`:                                            "400 the body is not valid JSON: invalid character '{' after top-level value at byte 3",
	} {
		if got := call(t, api, adminKey, "POST rebuilds", body).story(t); got != want {
			t.Errorf("%s: %s\nwant %s", body, got, want)
		}
	}
	if got := call(t, api, adminKey, "POST verifications", `{"users":[ ]}`).story(t); got != "400 users must not be empty: give a value, or leave it out" {
		t.Error(got)
	}
	if a := call(t, api, adminKey, "POST rebuilds", `{"user":null,"partition":null,"anew":null,"max_load":null}`); a.status != http.StatusAccepted {
		t.Errorf("fields that are null are answered with %d %s", a.status, a.body)
	}
}
