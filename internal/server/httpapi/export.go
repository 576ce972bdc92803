package httpapi

import (
	"context"
	"net/http"

	"github.com/badged/badged/internal/base/describe"
	"github.com/badged/badged/internal/operations"
)

// linesOfJSON is the media type of exports: one JSON object per line.
const linesOfJSON = "application/jsonl"

// exportRoute returns the route that exports all data of a user.
func (a *API) exportRoute() describe.Route {
	return a.restrict(operating, nil, a.getExport, describe.Route{
		Method: http.MethodGet, Path: "/admin/v1/users/{user}/export",
		Name: "exportUser", Group: GroupAdmin, Summary: "Read all data of a user",
		Doc:    "The same as `badged user export`: lines of JSON, each with `kind` and `record`. The last line has the kind `end` and the number of the other lines; if this line is missing, the export is incomplete. Archived events are not included: if there are some, the last line says so in `lacks`. The request reads the whole log. Two such requests run at a time; further requests wait. If badged does not know the user, the last line is the only line.",
		Params: []describe.Param{userParam()},
		Answers: failures(
			describe.Answer{Status: http.StatusOK, Doc: "The data of the user.", Content: &describe.Content{MediaType: linesOfJSON, Doc: "Lines of JSON."}},
			describe.Problem(http.StatusBadRequest, problem{}, "The id or a parameter is invalid; `detail` says which.", ""),
		),
	})
}

// getExport answers with all data of a user.
func (a *API) getExport(w http.ResponseWriter, r *http.Request, caller grant) (answer, error) {
	user := r.PathValue("user")
	body, known := &begunBody{ResponseWriter: w, mediaType: linesOfJSON}, false
	_, err := a.cfg.Operations.Export(r.Context(), user, nil, body, func(ctx context.Context) error {
		known = true
		return a.cfg.Operations.Read(ctx, caller.operator(), operations.ReadExport, readUser{user})
	})
	if err == nil && !known {
		err = a.cfg.Operations.Read(r.Context(), caller.operator(), operations.ReadExport, operations.NoUser{})
	}
	return answer{}, a.finish(r, body, err)
}
