package outbound

import (
	"sync"

	"github.com/badged/badged/events"
)

// Batch is a batch of events that the projector of this process has folded.
type Batch struct {
	Partition int
	// From is the position before the batch, and To the position after it.
	From, To events.Position
	// Users and Rooms are the users and rooms that the batch changed. If a room changed, all its
	// members count as changed.
	Users, Rooms []string
	// Notifying are the messages that have a notification.
	Notifying []*events.Event
}

// Folded reports a batch that this process has folded, so that the notifier need not read its
// events from the log. Do not change the batch after the call. Report the batches of a partition
// in order. Folded does not block and is safe for concurrent use. It does nothing if the notifier
// does not own the partition.
func (n *Notifier) Folded(b Batch) {
	n.heard[b.Partition].add(&b)
	select {
	case n.wakes[b.Partition] <- struct{}{}:
	default:
	}
}

// heard collects the reports of the projector of this process about one partition. The reports
// may be incomplete: then the notifier reads the log from its position on.
type heard struct {
	mu sync.Mutex
	// listening is set while a worker collects reports.
	listening bool
	said      said
}

// said has the users and rooms that the batches between from and to changed, and the messages of
// these batches that have a notification.
type said struct {
	from, to     events.Position
	users, rooms set
	notifying    []*events.Event
}

// set is a set of texts. Unlike a list, it has a user only once, even if many batches change the
// user.
type set map[string]struct{}

func (s *set) add(texts []string) {
	if *s == nil && len(texts) > 0 {
		*s = make(set, len(texts))
	}
	for _, t := range texts {
		(*s)[t] = struct{}{}
	}
}

// maxSaid is the maximum number of users, rooms and messages that are collected for a partition.
const maxSaid = 50_000

// listen sets whether a worker collects reports.
func (h *heard) listen(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.listening = on; !on {
		h.said = said{}
	}
}

// add adds a batch. It drops the earlier batches if they have too many entries, or if they do not
// end where b begins, because another process has folded events between them.
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

// take returns the reports since the last call of take.
func (h *heard) take() said {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.said
	h.said = said{from: s.to, to: s.to}
	return s
}

// covers reports whether s has all changes from position to s.to, and the tables include them:
// they are folded up to s.to. After a failover the tables may have lost reported batches.
func (s *said) covers(position, folded events.Position) bool {
	return !position.Before(s.from) && position.Before(s.to) && !folded.Before(s.to)
}
