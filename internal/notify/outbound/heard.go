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
	// Users and Rooms are the users and rooms that the batch changed. A change of a room
	// changes all its members.
	Users, Rooms []string
	// Notifying are the messages that have a notification.
	Notifying []*events.Event
}

// Folded reports a batch that this process has folded, so that the notifier need not read its
// events from the log. Do not change the batch afterwards. Report the batches of a partition
// in order. Folded does not block and is safe for concurrent use. It does nothing if the
// notifier does not own the partition.
func (n *Notifier) Folded(b Batch) {
	n.heard[b.Partition].add(&b)
	select {
	case n.wakes[b.Partition] <- struct{}{}:
	default:
	}
}

// heard collects what the projector of this process reports of a partition. If reports are
// missing here, the notifier reads the log from its position on.
type heard struct {
	mu sync.Mutex
	// listening is set while a worker collects reports.
	listening bool
	said      said
}

// said has the users and rooms that consecutive batches have changed, and their messages with
// a notification.
type said struct {
	from, to     events.Position
	users, rooms set
	notifying    []*events.Event
}

// set is a set of texts. It is small even if a busy user is in many batches.
type set map[string]struct{}

func (s *set) add(texts []string) {
	if *s == nil && len(texts) > 0 {
		*s = make(set, len(texts))
	}
	for _, t := range texts {
		(*s)[t] = struct{}{}
	}
}

// maxSaid is the most users, rooms and messages that are collected for a partition.
const maxSaid = 50_000

// listen sets whether a worker collects reports.
func (h *heard) listen(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.listening = on; !on {
		h.said = said{}
	}
}

// add adds a batch. It drops the earlier batches if they have too many entries, or if another
// process has folded events in between.
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

// take returns what was reported since the last call.
func (h *heard) take() said {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.said
	h.said = said{from: s.to, to: s.to}
	return s
}

// covers reports whether s has every change from a position on, up to s.to, and the tables
// have folded up to s.to as well. After a failover the tables may have lost reported batches.
func (s *said) covers(position, folded events.Position) bool {
	return !position.Before(s.from) && position.Before(s.to) && !folded.Before(s.to)
}
