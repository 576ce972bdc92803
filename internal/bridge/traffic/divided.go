package traffic

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/cluster"
)

// DividedTarget publishes to a server with several databases. If some databases are unavailable,
// the server's answer names the partitions whose users did not get their events. It is safe for
// concurrent use.
type DividedTarget struct {
	*HTTPTarget
	// partitions is the server's number of partitions before any split. It is 0 until an answer of
	// the server contains this number.
	partitions atomic.Int64
}

// NewDividedTarget returns a target that publishes with t.
func NewDividedTarget(t *HTTPTarget) *DividedTarget { return &DividedTarget{HTTPTarget: t} }

// PartitionOf returns the partition to which a user belonged before any split. It must not be
// called before AppendBestEffort has returned a failure, because the number of partitions is
// unknown until then.
func (t *DividedTarget) PartitionOf(userID string) int {
	return events.PartitionOf(userID, int(t.partitions.Load()))
}

// Away implements relay.Divided. It always returns false: only the answer to the next request shows
// whether a database is unavailable.
func (t *DividedTarget) Away(int) bool { return false }

// AppendBestEffort appends events with one request. It omits the users in the partitions of
// excluded, but sends every message to a room, because members may be in any partition. It returns
// the partitions, other than excluded, whose users did not get their events. Its errors are the
// errors of [HTTPTarget.Append], with indexes into evs.
func (t *DividedTarget) AppendBestEffort(ctx context.Context, excluded []bool, evs ...events.Event) (*cluster.PartialFailure, error) {
	var sent []events.Event
	var indexes []int
	for i := range evs {
		if e, any := t.withUsers(evs[i], excluded); any {
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
	return t.partialFailure(refused.Lacking, excluded, err)
}

// withUsers returns an event without its users in the partitions of excluded. It reports whether
// the event must still be sent: it has users left, or is about a room.
func (t *DividedTarget) withUsers(e events.Event, excluded []bool) (events.Event, bool) {
	if len(e.Data.UserIDs) == 0 || excluded == nil {
		return e, true
	}
	others := func(users []string) (kept []string) {
		for _, u := range users {
			if !excluded[t.PartitionOf(u)] {
				kept = append(kept, u)
			}
		}
		return kept
	}
	e.Data.UserIDs, e.Data.MentionedUserIDs = others(e.Data.UserIDs), others(e.Data.MentionedUserIDs)
	return e, len(e.Data.UserIDs) > 0
}

// partialFailure returns the partitions that an answer names and that are not in excluded. If there
// are no such partitions, it returns err.
func (t *DividedTarget) partialFailure(lacking *Lacking, excluded []bool, err error) (*cluster.PartialFailure, error) {
	if lacking.Of < 1 || lacking.Of > events.MaxPartitions {
		return nil, err
	}
	if n := int64(lacking.Of); !t.partitions.CompareAndSwap(0, n) && t.partitions.Load() != n {
		return nil, fmt.Errorf("the server is a different one, with %d partitions instead of %d: restart the relay (%w)", n, t.partitions.Load(), err)
	}
	s := &cluster.PartialFailure{Partitions: make([]bool, lacking.Of), Err: err}
	some := false
	for _, p := range lacking.Partitions {
		if p >= 0 && p < lacking.Of && (excluded == nil || !excluded[p]) {
			s.Partitions[p], some = true, true
		}
	}
	if !some {
		return nil, err
	}
	return s, nil
}
