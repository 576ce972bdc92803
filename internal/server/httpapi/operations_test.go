package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/devtest/schematest"
	"github.com/badged/badged/internal/operations"
	"github.com/badged/badged/internal/operations/deadletters"
	"github.com/badged/badged/internal/partition/rebuild"
	"github.com/badged/badged/internal/server/httpapi"
	"github.com/badged/badged/internal/user/erasure"
	"github.com/badged/badged/internal/user/merging"
)

// fakeOperations is an httpapi.Operations that describes its last call in words.
type fakeOperations struct {
	asked string
	read  string
	err   error
	// exportErr is the error of Export; with errCut it comes behind the first line.
	exportErr error
}

func (o *fakeOperations) ask(format string, args ...any) error {
	o.asked = fmt.Sprintf(format, args...)
	return o.err
}

func (*fakeOperations) CheckPartition(partition int) error {
	return events.NewLayout(4, nil).Check(partition)
}

func (o *fakeOperations) Lag(context.Context) (operations.Lag, error) {
	return operations.Lag{Partitions: []operations.PartitionLag{{Partition: 1, Head: "5/6", Folded: "0/0", EventsBehind: 2, SecondsBehind: 1, Owner: "db1"}}}, o.ask("lag")
}

func (o *fakeOperations) Processes(context.Context) ([]operations.Process, error) {
	return nil, o.ask("processes")
}

func (o *fakeOperations) Rates(_ context.Context, since time.Time) (operations.Rates, error) {
	return operations.Rates{IntervalSeconds: 10, Points: []operations.Rate{}}, o.ask("rates since %s", since.Format(time.RFC3339))
}

func (o *fakeOperations) DeadLetters(_ context.Context, after int64, limit int) ([]operations.DeadLetter, error) {
	return nil, o.ask("%d dead letters after %d", limit, after)
}

func (o *fakeOperations) RetryDeadLetter(ctx context.Context, operator operations.Operator, id int64) error {
	return errors.Join(o.ask("%s %s retries %d", operator.Via, operator.Name, id), ctx.Err())
}

func (o *fakeOperations) DiscardDeadLetter(_ context.Context, operator operations.Operator, id int64) (operations.DeadLetter, error) {
	return operations.DeadLetter{ID: id, Payload: json.RawMessage("null")}, o.ask("%s %s discards %d", operator.Via, operator.Name, id)
}

func (o *fakeOperations) Rebuild(_ context.Context, operator operations.Operator, options operations.RebuildOptions) (operations.Job, error) {
	b, _ := json.Marshal(options)
	return operations.Job{ID: 7, Kind: operations.KindRebuild, State: operations.StateRunning, Arguments: b}, o.ask("%s %s rebuilds %s", operator.Via, operator.Name, b)
}

func (o *fakeOperations) Verify(_ context.Context, operator operations.Operator, options operations.VerifyOptions) (operations.Job, error) {
	b, _ := json.Marshal(options)
	return operations.Job{ID: 8, Kind: operations.KindVerification, State: operations.StateRunning, Arguments: b}, o.ask("%s %s verifies %s", operator.Via, operator.Name, b)
}

func (o *fakeOperations) Jobs(_ context.Context, kind operations.Kind, before, limit int) ([]operations.Job, error) {
	return nil, o.ask("%d jobs of kind %s before %d", limit, kind, before)
}

func (o *fakeOperations) Job(_ context.Context, kind operations.Kind, id int) (operations.Job, error) {
	return operations.Job{ID: id, Kind: kind, State: operations.StateRunning, Arguments: json.RawMessage("{}")}, o.ask("%s %d", kind, id)
}

func (o *fakeOperations) CancelJob(_ context.Context, operator operations.Operator, kind operations.Kind, id int) (operations.Job, error) {
	return operations.Job{ID: id, Kind: kind, State: operations.StateRunning, Arguments: json.RawMessage("{}"), CancelRequested: true}, o.ask("%s %s cancels %s %d", operator.Via, operator.Name, kind, id)
}

