package httpapi

import (
	"net/http"
	"slices"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/describe"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
)

// The security schemes of the routes.
const (
	PublisherAccess = "publisherKey"
	ReaderAccess    = "readerKey"
	AdminAccess     = "adminKey"
	UserAccess      = "userToken"
)

// Groups of routes in the reference.
const (
	GroupPublish = "Publish"
	GroupBadges  = "Badges"
	GroupDevices = "Devices"
	GroupTokens  = "Tokens"
	GroupAdmin   = "Admin"
	// GroupProfiles are the routes of profiles, which only operators may use.
	GroupProfiles = "Profiles"
)

// Descriptions of the statuses 408 and 415 of routes with a body.
const (
	tooSlow = "The body arrived too slowly: the limit is 10 seconds plus one second for each 16 KiB, at most a minute."
	encoded = "The body has a `Content-Encoding`, such as gzip: send it without encoding."
)

// Routes describes all routes of an API, for the reference and clients. Do not call their
// handlers.
func Routes() []describe.Route {
	a := new(API)
	return slices.Concat(a.routes(), a.disconnectRoutes(), a.deviceRoutes(), a.adminRoutes(), a.operationRoutes(), a.webhookRoutes(), a.profileRoutes())
}

// routes returns the routes for publishers, push senders and apps.
func (a *API) routes() []describe.Route {
	const (
		anEvent     = `{"specversion":"1.0","id":"design-crew/42","source":"chat","type":"message.delivered","data":{"conversation_id":"design-crew","seq":42,"user_ids":["ada","chloe"],"sender_id":"ben","mentioned_user_ids":["ada"]}}`
		readByAda   = `{"specversion":"1.0","id":"design-crew/read/ada/42","source":"chat","type":"conversation.read","data":{"conversation_id":"design-crew","user_ids":["ada"],"up_to_seq":42}}`
		adaBadge    = `{"user_id":"ada","epoch":"9a6c36fbe39f","version":7,"total":5,"mentions":1,"unread_conversations":2,"unseen":4,"muted":{"total":3,"conversations":1},"categories":{"acme":{"total":5,"mentions":1,"unread_conversations":2,"unseen":4},"acme/dm":{"total":2,"mentions":0,"unread_conversations":1,"unseen":2},"acme/general":{"total":3,"mentions":1,"unread_conversations":1,"unseen":2},"likes":{"total":0,"mentions":0,"unread_conversations":0,"unseen":0,"muted":{"total":3,"conversations":1}}},"levels":{"likes":"none"}}`
		benBadge    = `{"user_id":"ben","epoch":"b9df917f4f6b","version":0,"total":0,"mentions":0,"unread_conversations":0,"unseen":0,"categories":{}}`
		categories  = `{"categories":[{"category":"acme","total":5,"mentions":1,"unread_conversations":2,"unseen":4},{"category":"acme/general","total":3,"mentions":1,"unread_conversations":1,"unseen":2}],"cursor":"YWNtZS9nZW5lcmFs"}`
		aPage       = `{"conversations":[{"conversation_id":"lunch","unread":1,"mentions":0,"first_unread_seq":2,"read_seq":1,"last_seq":2,"level":"default","category":"chat","marked_unread":false,"version":3}],"cursor":"MzpsdW5jaA"}`
		badEvents   = `{"type":"urn:badged:problem","title":"Bad Request","status":400,"detail":"some events are invalid; nothing was stored","errors":[{"index":0,"field":"data.seq","message":"must be at least 1, is 0"},{"index":2,"field":"data.upto","message":"is not a known field"}]}`
		someBadges  = `{"type":"urn:badged:problem","title":"Service Unavailable","status":503,"detail":"shard b, which has the partitions 8-15, is unavailable; badges has the badges of all other users; repeat the request for the users of lacking when the shard is back","lacking":{"partitions":[9],"of":16,"user_ids":["ben"]},"badges":[` + adaBadge + `]}`
		notFolded   = `{"type":"urn:badged:problem","title":"Gateway Timeout","status":504,"detail":"not folded within 2s; ask again"}`
		lostAtLeast = "The log may have lost the events up to `at_least`, by a failover of Postgres with asynchronous replication; or the transaction of `at_least` has not committed. Publish the events again with the same ids."
		lost        = `{"type":"urn:badged:problem","title":"Conflict","status":409,"detail":"` + lostPosition + `"}`
		notTheUsers = `{"type":"urn:badged:problem","title":"Forbidden","status":403,"detail":"a user's token is for that user only"}`
		notTheKeys  = `{"type":"urn:badged:problem","title":"Forbidden","status":403,"detail":"the key crm may not publish some of these events; nothing was stored","errors":[{"index":1,"field":"source","message":"\"chat\" is not a source of the key crm, which has crm/*"}]}`
		foldsBehind = `{"type":"urn:badged:problem","title":"Too Many Requests","status":429,"detail":"badges of users of this request are 31s behind; nothing was stored, publish it again after Retry-After"}`
		tooManyOnes = `{"type":"urn:badged:problem","title":"Request Entity Too Large","status":413,"detail":"the body has more than 10000 events; nothing was stored"}`
	)
	late := describe.Problem(http.StatusTooManyRequests, problem{}, "For users of this request, folding is further behind than `--max-lag`; or the key has exceeded its rate or its quota. Nothing was stored. Publish the events again after `Retry-After`.", foldsBehind)
	late.Headers = []describe.Param{{Name: "Retry-After", Doc: "Seconds to wait before publishing again.", Required: true, Example: "2"}}
	event := Event()
	list := describe.List{Model: event, MinItems: 1, MaxItems: MaxEvents}
	return []describe.Route{
		a.restrict(publishing, nil, a.postEvents, describe.Route{
			Method: http.MethodPost, Path: "/v1/events",
			Name: "postEvents", Group: GroupPublish, Summary: "Append events to the log, all or none",
			Doc: "A request has at most 8 MiB and 10,000 events. If the partitions of the users of each event are counted, their sum is at most 250,000. Events with the same source and id count once: after a timeout or a broken connection, send the same events again.",
			Body: []describe.Content{
				{MediaType: "application/json", Model: describe.OneOf{Doc: "One event, or an array of events.", Models: []any{event, list}}, Example: anEvent},
				{MediaType: "application/cloudevents+json", Model: event, Example: anEvent},
				{MediaType: "application/cloudevents-batch+json", Model: list, Example: "[" + anEvent + "," + readByAda + "]"},
				{MediaType: "application/x-ndjson", Doc: "one event on each line", Example: anEvent + "\n" + readByAda + "\n"},
			},
			Answers: failures(
				describe.Answer{
					Status: http.StatusAccepted, Doc: "All events are durable in the log.",
					Headers: []describe.Param{{
						Name: PositionHeader, Required: true, Example: "4711",
						Doc: "The position in the log, a number, for the parameter `at_least`. After several requests, use the greatest position.",
					}},
					Content: describe.JSON(accepted{}, `{"accepted":2}`),
				},
				describe.Problem(http.StatusBadRequest, problem{}, "Nothing was stored. `errors` lists up to 100 invalid events by their index in the request, and up to 20 invalid fields of each event.", badEvents),
				describe.Problem(http.StatusForbidden, problem{}, "Nothing was stored. `errors` lists up to 100 events that the key may not publish, and the field that the key does not permit.", notTheKeys),
				describe.Problem(http.StatusRequestTimeout, problem{}, tooSlow+" Nothing was stored.", ""),
				describe.Problem(http.StatusRequestEntityTooLarge, problem{}, "The request has more than 8 MiB or 10,000 events, or its events are for too many partitions. Nothing was stored.", tooManyOnes),
				describe.Problem(http.StatusUnsupportedMediaType, problem{}, "The `Content-Type` is not supported, or the body has a `Content-Encoding`, such as gzip. Nothing was stored.", ""),
				late,
			),
		}),
		a.forReaders(a.getBadge, describe.Route{
			Method: http.MethodGet, Path: "/v1/users/{user}/badge",
			Name: "getBadge", Group: GroupBadges, Summary: "Read the badge of a user",
			Doc:    "For a user without events, the version and all numbers are 0.",
			Params: append([]describe.Param{userParam()}, awaitParams()...),
			Answers: failures(
				describe.Answer{Status: http.StatusOK, Doc: "The badge.", Content: describe.JSON(pubsub.Badge{}, adaBadge)},
				describe.Problem(http.StatusBadRequest, problem{}, "A parameter is unknown or invalid.", ""),
				describe.Problem(http.StatusForbidden, problem{}, "The token belongs to another user.", notTheUsers),
				describe.Problem(http.StatusConflict, problem{}, lostAtLeast, lost),
				describe.Problem(http.StatusGatewayTimeout, problem{}, "The events up to `at_least` were not folded in time; send the request again.", notFolded),
			),
		}),
		a.forReaders(a.getConversations, describe.Route{
			Method: http.MethodGet, Path: "/v1/users/{user}/conversations",
			Name: "getConversations", Group: GroupBadges, Summary: "Read a page of a user's conversations",
			Doc: "The most recently changed conversation comes first. Only the user's own changes in a room, such as a read, decide its place: a message to the room does not move it. Conversations that the user has left are not included. A conversation that changes between the reads of two pages moves to the front, so later pages do not have it; the WebSocket delivers such changes.",
			Params: []describe.Param{
				userParam(),
				{In: "query", Name: "category", Doc: "Only conversations that this category covers.", Model: categorySchema(), Example: "acme"},
				{In: "query", Name: "unread", Doc: "Only conversations with unread messages or a mark.", Model: false, Example: "true"},
				{In: "query", Name: "muted", Doc: "With true, only conversations of which a level excludes unread messages from the total; with false, only conversations that add to the total.", Model: false, Example: "true"},
				pageLimitParam(),
				{In: "query", Name: "cursor", Doc: "The `cursor` of the previous page. Without it, or if it is empty, the answer is the first page.", Example: "MzpsdW5jaA"},
				seqsParam(),
			},
			Answers: failures(
				describe.Answer{Status: http.StatusOK, Doc: "A page.", Content: describe.JSON(pageWithSeqs(), aPage)},
				describe.Problem(http.StatusBadRequest, problem{}, "A parameter is unknown or invalid.", ""),
				describe.Problem(http.StatusForbidden, problem{}, "The token belongs to another user.", notTheUsers),
			),
		}),
		a.forReaders(a.getCategories, describe.Route{
			Method: http.MethodGet, Path: "/v1/users/{user}/categories",
			Name: "getCategories", Group: GroupBadges, Summary: "Read a page of a user's categories",
			Doc: "Lists the categories with a number above 0 or a level, by name.",
			Params: []describe.Param{
				userParam(),
				{In: "query", Name: "category", Doc: "Only this category and the categories directly below it.", Model: categorySchema(), Example: "acme"},
				pageLimitParam(),
				{In: "query", Name: "cursor", Doc: "The `cursor` of the previous page. Without it, or if it is empty, the answer is the first page.", Example: "YWNtZS9nZW5lcmFs"},
			},
			Answers: failures(
				describe.Answer{Status: http.StatusOK, Doc: "A page.", Content: describe.JSON(categoriesPage{}, categories)},
				describe.Problem(http.StatusBadRequest, problem{}, "A parameter is unknown or invalid.", ""),
				describe.Problem(http.StatusForbidden, problem{}, "The token belongs to another user.", notTheUsers),
			),
		}),
		a.restrict(reading, nil, a.queryBadges, describe.Route{
			Method: http.MethodPost, Path: "/v1/badges/query",
			Name: "queryBadges", Group: GroupBadges, Summary: "Read the badges of many users",
			Doc:  "For senders of push notifications. An answer 200 has the badge of every user, and no badge is 0 because it could not be read. If a user is named several times, the answer has the badge once. An answer of more than 1 MiB is sent while badges are still being read: if a later badge cannot be read, the connection breaks, and the body is not valid JSON. Then ask for fewer users.",
			Body: []describe.Content{{MediaType: "application/json", Model: badgesQuery{}, Example: `{"user_ids":["ada","ben"]}`}},
			Answers: failures(
				describe.Answer{Status: http.StatusOK, Doc: "The badges, in the order in which the users are first named.", Content: describe.JSON(badgesAnswer{}, `{"badges":[`+adaBadge+`,`+benBadge+`]}`)},
				describe.Problem(http.StatusBadRequest, problem{}, "The body is invalid, or names no user or too many users.", ""),
				describe.Problem(http.StatusRequestTimeout, problem{}, tooSlow, ""),
				describe.Problem(http.StatusRequestEntityTooLarge, problem{}, "More than "+sizeOf(maxListBody)+".", ""),
				describe.Problem(http.StatusUnsupportedMediaType, problem{}, encoded, ""),
				describe.Problem(http.StatusConflict, problem{}, lostAtLeast, lost),
				describe.Problem(http.StatusTooManyRequests, problem{}, "Too many reads with keys are running at once.", ""),
				describe.Problem(http.StatusGatewayTimeout, problem{}, "The events up to `at_least` were not folded in time; send the request again.", notFolded),
				describe.Problem(http.StatusServiceUnavailable, problem{}, "If a shard has failed, `lacking` names the users whose badges could not be read, and `badges` has the badges of the other users. If the badges do not fit into 1 MiB, the remaining users are in `lacking` too.", someBadges),
			),
		}),
	}
}

