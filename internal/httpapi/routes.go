package httpapi

import (
	"net/http"
	"slices"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/describe"
	"github.com/badged/badged/projector"
	"github.com/badged/badged/pubsub"
)

// The security schemes of the routes.
const (
	PublisherAccess = "publisherKey"
	AdminAccess     = "adminKey"
	UserAccess      = "userToken"
)

// The headings of the routes.
const (
	GroupPublish = "Publish"
	GroupBadges  = "Badges"
	GroupAdmin   = "Admin"
)

// Routes describes every route of an API. What serves them there is not to be
// called.
func Routes() []describe.Route {
	a := new(API)
	return slices.Concat(a.routes(), a.adminRoutes(), a.operationRoutes())
}

// routes are those for publishers, push senders and apps.
func (a *API) routes() []describe.Route {
	const (
		anEvent     = `{"specversion":"1.0","id":"design-crew/42","source":"chat","type":"message.delivered","data":{"conversation_id":"design-crew","seq":42,"user_ids":["ada","chloe"],"sender_id":"ben","mentioned_user_ids":["ada"]}}`
		readByAda   = `{"specversion":"1.0","id":"design-crew/read/ada/42","source":"chat","type":"conversation.read","data":{"conversation_id":"design-crew","user_ids":["ada"],"up_to_seq":42}}`
		adaBadge    = `{"user_id":"ada","epoch":"9a6c36fbe39f","version":7,"total":5,"mentions":1,"categories":{"chat":3,"likes":2}}`
		benBadge    = `{"user_id":"ben","epoch":"b9df917f4f6b","version":0,"total":0,"mentions":0,"categories":{}}`
		aPage       = `{"conversations":[{"conversation_id":"lunch","unread":1,"mentions":0,"first_unread_seq":2,"read_seq":1,"last_seq":2,"level":"all","category":"chat","marked_unread":false,"version":3}],"cursor":"MzpsdW5jaA"}`
		badEvents   = `{"type":"about:blank","title":"Bad Request","status":400,"detail":"some events are invalid; nothing was stored","errors":[{"index":0,"field":"data.seq","message":"must be at least 1, is 0"},{"index":2,"field":"data.upto","message":"is not a known field"}]}`
		notFolded   = `{"type":"about:blank","title":"Gateway Timeout","status":504,"detail":"not folded within 2s; ask again"}`
		notTheUsers = `{"type":"about:blank","title":"Forbidden","status":403,"detail":"a user's token reads that user only"}`
		tooManyOnes = `{"type":"about:blank","title":"Request Entity Too Large","status":413,"detail":"the body has more than 10000 events; nothing was stored"}`
	)
	event := Event()
	list := describe.List{Of: event, MinItems: 1, MaxItems: MaxEvents}
	return []describe.Route{
		a.forPublishers(a.postEvents, describe.Route{
			Method: http.MethodPost, Path: "/v1/events",
			Name: "postEvents", Group: GroupPublish, Summary: "Append events to the log, all or none",
			Doc: "At most 8 MiB and 10,000 events. Events that come twice, by their source and id, count once: after a timeout or a broken connection send them again.",
			Body: []describe.Content{
				{MediaType: "application/json", Of: describe.OneOf{Doc: "One event, or an array of events.", Of: []any{event, list}}, Example: anEvent},
				{MediaType: "application/cloudevents+json", Of: event, Example: anEvent},
				{MediaType: "application/cloudevents-batch+json", Of: list, Example: "[" + anEvent + "," + readByAda + "]"},
				{MediaType: "application/x-ndjson", Doc: "an event a line", Example: anEvent + "\n" + readByAda + "\n"},
			},
			Answers: failures(
				describe.Answer{
					Status: http.StatusAccepted, Doc: "All are durable in the log.",
					Headers: []describe.Param{{
						Name: PositionHeader, Required: true, Example: "4711",
						Doc: "Where they are in the log, for `at_least`. Of several keep the greatest.",
					}},
					Content: describe.JSON(accepted{}, `{"accepted":2}`),
				},
				describe.Problem(http.StatusBadRequest, problem{}, "Nothing was stored. `errors` names each bad event by its index in the request, and the field: up to 100 events, and 20 fields of each.", badEvents),
				describe.Problem(http.StatusRequestTimeout, problem{}, "The body took longer than 30 seconds to arrive; nothing was stored.", ""),
				describe.Problem(http.StatusRequestEntityTooLarge, problem{}, "More than 8 MiB or 10,000 events; nothing was stored.", tooManyOnes),
				describe.Problem(http.StatusUnsupportedMediaType, problem{}, "Another `Content-Type`.", ""),
			),
		}),
		a.forReaders(a.getBadge, describe.Route{
			Method: http.MethodGet, Path: "/v1/users/{user}/badge",
			Name: "getBadge", Group: GroupBadges, Summary: "Read the badge of a user",
			Doc:    "A user to whom nothing has happened has version 0 and zeros.",
			Params: append([]describe.Param{userParam()}, awaitParams()...),
			Answers: failures(
				describe.Answer{Status: http.StatusOK, Doc: "The badge.", Content: describe.JSON(pubsub.Badge{}, adaBadge)},
				describe.Problem(http.StatusBadRequest, problem{}, "A parameter is unknown or cannot be understood.", ""),
				describe.Problem(http.StatusForbidden, problem{}, "The token is another user's.", notTheUsers),
				describe.Problem(http.StatusGatewayTimeout, problem{}, "Not folded up to `at_least` in time; ask again.", notFolded),
			),
		}),
		a.forReaders(a.getConversations, describe.Route{
			Method: http.MethodGet, Path: "/v1/users/{user}/conversations",
			Name: "getConversations", Group: GroupBadges, Summary: "Read a page of a user's conversations",
			Doc: "Most recently changed first; those that the user has left are not among them. What changes between two pages moves to the front, where paging does not come again; a client on the WebSocket hears of it there.",
			Params: []describe.Param{
				userParam(),
				{In: "query", Name: "unread", Doc: "Only those with unread messages or a mark.", Of: false, Example: "true"},
				{
					In: "query", Name: "limit", Doc: "How many at most; 100 if not given.", Example: "50",
					Of: &describe.Schema{Type: []string{"integer"}, Minimum: new(int64(1)), Maximum: new(int64(projector.MaxPage))},
				},
				{In: "query", Name: "cursor", Doc: "The `cursor` of the page before.", Example: "MzpsdW5jaA"},
			},
			Answers: failures(
				describe.Answer{Status: http.StatusOK, Doc: "A page.", Content: describe.JSON(conversationsPage{}, aPage)},
				describe.Problem(http.StatusBadRequest, problem{}, "A parameter is unknown or cannot be understood.", ""),
				describe.Problem(http.StatusForbidden, problem{}, "The token is another user's.", notTheUsers),
			),
		}),
		a.forPublishers(a.queryBadges, describe.Route{
			Method: http.MethodPost, Path: "/v1/badges/query",
			Name: "queryBadges", Group: GroupBadges, Summary: "Read the badges of many users",
			Doc:  "For those who send push notifications.",
			Body: []describe.Content{{MediaType: "application/json", Of: badgesQuery{}, Example: `{"user_ids":["ada","ben"]}`}},
			Answers: failures(
				describe.Answer{Status: http.StatusOK, Doc: "The badges, in the order asked for.", Content: describe.JSON(badgesAnswer{}, `{"badges":[`+adaBadge+`,`+benBadge+`]}`)},
				describe.Problem(http.StatusBadRequest, problem{}, "The body cannot be understood, or names no user or too many.", ""),
				describe.Problem(http.StatusRequestTimeout, problem{}, "The body took longer than 30 seconds to arrive.", ""),
				describe.Problem(http.StatusRequestEntityTooLarge, problem{}, "More than 8 MiB.", ""),
				describe.Problem(http.StatusGatewayTimeout, problem{}, "Not folded up to `at_least` in time; ask again.", notFolded),
			),
		}),
	}
}