func (o *fakeOperations) Audit(_ context.Context, before int64, limit int) ([]operations.Entry, error) {
	return nil, o.ask("%d actions before %d", limit, before)
}

func (o *fakeOperations) Read(_ context.Context, operator operations.Operator, action string, arguments any) error {
	o.read = fmt.Sprintf("%s %s %s %v", operator.Via, operator.Name, action, arguments)
	return o.err
}

func (o *fakeOperations) Export(ctx context.Context, userID string, _ operations.Archives, w io.Writer, found func(ctx context.Context) error) (done erasure.Exported, err error) {
	if err := errors.Join(o.ask("export %s", userID), o.exportErr); err != nil && !errors.Is(err, errCut) {
		return done, err
	}
	if userID != "stranger" {
		if err := found(ctx); err != nil {
			return done, err
		}
	}
	_, _ = io.WriteString(w, exported)
	return done, o.exportErr
}

func (o *fakeOperations) Erase(ctx context.Context, operator operations.Operator, userID string, _ operations.Archives) (erasure.Erased, error) {
	return erasure.Erased{Partition: 3, Counts: erasure.Counts{Erased: 2}}, errors.Join(o.ask("%s %s erases %s", operator.Via, operator.Name, userID), ctx.Err())
}

func (o *fakeOperations) Merge(_ context.Context, operator operations.Operator, guest, account string) (merging.Merged, error) {
	return merging.Merged{Conversations: 2}, o.ask("%s %s merges %s into %s", operator.Via, operator.Name, guest, account)
}

// exported is what fakeOperations export, and errCut is their error halfway through.
const exported = `{"kind":"end","record":{"holdings":0}}` + "\n"

var errCut = errors.New("the database is gone")

// Reads that show what users did are recorded, or refused.
func TestReadsOfOperatorsAreRecorded(t *testing.T) {
	o := &fakeOperations{}
	api := build(t, httpapi.Config{Explainer: &explainer{}, Operations: o})
	if a := call(t, api, adminKey, "GET users/ada/explain", ""); a.status != http.StatusOK || o.read != "api ops user.explain {ada}" {
		t.Errorf("it answers %d and records %q", a.status, o.read)
	}
	o.err = errors.New("the trail is away")
	if a := call(t, api, adminKey, "GET users/ada/explain", ""); a.status != http.StatusInternalServerError || strings.Contains(a.body, "ada") {
		t.Errorf("without a trail it answers %d %s", a.status, a.body)
	}
}

func newOperationsAPI(t *testing.T, o httpapi.Operations) *httpapi.API {
	t.Helper()
	return build(t, httpapi.Config{Operations: o})
}

// call sends a request such as "GET rates" with a key.
func call(t *testing.T, api http.Handler, key, request, body string) answer {
	t.Helper()
	method, target, _ := strings.Cut(request, " ")
	return ask(t, api, key, method, "/admin/v1/"+target, "", body)
}

