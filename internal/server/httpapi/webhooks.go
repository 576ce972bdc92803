package httpapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/badged/badged/internal/base/describe"
	"github.com/badged/badged/internal/operations"
)

// Webhooks has the methods of [operations.Webhooks] that the routes call.
type Webhooks interface {
	List(ctx context.Context) ([]operations.Webhook, error)
	Get(ctx context.Context, name string) (operations.Webhook, error)
	Put(ctx context.Context, operator operations.Operator, name string, settings operations.WebhookSettings) (w operations.Webhook, created bool, err error)
	Delete(ctx context.Context, operator operations.Operator, name string) error
	Test(ctx context.Context, operator operations.Operator, name string) (operations.WebhookTest, error)
}

// webhooksAnswer is the answer that lists webhooks.
type webhooksAnswer struct {
	Webhooks []operations.Webhook `json:"webhooks" doc:"The webhooks, by name."`
	Away     []string             `json:"away,omitempty" doc:"The names of the shards that cannot be reached now. The numbers lack the calls of these shards. Absent if all shards can be reached."`
}

func (a *API) webhookRoutes() []describe.Route {
	const (
		settings = `{"url":"https://crm.example/hooks/badges","events":["badge.changed","unread.reminder"],"categories":["chat"],"batch":100}`
		common   = `"name":"crm","url":"https://crm.example/hooks/badges","events":["badge.changed","unread.reminder"],"categories":["chat"],"batch":100`
		stamps   = `"created_at":"2026-11-21T09:40:54Z","updated_at":"2026-11-21T09:40:54Z"`
		working  = `{` + common + `,"state":"active","due_events":0,"step":0,"last_success_at":"2026-11-21T10:02:11Z","last_status":204,` + stamps + `}`
		made     = `{` + common + `,"secrets":["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo="],"state":"active","due_events":0,"step":0,` + stamps + `}`
		failing  = `{` + common + `,"state":"active","due_events":118,"step":4,"next_call_at":"2026-11-21T10:12:54Z","failing_since":"2026-11-21T10:00:11Z","last_failure_at":"2026-11-21T10:02:54Z","last_status":503,"last_error":"the endpoint answered 503 Service Unavailable",` + stamps + `}`
	)
	name := []describe.Param{{In: "path", Name: "name", Doc: "The name of the webhook: at most 63 lower-case letters, digits, dashes and underscores; the first is a letter or digit.", Example: "crm"}}
	unread := describe.Problem(http.StatusBadRequest, problem{}, "A parameter is unknown.", "")
	missing := describe.Problem(http.StatusNotFound, problem{}, "There is no such webhook.", "")
	return []describe.Route{
		a.restrict(operating, nil, a.listWebhooks, describe.Route{
			Method: http.MethodGet, Path: "/admin/v1/webhooks",
			Name: "listWebhooks", Group: GroupAdmin, Summary: "List the webhooks and the results of their calls",
			Answers: failures(describe.Answer{Status: http.StatusOK, Doc: "The webhooks.", Content: describe.JSON(webhooksAnswer{}, `{"webhooks":[`+failing+`]}`)}, unread),
		}),
		a.restrict(operating, nil, a.getWebhook, describe.Route{
			Method: http.MethodGet, Path: "/admin/v1/webhooks/{name}",
			Name: "getWebhook", Group: GroupAdmin, Summary: "Read a webhook and the results of its calls",
			Params:  name,
			Answers: failures(describe.Answer{Status: http.StatusOK, Doc: "The webhook.", Content: describe.JSON(operations.Webhook{}, working)}, unread, missing),
		}),
		a.forOperators(a.putWebhook, describe.Route{
			Method: http.MethodPut, Path: "/admin/v1/webhooks/{name}",
			Name: "putWebhook", Group: GroupAdmin, Summary: "Create a webhook, replace its settings, pause or resume it",
			Doc:    "The request replaces all settings, except for secrets if none are given. If the state becomes active, or if it is active and the URL is new, badged asks the endpoint for permission with `OPTIONS`. If the request sets the state to active, the waits after failures start again from the first, and all events that the endpoint has not received are due at once.",
			Params: name,
			Body:   []describe.Content{{MediaType: "application/json", Model: operations.WebhookSettings{}, Example: settings}},
			Answers: failures(
				describe.Answer{Status: http.StatusOK, Doc: "The webhook.", Content: describe.JSON(operations.Webhook{}, working)},
				describe.Answer{Status: http.StatusCreated, Doc: "The new webhook. If no secret was given, the answer has the generated secret.", Content: describe.JSON(operations.Webhook{}, made)},
				describe.Problem(http.StatusBadRequest, problem{}, "Fields are invalid: `detail` names each invalid field.", `{"type":"urn:badged:problem","title":"Bad Request","status":400,"detail":"url must begin with https://; batch must be from 1 to 100, is 0"}`),
				describe.Problem(http.StatusRequestTimeout, problem{}, tooSlow, ""),
				tooLarge(maxSettingsBody),
				describe.Problem(http.StatusUnsupportedMediaType, problem{}, encoded, ""),
				describe.Problem(http.StatusUnprocessableEntity, problem{}, "The endpoint cannot be reached, is in a private network, has a wrong certificate, or refuses webhooks.", `{"type":"urn:badged:problem","title":"Unprocessable Entity","status":422,"detail":"url: the endpoint refuses webhooks: it allows another origin than badged"}`),
			),
		}),
		a.forOperators(a.deleteWebhook, describe.Route{
			Method: http.MethodDelete, Path: "/admin/v1/webhooks/{name}",
			Name: "deleteWebhook", Group: GroupAdmin, Summary: "Delete a webhook and its unsent events",
			Params:  name,
			Answers: failures(describe.Answer{Status: http.StatusNoContent, Doc: "The webhook is deleted."}, unread, missing),
		}),
		a.forOperators(a.testWebhook, describe.Route{
			Method: http.MethodPost, Path: "/admin/v1/webhooks/{name}/test",
			Name: "testWebhook", Group: GroupAdmin, Summary: "Call an endpoint with an event of the type webhook.test",
			Doc:     "The call is made at once, whatever the state of the webhook. It changes neither `step` nor `next_call_at`.",
			Params:  name,
			Answers: failures(describe.Answer{Status: http.StatusOK, Doc: "The result of the call.", Content: describe.JSON(operations.WebhookTest{}, `{"status":204,"duration_seconds":0.083}`)}, unread, missing),
		}),
	}
}

