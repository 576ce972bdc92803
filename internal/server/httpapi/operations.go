package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/rfc3339"
	"github.com/badged/badged/internal/operations"
	"github.com/badged/badged/internal/operations/deadletters"
	"github.com/badged/badged/internal/partition/rebuild"
	"github.com/badged/badged/internal/user/erasure"
	"github.com/badged/badged/internal/user/merging"
	"github.com/badged/badged/projector/badges"
)

// Operations has the methods of [operations.Operations] that the routes for admins call.
type Operations interface {
	// CheckPartition returns an error if the partition does not exist.
	CheckPartition(partition int) error
	Lag(ctx context.Context) (operations.Lag, error)
	Processes(ctx context.Context) ([]operations.Process, error)
	Rates(ctx context.Context, since time.Time) (operations.Rates, error)
	DeadLetters(ctx context.Context, after int64, limit int) ([]operations.DeadLetter, error)
	RetryDeadLetter(ctx context.Context, operator operations.Operator, id int64) error
	DiscardDeadLetter(ctx context.Context, operator operations.Operator, id int64) (operations.DeadLetter, error)
	Rebuild(ctx context.Context, operator operations.Operator, options operations.RebuildOptions) (operations.Job, error)
	Verify(ctx context.Context, operator operations.Operator, options operations.VerifyOptions) (operations.Job, error)
	Jobs(ctx context.Context, kind operations.Kind, before, limit int) ([]operations.Job, error)
	Job(ctx context.Context, kind operations.Kind, id int) (operations.Job, error)
	CancelJob(ctx context.Context, operator operations.Operator, kind operations.Kind, id int) (operations.Job, error)
	Audit(ctx context.Context, before int64, limit int) ([]operations.Entry, error)
	Read(ctx context.Context, operator operations.Operator, action string, arguments any) error
	Export(ctx context.Context, userID string, archives operations.Archives, w io.Writer, found func(ctx context.Context) error) (erasure.Exported, error)
	Erase(ctx context.Context, operator operations.Operator, userID string, archives operations.Archives) (erasure.Erased, error)
	Merge(ctx context.Context, operator operations.Operator, guest, account string) (merging.Merged, error)
}

// getPartitions answers with each partition's lag and owner.
func (a *API) getPartitions(_ http.ResponseWriter, r *http.Request, _ grant) (answer, error) {
	lag, err := a.cfg.Operations.Lag(r.Context())
	return answer{body: lag}, err
}

// getProcesses answers with the processes and their connections.
func (a *API) getProcesses(_ http.ResponseWriter, r *http.Request, _ grant) (answer, error) {
	processes, err := a.cfg.Operations.Processes(r.Context())
	return answer{body: processesAnswer{notNil(processes)}}, err
}

// getRates answers with the rates of the last hour.
func (a *API) getRates(_ http.ResponseWriter, r *http.Request, _ grant) (answer, error) {
	q := r.URL.Query()
	since, err := timeOf(q, "since")
	if err != nil {
		return answer{}, err
	}
	rates, err := a.cfg.Operations.Rates(r.Context(), since)
	return answer{body: rates}, err
}

func (a *API) getDeadLetters(_ http.ResponseWriter, r *http.Request, caller grant) (answer, error) {
	q := r.URL.Query()
	after, limit, err := pageOf(q, "after", rowBits)
	if err != nil {
		return answer{}, err
	}
	letters, err := a.cfg.Operations.DeadLetters(r.Context(), after, limit)
	if err == nil && len(letters) > 0 {
		err = a.cfg.Operations.Read(r.Context(), caller.operator(), operations.ReadDeadLetters, struct{}{})
	}
	return answer{body: deadLettersPage{notNil(letters), awayDatabases{a.away()}}}, err
}

func (a *API) retryDeadLetter(_ http.ResponseWriter, r *http.Request, caller grant) (answer, error) {
	id, err := idOf(r, rowBits)
	if err == nil {
		err = a.cfg.Operations.RetryDeadLetter(r.Context(), caller.operator(), id)
	}
	return answer{status: http.StatusNoContent}, operationProblem(err)
}

func (a *API) discardDeadLetter(_ http.ResponseWriter, r *http.Request, caller grant) (answer, error) {
	id, err := idOf(r, rowBits)
	if err != nil {
		return answer{}, err
	}
	letter, err := a.cfg.Operations.DiscardDeadLetter(r.Context(), caller.operator(), id)
	return answer{body: letter}, operationProblem(err)
}

