package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/describe"
	"github.com/badged/badged/internal/operations"
	"github.com/badged/badged/internal/partition/replay"
)

// Explainer explains the badge of a user.
type Explainer interface {
	Explain(ctx context.Context, userID string, q replay.Question) (replay.Explanation, error)
}

// adminRoutes returns the route that explains badges to operators.
func (a *API) adminRoutes() []describe.Route {
	const explanation = `{"user_id":"ada","partition":3,"position":"752/3","version":3,"total":1,"mentions":0,"unread_conversations":1,"unseen":1,"categories":{"chat":{"total":1,"mentions":0,"unread_conversations":1,"unseen":1}},
 "conversations":[{"conversation_id":"lunch","unread":1,"mentions":0,"first_unread_seq":2,"read_seq":1,"last_seq":2,"level":"default","category":"chat","marked_unread":false,"version":3,
   "adds":1,"applies":"all",
   "messages":[{"seq":2,"mentioned":false,"event_id":"m-2","source":"https://chat.example","type":"message.delivered","time":"2026-11-21T04:11:46Z","appended_at":"2026-11-21T04:11:46.232Z","folded_at":"2026-11-21T04:11:46.232Z","position":"752/3"}],
   "more_messages":0,
   "last_read":{"up_to_seq":1,"event_id":"r-1","source":"https://chat.example","type":"conversation.read","time":"2026-11-21T04:11:42Z","appended_at":"2026-11-21T04:11:42.232Z","folded_at":"2026-11-21T04:11:42.232Z","position":"751/2"}}],
 "more_conversations":0,"more_adds":0,
 "uncounted":[{"event_id":"m-2","source":"https://chat.example","type":"message.delivered","time":"2026-11-21T04:11:46Z","appended_at":"2026-11-21T04:11:47.119Z","folded_at":"2026-11-21T04:11:47.119Z","position":"753/4","conversation_id":"lunch","seq":2,"why":"duplicate","detail":"the user had an event of the same source and id before, at 752/3"}],
 "more_uncounted":0,
 "uncounted_kinds":[{"type":"message.delivered","why":"duplicate","events":1}],
 "history":{"before":0,"left_out":0,"steps":[
   {"total":1,"change":1,"conversation_id":"lunch","seq":1,"event_id":"m-1","source":"https://chat.example","type":"message.delivered","time":"2026-11-21T04:11:40Z","appended_at":"2026-11-21T04:11:40.118Z","folded_at":"2026-11-21T04:11:40.118Z","position":"750/1"},
   {"total":0,"change":-1,"conversation_id":"lunch","seq":1,"event_id":"r-1","source":"https://chat.example","type":"conversation.read","time":"2026-11-21T04:11:42Z","appended_at":"2026-11-21T04:11:42.232Z","folded_at":"2026-11-21T04:11:42.232Z","position":"751/2"},
   {"total":1,"change":1,"conversation_id":"lunch","seq":2,"event_id":"m-2","source":"https://chat.example","type":"message.delivered","time":"2026-11-21T04:11:46Z","appended_at":"2026-11-21T04:11:46.232Z","folded_at":"2026-11-21T04:11:46.232Z","position":"752/3"}]},
 "delivered":{"more":1,"messages":[
   {"conversation_id":"lunch","seq":2,"mentioned":false,"fate":"unread","event_id":"m-2","source":"https://chat.example","type":"message.delivered","time":"2026-11-21T04:11:46Z","appended_at":"2026-11-21T04:11:46.232Z","folded_at":"2026-11-21T04:11:46.232Z","position":"752/3"}]},
 "table":{"user_id":"ada","epoch":"9a6c36fbe39f","version":3,"total":1,"mentions":0,"unread_conversations":1,"unseen":1,"categories":{"chat":{"total":1,"mentions":0,"unread_conversations":1,"unseen":1}}},"agrees":true,"differences":[],"more_differences":0}`
	return []describe.Route{
		a.restrict(operating, nil, a.getExplanation, describe.Route{
			Method: http.MethodGet, Path: "/admin/v1/users/{user}/explain",
			Name: "explainBadge", Group: GroupAdmin, Summary: "Explain the badge of a user from the log",
			Doc: "The same as `badged user explain --json`. The request reads the log of the user's partition, which takes about a second for a million events. Two such requests run at a time; further requests wait. If `at` is in the archived part of the log, the answer is 400.",
			Params: []describe.Param{
				userParam(),
				{
					In: "query", Name: "at", Doc: "Explain the badge as it was at this time, from the events that were folded until then, to the second.",
					Model: time.Time{}, Example: "2026-01-31T23:59:59Z",
				},
				{
					In: "query", Name: "conversation", Doc: "Include only this conversation in `conversations`, `uncounted` and `delivered`, even if it has no unread messages. The totals and the history still cover all conversations of the user.",
					Model: idSchema(), Example: "lunch",
				},
				{In: "query", Name: "history", Doc: "Include the total over time.", Model: false, Example: "true"},
				{In: "query", Name: "delivered", Doc: "List at most this number of delivered messages, with the fate of each.", Model: &describe.Schema{Type: []string{"integer"}, Minimum: new(int64(0)), Maximum: new(int64(replay.MaxDelivered))}, Example: "50"},
				{In: "query", Name: "before", Doc: "With `delivered`: list only messages delivered before this position, the `position` of the last message of the previous page.", Model: "", Example: "752/3"},
			},
			Answers: failures(
				describe.Answer{Status: http.StatusOK, Doc: "The explanation.", Content: describe.JSON(replay.Explanation{}, explanation)},
				describe.Problem(http.StatusBadRequest, problem{}, "A parameter is unknown or cannot be understood.", ""),
			),
		}),
	}
}

