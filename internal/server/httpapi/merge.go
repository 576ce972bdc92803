package httpapi

import (
	"errors"
	"net/http"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/describe"
	"github.com/badged/badged/internal/user/merging"
)

// mergeBody is the body of a merge. It names the account that gets the unread messages.
type mergeBody struct {
	Into string `json:"into" minLength:"1" maxLength:"128" doc:"The id of the account with which the guest has signed in."`
}

// mergeRoute returns the route that moves the unread messages of a guest to an account.
func (a *API) mergeRoute() describe.Route {
	const done = `{"conversations":2,"messages":7,"left":0,"rooms":0,"events":11}`
	return a.forOperators(a.mergeUser, describe.Route{
		Method: http.MethodPost, Path: "/admin/v1/users/{user}/merge",
		Name: "mergeUser", Group: GroupAdmin, Summary: "Move the unread messages of a guest to an account",
		Doc:    "The same as `badged user merge`; the user in the path is the guest. The request publishes events, and can be repeated.",
		Params: []describe.Param{userParam()},
		Body:   []describe.Content{{MediaType: "application/json", Model: mergeBody{}, Example: `{"into":"ada"}`}},
		Answers: failures(
			describe.Answer{Status: http.StatusOK, Doc: "The events are in the log.", Content: describe.JSON(merging.Merged{}, done)},
			describe.Problem(http.StatusBadRequest, problem{}, "An id, the body or a parameter is invalid; `detail` says which.", ""),
			describe.Problem(http.StatusRequestTimeout, problem{}, tooSlow, ""),
			tooLarge(maxSmallBody),
			describe.Problem(http.StatusUnsupportedMediaType, problem{}, encoded, ""),
		),
	})
}

// mergeUser moves the unread messages of a guest to an account.
func (a *API) mergeUser(w http.ResponseWriter, r *http.Request, caller grant) (answer, error) {
	user := r.PathValue("user")
	body, err := a.readBody(w, r, maxSmallBody)
	if err != nil {
		return answer{}, err
	}
	var b mergeBody
	if err := decodeStrict(body, &b); err != nil {
		return answer{}, badRequest(err.Error())
	}
	if reason := events.CheckID(b.Into); reason != "" {
		return answer{}, badRequest("into " + reason)
	}
	done, err := a.cfg.Operations.Merge(r.Context(), caller.operator(), user, b.Into)
	if errors.Is(err, merging.ErrSame) {
		return answer{}, badRequest(merging.ErrSame.Error())
	}
	return answer{body: done}, err
}
