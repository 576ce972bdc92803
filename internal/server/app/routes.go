package app

import (
	"net/http"
	"net/netip"

	"github.com/badged/badged/gateway"
	"github.com/badged/badged/gateway/protocol"
	"github.com/badged/badged/internal/base/describe"
	"github.com/badged/badged/internal/obs"
	"github.com/badged/badged/internal/server/httpapi"
	"github.com/badged/badged/internal/server/inbound"
)

// Groups of routes in the reference.
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

// liveRoute is served on the internal and the public listener, since load balancers need it.
const liveRoute = "/livez"

// handleOperators adds routes for operators to the internal listener. Without an internal listener,
// it adds them to the public listener.
func (a *App) handleOperators(routes []describe.Route) {
	for _, r := range routes {
		a.operators.Handle(r.Pattern(), r.Handler)
		if a.internal != nil && r.Path == liveRoute {
			a.mux.Handle(r.Pattern(), r.Handler)
		}
	}
}

// serveProfiles adds the routes of profiles to the listener for operators. No other listener may
// have them.
func (a *App) serveProfiles(h http.Handler) { a.operators.Handle(httpapi.ProfilesPath, h) }

// clientOf returns a function that returns the client address of a request. Behind a trusted
// proxy, it is the address that the proxy names.
func clientOf(trustedProxies []netip.Prefix) func(*http.Request) netip.Prefix {
	return func(r *http.Request) netip.Prefix {
		client, _ := gateway.ClientOf(r, trustedProxies) // on an error the address is invalid; all clients with an invalid address share one limit
		return client
	}
}

func gatewayRoutes(g *gateway.Gateway, allowOrigin func(*http.Request) bool) []describe.Route {
	const (
		expired   = `{"type":"urn:badged:problem","title":"Unauthorized","status":401,"detail":"the token has expired"}`
		notFound  = `{"type":"urn:badged:problem","title":"Not Found","status":404,"detail":"no message of this conversation was delivered to you","code":"not_found"}`
		tooMany   = `{"type":"urn:badged:problem","title":"Too Many Requests","status":429,"detail":"too many commands; try again","code":"rate_limited","retry_ms":500}`
		draining  = `{"type":"urn:badged:problem","title":"Service Unavailable","status":503,"detail":"the server is going away","retry_ms":2543}`
		someState = "retry: 3119\n\nid: c9a41196e14f:2\n" +
			`data: {"t":"changes","epoch":"c9a41196e14f","version":2,"total":0,"mentions":0,"unread_conversations":0,"unseen":0,"categories":{"chat":{"total":0,"mentions":0,"unread_conversations":0,"unseen":0}},"conversations":[]}` + "\n\n: ping\n\n"
	)
	again := []describe.Param{{Name: "Retry-After", Doc: "Seconds to wait before the next attempt.", Required: true, Example: "1"}}
	unauthorized := describe.Problem(http.StatusUnauthorized, gateway.Refusal{}, "The token is missing, invalid, revoked or expired; `detail` says which of these.", expired)
	limited := describe.Problem(http.StatusTooManyRequests, gateway.Refusal{}, "Too many requests: wait at least `Retry-After` seconds.", tooMany)
	away := describe.Problem(http.StatusServiceUnavailable, gateway.Refusal{}, "The server cannot carry out the request now: try again after `Retry-After` seconds.", draining)
	limited.Headers, away.Headers = again, again
	unauthorized.Headers = []describe.Param{{Name: "WWW-Authenticate", Doc: "How to authenticate.", Required: true, Example: `Bearer realm="badged"`}}
	undescribed := describe.Problem(http.StatusBadRequest, gateway.Refusal{}, "A parameter is unknown, or the request has a body.", "")
	routes := []describe.Route{
		{
			Method: http.MethodGet, Path: "/v1/ws", Handler: g,
			Name: "connect", Group: groupClients, Summary: "Follow a badge over a WebSocket",
			Doc:    "Offer the subprotocol `badge.v1`; `/asyncapi.json` describes the frames. Send the token in the header `Authorization`, as a second subprotocol `bearer.TOKEN`, or in the first frame. If the token is refused, the server accepts the WebSocket and closes it with a code that says why.",
			Access: []string{httpapi.UserAccess, describe.Optional},
			Params: []describe.Param{{In: "header", Name: "Sec-WebSocket-Protocol", Doc: "`badge.v1`; in addition `bearer.TOKEN` if a browser sends its token in this header.", Required: true, Example: protocol.Subprotocol}},
			Answers: []describe.Answer{
				{Status: http.StatusSwitchingProtocols, Doc: "The connection is a WebSocket now."},
				undescribed,
				describe.Problem(http.StatusForbidden, gateway.Refusal{}, "The page's origin is not allowed.", ""),
				describe.Problem(http.StatusUpgradeRequired, gateway.Refusal{}, "The request is not an upgrade to a WebSocket, or not to version 13 of the protocol.", ""),
			},
		},
		{
			Method: http.MethodGet, Path: "/v1/sse", Handler: inbound.Stream(http.HandlerFunc(g.ServeSSE)), EveryMethod: true,
			Name: "stream", Group: groupClients, Summary: "Follow a badge by server-sent events",
			Doc:    "For networks that break WebSockets. The `data` of each event is a frame, which `/asyncapi.json` describes. The `id` of an event is the epoch and version of the state after it.",
			Access: []string{httpapi.UserAccess},
			Params: []describe.Param{
				{In: "header", Name: "Last-Event-ID", Doc: "The last `id` that the client received: the epoch and version of its state.", Example: "c9a41196e14f:1"},
				{In: "query", Name: "device", Doc: "The id of the device that the app has registered for pushes, like `device` in the frame `hello`.", Example: "phone"},
			},
			Answers: []describe.Answer{
				{Status: http.StatusOK, Doc: "A stream of frames: first the state, then every change.", Content: &describe.Content{MediaType: "text/event-stream", Example: someState}},
				undescribed, unauthorized, limited, away,
			},
		},
		{
			Method: http.MethodPost, Path: "/v1/commands", Handler: http.HandlerFunc(g.ServeCommands), EveryMethod: true,
			Name: "postCommand", Group: groupClients, Summary: "Send a command of the user",
			Doc:    "The body is the same frame as over a WebSocket. Use a UUID as its `id`. If the answer is lost, send the same frame again: it takes effect once.",
			Access: []string{httpapi.UserAccess},
			Body:   []describe.Content{{MediaType: "application/json", Model: command(), Loose: true, Example: `{"t":"read","id":"0b7d5a4e-1f3c-4c7e-9a52-6f6d1f3f7c10","conversation_id":"tea","up_to_seq":7}`}},
			Answers: []describe.Answer{
				{Status: http.StatusOK, Doc: "The command is durable.", Content: describe.JSON(okFrame(), `{"t":"ok","id":"0b7d5a4e-1f3c-4c7e-9a52-6f6d1f3f7c10"}`)},
				describe.Problem(http.StatusBadRequest, gateway.Refusal{}, "The frame is invalid, or the request has a parameter; do not send it again.", ""),
				unauthorized,
				describe.Problem(http.StatusNotFound, gateway.Refusal{}, "For `mark_unread`: the user is not a member of this conversation and no message of it was delivered to the user, or the user has left it. With a token that is restricted to categories, also for `read` and `seen`: the conversation is in none of these categories. Do not send the command again.", notFound),
				describe.Problem(http.StatusRequestTimeout, gateway.Refusal{}, "The body took longer than 10 seconds; send the command again.", ""),
				describe.Problem(http.StatusRequestEntityTooLarge, gateway.Refusal{}, "The frame is larger than 4 KiB; do not send it again.", ""),
				describe.Problem(http.StatusUnsupportedMediaType, gateway.Refusal{}, "The frame has a `Content-Encoding`; send it without this header and encoding.", ""),
				limited, away,
			},
		},
	}
	for i, r := range routes {
		routes[i].Handler = httpapi.Strict(r)
		if r.EveryMethod { // also the preflight requests of browsers
			routes[i].Handler = forOrigins(allowOrigin, routes[i].Handler)
		}
	}
	return routes
}

