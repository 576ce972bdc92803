package httpapi

import (
	"net/http"
	"time"

	"github.com/badged/badged/internal/base/describe"
	"github.com/badged/badged/internal/operations"
	"github.com/badged/badged/projector/badges"
)

// The bodies of answers.
type (
	processesAnswer struct {
		Processes []operations.Process `json:"processes" doc:"The processes."`
	}
	deadLettersPage struct {
		DeadLetters []operations.DeadLetter `json:"dead_letters" doc:"The dead letters, by id."`
		awayDatabases
	}
	auditPage struct {
		Actions []operations.Entry `json:"actions" doc:"The actions, newest first."`
		awayDatabases
	}
	rebuildsPage struct {
		Rebuilds []operations.Job `json:"rebuilds" doc:"The rebuilds, newest first."`
		awayDatabases
	}
	verificationsPage struct {
		Verifications []operations.Job `json:"verifications" doc:"The verifications, newest first."`
		awayDatabases
	}
)

func (a *API) operationRoutes() []describe.Route {
	const (
		aLag       = `{"partitions":[{"partition":0,"head":"754/4","folded":"751/3","events_behind":1,"seconds_behind":2.1,"owner":"badged projector db1/2478"}]}`
		aProcess   = `{"processes":[{"process":"db1/2478","roles":["gateway"],"started_at":"2026-11-21T09:00:00Z","seen_at":"2026-11-21T09:40:36Z","connections":{"websockets":812,"event_streams":9,"limits":{"connections":0,"user_connections":100,"connects_per_second":0,"commands_per_second":50},"frames_sent":104211,"reconciliation_repairs":3,"bus_gaps":1}}]}`
		aRate      = `{"interval_seconds":10,"points":[{"at":"2026-11-21T09:40:30Z","appended_per_second":812.4,"folded_per_second":810.9,"delay_p50_seconds":0.011,"delay_p99_seconds":0.048,"websockets":812,"event_streams":9,"frames_per_second":1290.1,"repairs_per_second":0}]}`
		deadLetter = `{"id":7,"partition":3,"position":"746/5","payload":{"specversion":"1.0"},"reason":"invalid event: id: is required","at":"2026-11-21T09:40:36Z"}`
		anAction   = `{"actions":[{"id":31,"at":"2026-11-21T09:41:36Z","who":"ops","via":"api","action":"deadletters.retry","arguments":{"id":7},"ended_at":"2026-11-21T09:41:36Z"}]}`
	)
	unread := describe.Problem(http.StatusBadRequest, problem{}, "A parameter is unknown or cannot be understood.", "")
	missing := describe.Problem(http.StatusNotFound, problem{}, "There is no such dead letter.", "")
	routes := []describe.Route{
		a.restrict(operating, nil, a.getPartitions, describe.Route{
			Method: http.MethodGet, Path: "/admin/v1/partitions",
			Name: "getPartitions", Group: GroupAdmin, Summary: "Read how far each partition is behind, and its owner",
			Doc:     "For each partition, at most 100,000 events are counted.",
			Answers: failures(describe.Answer{Status: http.StatusOK, Doc: "The partitions.", Content: describe.JSON(operations.Lag{}, aLag)}, unread),
		}),
		a.restrict(operating, nil, a.getProcesses, describe.Route{
			Method: http.MethodGet, Path: "/admin/v1/processes",
			Name: "getProcesses", Group: GroupAdmin, Summary: "List the processes and their connections",
			Doc:     "The processes that wrote a sample to the database in the last 20 seconds.",
			Answers: failures(describe.Answer{Status: http.StatusOK, Doc: "The processes.", Content: describe.JSON(processesAnswer{}, aProcess)}, unread),
		}),
		a.restrict(operating, nil, a.getRates, describe.Route{
			Method: http.MethodGet, Path: "/admin/v1/rates",
			Name: "getRates", Group: GroupAdmin, Summary: "Read rates and delays of the last hour",
			Doc:     "There is one point for every 10 seconds, which covers all processes. A point never changes. If no process was running, there is no point.",
			Params:  []describe.Param{{In: "query", Name: "since", Doc: "Only points after this time.", Model: time.Time{}, Example: "2026-01-31T23:59:59Z"}},
			Answers: failures(describe.Answer{Status: http.StatusOK, Doc: "The points.", Content: describe.JSON(operations.Rates{}, aRate)}, unread),
		}),
		a.restrict(operating, nil, a.getDeadLetters, describe.Route{
			Method: http.MethodGet, Path: "/admin/v1/deadletters",
			Name: "listDeadLetters", Group: GroupAdmin, Summary: "List dead letters",
			Doc:     "A page has at most 4 MiB. Read pages until a page is empty.",
			Params:  pageParams("after"),
			Answers: failures(describe.Answer{Status: http.StatusOK, Doc: "A page, by id.", Content: describe.JSON(deadLettersPage{}, `{"dead_letters":[`+deadLetter+`]}`)}, unread),
		}),
		a.forOperators(a.retryDeadLetter, describe.Route{
			Method: http.MethodPost, Path: "/admin/v1/deadletters/{id}/retry",
			Name: "retryDeadLetter", Group: GroupAdmin, Summary: "Publish a dead letter again, at the end of the log",
			Params: []describe.Param{idParam()},
			Answers: failures(
				describe.Answer{Status: http.StatusNoContent, Doc: "The event is in the log again."}, unread, missing,
				describe.Problem(http.StatusUnprocessableEntity, problem{}, "The event still cannot be decoded, and is still a dead letter.", ""),
			),
		}),
		a.forOperators(a.discardDeadLetter, describe.Route{
			Method: http.MethodDelete, Path: "/admin/v1/deadletters/{id}",
			Name: "discardDeadLetter", Group: GroupAdmin, Summary: "Remove a dead letter permanently",
			Params:  []describe.Param{idParam()},
			Answers: failures(describe.Answer{Status: http.StatusOK, Doc: "The removed dead letter. The audit trail stores it too.", Content: describe.JSON(operations.DeadLetter{}, deadLetter)}, unread, missing),
		}),
		a.restrict(operating, nil, a.getAudit, describe.Route{
			Method: http.MethodGet, Path: "/admin/v1/audit",
			Name: "listActions", Group: GroupAdmin, Summary: "List actions of operators",
			Doc:     "Lists actions over HTTP and on command lines. A page has at most 4 MiB. Read pages until a page is empty.",
			Params:  pageParams("before"),
			Answers: failures(describe.Answer{Status: http.StatusOK, Doc: "A page, newest first.", Content: describe.JSON(auditPage{}, anAction)}, unread),
		}),
	}
	routes = append(routes, a.exportRoute(), a.eraseRoute(), a.mergeRoute())
	rebuilds := jobRoutes{a, operations.KindRebuild, "rebuilds", func(jobs []operations.Job) any { return rebuildsPage{jobs, awayDatabases{a.away()}} }, a.startRebuild}
	verifications := jobRoutes{a, operations.KindVerification, "verifications", func(jobs []operations.Job) any { return verificationsPage{jobs, awayDatabases{a.away()}} }, a.startVerification}
	routes = append(routes, rebuilds.routes("Rebuild", operations.RebuildOptions{}, `{"partition":3,"max_load":0.25}`, rebuildsPage{})...)
	return append(routes, verifications.routes("Verification", operations.VerifyOptions{}, `{"sample":100}`, verificationsPage{})...)
}