func (a *API) listWebhooks(_ http.ResponseWriter, r *http.Request, _ grant) (answer, error) {
	all, err := a.cfg.Webhooks.List(r.Context())
	return answer{body: webhooksAnswer{notNil(all), a.away()}}, err
}

func (a *API) getWebhook(_ http.ResponseWriter, r *http.Request, _ grant) (answer, error) {
	webhook, err := a.cfg.Webhooks.Get(r.Context(), r.PathValue("name"))
	return answer{body: webhook}, webhookProblem(err)
}

func (a *API) putWebhook(w http.ResponseWriter, r *http.Request, caller grant) (answer, error) {
	body, err := a.readBody(w, r, maxSettingsBody)
	if err != nil {
		return answer{}, err
	}
	var settings operations.WebhookSettings
	if err := decodeStrict(body, &settings); err != nil {
		return answer{}, badRequest(err.Error())
	}
	webhook, created, err := a.cfg.Webhooks.Put(r.Context(), caller.operator(), r.PathValue("name"), settings)
	if err != nil {
		return answer{}, webhookProblem(err)
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return answer{status, webhook}, nil
}

func (a *API) deleteWebhook(_ http.ResponseWriter, r *http.Request, caller grant) (answer, error) {
	if err := a.cfg.Webhooks.Delete(r.Context(), caller.operator(), r.PathValue("name")); err != nil {
		return answer{}, webhookProblem(err)
	}
	return answer{status: http.StatusNoContent}, nil
}

func (a *API) testWebhook(_ http.ResponseWriter, r *http.Request, caller grant) (answer, error) {
	result, err := a.cfg.Webhooks.Test(r.Context(), caller.operator(), r.PathValue("name"))
	return answer{body: result}, webhookProblem(err)
}

// webhookProblem converts the errors of operations on webhooks into answers for admins.
func webhookProblem(err error) error {
	if _, ok := errors.AsType[*operations.InvalidWebhookError](err); ok {
		return badRequest(err.Error())
	}
	if refused, ok := errors.AsType[*operations.EndpointError](err); ok {
		return &problem{Status: http.StatusUnprocessableEntity, Detail: refused.Error()}
	}
	if errors.Is(err, operations.ErrNoWebhook) {
		return &problem{Status: http.StatusNotFound, Detail: operations.ErrNoWebhook.Error()}
	}
	return err
}