// operatorRoutes returns the routes that every process has.
func operatorRoutes(h *obs.Health, metrics, openAPI, asyncAPI http.Handler) []describe.Route {
	const (
		ready    = `{"status":"ready","checks":{"clocks":"ok","folding":"ok","gateway":"ok","postgres":"ok","redis":"ok"}}`
		notReady = `{"status":"not ready","checks":{"clocks":"ok","folding":"ok","gateway":"ok","postgres":"cannot be reached","redis":"ok"}}`
	)
	text := &describe.Content{MediaType: "text/plain"}
	return []describe.Route{
		{
			Method: http.MethodGet, Path: liveRoute, Handler: http.HandlerFunc(h.Live),
			Name: "getLive", Group: groupOperate, Summary: "Check that the process is alive",
			Answers: []describe.Answer{{Status: http.StatusOK, Doc: "The process is alive.", Content: text}},
		},
		{
			Method: http.MethodGet, Path: "/readyz", Handler: http.HandlerFunc(h.Ready),
			Name: "getReady", Group: groupOperate, Summary: "Check that the process can serve",
			Answers: []describe.Answer{
				{Status: http.StatusOK, Doc: "The process can serve.", Content: describe.JSON(obs.Readiness{}, ready)},
				{Status: http.StatusServiceUnavailable, Doc: "The process cannot serve, or is stopping.", Content: describe.JSON(obs.Readiness{}, notReady)},
			},
		},
		{
			Method: http.MethodGet, Path: "/metrics", Handler: metrics,
			Name: "getMetrics", Group: groupOperate, Summary: "Read metrics in Prometheus format",
			Answers: []describe.Answer{{Status: http.StatusOK, Doc: "The metrics of the process.", Content: text}},
		},
		{
			Method: http.MethodGet, Path: "/openapi.json", Handler: openAPI,
			Name: "getOpenAPI", Group: groupOperate, Summary: "Read the description of this API in OpenAPI 3.1",
			Answers: []describe.Answer{{Status: http.StatusOK, Doc: "The description. All processes return the same.", Content: describe.JSON(struct{}{}, "")}},
		},
		{
			Method: http.MethodGet, Path: "/asyncapi.json", Handler: asyncAPI,
			Name: "getAsyncAPI", Group: groupOperate, Summary: "Read the description of events and frames in AsyncAPI 3.0",
			Answers: []describe.Answer{{Status: http.StatusOK, Doc: "The description. All processes return the same.", Content: describe.JSON(struct{}{}, "")}},
		},
	}
}
