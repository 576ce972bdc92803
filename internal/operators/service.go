package operators

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/admin"
	"github.com/badged/badged/internal/shards"
	"github.com/badged/badged/projector/deadletters"
	"github.com/badged/badged/projector/erasure"
	"github.com/badged/badged/projector/merging"
)

// Config configures a service. All fields are required.
type Config struct {
	Cluster *shards.Cluster
	// Runners has the runner of jobs of each shard, in the order of the shards.
	Runners []*admin.Runner
	// Wake tells projectors that partitions have new events.
	Wake func(partitions []int)
	// Append appends events to the shards of their users.
	Append events.Append
}

// Service implements the operations on all shards. Changes are recorded in the audit
// trail of the shard that they concern. It is safe for concurrent use.
type Service struct {
	cfg     Config
	runners map[*shards.Shard]*admin.Runner
	reads   admin.Reads
	// exports has a token for each export that may run.
	exports chan struct{}
}

// maxExports is how many exports run at a time in a process: each reads the log.
const maxExports = 2

// New returns the operations on all shards.
func New(cfg Config) *Service {
	s := &Service{cfg: cfg, runners: map[*shards.Shard]*admin.Runner{}, exports: make(chan struct{}, maxExports)}
	for i, shard := range cfg.Cluster.Shards() {
		s.runners[shard] = cfg.Runners[i]
	}
	return s
}

// CheckPartition returns why there is no such partition, nil if there is.
func (s *Service) CheckPartition(partition int) error { return s.cfg.Cluster.CheckPartition(partition) }

// lagCount is in how many rows of one partition events behind are counted.
const lagCount = 100_000

// Lag returns how far each partition is behind, and which shards are away.
func (s *Service) Lag(ctx context.Context) (admin.Lag, error) {
	lags, err := Lag(ctx, s.cfg.Cluster, lagCount)
	if len(lags.Away) > 0 && len(lags.Partitions) > 0 && onlyAway(err) {
		err = nil
	}
	return lags, err
}

// onlyAway reports whether all errors are of shards that are away.
func onlyAway(err error) bool {
	if _, ok := err.(interface{ Which() string }); ok { // an AwayError, which wraps several, too
		return true
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(joined.Unwrap(), func(e error) bool { return !onlyAway(e) })
	}
	return err == nil
}

// Processes returns the processes that have sampled recently on any shard.
func (s *Service) Processes(ctx context.Context) ([]admin.Process, error) {
	var all []admin.Process
	err := s.present(func(shard *shards.Shard) error {
		some, err := admin.Processes(ctx, shard.Pool)
		for _, p := range some {
			i := slices.IndexFunc(all, func(known admin.Process) bool { return known.Process == p.Process })
			if i < 0 {
				all = append(all, p)
			} else if p.SeenAt.After(all[i].SeenAt) {
				all[i] = p
			}
		}
		return err
	})
	slices.SortFunc(all, func(a, b admin.Process) int { return cmp.Compare(a.Process, b.Process) })
	return all, err
}

// present does something with each shard that is not away. It fails if all are.
func (s *Service) present(do func(*shards.Shard) error) error {
	some, gone := reachable(s.cfg.Cluster)
	if len(some) == 0 {
		return gone
	}
	for _, shard := range some {
		if err := do(shard); err != nil {
			return inShard(shard, err)
		}
	}
	return nil
}

// Rates returns the points of the last hour that are later than since: events of all
// shards, and what one of the shards has of each process.
func (s *Service) Rates(ctx context.Context, since time.Time) (admin.Rates, error) {
	var all []admin.Rates
	err := s.present(func(shard *shards.Shard) error {
		one, err := admin.ReadRates(ctx, shard.Pool, since)
		all = append(all, one)
		return err
	})
	if err != nil {
		return admin.Rates{}, err
	}
	return admin.SumRates(all), nil
}

// DeadLetters returns up to limit dead letters with an id above after, oldest first on
// each shard.
func (s *Service) DeadLetters(ctx context.Context, after int64, limit int) ([]admin.DeadLetter, error) {
	return DeadLetters(ctx, s.cfg.Cluster, after, limit)
}