// Each route, the call that it makes, and its answer.
var operationRoutes = []struct {
	request, body string
	asks          string
	status        int
	answers       string
}{
	{"GET partitions", "", "lag", 200, `{"partitions":[{"partition":1,"head":"5/6","folded":"0/0","events_behind":2,"seconds_behind":1,"owner":"db1"}]}`},
	{"GET processes", "", "processes", 200, `{"processes":[]}`},
	{"GET rates", "", "rates since 0001-01-01T00:00:00Z", 200, `{"interval_seconds":10,"points":[]}`},
	{"GET rates?since=2026-01-31T23:59:59Z", "", "rates since 2026-01-31T23:59:59Z", 200, `{"interval_seconds":10,"points":[]}`},
	{"GET deadletters", "", "100 dead letters after 0", 200, `{"dead_letters":[]}`},
	{"GET deadletters?after=7&limit=500", "", "500 dead letters after 7", 200, `{"dead_letters":[]}`},
	{"GET deadletters?after=9223372036854775807", "", "100 dead letters after 9223372036854775807", 200, `{"dead_letters":[]}`},
	{"POST deadletters/7/retry", "", "api ops retries 7", 204, ""},
	{"POST deadletters/9223372036854775807/retry", "", "api ops retries 9223372036854775807", 204, ""},
	{"DELETE deadletters/7", "", "api ops discards 7", 200, `{"id":7,"payload":null,"reason":"","at":"0001-01-01T00:00:00Z"}`},
	{"GET rebuilds", "", "100 jobs of kind rebuild before 0", 200, `{"rebuilds":[]}`},
	{"GET verifications?before=9&limit=1", "", "1 jobs of kind verification before 9", 200, `{"verifications":[]}`},
	{"GET rebuilds/7", "", "rebuild 7", 200, `{"id":7,"kind":"rebuild",`},
	{"POST rebuilds", "", `api ops rebuilds {"max_load":1}`, 202, `{"id":7,"kind":"rebuild","state":"running","arguments":{"max_load":1}`},
	{"POST rebuilds", `{"partition":3,"max_load":0.25}`, `api ops rebuilds {"partition":3,"max_load":0.25}`, 202, `{"id":7,`},
	{"POST rebuilds", `{"user":"ada"}`, `api ops rebuilds {"user":"ada","max_load":1}`, 202, `{"id":7,`},
	{"POST rebuilds", `{"anew":true}`, `api ops rebuilds {"anew":true,"max_load":1}`, 202, `{"id":7,`},
	{"POST verifications", `{}`, `api ops verifies {}`, 202, `{"id":8,"kind":"verification",`},
	{"POST verifications", `{"users":["ada","ben"]}`, `api ops verifies {"users":["ada","ben"]}`, 202, `{"id":8,`},
	{"POST verifications", `{"partition":0,"sample":5}`, `api ops verifies {"partition":0,"sample":5}`, 202, `{"id":8,`},
	{"DELETE verifications/8", "", "api ops cancels verification 8", 202, `{"id":8,"kind":"verification",`},
	{"GET audit?before=5", "", "100 actions before 5", 200, `{"actions":[]}`},
}

func TestOperations(t *testing.T) {
	for _, tc := range operationRoutes {
		o := &fakeOperations{}
		api := newOperationsAPI(t, o)
		a := call(t, api, adminKey, tc.request, tc.body)
		if o.asked != tc.asks || a.status != tc.status || !strings.HasPrefix(a.body, tc.answers) {
			t.Errorf("%s asks for %q and answers %d %s", tc.request, o.asked, a.status, a.body)
		}
		if want := map[bool]string{true: fmt.Sprintf("/admin/v1/%ss/", strings.TrimSuffix(strings.Fields(tc.request)[1], "s"))}[a.status == 202 && strings.HasPrefix(tc.request, "POST")]; !strings.HasPrefix(a.header.Get("Location"), want) {
			t.Errorf("%s is at %q", tc.request, a.header.Get("Location"))
		}
		// An internal error is answered without its text.
		o.err = errors.New("password=hunter2")
		if got, want := call(t, api, adminKey, tc.request, tc.body).story(t), "500 internal error; the server has logged it"; got != want {
			t.Errorf("%s of an error: %s", tc.request, got)
		}
		if got := call(t, newAdminAPI(t, nil), adminKey, tc.request, tc.body).story(t); !strings.HasPrefix(got, "404 ") {
			t.Errorf("%s without operations: %s", tc.request, got)
		}
	}
}

// notAdmins is the answer to keys of publishers.
const notAdmins = "403 the key chat is a publisher's, and may not use the routes of admins"

