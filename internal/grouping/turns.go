package grouping

import (
	"context"
	"sync/atomic"

	"github.com/badged/badged/internal/slots"
)

// Turns bound how many transactions the groups of several databases run at once, while
// several calls are under way. What a group gets meanwhile shares its next transaction: so
// calls that come at the same time need fewer. A transaction of a database that hangs loses
// its turn. It is safe for concurrent use.
type Turns struct {
	slots *slots.Slots
	calls atomic.Int64
}

// NewTurns returns turns of n transactions at once.
func NewTurns(n int) *Turns { return &Turns{slots: slots.New(n)} }

// Call runs a call that may append to several of the databases. A call by itself has
// nothing to share, so its transactions run at once.
func (t *Turns) Call(call func()) {
	t.calls.Add(1)
	defer t.calls.Add(-1)
	call()
}

// take waits for a turn and returns what ends it. If ctx is done before, the transaction
// that follows fails.
func (t *Turns) take(ctx context.Context) (leave func()) {
	if t.calls.Load() > 1 {
		if leave, ok := t.slots.Take(ctx); ok {
			return leave
		}
	}
	return func() {}
}