func (a *API) getAudit(_ http.ResponseWriter, r *http.Request, _ grant) (answer, error) {
	q := r.URL.Query()
	before, limit, err := pageOf(q, "before", rowBits)
	if err != nil {
		return answer{}, err
	}
	entries, err := a.cfg.Operations.Audit(r.Context(), before, limit)
	return answer{body: auditPage{notNil(entries), awayDatabases{a.away()}}}, err
}

// jobRoutes are the routes for jobs of one kind.
type jobRoutes struct {
	api  *API
	kind operations.Kind
	// name is the kind as the paths name it, in the plural.
	name  string
	page  func([]operations.Job) any
	start func(ctx context.Context, operator operations.Operator, body []byte) (operations.Job, error)
}

func (j jobRoutes) list(_ http.ResponseWriter, r *http.Request, _ grant) (answer, error) {
	q := r.URL.Query()
	before, limit, err := pageOf(q, "before", jobBits)
	if err != nil {
		return answer{}, err
	}
	jobs, err := j.api.cfg.Operations.Jobs(r.Context(), j.kind, int(before), limit)
	return answer{body: j.page(notNil(jobs))}, err
}

func (j jobRoutes) get(_ http.ResponseWriter, r *http.Request, _ grant) (answer, error) {
	id, err := idOf(r, jobBits)
	if err != nil {
		return answer{}, err
	}
	job, err := j.api.cfg.Operations.Job(r.Context(), j.kind, int(id))
	return answer{body: job}, operationProblem(err)
}

func (j jobRoutes) post(w http.ResponseWriter, r *http.Request, caller grant) (answer, error) {
	body, err := j.api.readBody(w, r, maxListBody)
	if err != nil {
		return answer{}, err
	}
	if len(bytes.TrimSpace(body)) == 0 {
		body = []byte("{}")
	}
	job, err := j.start(r.Context(), caller.operator(), body)
	if err != nil {
		return answer{}, operationProblem(err)
	}
	w.Header().Set("Location", fmt.Sprintf("/admin/v1/%s/%d", j.name, job.ID))
	return answer{http.StatusAccepted, job}, nil
}

func (j jobRoutes) cancel(_ http.ResponseWriter, r *http.Request, caller grant) (answer, error) {
	id, err := idOf(r, jobBits)
	if err != nil {
		return answer{}, err
	}
	job, err := j.api.cfg.Operations.CancelJob(r.Context(), caller.operator(), j.kind, int(id))
	return answer{http.StatusAccepted, job}, operationProblem(err)
}

func (a *API) startRebuild(ctx context.Context, operator operations.Operator, body []byte) (operations.Job, error) {
	options := operations.RebuildOptions{MaxLoad: 1}
	if err := decodeStrict(body, &options); err != nil {
		return operations.Job{}, badRequest(err.Error())
	}
	switch {
	case options.User != "" && (options.Partition != nil || options.Anew):
		return operations.Job{}, badRequest("user excludes partition and anew")
	case options.Partition != nil && options.Anew:
		return operations.Job{}, badRequest("anew applies only to a rebuild of all partitions")
	case !(options.MaxLoad >= 0.01 && options.MaxLoad <= 1):
		return operations.Job{}, badRequest("max_load must be from 0.01 to 1")
	}
	if options.User != "" {
		if reason := events.CheckID(options.User); reason != "" {
			return operations.Job{}, badRequest("user " + reason)
		}
	}
	if err := a.checkPartition(options.Partition); err != nil {
		return operations.Job{}, err
	}
	return a.cfg.Operations.Rebuild(ctx, operator, options)
}

// maxSample is the maximum number of users in a sample. The ids of a sample are in memory; a
// verification of all users does not need this memory.
const maxSample = 100_000

