package operations_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/operations"
	"github.com/badged/badged/internal/partition/rebuild"
	"github.com/badged/badged/internal/pg/pgsession"
	"github.com/badged/badged/projector"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
)

// runner runs jobs until the test ends or stop is called.
type runner struct {
	*operations.Operations
	stop func()
}

func (d *database) runner(t *testing.T) *runner {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.operations.Run(ctx) }()
	stop := func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		done <- nil // for the next call
	}
	t.Cleanup(stop)
	for { // until it runs
		_, err := d.operations.Verify(t.Context(), ops, operations.VerifyOptions{Users: []string{"unknown"}})
		if !errors.Is(err, operations.ErrNotRunning) {
			break
		}
	}
	return &runner{d.operations, stop}
}

// find returns a job once ok accepts it.
func (r *runner) find(t *testing.T, kind operations.Kind, id int, ok func(operations.Job) bool) operations.Job {
	t.Helper()
	for {
		job, err := r.Job(t.Context(), kind, id)
		if err != nil {
			t.Fatal(err)
		}
		if ok(job) {
			return job
		}
	}
}

// ended returns a job once it has ended.
func (r *runner) ended(t *testing.T, job operations.Job) operations.Job {
	t.Helper()
	return r.find(t, job.Kind, job.ID, func(j operations.Job) bool { return j.State != operations.StateRunning })
}

