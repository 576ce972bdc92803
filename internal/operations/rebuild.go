package operations

import (
	"context"
	"fmt"

	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/fold/lag"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/partition/rebuild"
	"github.com/badged/badged/internal/partition/replay"
	"github.com/badged/badged/pubsub"
)

// RebuildOptions selects the partitions to rebuild (by default all) and how to rebuild them.
type RebuildOptions struct {
	Partition *int    `json:"partition,omitempty" doc:"Only this partition; all partitions if absent."`
	User      string  `json:"user,omitempty" doc:"Only this user: the user's rows are corrected in the current tables."`
	Anew      bool    `json:"anew,omitempty" doc:"Start with the first partition, even if an earlier rebuild was interrupted."`
	MaxLoad   float64 `json:"max_load,omitempty" doc:"The part of the time in which the rebuild works, from 0.01 to 1; otherwise it pauses."`
}

// RebuildTargets returns the databases to rebuild, or nil for all. The databases may be
// unavailable.
func RebuildTargets(c *cluster.Cluster, o RebuildOptions) ([]*cluster.Database, error) {
	partition := o.Partition
	if o.User != "" {
		of := c.PartitionOf(o.User)
		partition = &of
	}
	if partition == nil {
		return nil, nil
	}
	s, err := c.Holding(*partition)
	if err != nil {
		return nil, err
	}
	return []*cluster.Database{s}, nil
}

// Rebuilt has the totals of a rebuild.
type Rebuilt struct {
	Partitions     int   `json:"partitions"`
	Users          int64 `json:"users"`
	Conversations  int64 `json:"conversations"`
	DifferentUsers int64 `json:"different_users"`
	// NewEpochs counts the partitions that got new tables, and with them a new epoch.
	NewEpochs int `json:"new_epochs"`
	// NotFolded counts the events of the log that are not folded yet, so that the rebuilt tables
	// do not include them.
	NotFolded int64 `json:"not_folded,omitempty"`
}

// Add adds the result of a partition.
func (r *Rebuilt) Add(p rebuild.Result) {
	r.Partitions++
	r.Users += p.Users
	r.Conversations += p.Conversations
	r.DifferentUsers += p.DifferentUsers
	if p.DifferentUsers > 0 {
		r.NewEpochs++
	}
}

// AddAll adds the totals of another database.
func (r *Rebuilt) AddAll(more Rebuilt) {
	r.Partitions += more.Partitions
	r.Users += more.Users
	r.Conversations += more.Conversations
	r.DifferentUsers += more.DifferentUsers
	r.NewEpochs += more.NewEpochs
	r.NotFolded += more.NotFolded
}

// Rebuild rebuilds one or all partitions; see [rebuild.Run]. It overwrites the callbacks Progress,
// Resumed and Rebuilt of cfg. It reports its progress to meter, and calls the function `each` when
// a partition is finished.
func Rebuild(ctx context.Context, cfg rebuild.Config, meter Meter, each func(rebuild.Result)) (Rebuilt, error) {
	var sum Rebuilt
	var partitions []int
	if cfg.Partition != nil {
		partitions = []int{*cfg.Partition}
	} else {
		held, err := eventlog.Held(ctx, cfg.Pool)
		if err != nil {
			return sum, err
		}
		partitions = held
	}
	progress := BeginPartitions(meter, "rebuild", len(partitions), true)
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
			len(before), noun, len(partitions)))
		progress.Finish(len(before))
	}
	cfg.Rebuilt = func(p rebuild.Result) {
		sum.Add(p)
		progress.Finish(1)
		each(p)
	}
	if err := rebuild.Run(ctx, cfg); err != nil {
		return sum, err
	}
	var err error
	sum.NotFolded, err = lag.NotFolded(ctx, cfg.Pool, partitions)
	return sum, err
}

// Healed is the result of healing a user.
type Healed struct {
	// UserID is empty in the audit trail if badged has no data of the user.
	UserID      string              `json:"user_id,omitempty"`
	Healed      bool                `json:"healed"`
	Version     int64               `json:"version,omitempty"`
	Differences []replay.Difference `json:"differences"`
}

// Heal computes the rows of a user again from the log and stores them. It publishes the new state
// on bus, unless bus is nil. The Differences of the result list what was wrong before.
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
		if err := bus.Publish(ctx, []pubsub.Update{update}, nil); err != nil {
			return did, fmt.Errorf("user %q is healed, but clients see it only after the next reconciliation: %w", userID, err)
		}
	}
	return did, nil
}