// getExplanation explains the badge of a user, now or at a given time.
func (a *API) getExplanation(_ http.ResponseWriter, r *http.Request, caller grant) (answer, error) {
	user := r.PathValue("user")
	question, err := questionOf(r)
	if err != nil {
		return answer{}, err
	}
	explanation, err := a.cfg.Explainer.Explain(r.Context(), user, question)
	if archived, ok := errors.AsType[*replay.ArchivedError](err); ok {
		return answer{}, &problem{Status: http.StatusBadRequest, Detail: "events appended until " + archived.Until.UTC().Format(time.RFC3339) + " are archived: give a later time, or ask `badged user explain` with the archive"}
	}
	if err != nil {
		return answer{}, err
	}
	if a.cfg.Operations != nil {
		var arguments any = operations.NoUser{}
		if explanation.Known() {
			arguments = readUser{user}
		}
		if err := a.cfg.Operations.Read(r.Context(), caller.operator(), operations.ReadExplanation, arguments); err != nil {
			return answer{}, err
		}
	}
	return answer{body: explanation}, nil
}

// questionOf parses the query parameters of a request for an explanation.
func questionOf(r *http.Request) (q replay.Question, err error) {
	query := r.URL.Query()
	if q.At, err = timeOf(query, "at"); err != nil {
		return q, err
	}
	if q.Conversation = query.Get("conversation"); query.Has("conversation") {
		if reason := events.CheckID(q.Conversation); reason != "" {
			return q, badRequest("conversation " + reason)
		}
	}
	if text := query.Get("history"); text != "" {
		if q.History, err = strconv.ParseBool(text); err != nil {
			return q, badRequest("history must be true or false")
		}
	}
	if text := query.Get("delivered"); text != "" {
		if q.Delivered, err = strconv.Atoi(text); err != nil || q.Delivered < 0 || q.Delivered > replay.MaxDelivered {
			return q, badRequest(fmt.Sprintf("delivered must be a number from 0 to %d", replay.MaxDelivered))
		}
	}
	if text := query.Get("before"); text != "" {
		if q.Before, err = events.ParsePlace(text); err != nil {
			return q, badRequest("before must be a position of the log such as 1234/56")
		}
		if q.Delivered == 0 {
			return q, badRequest("before needs delivered")
		}
	}
	return q, nil
}