// RetryDeadLetter publishes a dead letter again, as a new event.
func (s *Service) RetryDeadLetter(ctx context.Context, by admin.Operator, id int64) error {
	shard, err := LetterHolder(ctx, s.cfg.Cluster, id)
	if err != nil {
		return err
	}
	receipt, err := RetryDeadLetter(ctx, shard, s.cfg.Append, by, id)
	if err == nil {
		s.cfg.Wake(receipt.Partitions)
	}
	return err
}

// DiscardDeadLetter deletes a dead letter and returns it.
func (s *Service) DiscardDeadLetter(ctx context.Context, by admin.Operator, id int64) (admin.DeadLetter, error) {
	shard, err := LetterHolder(ctx, s.cfg.Cluster, id)
	if err != nil {
		return admin.DeadLetter{}, err
	}
	letter, err := admin.DiscardDeadLetter(ctx, shard.Pool, deadletters.New(shard.Pool, shard.Log), by, id)
	letter.Shard = shard.Name
	return letter, err
}

// Rebuild starts a rebuild on each shard that it concerns; see [admin.Runner.StartRebuild].
// It returns the first job, which names the others. If one cannot start, those that did
// go on.
func (s *Service) Rebuild(ctx context.Context, by admin.Operator, o admin.RebuildOptions) (admin.Job, error) {
	some, err := Rebuilt(s.cfg.Cluster, o)
	if err != nil {
		return admin.Job{}, err
	}
	return s.start(ctx, some, func(i int) (admin.Job, error) { return s.runners[some[i]].StartRebuild(ctx, o, by) })
}

// Verify starts a verification on each shard that it concerns, as Rebuild does.
func (s *Service) Verify(ctx context.Context, by admin.Operator, o admin.VerifyOptions) (admin.Job, error) {
	parts, err := Verifications(s.cfg.Cluster, o)
	if err != nil {
		return admin.Job{}, err
	}
	some := make([]*shards.Shard, len(parts))
	for i, p := range parts {
		some[i] = p.Shard
	}
	return s.start(ctx, some, func(i int) (admin.Job, error) { return s.runners[some[i]].StartVerification(ctx, parts[i].Options, by) })
}

// start starts a job on some shards. It starts none if one of them is away.
func (s *Service) start(ctx context.Context, some []*shards.Shard, do func(i int) (admin.Job, error)) (first admin.Job, err error) {
	for _, shard := range some {
		if err := shard.Err(); err != nil {
			return admin.Job{}, err
		}
	}
	if len(some) == len(s.cfg.Cluster.Shards()) {
		if err := Lost(s.cfg.Cluster); err != nil {
			return admin.Job{}, err
		}
	}
	i := -1
	err = EachOf(ctx, s.cfg.Cluster, some, func(shard *shards.Shard) error {
		i++
		job, err := do(i)
		if err != nil {
			return err
		}
		job.Shard = shard.Name
		if first.ID == 0 {
			first = job
		} else {
			first.Others = append(first.Others, job.ID)
		}
		return nil
	})
	return first, err
}

// Jobs returns up to limit jobs of a kind, newest first: those before that of an id, or
// the newest if it is 0.
func (s *Service) Jobs(ctx context.Context, kind admin.Kind, before, limit int) ([]admin.Job, error) {
	some, gone := reachable(s.cfg.Cluster)
	if len(some) == 0 {
		return nil, gone
	}
	var from admin.Moment
	if before != 0 {
		from.ID = int64(before)
		job, err := s.Job(ctx, kind, before)
		if err == nil {
			from.At = &job.StartedAt
		} else if !errors.Is(err, admin.ErrNoJob) {
			return nil, err
		}
	}
	var lists []list[admin.Job]
	for _, shard := range some {
		lists = append(lists, func(ctx context.Context, last *admin.Job) ([]admin.Job, error) {
			from := from
			if last != nil {
				from = admin.Moment{At: &last.StartedAt, ID: int64(last.ID)}
			}
			page, err := admin.Jobs(ctx, shard.Pool, kind, from, limit)
			for i := range page {
				page[i].Shard = shard.Name
			}
			return page, inShard(shard, err)
		})
	}
	return merged(ctx, limit, func(a, b admin.Job) int { return cmp.Or(b.StartedAt.Compare(a.StartedAt), cmp.Compare(b.ID, a.ID)) },
		func(j admin.Job) int {
			return len(j.Arguments) + len(j.Progress.Note) + len(j.Result) + lengthOf(j.Error)
		}, lists)
}

