package app

import (
	"net/http"

	"github.com/badged/badged/gateway"
	"github.com/badged/badged/internal/describe"
	"github.com/badged/badged/internal/httpapi"
	"github.com/badged/badged/internal/obs"
)

// The headings of the routes that are described here.
const (
	groupClients = "Clients"
	groupOperate = "Operate"
)

// handle adds routes to the server.
func (a *App) handle(routes []describe.Route) {
	for _, r := range routes {
		a.mux.Handle(r.Pattern(), r.Handler)
	}
}

// gatewayRoutes are those of the role gateway.
func gatewayRoutes(g *gateway.Gateway, allowOrigin func(*http.Request) bool) []describe.Route {
	const (
		expired   = `{"type":"about:blank","title":"Unauthorized","status":401,"detail":"the token has expired"}`
		notFound  = `{"type":"about:blank","title":"Not Found","status":404,"detail":"no message of this conversation was delivered to you","code":"not_found"}`
		tooMany   = `{"type":"about:blank","title":"Too Many Requests","status":429,"detail":"too many commands; try again","code":"rate_limited","retry_ms":500}`
		draining  = `{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"the server is going away","retry_ms":2543}`
		someState = "retry: 3119\n\nid: c9a41196e14f:2\n" +
			`data: {"t":"changes","epoch":"c9a41196e14f","version":2,"total":0,"mentions":0,"categories":{},"conversations":[]}` + "\n\n: ping\n\n"
	)
	again := []describe.Param{{Name: "Retry-After", Doc: "Seconds after which to come back.", Required: true, Example: "1"}}
	unauthorized := describe.Problem(http.StatusUnauthorized, gateway.Refusal{}, "No token, a bad one or one that has expired; `detail` says which.", expired)
	limited := describe.Problem(http.StatusTooManyRequests, gateway.Refusal{}, "Too many: back off, for `Retry-After` seconds at least.", tooMany)
	away := describe.Problem(http.StatusServiceUnavailable, gateway.Refusal{}, "Not now: come back after `Retry-After` seconds.", draining)
	limited.Headers, away.Headers = again, again
	unauthorized.Headers = []describe.Param{{Name: "WWW-Authenticate", Doc: "How to authenticate.", Required: true, Example: `Bearer realm="badged"`}}
	return []describe.Route{
		{
			Method: http.MethodGet, Path: "/v1/ws", Handler: g,
			Name: "connect", Group: groupClients, Summary: "Follow a badge over a WebSocket",
			Doc:    "Offer the subprotocol `badge.v1`; what goes over the connection is described in `/asyncapi.json`. The token comes in `Authorization`, in a second subprotocol `bearer.TOKEN`, or in the first frame. What is wrong with it is said with a close code.",
			Access: []string{httpapi.UserAccess, describe.Optional},
			Params: []describe.Param{{In: "header", Name: "Sec-WebSocket-Protocol", Doc: "`badge.v1`, and `bearer.TOKEN` where a browser passes its token.", Required: true, Example: gateway.Protocol}},
			Answers: []describe.Answer{
				{Status: http.StatusSwitchingProtocols, Doc: "Frames follow."},
				{Status: http.StatusForbidden, Doc: "The page is of an origin that is not allowed.", Content: &describe.Content{MediaType: "text/plain"}},
				{Status: http.StatusUpgradeRequired, Doc: "The request is no upgrade to a WebSocket, or asks for another version than 13.", Content: &describe.Content{MediaType: "text/plain"}},
			},
		},
		{
			Method: http.MethodGet, Path: "/v1/sse", Handler: forOrigins(allowOrigin, g.ServeSSE), EveryMethod: true,
			Name: "stream", Group: groupClients, Summary: "Follow a badge by server-sent events",
			Doc:    "For networks that break WebSockets. Each event is a frame of `/asyncapi.json`; its `id` is what the client holds with it.",
			Access: []string{httpapi.UserAccess},
			Params: []describe.Param{{In: "header", Name: "Last-Event-ID", Doc: "What the client holds: the `id` of the last event that had one.", Example: "c9a41196e14f:1"}},
			Answers: []describe.Answer{
				{Status: http.StatusOK, Doc: "The state, and every change of it.", Content: &describe.Content{MediaType: "text/event-stream", Example: someState}},
				unauthorized, limited, away,
			},
		},
		{
			Method: http.MethodPost, Path: "/v1/commands", Handler: forOrigins(allowOrigin, g.ServeCommands), EveryMethod: true,
			Name: "postCommand", Group: groupClients, Summary: "Say what the user did",
			Doc:    "The frame that a WebSocket would carry. Give it a UUID as its `id`, and send it again where the answer was lost: it takes effect once.",
			Access: []string{httpapi.UserAccess},
			Body:   []describe.Content{{MediaType: "application/json", Of: command(), Loose: true, Example: `{"t":"read","id":"0b7d5a4e-1f3c-4c7e-9a52-6f6d1f3f7c10","conversation_id":"tea","up_to_seq":7}`}},
			Answers: []describe.Answer{
				{Status: http.StatusOK, Doc: "What the user did is durable.", Content: describe.JSON(okFrame(), `{"t":"ok","id":"0b7d5a4e-1f3c-4c7e-9a52-6f6d1f3f7c10"}`)},
				describe.Problem(http.StatusBadRequest, gateway.Refusal{}, "The frame makes no sense; do not repeat it.", ""),
				unauthorized,
				describe.Problem(http.StatusNotFound, gateway.Refusal{}, "No message of this conversation was ever delivered to this user; do not repeat it.", notFound),
				describe.Problem(http.StatusRequestEntityTooLarge, gateway.Refusal{}, "Larger than 4 KiB; do not repeat it.", ""),
				limited, away,
			},
		},
	}
}

