package moving

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/log/eventlog"
)

// Partition is the shard, size and state of a partition.
type Partition struct {
	Partition int `json:"partition"`
	// Shard is the name of the shard, "" for a single database.
	Shard string `json:"shard,omitempty"`
	// Bytes is the size of the tables and indexes on disk. Events is the number of events that
	// were folded since the partition was created.
	Bytes  int64 `json:"bytes"`
	Events int64 `json:"events"`
	State  State `json:"state"`
	// To is the target of a move that has begun. CopiedRows is the number of rows of the log
	// that the target has already.
	To         string `json:"to,omitempty"`
	CopiedRows int64  `json:"copied_rows,omitempty"`
}

// State is the state of a partition.
type State string

// The states.
const (
	// Serving: a shard holds the partition.
	Serving State = "serving"
	// Moving: a shard holds the partition, and a move of the partition runs or was interrupted.
	Moving State = "moving"
	// Switched: the source has released the partition, and the target does not hold it yet. If
	// no move runs, Complete or the next call of Move completes the switch.
	Switched State = "switching"
	// LeftOver: the target holds the partition, and the source still has old rows.
	LeftOver State = "cleaning"
	// Splitting: a shard holds the partition, and a split of the partition runs or was interrupted.
	Splitting State = "splitting"
	// OldRows: the partition was split, and the shard still has its rows. If To is empty, the split
	// has not deleted the rows yet; otherwise an earlier move to the shard To has not deleted them.
	OldRows State = "old rows"
	// Away: all shards answered, and none holds the partition.
	Away State = "away"
	// Unknown: no shard that answered holds the partition, and a shard did not answer.
	Unknown State = "unknown"
)

// List returns an entry for each partition in `living`, the partitions that were not split, in the
// same order. After these entries it lists partitions that were split, once for each shard that
// still has old rows of the partition. The function `owner` returns the shard of a partition
// according to the map. The error lists the shards that could not be read within `patience`; the
// result is valid even if there is an error.
func List(ctx context.Context, all []Database, living []int, owner func(partition int) string, patience time.Duration) ([]Partition, error) {
	list := make([]Partition, len(living))
	for i, p := range living {
		list[i] = Partition{Partition: p, Shard: owner(p), State: Away}
	}
	var errs []error
	var old []Partition
	for _, s := range all {
		said := slices.Clone(list)
		left, err := readShardWithin(ctx, s, said, patience)
		if err != nil {
			if s.Name != "" {
				err = fmt.Errorf("shard %s: %w", s.Name, err)
			}
			errs = append(errs, err)
			continue
		}
		list, old = said, append(old, left...)
	}
	for i := range list {
		if len(errs) > 0 && list[i].State == Away {
			list[i].State = Unknown
		}
		// As the target of the move, list the shard that holds the partition now. The old rows may
		// come from an earlier move to another shard, after which the partition was moved again.
		if list[i].State == LeftOver {
			list[i].To = list[i].Shard
		}
	}
	slices.SortStableFunc(old, func(a, b Partition) int { return cmp.Compare(a.Partition, b.Partition) })
	return append(list, old...), errors.Join(errs...)
}

// readShardWithin calls readShard with a timeout.
func readShardWithin(ctx context.Context, s Database, list []Partition, patience time.Duration) ([]Partition, error) {
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	old, err := readShard(bounded, s, list)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("it did not answer within %s: %w", patience, err)
	}
	return old, err
}