// Job returns a job, or [admin.ErrNoJob].
func (s *Service) Job(ctx context.Context, kind admin.Kind, id int) (admin.Job, error) {
	_, job, err := s.find(ctx, kind, id)
	return job, err
}

// find returns a job and its shard. If no shard that can be reached has it, and one is
// away, that is the error.
func (s *Service) find(ctx context.Context, kind admin.Kind, id int) (*shards.Shard, admin.Job, error) {
	some, gone := reachable(s.cfg.Cluster)
	missing := error(nil)
	for _, shard := range some {
		job, err := admin.FindJob(ctx, shard.Pool, kind, id)
		if err == nil {
			job.Shard = shard.Name
			return shard, job, nil
		}
		if !errors.Is(err, admin.ErrNoJob) {
			return nil, job, inShard(shard, err)
		}
		missing = err
	}
	if gone != nil {
		return nil, admin.Job{}, gone
	}
	return some[0], admin.Job{}, missing
}

// CancelJob asks the process that runs a job to cancel it; see
// [admin.CancelJob].
func (s *Service) CancelJob(ctx context.Context, by admin.Operator, kind admin.Kind, id int) (admin.Job, error) {
	shard, _, err := s.find(ctx, kind, id)
	if shard == nil {
		return admin.Job{}, err
	}
	job, err := admin.CancelJob(ctx, shard.Pool, by, kind, id) // records also that there is none
	job.Shard = shard.Name
	return job, err
}

// Audit returns a page of the audit trails; see [Audit].
func (s *Service) Audit(ctx context.Context, before int64, limit int) ([]admin.Entry, error) {
	if some, gone := reachable(s.cfg.Cluster); len(some) == 0 {
		return nil, gone
	}
	return Audit(ctx, s.cfg.Cluster, before, limit)
}

// Read records in the audit trail of a shard that an operator reads something; see
// [admin.Reads.Record].
func (s *Service) Read(ctx context.Context, by admin.Operator, action string, arguments any) error {
	some, gone := reachable(s.cfg.Cluster)
	if len(some) == 0 {
		return gone
	}
	return s.reads.Record(ctx, some[0].Pool, by, action, arguments)
}

// Export writes everything that the shards hold of a user, except what is in archives;
// see [Export]. Two run at a time; others wait.
func (s *Service) Export(ctx context.Context, userID string, w io.Writer, found func(ctx context.Context) error) error {
	select {
	case s.exports <- struct{}{}:
		defer func() { <-s.exports }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	_, err := Export(ctx, s.cfg.Cluster, userID, nil, w, found)
	return err
}

// Erase erases a user from all shards, unless a part of a log is archived; see [Erase].
func (s *Service) Erase(ctx context.Context, by admin.Operator, userID string) (erasure.Erased, error) {
	return Erase(ctx, s.cfg.Cluster, by, userID, nil)
}

// Merge moves what is unread for a guest to an account, and wakes their projectors; see
// [Merge].
func (s *Service) Merge(ctx context.Context, by admin.Operator, guest, account string) (merging.Merged, error) {
	done, err := Merge(ctx, s.cfg.Cluster, by, guest, account)
	if done.Events > 0 {
		s.cfg.Wake([]int{s.cfg.Cluster.PartitionOf(guest), s.cfg.Cluster.PartitionOf(account)})
	}
	return done, err
}