func (a *API) startVerification(ctx context.Context, operator operations.Operator, body []byte) (operations.Job, error) {
	var given struct {
		operations.VerifyOptions
		Sample *int `json:"sample"` // overrides the field of VerifyOptions, where 0 means all users
	}
	if err := decodeStrict(body, &given); err != nil {
		return operations.Job{}, badRequest(err.Error())
	}
	options := given.VerifyOptions
	if given.Sample != nil {
		options.Sample = *given.Sample
	}
	switch {
	case len(options.Users) > 0 && (options.Partition != nil || given.Sample != nil):
		return operations.Job{}, badRequest("users excludes partition and sample")
	case len(options.Users) > badges.MaxBadges:
		return operations.Job{}, badRequest(fmt.Sprintf("users must name at most %d", badges.MaxBadges))
	case given.Sample != nil && (options.Sample < 1 || options.Sample > maxSample):
		return operations.Job{}, badRequest(fmt.Sprintf("sample must be from 1 to %d", maxSample))
	}
	for i, u := range options.Users {
		if reason := events.CheckID(u); reason != "" {
			return operations.Job{}, badRequest(fmt.Sprintf("users[%d] %s", i, reason))
		}
	}
	if err := a.checkPartition(options.Partition); err != nil {
		return operations.Job{}, err
	}
	return a.cfg.Operations.Verify(ctx, operator, options)
}

func (a *API) checkPartition(p *int) error {
	if p == nil {
		return nil
	}
	if err := a.cfg.Operations.CheckPartition(*p); err != nil {
		return badRequest("partition: " + err.Error())
	}
	return nil
}

// operationProblem converts the errors of operations into answers for admins.
func operationProblem(err error) error {
	var running *rebuild.RunningError
	var job *operations.RebuildJobError
	var invalid *events.InvalidError
	var refused *events.BatchError
	var damaged *deadletters.DamagedError
	status, detail := 0, ""
	switch {
	case errors.Is(err, deadletters.ErrNotFound):
		status, detail = http.StatusNotFound, deadletters.ErrNotFound.Error()
	case errors.As(err, &damaged):
		status, detail = http.StatusUnprocessableEntity, damaged.Error()
	case errors.As(err, &refused):
		status, detail = http.StatusUnprocessableEntity, "it cannot be published again: "+refused.Error()
	case errors.As(err, &invalid):
		status, detail = http.StatusUnprocessableEntity, "it still cannot be decoded: "+invalid.Error()
	case errors.Is(err, operations.ErrNoJob):
		status, detail = http.StatusNotFound, operations.ErrNoJob.Error()
	case errors.Is(err, operations.ErrJobEnded):
		status, detail = http.StatusConflict, operations.ErrJobEnded.Error()
	case errors.As(err, &running):
		status, detail = http.StatusConflict, running.Error()
	case errors.As(err, &job):
		status, detail = http.StatusConflict, job.Error()
	case errors.Is(err, operations.ErrTooManyJobs):
		status, detail = http.StatusConflict, operations.ErrTooManyJobs.Error()
	case errors.Is(err, operations.ErrNotRunning):
		return &problem{Status: http.StatusServiceUnavailable, Detail: operations.ErrNotRunning.Error(), retryAfter: "5"}
	default:
		return err
	}
	return &problem{Status: status, Detail: detail}
}

func badRequest(detail string) error {
	return &problem{Status: http.StatusBadRequest, Detail: detail}
}

// The sizes of ids, in bits: a greater id is refused.
const (
	rowBits = 64 // ids of dead letters and actions
	jobBits = 32
)

// idOf returns the {id} of the path. It fails unless the id is a positive number that fits into
// the given number of bits.
func idOf(r *http.Request, bits int) (int64, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, bits)
	if err != nil || id < 1 {
		return 0, badRequest("the id must be a positive number")
	}
	return id, nil
}

// pageOf returns the parameters of a page of a list. `from` is the name of the parameter with the
// last id of the previous page: "after", or "before" if the list is sorted from the newest element.
// pageOf returns this id as `after`; it is 0 for the first page. limit is 100 by default. bits is
// the size of the ids in bits.
func pageOf(q url.Values, from string, bits int) (after int64, limit int, err error) {
	if s := q.Get(from); s != "" {
		if after, err = strconv.ParseInt(s, 10, bits); err != nil || after < 0 || after == 0 && from == "before" {
			return 0, 0, badRequest(from + " must be an id of the list")
		}
	}
	limit, err = pageLimit(q)
	return after, limit, err
}

// timeOf returns a time parameter of the query, or the zero time if it is absent.
func timeOf(q url.Values, name string) (t time.Time, err error) {
	if s := q.Get(name); s != "" {
		if t, err = rfc3339.Parse(s); err != nil {
			return time.Time{}, badRequest(name + " must be a time such as 2026-01-31T23:59:59Z")
		}
	}
	return t, nil
}

// notNil returns list, or an empty list for nil, since JSON must have [] and not null.
func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