// operatorRoutes are those of every process.
func operatorRoutes(h *obs.Health, metrics, openAPI, asyncAPI http.Handler) []describe.Route {
	const (
		ready    = `{"status":"ready","checks":{"gateway":"ok","postgres":"ok","redis":"ok"}}`
		notReady = `{"status":"not ready","checks":{"gateway":"ok","postgres":"cannot be reached","redis":"ok"}}`
	)
	text := &describe.Content{MediaType: "text/plain"}
	return []describe.Route{
		{
			Method: http.MethodGet, Path: "/livez", Handler: http.HandlerFunc(h.Live),
			Name: "getLive", Group: groupOperate, Summary: "Tell whether the process answers at all",
			Answers: []describe.Answer{{Status: http.StatusOK, Doc: "It does.", Content: text}},
		},
		{
			Method: http.MethodGet, Path: "/readyz", Handler: http.HandlerFunc(h.Ready),
			Name: "getReady", Group: groupOperate, Summary: "Tell whether the process can serve",
			Answers: []describe.Answer{
				{Status: http.StatusOK, Doc: "It can.", Content: describe.JSON(obs.Readiness{}, ready)},
				{Status: http.StatusServiceUnavailable, Doc: "It cannot, or is about to stop.", Content: describe.JSON(obs.Readiness{}, notReady)},
			},
		},
		{
			Method: http.MethodGet, Path: "/metrics", Handler: metrics,
			Name: "getMetrics", Group: groupOperate, Summary: "Read metrics in the format of Prometheus",
			Answers: []describe.Answer{{Status: http.StatusOK, Doc: "The metrics of the process.", Content: text}},
		},
		{
			Method: http.MethodGet, Path: "/openapi.json", Handler: openAPI,
			Name: "getOpenAPI", Group: groupOperate, Summary: "Read the description of this API in OpenAPI 3.1",
			Answers: []describe.Answer{{Status: http.StatusOK, Doc: "The description, the same from every process.", Content: describe.JSON(struct{}{}, "")}},
		},
		{
			Method: http.MethodGet, Path: "/asyncapi.json", Handler: asyncAPI,
			Name: "getAsyncAPI", Group: groupOperate, Summary: "Read the description of events and frames in AsyncAPI 3.0",
			Answers: []describe.Answer{{Status: http.StatusOK, Doc: "The description, the same from every process.", Content: describe.JSON(struct{}{}, "")}},
		},
	}
}
