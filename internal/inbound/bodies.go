package inbound

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/internal/limit"
)

// Holder is on whose behalf a request is made.
type Holder struct {
	// User is set for the token of a user, whose id is Name. Otherwise Name is that of a key.
	User bool
	Name string
}

// Bodies bounds the memory that bodies of requests take in this process: all together, those
// of one key, and those of one user. Users have a part of their own, so that they cannot keep
// publishers out. It is safe for concurrent use.
type Bodies struct {
	keys, users *limit.Budget[string]
	refused     *prometheus.CounterVec
}

const (
	// bodyFactor is how many bytes of memory a request takes for each byte of its body: the
	// body, and the events that are decoded from it.
	bodyFactor = 4
	// bodyWait is how long a request waits for room before it is refused. Nothing of its
	// body is read meanwhile.
	bodyWait = 2 * time.Second
	// firstRoom is what a body of unknown size begins with.
	firstRoom = 64 << 10
)

// NewBodies returns a bound of a number of bytes of memory. A quarter is for users, of which one
// may take a quarter. A key may take half.
func NewBodies(bytes int64, m *Metrics) *Bodies {
	return &Bodies{
		keys: limit.NewBudget[string](bytes-bytes/4, bytes/2), users: limit.NewBudget[string](bytes/4, bytes/16),
		refused: m.refused,
	}
}

func (b *Bodies) of(h Holder) *limit.Budget[string] {
	if h.User {
		return b.users
	}
	return b.keys
}

// RoomError is the error of reading a body for which there is no room.
type RoomError struct {
	// Own is set if the key or the user has used up its share. Otherwise all others together
	// have used up what there is.
	Own bool
	// RetryAfter is when to try again.
	RetryAfter time.Duration
}

// Error implements error.
func (e *RoomError) Error() string {
	if e.Own {
		return "too many bytes of requests of this key or user are under way; repeat the request after Retry-After"
	}
	return "too many bytes of requests are under way; repeat the request after Retry-After"
}

// Refusal returns whether the client itself is at fault, and when it may try again.
func (e *RoomError) Refusal() (own bool, retryAfter time.Duration) { return e.Own, e.RetryAfter }

type bodyKey struct{}

// room is what the body of a request has taken of Bodies.
type room struct {
	bodies *Bodies
	holder Holder
	// declared is the length of the body, -1 if it is not known.
	declared int64
	// taken is in bytes of memory.
	taken int64
}

// fit takes room for more of a body of which some has come, and returns the part of p for
// which there is room.
func (r *room) fit(p []byte, came int) ([]byte, error) {
	if r.bodies == nil {
		return p, nil
	}
	budget := r.bodies.of(r.holder)
	if r.taken == 0 {
		first := max(1, r.declared)
		if r.declared < 0 || first > budget.Share()/bodyFactor { // the handler refuses what is larger than it reads
			first = firstRoom
		}
		if err := r.take(budget, first*bodyFactor, bodyWait); err != nil {
			return nil, err
		}
	}
	left := r.taken/bodyFactor - int64(came)
	if left <= 0 {
		if int64(came) == r.declared {
			return p, nil // the end
		}
		// One that has room already does not wait: others may wait for that.
		if err := r.take(budget, r.taken, 0); err != nil {
			return nil, err
		}
		left = r.taken/bodyFactor - int64(came)
	}
	return p[:min(int64(len(p)), left)], nil
}

func (r *room) take(budget *limit.Budget[string], n int64, wait time.Duration) error {
	switch lacks := budget.Take(r.holder.Name, n, wait); lacks {
	case limit.Enough:
		r.taken += n
		return nil
	default:
		e := &RoomError{Own: lacks == limit.OfHolder, RetryAfter: time.Second}
		r.bodies.refused.WithLabelValues(map[bool]string{true: "share", false: "all"}[e.Own]).Inc()
		return e
	}
}

// Reserve makes sure that the request of a context has taken that many bytes of memory, or all
// that its key or user may have, besides what [Deadlines] takes for its body. It fails with
// a [*RoomError].
func Reserve(ctx context.Context, bytes int64) error {
	b, ok := ctx.Value(bodyKey{}).(*body)
	if !ok || b.bodies == nil {
		return nil
	}
	budget := b.bodies.of(b.holder)
	if more := min(bytes, budget.Share()) - b.taken; more > 0 {
		return b.take(budget, more, 0) // see fit
	}
	return nil
}

// release gives back what was taken.
func (r *room) release() {
	if r.taken > 0 {
		r.bodies.of(r.holder).Give(r.holder.Name, r.taken)
		r.taken = 0
	}
}
