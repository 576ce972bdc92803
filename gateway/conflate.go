package gateway

import (
	"context"
	"slices"
	"time"

	"github.com/badged/badged/gateway/internal/view"
	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/pubsub"
)

// This file sends updates of rooms to members. Updates of a busy room are conflated: members
// get the newest state of the room, and states in between may be skipped.

// seatsAtOnce is the number of members that the method tell updates before it briefly unlocks
// the hub. Otherwise a large room would block other goroutines that lock the hub.
const seatsAtOnce = 256

// roomNews is a state of a room that is to be sent to the room's members. latest and base are
// copies of the fields of the struct room with these names, since is a copy of room.oldest, and
// step is a copy of room.came.
type roomNews struct {
	latest *pubsub.RoomUpdate
	base   int64
	since  view.DBTime
	step   int64
	missed int // counts members who must read the tables
}

// HandleRoom implements pubsub.Handler.
func (h *hub) HandleRoom(u *pubsub.RoomUpdate) {
	h.mu.RLock()
	r := h.rooms.byAddress[u.Address()]
	h.mu.RUnlock()
	if r == nil {
		return
	}
	h.rooms.metrics.roomUpdates.Inc()
	if wait, ok := r.take(u, h.rooms.now()); ok {
		h.rooms.schedule(r, wait)
	}
}

// take is called for each update of a room. It stores the update as the room's newest state; step
// is when the update arrived (see rooms.steps). If ok is true, the caller must pass `wait` to
// schedule, so that the members get the state. ok is false if the update is not newer than
// latest, or if the room is scheduled already because of an earlier update.
func (r *room) take(u *pubsub.RoomUpdate, step int64) (wait time.Duration, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.latest == nil || r.latest.Epoch != u.Epoch:
		r.base = u.BaseChanges
	case u.Changes <= r.latest.Changes:
		return 0, false
	case u.BaseChanges > r.latest.Changes:
		r.base = u.BaseChanges
	}
	r.latest, r.came = u, step
	r.oldest = r.oldest.Older(view.DBTime(u.AppendedAt))
	if r.dirty {
		return 0, false
	}
	r.dirty = true
	return time.Until(r.next), true
}

// schedule passes the room `due` to hub.pass after the duration `after`. It does not block.
func (r *rooms) schedule(due *room, after time.Duration) {
	if after > 0 {
		time.AfterFunc(after, func() { r.schedule(due, 0) })
		return
	}
	r.mu.Lock()
	r.due = append(r.due, due)
	r.mu.Unlock()
	wait.Wake(r.ready)
}

// pass sends members the newest states of their rooms until ctx is done.
func (h *hub) pass(ctx context.Context) {
	var seats []*seat
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.rooms.ready:
		}
		h.rooms.mu.Lock()
		due := h.rooms.due
		h.rooms.due = nil
		h.rooms.mu.Unlock()
		for _, r := range due {
			seats = h.tell(r, seats)
		}
	}
}

// tell sends the members of a room its newest state. It copies the list of members into buffer,
// and returns the buffer for the next call.
func (h *hub) tell(r *room, buffer []*seat) []*seat {
	h.mu.RLock()
	seats := append(buffer[:0], r.seats...)
	h.mu.RUnlock()
	r.mu.Lock()
	n := roomNews{latest: r.latest, base: r.base, since: r.oldest, step: r.came}
	r.dirty, r.oldest = false, 0
	// Send the next state only after the time that one processor needs to send this state to
	// all members.
	r.next = time.Now().Add(time.Duration(len(seats)) * h.pool.FrameCost())
	r.mu.Unlock()
	if n.latest != nil {
		for some := range slices.Chunk(seats, seatsAtOnce) {
			h.mu.RLock()
			for _, s := range some {
				s.member.follow(&n)
			}
			h.mu.RUnlock()
		}
		h.rooms.metrics.roomMissed.Add(float64(n.missed))
	}
	clear(seats)
	return seats
}