func TestOperationsRefuse(t *testing.T) {
	for _, tc := range []struct{ request, body, want string }{
		{"GET rates?since=today", "", "400 since must be a time such as 2026-01-31T23:59:59Z"},
		{"GET deadletters?limit=0", "", "400 limit must be a number from 1 to 500"},
		{"GET deadletters?after=-1", "", "400 after must be an id of the list"},
		{"GET audit?before=0", "", "400 before must be an id of the list"},
		{"GET rebuilds?before=0", "", "400 before must be an id of the list"},
		{"GET audit?before=x", "", "400 before must be an id of the list"},
		{"GET rebuilds/x", "", "400 the id must be a positive number"},
		{"DELETE deadletters/0", "", "400 the id must be a positive number"},
		{"POST deadletters/99999999999999999999/retry", "", "400 the id must be a positive number"},
		{"GET rebuilds/99999999999", "", "400 the id must be a positive number"},
		{"GET rebuilds?before=99999999999", "", "400 before must be an id of the list"},
		{"DELETE rebuilds/x", "", "400 the id must be a positive number"},
		{"PUT rebuilds/7", "", "405 PUT is not a method of /admin/v1/rebuilds/7; use DELETE or GET"},
		{"POST rebuilds", `{"partition":4}`, "400 partition: there is no partition 4: they are numbered from 0 to 3"},
		{"POST rebuilds", `{"partition":-1}`, "400 partition: there is no partition -1: they are numbered from 0 to 3"},
		{"POST rebuilds", `{"partition":"1"}`, "400 partition must not be a JSON string"},
		{"POST rebuilds", `{"max_load":2}`, "400 max_load must be from 0.01 to 1"},
		{"POST rebuilds", `{"max_load":0}`, "400 max_load must be from 0.01 to 1"},
		{"POST rebuilds", `{"user":"ada","partition":1}`, "400 user excludes partition and anew"},
		{"POST rebuilds", `{"user":"ada","anew":true}`, "400 user excludes partition and anew"},
		{"POST rebuilds", `{"partition":1,"anew":true}`, "400 anew applies only to a rebuild of all partitions"},
		{"POST rebuilds", `{"user":"a\u0000"}`, "400 user must not hold control characters"},
		{"POST verifications", `{"user":"ada"}`, `400 unknown field "user"`},
		{"POST verifications", `{"users":["ada"],"sample":1}`, "400 users excludes partition and sample"},
		{"POST verifications", `{"users":["ada",""]}`, "400 users[1] must not be empty"},
		{"POST verifications", `{"users":["ada"],"sample":0}`, "400 users excludes partition and sample"},
		{"POST verifications", `{"sample":0}`, "400 sample must be from 1 to 100000"},
		{"POST verifications", `{"partition":0,"sample":0}`, "400 sample must be from 1 to 100000"},
		{"POST verifications", `{"sample":-1}`, "400 sample must be from 1 to 100000"},
		{"POST verifications", `{"sample":100001}`, "400 sample must be from 1 to 100000"},
		{"POST verifications", `{"partition":9}`, "400 partition: there is no partition 9: they are numbered from 0 to 3"},
	} {
		o := &fakeOperations{}
		if got := call(t, newOperationsAPI(t, o), adminKey, tc.request, tc.body).story(t); got != tc.want || o.asked != "" {
			t.Errorf("%s %s: %s, want %s; asks for %q", tc.request, tc.body, got, tc.want, o.asked)
		}
	}
	const letter, starting, canceling = "DELETE deadletters/1", "POST rebuilds", "DELETE verifications/1"
	for _, tc := range []struct {
		request string
		err     error
		want    string
	}{
		{letter, deadletters.ErrNotFound, "404 there is no such dead letter"},
		{"POST deadletters/1/retry", deadletters.ErrNotFound, "404 there is no such dead letter"},
		{
			"POST deadletters/1/retry", &events.InvalidError{Fields: []events.FieldError{{Field: "type", Message: "is odd"}}},
			"422 it still cannot be decoded: invalid event: type: is odd",
		},
		{
			"POST deadletters/1/retry", &deadletters.DamagedError{Damage: errors.New("it ends too early")},
			"422 the row of the log still cannot be decoded: it ends too early; publish its events again from their source, then discard the dead letter",
		},
		{
			"POST deadletters/1/retry", &events.BatchError{Events: []events.IndexedError{{Err: &events.InvalidError{Fields: []events.FieldError{{Field: "type", Message: "is odd"}}}}}},
			"422 it cannot be published again: event 0: invalid event: type: is odd",
		},
		{"GET rebuilds/1", operations.ErrNoJob, "404 there is no such job"},
		{canceling, operations.ErrNoJob, "404 there is no such job"},
		{canceling, operations.ErrJobEnded, "409 the job has ended already"},
		{starting, &operations.RebuildJobError{ID: 3}, "409 another rebuild is under way: job 3; wait for it, or cancel it"},
		{
			starting, &rebuild.RunningError{PID: 5, Application: "badged rebuild"},
			`409 a rebuild, archiving, move or split is running: "badged rebuild" (Postgres process 5); wait for it, or end it with SELECT pg_terminate_backend(5)`,
		},
		{starting, operations.ErrTooManyJobs, "409 3 jobs run in this process already, the most allowed; wait for one to end, or cancel one"},
		{starting, operations.ErrNotRunning, "503 this process accepts no jobs now: it is starting or stopping"},
	} {
		o := &fakeOperations{err: fmt.Errorf("do it: %w", tc.err)}
		if got := call(t, newOperationsAPI(t, o), adminKey, tc.request, "").story(t); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.request, got, tc.want)
		}
	}
}

