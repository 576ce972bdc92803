package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/admin"
	"github.com/badged/badged/internal/describe"
	"github.com/badged/badged/projector"
)

// Explainer tells why the badge of a user is what it is, or, where at is not
// zero, what it was then.
type Explainer interface {
	Explain(ctx context.Context, userID string, at time.Time) (projector.Explanation, error)
}

// adminRoutes are those for operators.
func (a *API) adminRoutes() []describe.Route {
	const explanation = `{"user_id":"ada","partition":3,"position":"752/3","version":3,"total":1,"mentions":0,"categories":{"chat":1},
 "conversations":[{"conversation_id":"lunch","unread":1,"mentions":0,"first_unread_seq":2,"read_seq":1,"last_seq":2,"level":"all","category":"chat","marked_unread":false,"version":3,
   "adds":1,
   "messages":[{"seq":2,"mentioned":false,"event_id":"m-2","source":"https://chat.example","type":"message.delivered","time":"2026-11-21T04:11:46Z","appended_at":"2026-11-21T04:11:46.232Z","position":"752/3"}],
   "more_messages":0,
   "last_read":{"up_to_seq":1,"event_id":"r-1","source":"https://chat.example","type":"conversation.read","time":"2026-11-21T04:11:42Z","appended_at":"2026-11-21T04:11:42.232Z","position":"751/2"}}],
 "more_conversations":0,"more_adds":0,
 "uncounted":[{"event_id":"m-2","source":"https://chat.example","type":"message.delivered","time":"2026-11-21T04:11:46Z","appended_at":"2026-11-21T04:11:47.119Z","position":"753/4","conversation_id":"lunch","seq":2,"why":"duplicate","detail":"the same source and id came before, at 752/3"}],
 "more_uncounted":0,
 "table":{"user_id":"ada","epoch":"9a6c36fbe39f","version":3,"total":1,"mentions":0,"categories":{"chat":1}},"agrees":true}`
	return []describe.Route{
		a.forAdmins(a.getExplanation, describe.Route{
			Method: http.MethodGet, Path: "/admin/v1/users/{user}/explain",
			Name: "explainBadge", Group: GroupAdmin, Summary: "Explain the badge of a user from the log",
			Doc: "What `badged user explain --json` prints. It goes through the log of the user's partition, about a second for every million events; two run at a time, and others wait. Of a time before what is archived it answers 400.",
			Params: []describe.Param{
				userParam(),
				{
					In: "query", Name: "at", Doc: "Explain what the badge was once everything appended until then was folded.",
					Of: time.Time{}, Example: "2026-01-31T23:59:59Z",
				},
			},
			Answers: failures(
				describe.Answer{Status: http.StatusOK, Doc: "The explanation.", Content: describe.JSON(projector.Explanation{}, explanation)},
				describe.Problem(http.StatusBadRequest, problem{}, "A parameter is unknown or cannot be understood.", ""),
			),
		}),
	}
}

// admin lets admins in.
func (a *API) admin(h handler) http.HandlerFunc {
	return a.operator(func(w http.ResponseWriter, r *http.Request, _ admin.Operator) error { return h(w, r) })
}

// operatorHandler is a handler that has to know who it is.
type operatorHandler func(w http.ResponseWriter, r *http.Request, by admin.Operator) error

// operator lets admins in and says who it is.
func (a *API) operator(h operatorHandler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		secret, err := bearer(r)
		by := admin.Operator{Via: admin.ViaAPI}
		if err == nil {
			var ok bool
			if by.Name, ok = a.cfg.Admins.Check(secret); !ok {
				err = unauthorized("the key is not one of an admin")
			}
		}
		if err == nil {
			err = h(w, r, by)
		}
		if err != nil {
			a.fail(w, r, err)
		}
	}
}

// getExplanation answers why the badge of a user is what it is; with at, what
// it was then.
func (a *API) getExplanation(w http.ResponseWriter, r *http.Request) error {
	user := r.PathValue("user")
	if reason := events.CheckID(user); reason != "" {
		return &problem{Status: http.StatusBadRequest, Detail: "user id " + reason}
	}
	q, err := queryOf(r, "at")
	if err != nil {
		return err
	}
	at, err := timeOf(q, "at")
	if err != nil {
		return err
	}
	explanation, err := a.cfg.Explainer.Explain(r.Context(), user, at)
	var archived *projector.ArchivedError
	if errors.As(err, &archived) {
		return &problem{Status: http.StatusBadRequest, Detail: "what was appended until " + archived.Until.UTC().Format(time.RFC3339) + " is archived: give a later time, or ask `badged user explain` with the archive"}
	}
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, "application/json", explanation)
	return nil
}
