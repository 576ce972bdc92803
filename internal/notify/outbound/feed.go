package outbound

import (
	"sync"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/wait"
)

// Batch is a batch of events that the projector of this process has folded.
type Batch struct {
	Partition int
	// From is the position before the batch, and To the position after it.
	From, To events.Position
	// Users and Rooms are the users and rooms that the batch changed. A change of a room counts
	// as a change of all its members.
	Users, Rooms []string
	// Notifying are the messages that have a notification.
	Notifying []*events.Event
}

// Folded is called by the projector of this process after it has folded a batch, so that the
// notifier need not read the events of the batch from the log. Do not change the batch after the
// call. Call Folded for the batches of a partition in the order in which they were folded. Folded
// does not block and is safe for concurrent use. It does nothing if the notifier does not own the
// partition.
func (n *Notifier) Folded(b Batch) {
	n.feeds[b.Partition].add(&b)
	wait.Wake(n.wakes[b.Partition])
}

// feed collects the batches of one partition that the projector of this process has reported
// with Folded. If the reports do not cover all events after the notifier's position, the notifier
// reads the log instead.
type feed struct {
	mu sync.Mutex
	// listening is true while a worker collects reports.
	listening   bool
	lastBatches lastBatches
}

// lastBatches merges consecutive batches. `from` and `to` are the positions before and after these
// batches.
type lastBatches struct {
	from, to     events.Position
	users, rooms set
	notifying    []*events.Event
}

// set is a set of ids. It has the id of a user only once, even if many batches change the user.
type set map[string]struct{}

func (s *set) add(texts []string) {
	if *s == nil && len(texts) > 0 {
		*s = make(set, len(texts))
	}
	for _, t := range texts {
		(*s)[t] = struct{}{}
	}
}

// maxReported limits the total number of users, rooms and messages that a feed collects for its
// partition. If there are more, the next call of add drops the collected batches, and the notifier
// reads the log instead.
const maxReported = 50_000

// listen begins or ends the collection of reports. A worker calls listen.
func (h *feed) listen(enabled bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.listening = enabled; !enabled {
		h.lastBatches = lastBatches{}
	}
}

// add adds the batch b. First, it drops the earlier batches if they have more than maxReported
// users, rooms and messages, or if they do not end where b begins: in the second case, another
// process has folded the events in between.
func (h *feed) add(b *Batch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.listening {
		return
	}
	s := &h.lastBatches
	if b.From != s.to || len(s.users)+len(s.rooms)+len(s.notifying) > maxReported {
		*s = lastBatches{from: b.From}
	}
	s.to = b.To
	s.users.add(b.Users)
	s.rooms.add(b.Rooms)
	s.notifying = append(s.notifying, b.Notifying...)
}

// take returns the reports since the last call of take.
func (h *feed) take() lastBatches {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.lastBatches
	h.lastBatches = lastBatches{from: s.to, to: s.to}
	return s
}

// covers reports whether s has all changes from `position` to s.to, and the tables include these
// changes. folded is the position up to which the tables are folded. It can be before s.to after a
// failover, when the tables may have lost reported batches.
func (s *lastBatches) covers(position, folded events.Position) bool {
	return !position.Before(s.from) && position.Before(s.to) && !folded.Before(s.to)
}
