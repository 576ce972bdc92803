package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/badged/badged/internal/base/describe"
	"github.com/badged/badged/internal/partition/rebuild"
	"github.com/badged/badged/internal/pg/pgsession"
	"github.com/badged/badged/internal/user/erasure"
)

// eraseTimeout limits the time of an erasure, which reads the whole log.
const eraseTimeout = 10 * time.Minute

func (a *API) eraseRoute() describe.Route {
	const done = `{"partition":3,"erased":41,"changed":12,"kept":0,"archived":{"erased":0,"changed":0,"kept":0},"waiting":{"erased":0,"changed":0,"kept":0},"conversations":7,"devices":1,"dead_letters":0,"actions":2}`
	return a.restrict(operating, nil, a.eraseUser, describe.Route{
		Method: http.MethodPost, Path: "/admin/v1/users/{user}/erase",
		Name: "eraseUser", Group: GroupAdmin, Summary: "Delete all data of a user",
		Doc:    "The same as `badged user erase`. The erasure goes on if the client disconnects, takes at most ten minutes, and can be repeated. The entry in the audit trail does not name the user. Before the erasure, badged closes the connections of the user and revokes the tokens issued until then. If badged does not know the user, it does nothing else.",
		Params: []describe.Param{userParam()},
		Answers: failures(
			describe.Answer{Status: http.StatusOK, Doc: "What was erased.", Content: describe.JSON(erasure.Erased{}, done)},
			describe.Problem(http.StatusBadRequest, problem{}, "The id or a parameter is invalid; `detail` says which.", ""),
			describe.Problem(http.StatusConflict, problem{}, "A rebuild, an archiving or another erasure is running; or a part of the log is archived, which a server cannot read; or the server may not change the log, because its role does not own the schema. Use `badged user erase` instead.", ""),
		),
	})
}

// eraseUser erases a user. It completes even if the client disconnects.
func (a *API) eraseUser(_ http.ResponseWriter, r *http.Request, caller grant) (answer, error) {
	user := r.PathValue("user")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), eraseTimeout)
	defer cancel()
	done, err := a.cfg.Operations.Erase(ctx, caller.operator(), user, nil)
	return answer{body: done}, erasureProblem(err)
}

// erasureProblem converts the errors of an erasure into answers for admins.
func erasureProblem(err error) error {
	var running *rebuild.RunningError
	var owner *pgsession.OwnerError
	const instead = "; run `badged user erase` as the owner"
	switch {
	case errors.As(err, &owner):
		return &problem{Status: http.StatusConflict, Detail: owner.Error() + instead}
	case errors.As(err, &running):
		return &problem{Status: http.StatusConflict, Detail: running.Error()}
	case errors.Is(err, erasure.ErrArchived):
		return &problem{Status: http.StatusConflict, Detail: erasure.ErrArchived.Error() + "; run `badged user erase` with --archive"}
	case errors.Is(err, erasure.ErrNotFolded):
		return &problem{Status: http.StatusServiceUnavailable, Detail: erasure.ErrNotFolded.Error(), retryAfter: "5"}
	}
	return err
}