// fold publishes a message for users and folds it.
func (d *database) fold(t *testing.T, conversation string, users ...string) {
	t.Helper()
	receipt, err := d.log.Append(t.Context(), events.Event{
		ID: conversation, Source: "test", Type: events.MessageDelivered,
		Data: events.Data{ConversationID: conversation, Seq: 1, UserIDs: users},
	})
	if err != nil {
		t.Fatal(err)
	}
	p, err := projector.New(projector.Config{Pool: d.pool, Log: d.log, Bus: pubsub.NewMemory()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	reader := badges.NewReader(d.pool, d.log)
	for folded := false; !folded; {
		if folded, err = reader.Folded(t.Context(), users, receipt.TransactionID); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func (d *database) spoil(t *testing.T, user string) {
	t.Helper()
	d.exec(t, `UPDATE badged.users SET total = 7, categories = '{"chat": [7]}' WHERE user_id = $1`, user)
}

func (d *database) total(t *testing.T, user string) int64 {
	t.Helper()
	b, err := badges.NewReader(d.pool, d.log).Badge(t.Context(), user)
	if err != nil {
		t.Fatal(err)
	}
	return b.Total
}

// hold runs a statement in a transaction that stays open until release is
// called or the test ends.
func (d *database) hold(t *testing.T, sql string) (release func()) {
	t.Helper()
	tx, err := d.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SET LOCAL idle_in_transaction_session_timeout = 0; `+sql); err != nil {
		t.Fatal(err)
	}
	release = func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }
	t.Cleanup(release)
	return release
}

// told returns the end of a job: state, error, result.
func told(j operations.Job) string {
	s := string(j.State)
	if j.Error != nil {
		s += ": " + *j.Error
	}
	return strings.TrimSpace(s + " " + string(j.Result))
}

func must(t *testing.T) func(operations.Job, error) operations.Job {
	return func(j operations.Job, err error) operations.Job {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
}

func TestJobs(t *testing.T) {
	d := newDatabase(t)
	r := d.runner(t)
	d.fold(t, "lunch", "ann", "bob", "cem")
	d.spoil(t, "ann")
	home := events.PartitionOf("ann", partitions)
	difference := fmt.Sprintf(`[{"partition":%d,"user_id":"ann","field":"total","table":"7","log":"1"},{"partition":%[1]d,"user_id":"ann","field":"categories","table":"{\"chat\":[7]}","log":"{\"chat\":[1, 1]}"}]`, home)

	all := must(t)(r.Verify(t.Context(), ops, operations.VerifyOptions{}))
	if all.State != operations.StateRunning || all.StartedBy != "ops" || all.Process != "host/1" || all.EndedAt != nil {
		t.Errorf("it begins as %+v", all)
	}
	one := must(t)(r.Verify(t.Context(), ops, operations.VerifyOptions{Users: []string{"bob"}}))
	all, one = r.ended(t, all), r.ended(t, one)
	if got, want := told(all), `done {"partitions":2,"users":3,"conversations":3,"differences":2,"first":`+difference+`}`; got != want {
		t.Errorf("verifying all users: %s, want\n%s", got, want)
	}
	if all.Progress.Done != 1 || all.Progress.Events == 0 || all.EndedAt == nil {
		t.Errorf("it ends as %+v", all)
	}
	if got, want := told(one), `done {"partitions":1,"users":1,"conversations":1,"differences":0}`; got != want || string(one.Arguments) != `{"users":["bob"]}` {
		t.Errorf("verifying bob: %s %s", one.Arguments, got)
	}

	job := r.ended(t, must(t)(r.Rebuild(t.Context(), ops, operations.RebuildOptions{User: "ann"})))
	if got, want := told(job), `done {"user_id":"ann","healed":true,"version":2,"differences":`+difference+`}`; got != want {
		t.Errorf("healing: %s, want\n%s", got, want)
	}
	d.spoil(t, "ann")
	job = r.ended(t, must(t)(r.Rebuild(t.Context(), ops, operations.RebuildOptions{Partition: &home, MaxLoad: 0.9})))
	if !strings.HasPrefix(told(job), `done {"partitions":1,`) || !strings.Contains(told(job), `"different_users":1,"new_epochs":1,"first":[`) {
		t.Errorf("rebuilding: %s", told(job))
	}
	if n := d.total(t, "ann"); n != 1 {
		t.Errorf("the total is %d", n)
	}

	page, err := r.Jobs(t.Context(), operations.KindVerification, all.ID+2, 2)
	if err != nil || len(page) != 2 || page[0].ID != one.ID || page[1].ID != all.ID {
		t.Errorf("the list is %+v, %v", page, err)
	}
	if _, err := r.Job(t.Context(), operations.KindRebuild, all.ID); !errors.Is(err, operations.ErrNoJob) {
		t.Errorf("a verification found as a rebuild: %v", err)
	}
}

// An open transaction that reads a partition's tables blocks its rebuild when
// that swaps the tables.
func TestRebuildJobs(t *testing.T) {
	d := newDatabase(t)
	r := d.runner(t)
	d.fold(t, "lunch", "ann")
	d.spoil(t, "ann")
	home := events.PartitionOf("ann", partitions)
	release := d.hold(t, fmt.Sprintf(`SELECT FROM badged.users_p%02d`, home))
	waits := func(j operations.Job) bool { return strings.Contains(j.Progress.Note, "waits for") }

	job := must(t)(r.Rebuild(t.Context(), ops, operations.RebuildOptions{}))
	// At once, and after the first has taken the lock of rebuilds.
	for range 2 {
		var running *operations.RebuildJobError
		if _, err := r.Rebuild(t.Context(), ops, operations.RebuildOptions{Partition: &home}); !errors.As(err, &running) || running.ID != job.ID {
			t.Errorf("a second one: %v", err)
		}
		r.find(t, job.Kind, job.ID, waits)
	}
	if err := rebuild.Run(t.Context(), rebuild.Config{Pool: d.pool, Log: d.log}); !errors.As(err, new(*rebuild.RunningError)) {
		t.Errorf("a rebuild without a job beside it: %v", err)
	}
	if canceled := must(t)(r.CancelJob(t.Context(), ops, job.Kind, job.ID)); !canceled.CancelRequested {
		t.Errorf("canceled, it is %+v", canceled)
	}
	if job = r.ended(t, job); !strings.HasPrefix(told(job), "canceled {") || job.Progress.Done == 1 {
		t.Errorf("canceled, it ends as %s, %+v", told(job), job.Progress)
	}
	if _, err := r.CancelJob(t.Context(), ops, job.Kind, job.ID); !errors.Is(err, operations.ErrJobEnded) {
		t.Errorf("canceled again: %v", err)
	}
	if n := d.total(t, "ann"); n != 7 {
		t.Errorf("canceled, it has changed the total to %d", n)
	}

	// A rebuild without a job.
	ctx, cancel := context.WithCancel(t.Context())
	blocked, done := make(chan struct{}, 1000), make(chan error)
	go func() {
		done <- rebuild.Run(ctx, rebuild.Config{Pool: d.pool, Log: d.log, Progress: reader(blocked)})
	}()
	<-blocked
	if _, err := r.Rebuild(t.Context(), ops, operations.RebuildOptions{}); !errors.As(err, new(*rebuild.RunningError)) {
		t.Errorf("beside a rebuild without a job: %v", err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}

	release()
	job = r.ended(t, must(t)(r.Rebuild(t.Context(), ops, operations.RebuildOptions{})))
	if !strings.HasPrefix(told(job), `done {"partitions":2,"users":1,"conversations":1,"different_users":1,"new_epochs":1,`) || d.total(t, "ann") != 1 {
		t.Errorf("afterwards: %s", told(job))
	}
}

// reader is a Progress that sends when a rebuild waits for a reader.
type reader chan<- struct{}

func (reader) Planned(int, int64)              {}
func (reader) Done(int, int)                   {}
func (c reader) Blocked(int, pgsession.Holder) { c <- struct{}{} }

// A job ends when its server stops, when it loses its session, and when its
// process is killed.
func TestJobsAreInterrupted(t *testing.T) {
	d := newDatabase(t)
	r := d.runner(t)
	d.fold(t, "lunch", "ann")
	d.hold(t, `LOCK TABLE badged.users, badged.conversations IN ACCESS EXCLUSIVE MODE`)

	lost := must(t)(r.Verify(t.Context(), ops, operations.VerifyOptions{}))
	d.exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'badged job host/1' AND datname = current_database()`)
	if got := told(r.ended(t, lost)); !strings.HasPrefix(got, "failed: the session that holds the job's lock") && got != "interrupted: the process that ran it has ended" {
		t.Errorf("without its session: %s", got)
	}

	stopped := must(t)(r.Verify(t.Context(), ops, operations.VerifyOptions{}))
	var killed int
	if err := d.pool.QueryRow(t.Context(), `INSERT INTO badged.jobs (kind, arguments, started_by, process)
VALUES ('verification', '{}', 'ops', 'host/2') RETURNING id`).Scan(&killed); err != nil {
		t.Fatal(err)
	}
	if job := r.find(t, operations.KindVerification, killed, func(operations.Job) bool { return true }); told(job) != "interrupted: the process that ran it has ended" || job.EndedAt == nil {
		t.Errorf("of a process that is gone: %s", told(job))
	}
	if _, err := r.CancelJob(t.Context(), ops, operations.KindVerification, killed); !errors.Is(err, operations.ErrJobEnded) {
		t.Errorf("canceled: %v", err)
	}
	r.stop()
	if got := told(r.ended(t, stopped)); !strings.HasPrefix(got, "interrupted: the server was stopped") {
		t.Errorf("of a server that stops: %s", got)
	}
	if _, err := r.Verify(t.Context(), ops, operations.VerifyOptions{}); !errors.Is(err, operations.ErrNotRunning) {
		t.Errorf("after it has stopped: %v", err)
	}
}

func TestJobsAreLimited(t *testing.T) {
	d := newDatabase(t)
	r := d.runner(t)
	d.hold(t, `LOCK TABLE badged.users, badged.conversations IN ACCESS EXCLUSIVE MODE`)
	var jobs []operations.Job
	for {
		job, err := r.Verify(t.Context(), ops, operations.VerifyOptions{})
		if err != nil {
			if !errors.Is(err, operations.ErrTooManyJobs) || len(jobs) != 3 && len(jobs) != 2 { // the one that saw it running
				t.Fatalf("after %d: %v", len(jobs), err)
			}
			break
		}
		jobs = append(jobs, job)
	}
	for _, job := range jobs {
		must(t)(r.CancelJob(t.Context(), ops, job.Kind, job.ID))
		if got := told(r.ended(t, job)); !strings.HasPrefix(got, "canceled") {
			t.Errorf("it ends as %s", got)
		}
	}
	must(t)(r.Verify(t.Context(), ops, operations.VerifyOptions{}))
}

// Of the jobs that have ended, the latest are kept.
func TestOldJobsAreForgotten(t *testing.T) {
	d := newDatabase(t)
	r := d.runner(t)
	if _, err := d.pool.Exec(t.Context(), `INSERT INTO badged.jobs (kind, arguments, started_by, process, state, ended_at)
SELECT 'verification', '{}', 'ops', 'gone', 'done', now() FROM generate_series(1, 1500)`); err != nil {
		t.Fatal(err)
	}
	job := must(t)(r.Verify(t.Context(), ops, operations.VerifyOptions{}))
	r.ended(t, job)
	var jobs, span int
	if err := d.pool.QueryRow(t.Context(), `SELECT count(*), max(id) - min(id) + 1 FROM badged.jobs WHERE process = 'gone'`).Scan(&jobs, &span); err != nil {
		t.Fatal(err)
	}
	if jobs != 1000 || span != jobs {
		t.Errorf("%d jobs of %d are kept, want the latest 1000", jobs, span)
	}
}

func TestJobSessionsAreNamed(t *testing.T) {
	d := newDatabase(t)
	r := d.runner(t)
	d.hold(t, `LOCK TABLE badged.users, badged.conversations IN ACCESS EXCLUSIVE MODE`)
	job := must(t)(r.Verify(t.Context(), ops, operations.VerifyOptions{}))
	rows, err := d.pool.Query(t.Context(), `SELECT application_name FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE locktype = 'advisory' AND objid = $1 AND objsubid = 2 AND classid = 1650549866`, job.ID)
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if diff := cmp.Diff([]string{"badged job host/1"}, names); diff != "" || err != nil {
		t.Errorf("the lock is held by (-want +got):\n%s%v", diff, err)
	}
	if b, err := json.Marshal(job); err != nil || !strings.Contains(string(b), `"progress":{"done":0,"events":0},"cancel_requested":false}`) {
		t.Errorf("it begins as %s", b)
	}
}

// Pages of jobs are bounded in bytes too: a job may name a thousand users, and list what it
// found.
func TestJobPagesAreBounded(t *testing.T) {
	d := newDatabase(t)
	for range 4 {
		d.exec(t, `INSERT INTO badged.jobs (kind, arguments, started_by, process, state, ended_at, result)
			VALUES ('verification', '{}', 'ops', 'host/1', 'done', now(), json_build_object('first', repeat('x', 3 << 20)))`)
	}
	before := 0
	for _, want := range []int{2, 2, 0} {
		page, err := d.operations.Jobs(t.Context(), operations.KindVerification, before, 100)
		if err != nil || len(page) != want {
			t.Fatalf("before %d there are %d, %v, want %d", before, len(page), err, want)
		}
		for _, j := range page {
			before = j.ID
		}
	}
}