func userParam() describe.Param {
	return describe.Param{In: "path", Name: "user", Doc: "The id of the user, percent-encoded: `a/b` becomes `a%2Fb`.", Model: idSchema(), Example: "ada"}
}

// awaitParams describes the parameters that await gets.
func awaitParams() []describe.Param {
	return []describe.Param{
		{In: "query", Name: "at_least", Doc: "Wait until the badge includes all events up to this position before answering. The position is the value of the header `Badged-Position` of an answer, or the position of a transaction of your own.", Example: "4711"},
		{In: "query", Name: "timeout", Doc: "How long to wait for `at_least`: a duration such as `500ms` or `2s`, at most `30s`; `2s` by default.", Example: "2s"},
	}
}

func pageLimitParam() describe.Param {
	return describe.Param{
		In: "query", Name: "limit", Doc: "The maximum number of elements in a page; 100 by default.", Example: "50",
		Model: &describe.Schema{Type: []string{"integer"}, Minimum: new(int64(1)), Maximum: new(int64(badges.MaxPage))},
	}
}

func categorySchema() *describe.Schema {
	return &describe.Schema{Type: []string{"string"}, MinLength: new(int64(1)), MaxLength: new(int64(events.MaxCategoryBytes))}
}

// idSchema is the schema of ids of users, conversations, messages and senders. The server limits
// the bytes of an id, and JSON Schema limits characters, so the schema admits some ids that the
// server refuses.
func idSchema() *describe.Schema {
	return &describe.Schema{Type: []string{"string"}, MinLength: new(int64(1)), MaxLength: new(int64(events.MaxIDBytes))}
}