func userParam() describe.Param {
	return describe.Param{In: "path", Name: "user", Doc: "The user, percent-encoded: `a/b` is `a%2Fb`.", Of: idSchema(), Example: "ada"}
}

// awaitParams are the parameters of await.
func awaitParams() []describe.Param {
	return []describe.Param{
		{In: "query", Name: "at_least", Doc: "Answer once everything up to this position is in the badge: the `Badged-Position` of an answer, or the position of a transaction of your own.", Example: "4711"},
		{In: "query", Name: "timeout", Doc: "How long to wait for that: a duration such as `500ms` or `2s`, at most `30s`; `2s` if not given.", Example: "2s"},
	}
}

// idSchema is that of the ids of users, conversations, messages and senders.
// JSON Schema counts characters, and so allows somewhat more than the bytes that
// are allowed.
func idSchema() *describe.Schema {
	return &describe.Schema{Type: []string{"string"}, MinLength: new(int64(1)), MaxLength: new(int64(events.MaxIDBytes))}
}

// failures are the answers of a route: its own and those that any route may
// give.
func failures(own ...describe.Answer) []describe.Answer {
	const (
		noKey    = `{"type":"about:blank","title":"Unauthorized","status":401,"detail":"give a key or token in the header Authorization: Bearer …"}`
		failed   = `{"type":"about:blank","title":"Internal Server Error","status":500,"detail":"something failed here; it has been logged"}`
		database = `{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"the database cannot be reached; repeat the request, events that come twice count once"}`
	)
	unauthorized := describe.Problem(http.StatusUnauthorized, problem{}, "No key or token, or a wrong one; `detail` says which.", noKey)
	unauthorized.Headers = []describe.Param{{Name: "WWW-Authenticate", Doc: "How to authenticate.", Required: true, Example: `Bearer realm="badged"`}}
	away := describe.Problem(http.StatusServiceUnavailable, problem{}, "The database cannot be reached, or the key of a token cannot be looked up. Repeat the request after `Retry-After`.", database)
	away.Headers = []describe.Param{{Name: "Retry-After", Doc: "Seconds after which to repeat the request.", Required: true, Example: "1"}}
	all := append(own, unauthorized, away,
		describe.Problem(http.StatusInternalServerError, problem{}, "Something failed; it is in the log of the server.", failed))
	slices.SortStableFunc(all, func(a, b describe.Answer) int { return a.Status - b.Status })
	return all
}

// forPublishers gives a route to publishers and admins.
func (a *API) forPublishers(h handler, r describe.Route) describe.Route {
	r.Access, r.Handler = []string{PublisherAccess, AdminAccess}, a.publisher(h)
	return r
}

// forReaders gives a route to publishers, admins and the user whose state it is.
func (a *API) forReaders(h handler, r describe.Route) describe.Route {
	r.Access, r.Handler = []string{PublisherAccess, AdminAccess, UserAccess}, a.reader(h)
	return r
}

// forAdmins gives a route to admins.
func (a *API) forAdmins(h handler, r describe.Route) describe.Route {
	r.Access, r.Handler = []string{AdminAccess}, a.admin(h)
	return r
}
