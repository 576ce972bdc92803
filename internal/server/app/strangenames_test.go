package app

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/base/describe"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/server/config"
)

// Whatever bytes a path or a query has, the request is refused or nothing is found: no route sends
// them to Postgres, and the audit trail stays readable.
func TestStrangeNamesInPathsAndQueries(t *testing.T) {
	databaseURL := pgtest.NewDB(t, migrated())
	cfg := settings(databaseURL)
	cfg.Webhooks = config.Webhooks{WebhooksOrigin: "badged"}
	cfg.OutboundKeys = []string{"one=" + base64.StdEncoding.EncodeToString(make([]byte, 32))}
	s := run(t, open(t, cfg))
	s.awaitReady(t)
	for _, r := range api().Routes {
		for _, param := range r.Params {
			for _, strange := range []string{"\x00", "\xff", "a\x00b", "a\xffb", "\xed\xa0\xbd"} {
				if param.In == "header" || strings.HasPrefix(r.Path, "/v1/sse") {
					continue
				}
				body, contentType := "", ""
				if len(r.Body) > 0 {
					body, contentType = r.Body[0].Example, r.Body[0].MediaType
				}
				request := newRequest(t, r.Method, s.url+strangePath(r, param, strange), body)
				request.Header.Set("Authorization", "Bearer admin-secret")
				request.Header.Set("Content-Type", contentType)
				if a := s.send(t, request); !slices.Contains([]int{http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound}, a.status) {
					t.Errorf("%s %s is answered with %d %s", r.Method, request.URL, a.status, a.body)
				}
			}
		}
	}
	conn, err := pgx.Connect(t.Context(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	rows, _ := conn.Query(t.Context(), `SELECT to_jsonb(a)::text FROM badged.audit AS a UNION ALL SELECT to_jsonb(e)::text FROM badged.audit_ends AS e`)
	records, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, record := range records {
		if strings.Contains(record, "\ufffd") {
			t.Errorf("the audit trail has %s", record)
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// strangePath returns the target of a request of r. One parameter has a strange value; all others are
// as in the examples.
func strangePath(r describe.Route, strange describe.Param, value string) string {
	path, query := r.Path, url.Values{}
	for _, p := range r.Params {
		given := p.Example
		if p.Name == strange.Name && p.In == strange.In {
			given = value
		}
		if p.In == "path" {
			path = strings.ReplaceAll(path, "{"+p.Name+"}", url.PathEscape(given))
		} else if p.In == "query" && p.Name == strange.Name {
			query.Set(p.Name, given)
		}
	}
	return path + "?" + query.Encode()
}
