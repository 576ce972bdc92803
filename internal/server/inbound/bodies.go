package inbound

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/internal/base/limit"
)

// Holder is the user or the key that makes a request.
type Holder struct {
	// User is set if the request has the token of a user; Name is then the id of the user.
	// Otherwise Name is the name of a key.
	User bool
	Name string
}

// Bodies limits the memory for bodies of requests in this process: in total, per key and per
// user. The memory for users is separate, so that users cannot block publishers. Bodies is safe
// for concurrent use.
type Bodies struct {
	keys, users *limit.Budget[string]
	refused     *prometheus.CounterVec
}

const (
	// bodyFactor is the memory that a request needs for each byte of its body: for the body
	// itself, and for the events decoded from it.
	bodyFactor = 4
	// bodyWait is how long a request waits for memory before it is refused. Its body is not
	// read while it waits.
	bodyWait = 2 * time.Second
	// firstRoom is the first reservation for a body of unknown length, in bytes of the body.
	firstRoom = 64 << 10
)

// NewBodies returns Bodies that limit the memory to a number of bytes. All users together may
// use a quarter of it, and one user a quarter of that quarter. All keys together may use three
// quarters of it, and one key half of it.
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

// RoomError is the error of reading a body for which there is no memory.
type RoomError struct {
	// Own is set if the key or user has used up its own share. It is false if all keys, or all
	// users, together have used up their memory.
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

// room is the memory that the body of a request has reserved in Bodies.
type room struct {
	bodies *Bodies
	holder Holder
	// declared is the length of the body, -1 if it is unknown.
	declared int64
	// taken is the reserved memory in bytes.
	taken int64
}

// fit is called before a read of a body into p. `came` is the number of bytes that have already
// arrived. fit reserves memory for more bytes if needed, and returns the part of p for which
// there is memory.
func (r *room) fit(p []byte, came int) ([]byte, error) {
	if r.bodies == nil {
		return p, nil
	}
	budget := r.bodies.of(r.holder)
	if r.taken == 0 {
		first := max(1, r.declared)
		// Reserve little for a body that the handler will refuse because of its declared
		// length.
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
		// Do not wait for memory: other bodies may be waiting for the memory that this body has
		// reserved.
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

// Reserve ensures that a request has reserved at least this number of bytes, or the whole share
// of its key or user if the share is smaller. The memory that [Deadlines] has reserved for the
// request's body counts too. ctx is the request's context. Reserve fails with a [*RoomError].
func Reserve(ctx context.Context, bytes int64) error {
	b, ok := ctx.Value(bodyKey{}).(*body)
	if !ok || b.bodies == nil {
		return nil
	}
	budget := b.bodies.of(b.holder)
	if more := min(bytes, budget.Share()) - b.taken; more > 0 {
		return b.take(budget, more, 0) // without waiting, see fit
	}
	return nil
}

// release frees the reserved memory.
func (r *room) release() {
	if r.taken > 0 {
		r.bodies.of(r.holder).Give(r.holder.Name, r.taken)
		r.taken = 0
	}
}
