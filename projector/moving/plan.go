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
)

// Partition is where a partition is, and how large.
type Partition struct {
	Partition int    `json:"partition"`
	Shard     string `json:"shard"`
	// Bytes are the space of its tables and indexes on disk, and Events how many it has
	// folded since it exists.
	Bytes  int64 `json:"bytes"`
	Events int64 `json:"events"`
	State  State `json:"state"`
	// To is the target of a move that was begun, and CopiedRows how many rows of the log
	// it has.
	To         string `json:"to,omitempty"`
	CopiedRows int64  `json:"copied_rows,omitempty"`
}

// State is what happens to a partition.
type State string

// The states.
const (
	// Serving: a shard has it.
	Serving State = "serving"
	// Moving: a shard has it, and it is being copied to another, or that was interrupted.
	Moving State = "moving"
	// Switching: its source has released it, and the target does not have it yet. If no
	// move runs, the next call of Move ends it.
	Switched State = "switching"
	// LeftOver: the target has it, and the source still has old rows.
	LeftOver State = "cleaning"
	// Splitting: a shard has it, and it is being split, or that was interrupted.
	Splitting State = "splitting"
	// OldRows: it was split, and the shard still has old rows of it: of a move to To, or of
	// the split if To is empty.
	OldRows State = "old rows"
	// Away: no shard that can be reached has it.
	Away State = "away"
	// Unknown: no shard that has answered has it, and one did not answer in time.
	Unknown State = "unknown"
)

// List returns the living partitions in their order, and behind them those that were split
// and have left old rows, once for each shard that has some. Owner returns the name of the shard that the
// map gives a partition to. Shards that cannot be reached are in the error, if it is not
// nil beside partitions; so are those that take longer than patience to answer.
func List(ctx context.Context, all []Shard, living []int, owner func(partition int) string, patience time.Duration) ([]Partition, error) {
	list := make([]Partition, len(living))
	for i, p := range living {
		list[i] = Partition{Partition: p, Shard: owner(p), State: Away}
	}
	var errs []error
	var old []Partition
	for _, s := range all {
		said := slices.Clone(list)
		left, err := lookPatiently(ctx, s, said, patience)
		if err != nil {
			errs = append(errs, fmt.Errorf("shard %s: %w", s.Name, err))
			continue
		}
		list, old = said, append(old, left...)
	}
	for i := range list {
		if len(errs) > 0 && list[i].State == Away {
			list[i].State = Unknown
		}
		// It may have moved on since.
		if list[i].State == LeftOver {
			list[i].To = list[i].Shard
		}
	}
	slices.SortStableFunc(old, func(a, b Partition) int { return cmp.Compare(a.Partition, b.Partition) })
	return append(list, old...), errors.Join(errs...)
}

// lookPatiently reads the state of a shard, for a limited time.
func lookPatiently(ctx context.Context, s Shard, list []Partition, patience time.Duration) ([]Partition, error) {
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	old, err := look(bounded, s, list)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("it did not answer within %s: %w", patience, err)
	}
	return old, err
}

// look adds what a shard says, and returns the partitions that are not in the list of which
// it has old rows.
func look(ctx context.Context, s Shard, list []Partition) (old []Partition, err error) {
	of := make(map[int]*Partition, len(list))
	for i := range list {
		of[list[i].Partition] = &list[i]
	}
	var p int
	rows, _ := s.Pool.Query(ctx, statements.Get("held partitions"))
	var folded []string
	if _, err := pgx.ForEachRow(rows, []any{&p}, func() error {
		if one := of[p]; one != nil {
			one.Shard, one.State = s.Name, cmp.Or(stateOf(one.State), Serving)
			folded = append(folded, fmt.Sprintf(`SELECT %d, folded FROM badged.%s_offsets WHERE consumer_group = '%s'`, p, events.Topic(p), events.ProjectorGroup))
		}
		return nil
	}); err != nil {
		return nil, err
	}
	var n int64
	rows, _ = s.Pool.Query(ctx, statements.Get("sizes"))
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

// stateOf returns a state that a move has given, "" otherwise.
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

// ByBytes is the space on disk, and ByEvents the number of events.
func ByBytes(p Partition) int64 { return p.Bytes }

// ByEvents is the number of events.
func ByEvents(p Partition) int64 { return p.Events }

// Proposal is a move that a plan proposes.
type Proposal struct {
	Partition int    `json:"partition"`
	From      string `json:"from"`
	To        string `json:"to"`
	Bytes     int64  `json:"bytes"`
	Events    int64  `json:"events"`
}

// Plan proposes moves that even out a weight among shards, each from the heaviest to the
// lightest shard, as long as one makes the two more equal. A partition moves once at most.
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
		// The partition whose weight is closest to half of the gap closes it best.
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
		// A move costs: a gap of a tenth is none.
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
