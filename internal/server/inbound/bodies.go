package inbound

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/internal/base/limit"
)

// Holder is the user or the key that makes a request.
type Holder struct {
	// User is true if the request has the token of a user; Name is then the id of the user.
	// Otherwise Name is the name of a key.
	User bool
	Name string
}

// Bodies limits the memory for bodies of requests in this process: in total, per key and per
// user. Requests of users have their own part of the memory, so that users cannot block
// publishers. Bodies is safe for concurrent use.
type Bodies struct {
	keys, users *limit.Budget[string]
	refused     *prometheus.CounterVec
}

const (
	// bodyFactor is the memory, in bytes, that a request needs for each byte of its body: for
	// the body itself, and for the events that are decoded from it.
	bodyFactor = 4
	// bodyWait is how long a request waits for memory before it is refused. Its body is not
	// read while it waits.
	bodyWait = 2 * time.Second
	// firstRoom is the number of body bytes for which memory is reserved first if the length is
	// unknown or too large.
	firstRoom = 64 << 10
)

// NewBodies returns Bodies that limit the memory to the given number of bytes. All users
// together may use a quarter of the bytes, and one user may use a sixteenth. All keys together
// may use three quarters, and one key may use half of the bytes.
func NewBodies(bytes int64, m *Metrics) *Bodies {
	return &Bodies{
		keys: limit.NewBudget[string](bytes-bytes/4, bytes/2), users: limit.NewBudget[string](bytes/4, bytes/16),
		refused: m.refused,
	}
}

func (b *Bodies) budgetOf(h Holder) *limit.Budget[string] {
	if h.User {
		return b.users
	}
	return b.keys
}

// RoomError is the error of a read of a body for which no memory is available.
type RoomError struct {
	// Own is true if the key or user itself has reserved too much memory. It is false if all
	// keys together, or all users together, have reserved all their memory.
	Own bool
	// RetryAfter is how long to wait before trying again.
	RetryAfter time.Duration
}

// Error implements error.
func (e *RoomError) Error() string {
	if e.Own {
		return "too many bytes of requests of this key or user are under way; repeat the request after Retry-After"
	}
	return "too many bytes of requests are under way; repeat the request after Retry-After"
}

// Refusal returns Own, and the time after which the client may try again.
func (e *RoomError) Refusal() (own bool, retryAfter time.Duration) { return e.Own, e.RetryAfter }

type bodyKey struct{}

// room is a reservation of memory in Bodies, for the body of one request.
type room struct {
	bodies *Bodies
	holder Holder
	// declared is the length of the body, -1 if it is unknown.
	declared int64
	// taken is the reserved memory in bytes.
	taken int64
}

// fit is called before bytes of a body are read into p. `came` is the number of bytes of the
// body that have already arrived. If necessary, fit reserves memory for more bytes. It returns
// the part of p for which memory is reserved.
func (r *room) fit(p []byte, came int) ([]byte, error) {
	if r.bodies == nil {
		return p, nil
	}
	budget := r.bodies.budgetOf(r.holder)
	if r.taken == 0 {
		first := max(1, r.declared)
		// Reserve little if the declared length is too large: the handler will refuse such a
		// body.
		if r.declared < 0 || first > budget.Share()/bodyFactor {
			first = firstRoom
		}
		if err := r.take(budget, first*bodyFactor, bodyWait); err != nil {
			return nil, err
		}
	}
	left := r.taken/bodyFactor - int64(came)
	if left <= 0 {
		if int64(came) == r.declared {
			return p, nil // this read returns the end of the body
		}
		// Do not wait for more memory while this body has reserved memory: other bodies may be
		// waiting for the memory of this body, and none could continue.
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

// Reserve makes sure that a request has reserved at least the given number of bytes, including
// the memory that [Deadlines] has reserved for the request's body. If one key or user may not
// reserve that much, Reserve reserves as much as one key or user may. ctx is the request's
// context. Reserve fails with a [*RoomError].
func Reserve(ctx context.Context, bytes int64) error {
	b, ok := ctx.Value(bodyKey{}).(*body)
	if !ok || b.bodies == nil {
		return nil
	}
	budget := b.bodies.budgetOf(b.holder)
	if more := min(bytes, budget.Share()) - b.taken; more > 0 {
		return b.take(budget, more, 0) // without waiting, see fit
	}
	return nil
}

// release frees the reserved memory.
func (r *room) release() {
	if r.taken > 0 {
		r.bodies.budgetOf(r.holder).Give(r.holder.Name, r.taken)
		r.taken = 0
	}
}