// routes returns the routes that list, start, read and cancel jobs of one kind. name is the kind as
// it appears in the ids of API operations, such as Rebuild. options and page are values whose types
// describe JSON in the reference: options describes the body that starts a job, and page describes a
// page of the list. example is the JSON of options.
func (j jobRoutes) routes(name string, options any, example string, page any) []describe.Route {
	aJob := `{"id":12,"kind":"` + string(j.kind) + `","state":"running","arguments":` + example + `,"started_by":"ops","started_at":"2026-11-21T09:40:54Z","process":"db1/2478","progress":{"done":0.42,"events":1250000,"seconds_left":31},"cancel_requested":false}`
	unread := describe.Problem(http.StatusBadRequest, problem{}, "A parameter or field is unknown or cannot be understood.", "")
	missing := describe.Problem(http.StatusNotFound, problem{}, "There is no such job.", "")
	path := "/admin/v1/" + j.name
	return []describe.Route{
		j.api.restrict(operating, nil, j.list, describe.Route{
			Method: http.MethodGet, Path: path,
			Name: "list" + name + "s", Group: GroupAdmin, Summary: "List " + j.name,
			Doc:     "A page has at most 4 MiB. Read pages until a page is empty.",
			Params:  pageParams("before"),
			Answers: failures(describe.Answer{Status: http.StatusOK, Doc: "A page, newest first.", Content: describe.JSON(page, `{"`+j.name+`":[`+aJob+`]}`)}, unread),
		}),
		j.api.forOperators(j.post, describe.Route{
			Method: http.MethodPost, Path: path,
			Name: "start" + name, Group: GroupAdmin, Summary: "Start a " + string(j.kind),
			Doc:  "The job runs in the process that answers the request.",
			Body: []describe.Content{{MediaType: "application/json", Model: options, Example: example}},
			Answers: failures(
				describe.Answer{
					Status: http.StatusAccepted, Doc: "The started job.", Content: describe.JSON(operations.Job{}, aJob),
					Headers: []describe.Param{{Name: "Location", Doc: "URL of the job.", Required: true, Example: path + "/12"}},
				},
				unread,
				describe.Problem(http.StatusRequestTimeout, problem{}, tooSlow, ""),
				describe.Problem(http.StatusConflict, problem{}, "Another rebuild is running, or three jobs are running in this process already.", ""),
				tooLarge(maxListBody),
				describe.Problem(http.StatusUnsupportedMediaType, problem{}, encoded, ""),
			),
		}),
		j.api.restrict(operating, nil, j.get, describe.Route{
			Method: http.MethodGet, Path: path + "/{id}",
			Name: "get" + name, Group: GroupAdmin, Summary: "Read the progress or result of a " + string(j.kind),
			Params:  []describe.Param{idParam()},
			Answers: failures(describe.Answer{Status: http.StatusOK, Doc: "The job.", Content: describe.JSON(operations.Job{}, aJob)}, unread, missing),
		}),
		j.api.forOperators(j.cancel, describe.Route{
			Method: http.MethodDelete, Path: path + "/{id}",
			Name: "cancel" + name, Group: GroupAdmin, Summary: "Cancel a " + string(j.kind),
			Params: []describe.Param{idParam()},
			Answers: failures(
				describe.Answer{Status: http.StatusAccepted, Doc: "The job will end within about a second.", Content: describe.JSON(operations.Job{}, aJob)}, unread, missing,
				describe.Problem(http.StatusConflict, problem{}, "The job has ended already.", ""),
			),
		}),
	}
}

// readUser has the arguments that the audit trail records for a read of a user.
type readUser struct {
	User string `json:"user"`
}

func idParam() describe.Param {
	return describe.Param{In: "path", Name: "id", Doc: "The id, as the list shows it.", Model: 0, Example: "7"}
}

// pageParams describes the parameters that pageOf reads.
func pageParams(from string) []describe.Param {
	return []describe.Param{
		{In: "query", Name: from, Doc: "The last id of the previous page.", Model: int64(0), Example: "7"},
		{
			In: "query", Name: "limit", Doc: "The maximum number of elements in a page; 100 by default.", Example: "50",
			Model: &describe.Schema{Type: []string{"integer"}, Minimum: new(int64(1)), Maximum: new(int64(badges.MaxPage))},
		},
	}
}