// readShard updates the list by the database of one shard: it reads the partitions that the shard
// holds, their sizes, and the shard's records of moves. It returns an entry for each partition
// that was split and of which the shard still has old rows; these partitions are not in the list.
func readShard(ctx context.Context, s Database, list []Partition) (old []Partition, err error) {
	of := make(map[int]*Partition, len(list))
	for i := range list {
		of[list[i].Partition] = &list[i]
	}
	held, err := eventlog.Held(ctx, s.Pool)
	if err != nil {
		return nil, err
	}
	var folded []string
	for _, p := range held {
		if one := of[p]; one != nil {
			one.Shard, one.State = s.Name, cmp.Or(stateOf(one.State), Serving)
			folded = append(folded, fmt.Sprintf(`SELECT %d, folded FROM badged.%s_offsets WHERE consumer_group = '%s'`, p, events.Topic(p), events.ProjectorGroup))
		}
	}
	var p int
	var n int64
	rows, _ := s.Pool.Query(ctx, statements.Get("sizes"))
	if _, err := pgx.ForEachRow(rows, []any{&p, &n}, func() error {
		if one := of[p]; one != nil && one.Shard == s.Name {
			one.Bytes = n
		}
		return nil
	}); err != nil {
		return nil, err
	}
	if len(folded) > 0 {
		rows, _ = s.Pool.Query(ctx, strings.Join(folded, ` UNION ALL `))
		if _, err := pgx.ForEachRow(rows, []any{&p, &n}, func() error {
			of[p].Events = n
			return nil
		}); err != nil {
			return nil, err
		}
	}
	var to, role, state string
	rows, _ = s.Pool.Query(ctx, statements.Get("moves"))
	_, err = pgx.ForEachRow(rows, []any{&p, &role, &to, &state, &n}, func() error {
		switch one := of[p]; {
		case one == nil && role == sourceRole && state == released: // it was split
			old = append(old, Partition{Partition: p, Shard: s.Name, State: OldRows, To: to})
		case one == nil:
		case role == targetRole && (state == copying || state == copied || state == ready):
			one.CopiedRows = n
		case role == sourceRole && state == copying && to == "":
			one.State = Splitting
		case role == sourceRole && state == copying:
			one.To, one.State = to, Moving
		case role == sourceRole && state == released && one.State == Serving:
			one.To, one.State = to, LeftOver
		case role == sourceRole && state == released && (one.State == Away || one.State == Switched && one.Shard == to):
			one.To, one.State = to, Switched
		}
		return nil
	})
	return old, err
}

// stateOf is called when a shard says that it holds a partition. It returns the state of the
// partition. s is the state that the list has so far, according to the records of moves on the
// shards that were read before. stateOf returns "" if these records do not matter: then the state
// is Serving.
func stateOf(s State) State {
	switch s {
	case Moving, Splitting:
		return s
	case Switched:
		return LeftOver
	}
	return ""
}

// Weight is the measure by which a plan balances shards.
type Weight func(p Partition) int64

// ByBytes weighs a partition by its size on disk.
func ByBytes(p Partition) int64 { return p.Bytes }

// ByEvents weighs a partition by its number of events.
func ByEvents(p Partition) int64 { return p.Events }

// Proposal is a move that a plan proposes.
type Proposal struct {
	Partition int    `json:"partition"`
	From      string `json:"from"`
	To        string `json:"to"`
	Bytes     int64  `json:"bytes"`
	Events    int64  `json:"events"`
}

// Plan proposes moves that balance a weight among shards. The moves must be made in this order.
// Each move is from the shard with the most weight to the shard with the least weight, and reduces
// the difference between these shards. Plan proposes at most one move for a partition.
func Plan(list []Partition, shards []string, weight Weight) []Proposal {
	list = slices.Clone(list)
	load := map[string]int64{}
	for _, s := range shards {
		load[s] = 0
	}
	for _, p := range list {
		if _, known := load[p.Shard]; known {
			load[p.Shard] += weight(p)
		}
	}
	moved := map[int]bool{}
	var plan []Proposal
	for len(shards) > 1 {
		heavier := func(a, b string) int { return cmp.Or(cmp.Compare(load[a], load[b]), strings.Compare(b, a)) }
		from, to := slices.MaxFunc(shards, heavier), slices.MinFunc(shards, heavier)
		gap := load[from] - load[to]
		// The partition whose weight is closest to half of the gap reduces the gap most.
		left := func(p Partition) int64 { return max(gap-2*weight(p), 2*weight(p)-gap) }
		best := -1
		for i, p := range list {
			if p.Shard != from || moved[p.Partition] || p.State != Serving || weight(p) <= 0 || weight(p) >= gap {
				continue
			}
			if best < 0 || left(p) < left(list[best]) {
				best = i
			}
		}
		// A move that reduces the gap by less than a tenth is not worth its cost.
		if best < 0 || left(list[best]) > gap*9/10 {
			return plan
		}
		p := &list[best]
		plan = append(plan, Proposal{Partition: p.Partition, From: from, To: to, Bytes: p.Bytes, Events: p.Events})
		load[from], load[to] = load[from]-weight(*p), load[to]+weight(*p)
		p.Shard, moved[p.Partition] = to, true
	}
	return plan
}
