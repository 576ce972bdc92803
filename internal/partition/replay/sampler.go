package replay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/defaults"
	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/pg/query"
	"github.com/badged/badged/pubsub"
)

// Limits of the work of a run, which verifies one sample. With these limits, verifying samples
// takes less than about 3 % of a core: a search costs almost 0.5 ns of CPU per byte of the log and
// per user.
const (
	sampleBytesPerSecond = 64 << 20
	// sampleFloor is the minimum budget of a run in bytes. It applies if the last run was less than
	// a second ago.
	sampleFloor = 64 << 20
	// searchPasses is the fixed cost of a search, in passes over the log. Each user costs one
	// further pass.
	searchPasses = 4
)

// Owner folds partitions; *projector.Projector implements it.
type Owner interface {
	// OwnedPartitions returns the partitions that this process folds now.
	OwnedPartitions() []int
	// Notify publishes updates on the bus, in the order of the calls.
	Notify(updates []pubsub.Update)
}

// SamplerConfig configures a Sampler. Pool, Log and Owner are required.
type SamplerConfig struct {
	Pool  *pgxpool.Pool
	Log   *events.Log
	Owner Owner
	// Logger defaults to a logger that discards.
	Logger *slog.Logger
	// Metrics defaults to metrics that are not registered.
	Metrics *SamplerMetrics
	// Interval is the average interval between samples. Each sample verifies users of one
	// partition. 0 turns sampling off.
	Interval time.Duration
	// Users is the number of users in a sample, at most 16. Default 10. If the log of the
	// partition is long, a sample has fewer users.
	Users int
	// Found is called with the users of a partition whose badges differ from the log, before
	// any of them is healed. Default: nothing.
	Found func(ctx context.Context, partition int, users []string)
	// SelfHeal heals the users of a sample whose rows differ from the log.
	SelfHeal bool
}

// Sampler verifies small samples of users in the background, in the partitions that this process
// folds.
type Sampler struct {
	cfg SamplerConfig
}

// NewSampler returns a sampler, which the caller must run.
func NewSampler(cfg SamplerConfig) (*Sampler, error) {
	if cfg.Pool == nil || cfg.Log == nil || cfg.Owner == nil {
		return nil, errors.New("sampler: Pool, Log and Owner are required")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = NewSamplerMetrics(nil)
	}
	if cfg.Found == nil {
		cfg.Found = func(context.Context, int, []string) {}
	}
	if err := defaults.Set("Users", &cfg.Users, 10); err != nil {
		return nil, fmt.Errorf("sampler: %w", err)
	}
	return &Sampler{cfg}, nil
}

// Run verifies a sample of one owned partition per interval, until ctx is done. If the interval is
// 0, it returns immediately.
func (s *Sampler) Run(ctx context.Context) error {
	if s.cfg.Interval <= 0 {
		return nil
	}
	v := NewVerifier(s.cfg.Pool, s.cfg.Log)
	// The budget of a run grows with the time since the last run. So even a partition with a long
	// log is verified, at longer intervals.
	last := time.Now()
	for {
		// Jitter, so that many processes do not search at the same time.
		if wait.For(ctx, s.cfg.Interval/2+rand.N(s.cfg.Interval)) != nil { //nolint:gosec // spreads load, guards nothing
			return nil
		}
		owned := s.cfg.Owner.OwnedPartitions()
		if len(owned) == 0 {
			continue
		}
		partition := owned[rand.N(len(owned))] //nolint:gosec // a sample; guessing it gains nothing
		ran, err := s.verifySome(ctx, v, partition, time.Since(last))
		if err != nil && ctx.Err() == nil {
			s.cfg.Metrics.failed.Inc()
			s.cfg.Logger.WarnContext(ctx, "cannot verify a sample of users", "partition", partition, "error", err)
		}
		if ran {
			last = time.Now()
		}
	}
}

// verifySome verifies a sample of the users of a partition and, if configured, heals the users
// whose rows differ. It returns false if it postpones the run, because the log is too long for
// the time since the last run.
func (s *Sampler) verifySome(ctx context.Context, v *Verifier, partition int, since time.Duration) (ran bool, err error) {
	size, err := query.One[int64](ctx, s.cfg.Pool, fmt.Sprintf("measure the log of partition %d", partition), statements.Of(partition, "measure the log"))
	if err != nil {
		return false, err
	}
	n := sampleSize(s.cfg.Users, since, size)
	if n == 0 {
		s.cfg.Metrics.putOff.Inc()
		return false, nil
	}
	return true, s.verifyUsers(ctx, v, partition, n)
}

// verifyUsers verifies n users of a partition.
func (s *Sampler) verifyUsers(ctx context.Context, v *Verifier, partition, n int) error {
	users, err := v.Sample(ctx, partition, n)
	if err != nil || len(users) == 0 {
		return err
	}
	wrong, rooms := map[string][]Difference{}, map[string][]Difference{}
	_, err = v.Verify(ctx, partition, VerifyOptions{
		Users: users,
		Found: func(d Difference) {
			if d.UserID == "" {
				rooms[d.ConversationID] = append(rooms[d.ConversationID], d)
			} else {
				wrong[d.UserID] = append(wrong[d.UserID], d)
			}
		},
	})
	if err != nil {
		return err
	}
	s.cfg.Metrics.users.Add(float64(len(users)))
	s.cfg.Metrics.mismatches.Add(float64(len(wrong) + len(rooms)))
	for room, differences := range rooms {
		s.cfg.Logger.ErrorContext(ctx, "a room differs from the log, and so do the badges of its members; rebuild the partition", "room", room, "partition", partition, "differences", firstDifferences(differences))
	}
	if len(wrong) > 0 {
		s.cfg.Found(ctx, partition, slices.Sorted(maps.Keys(wrong)))
	}
	for user, differences := range wrong {
		s.cfg.Logger.ErrorContext(ctx, "the badge of a user differs from the log", "user", user, "partition", partition, "differences", firstDifferences(differences))
		if !s.cfg.SelfHeal {
			continue
		}
		update, version, err := v.Heal(ctx, user)
		if err != nil {
			return err
		}
		if version > 0 {
			s.cfg.Metrics.healed.Inc()
			s.cfg.Logger.InfoContext(ctx, "the badge of a user was healed", "user", user, "partition", partition, "version", version)
			s.cfg.Owner.Notify([]pubsub.Update{update})
		}
	}
	return nil
}

// sampleSize returns how many users, at most `wanted`, a run may verify in a log of logBytes bytes.
// It returns 0 if the log is too long for the budget of the run, which grows with `since`, the time
// since the last run.
func sampleSize(wanted int, since time.Duration, logBytes int64) int {
	budget := max(int64(since.Seconds()*sampleBytesPerSecond), sampleFloor)
	passes := budget / max(logBytes, 1)
	return int(min(max(passes-searchPasses, 0), int64(wanted), maxSought))
}

// firstDifferences returns the first few differences as text.
func firstDifferences(differences []Difference) []string {
	const limit = 10
	texts := make([]string, 0, limit+1)
	for i, d := range differences {
		if i == limit {
			texts = append(texts, fmt.Sprintf("and %d more", len(differences)-limit))
			break
		}
		texts = append(texts, d.String())
	}
	return texts
}
