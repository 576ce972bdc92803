package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/badged/badged/internal/operations"
	"github.com/badged/badged/internal/server/httpapi"
)

// webhooks is an httpapi.Webhooks that describes its last call in words.
type webhooks struct {
	asked   string
	created bool
	err     error
}

func (w *webhooks) ask(format string, args ...any) error {
	w.asked = fmt.Sprintf(format, args...)
	return w.err
}

func aWebhook(name string) operations.Webhook {
	at := time.Date(2026, 11, 21, 9, 40, 54, 0, time.UTC)
	return operations.Webhook{Name: name, URL: "https://crm.example/", Events: []string{"drift.found"}, Batch: 1, State: "active", CreatedAt: at, UpdatedAt: at}
}

func (w *webhooks) List(context.Context) ([]operations.Webhook, error) { return nil, w.ask("list") }

func (w *webhooks) Get(_ context.Context, name string) (operations.Webhook, error) {
	return aWebhook(name), w.ask("get %s", name)
}

func (w *webhooks) Put(ctx context.Context, operator operations.Operator, name string, s operations.WebhookSettings) (operations.Webhook, bool, error) {
	text, err := json.Marshal(s)
	return aWebhook(name), w.created, errors.Join(w.ask("%s %s puts %s: %s", operator.Via, operator.Name, name, text), err, ctx.Err())
}

func (w *webhooks) Delete(_ context.Context, operator operations.Operator, name string) error {
	return w.ask("%s %s deletes %s", operator.Via, operator.Name, name)
}

func (w *webhooks) Test(_ context.Context, operator operations.Operator, name string) (operations.WebhookTest, error) {
	return operations.WebhookTest{Status: 503, DurationSeconds: 0.5, Error: "the endpoint answered 503 Service Unavailable"}, w.ask("%s %s tests %s", operator.Via, operator.Name, name)
}

func TestWebhookRoutes(t *testing.T) {
	w := &webhooks{}
	api := build(t, httpapi.Config{Webhooks: w})
	const put = `{"url":"https://crm.example/","secrets":["whsec_x"],"events":["drift.found"],"categories":["chat"],"batch":7,"state":"paused"}`
	for _, c := range []struct {
		method, path, body string
		created            bool
		err                error
		status             int
		asked, says        string
	}{
		{method: "GET", path: "", status: 200, asked: "list", says: `{"webhooks":[]}`},
		{method: "GET", path: "/crm", status: 200, asked: "get crm", says: `"name":"crm"`},
		{method: "GET", path: "/crm", err: operations.ErrNoWebhook, status: 404, asked: "get crm", says: "there is no such webhook"},
		{method: "PUT", path: "/crm", body: put, created: true, status: 201, asked: "api ops puts crm: " + put, says: `"name":"crm"`},
		{method: "PUT", path: "/crm", body: put, status: 200, says: `"name":"crm"`},
		{method: "PUT", path: "/crm", body: put, err: &operations.InvalidWebhookError{Problems: []string{"url has no host", "batch must be from 1 to 100"}}, status: 400, says: "url has no host; batch must be from 1 to 100"},
		{method: "PUT", path: "/crm", body: `{"ulr":""}`, status: 400, says: `unknown field \"ulr\"`},
		{method: "PUT", path: "/crm", body: `{"batch":"many"}`, status: 400, says: "batch must not be a JSON string"},
		{method: "PUT", path: "/crm", body: `{"url":"https://crm.example/","batch":0}`, created: true, status: 201, asked: `api ops puts crm: {"url":"https://crm.example/","events":null,"batch":0}`},
		{method: "PUT", path: "/crm", body: `{"url":"https://crm.example/","url":"https://other.example/"}`, status: 400, says: "url is given twice"},
		{method: "PUT", path: "/crm", status: 400, says: "the body is empty"},
		{method: "PUT", path: "/crm", body: put, err: &operations.EndpointError{Err: errors.New("no answer in time")}, status: 422, says: "url: no answer in time"},
		{method: "DELETE", path: "/crm", status: 204, asked: "api ops deletes crm"},
		{method: "DELETE", path: "/crm", err: operations.ErrNoWebhook, status: 404, says: "there is no such webhook"},
		{method: "POST", path: "/crm/test", status: 200, asked: "api ops tests crm", says: `"error":"the endpoint answered 503 Service Unavailable"`},
		{method: "POST", path: "/crm/test?now=1", status: 400, says: "now"},
	} {
		w.created, w.err, w.asked = c.created, c.err, ""
		got := call(t, api, adminKey, c.method+" webhooks"+c.path, c.body)
		if got.status != c.status || !strings.Contains(got.body, c.says) || c.asked != "" && w.asked != c.asked {
			t.Errorf("%s %s: %d, asked %q\n%s\nwant %d, %q, %s", c.method, c.path, got.status, w.asked, got.body, c.status, c.asked, c.says)
		}
	}
}
