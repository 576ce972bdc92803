package outbound

import (
	"sync"

	"github.com/badged/badged/events"
)

// Batch is a batch of events that a projector in this process has folded.
type Batch struct {
	Partition int
	// From is the position before the batch, and To the one behind it.
	From, To events.Position
	// Users and Rooms have changed. Members of a room have changed with it.
	Users, Rooms []string
	// Notifying are the messages with a notification.
	Notifying []*events.Event
}

// Folded reports that a batch was folded in this process, which spares reading it from
// the log. The batch must not be changed afterwards. Batches of a partition come in
// their order. Folded does not block, is safe for concurrent use, and does nothing if
// the notifier does not own the partition.
func (n *Notifier) Folded(b Batch) {
	n.heard[b.Partition].add(&b)
	select {
	case n.wakes[b.Partition] <- struct{}{}:
	default:
	}
}

// heard is what the projector of this process has said of a partition. What is
// missing there is in the log: the position of the notifier tells what to read.
type heard struct {
	mu sync.Mutex
	// listening is set while a worker takes what is said.
	listening bool
	said      said
}

// said is what batches without a gap between them have changed.
type said struct {
	from, to     events.Position
	users, rooms set
	notifying    []*events.Event
}

// set is a set of texts. A busy user is in many batches.
type set map[string]struct{}

func (s *set) add(texts []string) {
	if *s == nil && len(texts) > 0 {
		*s = make(set, len(texts))
	}
	for _, t := range texts {
		(*s)[t] = struct{}{}
	}
}

// maxSaid is how many users, rooms and messages are kept in memory for a partition.
const maxSaid = 50_000

// listen sets whether a worker takes what is said.
func (h *heard) listen(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.listening = on; !on {
		h.said = said{}
	}
}

// add adds a batch. It forgets those before if they are too many, or if another
// process has folded in between.
func (h *heard) add(b *Batch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.listening {
		return
	}
	s := &h.said
	if b.From != s.to || len(s.users)+len(s.rooms)+len(s.notifying) > maxSaid {
		*s = said{from: b.From}
	}
	s.to = b.To
	s.users.add(b.Users)
	s.rooms.add(b.Rooms)
	s.notifying = append(s.notifying, b.Notifying...)
}

// take takes what was said since it was called last.
func (h *heard) take() said {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.said
	h.said = said{from: s.to, to: s.to}
	return s
}

// covers reports whether s has everything from a position on, up to one that is
// folded according to the tables. These may have lost what was said, with a failover.
func (s *said) covers(position, folded events.Position) bool {
	return !position.Before(s.from) && position.Before(s.to) && !folded.Before(s.to)
}
