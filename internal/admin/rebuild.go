package admin

import (
	"context"
	"fmt"

	"github.com/badged/badged/internal/eventlog"
	"github.com/badged/badged/projector/rebuild"
	"github.com/badged/badged/projector/replay"
	"github.com/badged/badged/pubsub"
)

// RebuildOptions selects what is rebuilt, by default all partitions, and how.
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
	// NewEpochs counts the partitions that got new tables, and so a new epoch.
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

// AddAll adds what was rebuilt elsewhere.
func (r *Rebuilt) AddAll(more Rebuilt) {
	r.Partitions += more.Partitions
	r.Users += more.Users
	r.Conversations += more.Conversations
	r.DifferentUsers += more.DifferentUsers
	r.NewEpochs += more.NewEpochs
}

// Rebuild rebuilds one or all partitions; see [rebuild.Run]. It sets the
// callbacks of cfg: meter receives the progress, and each is called with every
// finished partition.
func Rebuild(ctx context.Context, cfg rebuild.Config, meter Meter, each func(rebuild.Result)) (Rebuilt, error) {
	var sum Rebuilt
	partitions := 1
	if cfg.Partition == nil {
		held, err := eventlog.Held(ctx, cfg.Pool)
		if err != nil {
			return sum, err
		}
		partitions = len(held)
	}
	progress := BeginPartitions(meter, "rebuild", partitions, true)
	cfg.Progress = progress
	cfg.Resumed = func(before []rebuild.Result) {
		for _, p := range before {
			sum.Add(p)
		}
		noun := "partitions"
		if len(before) == 1 {
			noun = "partition"
		}
		meter.Note(fmt.Sprintf("continuing an interrupted rebuild: %d %s of %d are done; to start over, rebuild anew",
			len(before), noun, partitions))
		progress.Finish(len(before))
	}
	cfg.Rebuilt = func(p rebuild.Result) {
		sum.Add(p)
		progress.Finish(1)
		each(p)
	}
	return sum, rebuild.Run(ctx, cfg)
}

// Healed is the result of healing a user.
type Healed struct {
	// UserID is empty in the trail if badged has nothing of the user.
	UserID      string              `json:"user_id,omitempty"`
	Healed      bool                `json:"healed"`
	Version     int64               `json:"version,omitempty"`
	Differences []replay.Difference `json:"differences"`
}

// Heal rewrites the rows of a user from the log and publishes the result on
// the bus, which may be nil.
func Heal(ctx context.Context, v *replay.Verifier, partition int, userID string, bus pubsub.Bus) (Healed, error) {
	did := Healed{UserID: userID, Differences: []replay.Difference{}}
	_, err := v.Verify(ctx, partition, replay.VerifyOptions{
		Users: []string{userID},
		Found: func(d replay.Difference) { did.Differences = append(did.Differences, d) },
	})
	if err != nil {
		return did, err
	}
	update, version, err := v.Heal(ctx, userID)
	if err != nil {
		return did, err
	}
	did.Healed, did.Version = version > 0, version
	if did.Healed && bus != nil {
		if err := bus.Publish(ctx, []pubsub.Update{update}); err != nil {
			return did, fmt.Errorf("user %q is healed, but clients see it only after the next reconciliation: %w", userID, err)
		}
	}
	return did, nil
}
