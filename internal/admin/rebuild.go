package admin

import (
	"context"
	"fmt"

	"github.com/badged/badged/projector/rebuild"
	"github.com/badged/badged/projector/replay"
	"github.com/badged/badged/pubsub"
)

// Meter is told how far a rebuild or a verification is; see progress.Meter. It
// is called by one goroutine at a time.
type Meter interface {
	Begin(phase string, total int64, countsEvents bool)
	Advance(done int64, events int)
	Note(text string)
}

// wholePartition is what a meter is told of one partition.
const wholePartition = 1000

// RebuildOptions says what is rebuilt, and how: by default all partitions.
type RebuildOptions struct {
	Partition *int    `json:"partition,omitempty" doc:"Only this partition; all if absent."`
	User      string  `json:"user,omitempty" doc:"Only this user, whose rows are healed in place."`
	Anew      bool    `json:"anew,omitempty" doc:"Start with the first partition, even if an earlier rebuild was interrupted."`
	MaxLoad   float64 `json:"max_load,omitempty" doc:"Share of the time, above 0 and up to 1, spent working rather than pausing."`
}

// Rebuilt sums up a rebuild.
type Rebuilt struct {
	Partitions     int   `json:"partitions"`
	Users          int64 `json:"users"`
	Conversations  int64 `json:"conversations"`
	DifferentUsers int64 `json:"different_users"`
	// NewEpochs is how many partitions have got new tables, and a new epoch.
	NewEpochs int `json:"new_epochs"`
}

// Add adds a partition.
func (r *Rebuilt) Add(p rebuild.Result) {
	r.Partitions++
	r.Users += p.Users
	r.Conversations += p.Conversations
	r.DifferentUsers += p.DifferentUsers
	if p.DifferentUsers > 0 {
		r.NewEpochs++
	}
}

// Rebuild rebuilds one or all partitions; see [projector.Rebuild]. It sets the
// callbacks of cfg: meter is told how far it is, each of every partition that is
// done.
func Rebuild(ctx context.Context, cfg rebuild.Config, meter Meter, each func(rebuild.Result)) (Rebuilt, error) {
	var sum Rebuilt
	var planned, done int64
	partitions := int64(1)
	if cfg.Partition == nil {
		partitions = int64(cfg.Log.Partitions())
	}
	meter.Begin("rebuild", wholePartition*partitions, true)
	cfg.Resumed = func(before []rebuild.Result) {
		for _, p := range before {
			sum.Add(p)
		}
		noun := "partitions"
		if len(before) == 1 {
			noun = "partition"
		}
		meter.Note(fmt.Sprintf("going on with a rebuild that was interrupted, of which %d %s of %d are done; anew, it would begin with the first",
			len(before), noun, partitions))
		meter.Advance(wholePartition*int64(sum.Partitions), 0)
	}
	cfg.Planned = func(_ int, work int64) { planned += work }
	cfg.Done = func(work, events int) {
		done += int64(work)
		// Not the whole: it has to catch up, and may have to wait for readers.
		meter.Advance(wholePartition*int64(sum.Partitions)+(wholePartition-1)*done/max(planned, done, 1), events)
	}
	cfg.Blocked = func(partition, pid int, application string) {
		meter.Note(fmt.Sprintf("partition %d is rebuilt and waits for %q (Postgres process %d), which reads its tables and does not end", partition, application, pid))
	}
	cfg.Rebuilt = func(p rebuild.Result) {
		sum.Add(p)
		planned, done = 0, 0
		meter.Advance(wholePartition*int64(sum.Partitions), 0)
		each(p)
	}
	return sum, rebuild.Run(ctx, cfg)
}

// Healed is the result of healing a user.
type Healed struct {
	UserID      string              `json:"user_id"`
	Healed      bool                `json:"mended"`
	Version     int64               `json:"version,omitempty"`
	Differences []replay.Difference `json:"differences"`
}

// Heal makes the rows of a user what the log says, and tells the bus, which may
// be nil.
func Heal(ctx context.Context, v *replay.Verifier, partition int, userID string, bus pubsub.Bus) (Healed, error) {
	did := Healed{UserID: userID, Differences: []replay.Difference{}}
	_, err := v.Verify(ctx, partition, replay.VerifyOptions{
		Users: []string{userID},
		Found: func(d replay.Difference) { did.Differences = append(did.Differences, d) },
	})
	if err != nil {
		return did, err
	}
	update, healed, err := v.Heal(ctx, userID)
	if err != nil {
		return did, err
	}
	did.Healed, did.Version = healed, update.Version
	if healed && bus != nil {
		if err := bus.Publish(ctx, []pubsub.Update{update}); err != nil {
			return did, fmt.Errorf("user %q is healed, but clients see it only after the next reconciliation: %w", userID, err)
		}
	}
	return did, nil
}