// An action completes although the client disconnects.
func TestOperationsOutliveTheirRequest(t *testing.T) {
	o := &fakeOperations{}
	ctx, hangUp := context.WithCancel(t.Context())
	hangUp()
	r := newRequest(t, http.MethodPost, "/admin/v1/deadletters/7/retry", nil).WithContext(ctx)
	r.Header.Set("Authorization", "Bearer "+adminKey)
	if got := send(t, newOperationsAPI(t, o), r); got.status != http.StatusNoContent {
		t.Errorf("it answers %s", got.story(t))
	}
}

// A dead letter that is retried wakes the projectors of its partitions. One that cannot be retried
// is told from one that does not exist.
func TestDeadLettersOfADatabase(t *testing.T) {
	pool := projectortest.NewPool(t, pgtest.NewDB(t, schematest.Migrated(2)), nil)
	log, err := events.Open(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	dbs, err := cluster.Open(t.Context(), cluster.Config{Databases: []cluster.Candidate{{Pool: pool}}})
	if err != nil {
		t.Fatal(err)
	}
	var woken []int
	api := newOperationsAPI(t, operations.New(operations.Config{
		Cluster: dbs, Append: log.AppendOwn, Process: "host/1", Wake: func(p []int) { woken = append(woken, p...) },
	}))
	for i, payload := range []string{
		`{"specversion":"1.0","id":"1","source":"s","type":"message.delivered","data":{"conversation_id":"c","seq":1,"user_ids":["ada"]}}`,
		`"gone"`,
	} {
		pgtest.Exec(t, pool, `INSERT INTO badged.dead_letters (partition_id, transaction_id, "offset", uuid, payload, reason)
VALUES (0, '1', $1, gen_random_uuid(), convert_to($2, 'UTF8'), 'odd')`, i, payload)
	}
	for _, tc := range []struct {
		request string
		status  int
	}{
		{"POST deadletters/1/retry", 204},
		{"POST deadletters/2/retry", 422},
		{"DELETE deadletters/2", 200},
		{"DELETE deadletters/2", 404},
	} {
		if a := call(t, api, adminKey, tc.request, ""); a.status != tc.status {
			t.Errorf("%s: %d %s", tc.request, a.status, a.body)
		}
	}
	if home := log.PartitionOf("ada"); !slices.Equal(woken, []int{home}) {
		t.Errorf("woken are %v, want %d", woken, home)
	}
}