// failures returns all answers of a route: the answers in `own`, and the failures with which every
// route may answer.
func failures(own ...describe.Answer) []describe.Answer {
	const (
		noKey    = `{"type":"urn:badged:problem","title":"Unauthorized","status":401,"detail":"give a key or token in the header Authorization: Bearer …"}`
		notThis  = `{"type":"urn:badged:problem","title":"Forbidden","status":403,"detail":"the key chat is a publisher's, and may not use the routes of admins"}`
		failed   = `{"type":"urn:badged:problem","title":"Internal Server Error","status":500,"detail":"internal error; the server has logged it"}`
		slowed   = `{"type":"urn:badged:problem","title":"Too Many Requests","status":429,"detail":"too many wrong keys came from your address; this key was not checked"}`
		database = `{"type":"urn:badged:problem","title":"Service Unavailable","status":503,"detail":"the database cannot be reached; repeat the request; repeated events count once"}`
	)
	unauthorized := describe.Problem(http.StatusUnauthorized, problem{}, "The key or token is missing or wrong; `detail` says which of these.", noKey)
	unauthorized.Headers = []describe.Param{{Name: "WWW-Authenticate", Doc: "How to authenticate.", Required: true, Example: `Bearer realm="badged"`}}
	away := describe.Problem(http.StatusServiceUnavailable, problem{}, "The database cannot be reached, is read-only, has a full disk or another fault that `detail` names; or the key of a token cannot be fetched; or there is no memory for the body of the request. Repeat the request after `Retry-After`.", database)
	away.Headers = []describe.Param{{Name: "Retry-After", Doc: "Seconds to wait before repeating the request.", Required: true, Example: "1"}}
	slow := describe.Problem(http.StatusTooManyRequests, problem{}, "Too many wrong keys came from the address, and the key of this request was not checked; or the running requests of the key or user use up its share of `--body-memory-mib`, or too many connections. Repeat the request after `Retry-After`.", slowed)
	slow.Headers = []describe.Param{{Name: "Retry-After", Doc: "Seconds to wait before repeating the request.", Required: true, Example: "1"}}
	for _, common := range []describe.Answer{away, slow, describe.Problem(http.StatusForbidden, problem{}, "The key has another kind, or does not permit this request: `detail` says what the key may not do.", notThis)} {
		if i := slices.IndexFunc(own, func(a describe.Answer) bool { return a.Status == common.Status }); i >= 0 {
			own[i].Doc += " " + common.Doc
			if own[i].Headers == nil {
				own[i].Headers = common.Headers
			}
		} else {
			own = append(own, common)
		}
	}
	all := append(own, unauthorized,
		describe.Problem(http.StatusInternalServerError, problem{}, "The request failed; the server's log has the error.", failed))
	slices.SortStableFunc(all, func(a, b describe.Answer) int { return a.Status - b.Status })
	return all
}
