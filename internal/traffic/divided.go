package traffic

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/shards"
)

// DividedTarget publishes to a server of several databases, some of which may be away: the
// server's answer says whose users lack events. It is safe for concurrent use.
type DividedTarget struct {
	*HTTPTarget
	// partitions is with how many the log of the server began, 0 before it said so.
	partitions atomic.Int64
}

// NewDividedTarget returns a target over another.
func NewDividedTarget(t *HTTPTarget) *DividedTarget { return &DividedTarget{HTTPTarget: t} }

// PartitionOf returns the partition of a user before any was split. Call it only after
// AppendBestEffort returned a shortfall.
func (t *DividedTarget) PartitionOf(userID string) int {
	return events.PartitionOf(userID, int(t.partitions.Load()))
}

// Away implements relay.Divided: only the next answer tells.
func (t *DividedTarget) Away(int) bool { return false }

// AppendBestEffort appends events with one request, without users of the partitions of without,
// and returns whose users lack them. Messages to rooms are for all. Its errors are those of
// [HTTPTarget.Append], with the events as they were given.
func (t *DividedTarget) AppendBestEffort(ctx context.Context, without []bool, evs ...events.Event) (*shards.PartialFailure, error) {
	var sent []events.Event
	var indexes []int
	for i := range evs {
		if e, any := t.withUsers(evs[i], without); any {
			sent, indexes = append(sent, e), append(indexes, i)
		}
	}
	if len(sent) == 0 {
		return nil, nil
	}
	_, err := t.Append(ctx, sent)
	refused, ok := errors.AsType[*ServerError](err)
	if !ok {
		return nil, err
	}
	for i := range refused.Events {
		if n := refused.Events[i].Index; n >= 0 && n < len(indexes) {
			refused.Events[i].Index = indexes[n]
		}
	}
	if refused.Lacking == nil {
		return nil, err
	}
	return t.shortfall(refused.Lacking, without, err)
}

// withUsers returns an event for the users of other partitions than those of without, and
// whether there are any.
func (t *DividedTarget) withUsers(e events.Event, without []bool) (events.Event, bool) {
	if len(e.Data.UserIDs) == 0 || without == nil {
		return e, true
	}
	others := func(users []string) (some []string) {
		for _, u := range users {
			if !without[t.PartitionOf(u)] {
				some = append(some, u)
			}
		}
		return some
	}
	e.Data.UserIDs, e.Data.MentionedUserIDs = others(e.Data.UserIDs), others(e.Data.MentionedUserIDs)
	return e, len(e.Data.UserIDs) > 0
}

// shortfall returns what an answer says, without what was not sent.
func (t *DividedTarget) shortfall(lacking *Lacking, without []bool, err error) (*shards.PartialFailure, error) {
	if lacking.Of < 1 || lacking.Of > events.MaxPartitions {
		return nil, err
	}
	if n := int64(lacking.Of); !t.partitions.CompareAndSwap(0, n) && t.partitions.Load() != n {
		return nil, fmt.Errorf("the server is another than before, with %d partitions instead of %d: start the relay again (%w)", n, t.partitions.Load(), err)
	}
	s := &shards.PartialFailure{Partitions: make([]bool, lacking.Of), Err: err}
	some := false
	for _, p := range lacking.Partitions {
		if p >= 0 && p < lacking.Of && (without == nil || !without[p]) {
			s.Partitions[p], some = true, true
		}
	}
	if !some {
		return nil, err
	}
	return s, nil
}
