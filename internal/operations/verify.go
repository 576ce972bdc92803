package operations

import (
	"context"
	"math/rand/v2"
	"slices"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/partition/replay"
)

// VerifyOptions selects the users to verify. The zero value selects all.
type VerifyOptions struct {
	Partition *int     `json:"partition,omitempty" doc:"Only this partition; all partitions if absent."`
	Users     []string `json:"users,omitempty" doc:"Only these users. Not together with partition or sample."`
	Sample    int      `json:"sample,omitempty" doc:"Only this number of users, drawn at random from the tables; from 1 to 100,000."`
}

// VerifyTargets divides a verification among databases: it returns the options of the verification
// of each database. The databases may be unavailable.
func VerifyTargets(c *cluster.Cluster, o VerifyOptions) (map[*cluster.Database]VerifyOptions, error) {
	split := map[*cluster.Database]VerifyOptions{}
	all := c.Databases()
	if o.Partition != nil {
		s, err := c.Holding(*o.Partition)
		if err != nil {
			return nil, err
		}
		all = []*cluster.Database{s}
	}
	users := map[*cluster.Database][]string{}
	for _, user := range o.Users {
		s, err := c.Holding(c.PartitionOf(user))
		if err != nil {
			return nil, err
		}
		users[s] = append(users[s], user)
	}
	for i, s := range all {
		part := o
		part.Users, part.Sample = users[s], (o.Sample+i)/len(all) // the samples of all databases add up to o.Sample
		if (len(o.Users) == 0 || len(part.Users) > 0) && (o.Sample == 0 || part.Sample > 0) {
			split[s] = part
		}
	}
	return split, nil
}

// Verified has the totals of a verification.
type Verified struct {
	Partitions int `json:"partitions"`
	// Users and Conversations count the compared users and conversations of the log.
	Users         int64 `json:"users"`
	Conversations int64 `json:"conversations"`
	Differences   int64 `json:"differences"`
	// NotFolded counts the events of the log that are not folded yet, so that the tables do not
	// include them. It is 0 if only some users were compared.
	NotFolded int64 `json:"not_folded,omitempty"`
}

// Add adds the totals of another database.
func (v *Verified) Add(more Verified) {
	v.Partitions += more.Partitions
	v.Users += more.Users
	v.Conversations += more.Conversations
	v.Differences += more.Differences
	v.NotFolded += more.NotFolded
}

// Verify compares the tables with the log; see [replay.Verifier]. It reports its progress to meter,
// and calls the function `found` with every difference.
func Verify(ctx context.Context, v *replay.Verifier, log *events.Log, options VerifyOptions, meter Meter, found func(replay.Difference)) (Verified, error) {
	targets, err := options.targets(ctx, v, log)
	if err != nil {
		return Verified{}, err
	}
	sum := Verified{Partitions: len(targets)}
	whole := len(options.Users) == 0 && options.Sample == 0
	progress := BeginPartitions(meter, "compare", len(targets), whole)
	var compared []int
	for _, t := range targets {
		r, err := v.Verify(ctx, t.partition, replay.VerifyOptions{Users: t.users, Found: found, Progress: progress})
		if err != nil {
			return sum, err
		}
		progress.Finish(1)
		sum.Users += r.Users
		sum.Conversations += r.Conversations
		sum.Differences += r.Differences
		compared = append(compared, t.partition)
	}
	if whole {
		sum.NotFolded, err = v.NotFolded(ctx, compared)
	}
	return sum, err
}

// target selects users of one partition.
type target struct {
	partition int
	users     []string // nil for all
}

// targets returns which users to compare in each partition, in ascending order of partitions.
func (o VerifyOptions) targets(ctx context.Context, v *replay.Verifier, log *events.Log) ([]target, error) {
	held, err := v.Held(ctx)
	if err != nil {
		return nil, err
	}
	partitions := make([]int, 0, len(held))
	for _, p := range held {
		if o.Partition == nil || *o.Partition == p {
			partitions = append(partitions, p)
		}
	}
	users := map[int][]string{}
	for _, u := range o.Users {
		p := log.PartitionOf(u)
		if !slices.Contains(users[p], u) {
			users[p] = append(users[p], u)
		}
	}
	for i, n := range shares(o.Sample, len(partitions)) {
		var err error
		if users[partitions[i]], err = v.Sample(ctx, partitions[i], n); err != nil {
			return nil, err
		}
	}
	targets := make([]target, 0, len(partitions))
	for _, p := range partitions {
		if all := len(o.Users) == 0 && o.Sample == 0; all || len(users[p]) > 0 {
			targets = append(targets, target{p, users[p]})
		}
	}
	return targets, nil
}

// shares divides a sample of n users among `total` partitions. If n is not a multiple of `total`,
// some partitions, chosen at random, get one user more than the others. The result maps the index
// of a partition to its number of users; it omits partitions with no users.
func shares(n, total int) map[int]int {
	got := map[int]int{}
	for i, winner := range rand.Perm(total) { //nolint:gosec // a sample, not a secret
		share := n / total
		if i < n%total {
			share++
		}
		if share > 0 {
			got[winner] = share
		}
	}
	return got
}
