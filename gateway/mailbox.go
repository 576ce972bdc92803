package gateway

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/badged/badged/pubsub"
)

// mailbox holds what is still to be told to one client: one slot, into which
// updates are merged by conversation. A client that reads slowly costs what
// has changed, not how often, and always gets the newest state.
//
// It also decides what a client must not be told: nothing older than what it
// holds, and no update that does not follow on what it holds. In the latter
// case, as at the start, the mailbox is syncing: it only remembers how new the
// state is that it has heard of, until a read of the tables has caught up.
//
// All methods are safe for concurrent use.
type mailbox struct {
	mu sync.Mutex
	// epoch and held are the state that the client holds once it has got what
	// is pending.
	epoch   string
	held    int64
	pending *pending
	syncing bool
	// heard is the newest version heard of while syncing, of heardEpoch.
	heard      int64
	heardEpoch string
	replies    []any
	// filled is called whenever there may be something to take, from whatever
	// goroutine. It must neither block nor call the mailbox.
	filled func()
}

// pending is what a client has not been told yet.
type pending struct {
	badge         pubsub.Badge
	conversations map[string]pubsub.Conversation
	// traced is the newest traced update among what is pending, nil where there
	// is none.
	traced *traced
}

// traced is an update that is traced.
type traced struct {
	parent string
	came   time.Time
}

func newMailbox(filled func()) *mailbox { return &mailbox{syncing: true, filled: filled} }

// offer takes an update from the bus.
func (m *mailbox) offer(u *pubsub.Update) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.syncing:
		m.hear(u.Epoch, u.Version)
		return
	case u.Epoch == m.epoch && u.Version <= m.held:
		return // old news
	case u.Epoch != m.epoch || u.BaseVersion > m.held:
		m.resync()
		m.hear(u.Epoch, u.Version)
		return
	}
	if m.pending == nil {
		m.pending = &pending{conversations: make(map[string]pubsub.Conversation, len(u.Conversations))}
	}
	m.pending.badge = u.Badge
	m.held = u.Version
	for _, c := range u.Conversations {
		m.pending.conversations[c.ConversationID] = c
	}
	if u.TraceParent != "" {
		m.pending.traced = &traced{u.TraceParent, time.Now()}
	}
	m.filled()
}

// hear remembers how new the state is that the tables must have.
func (m *mailbox) hear(epoch string, version int64) {
	if epoch != m.heardEpoch {
		m.heardEpoch, m.heard = epoch, 0
	}
	m.heard = max(m.heard, version)
}

// resync gives up on updates until the tables have been read.
func (m *mailbox) resync() {
	m.syncing = true
	m.pending = nil
	m.heard, m.heardEpoch = 0, ""
	m.filled()
}

// behind takes note that the tables have a state, and reports whether the
// client holds, pending updates included, an older one. One who is syncing will
// have to catch up with it: the read under way may be from before.
func (m *mailbox) behind(epoch string, version int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.syncing {
		m.hear(epoch, version)
		return false
	}
	return m.epoch != epoch || m.held < version
}

// repair makes the client be brought up to date from the tables if it is
// behind a state of theirs, and reports whether it was.
func (m *mailbox) repair(epoch string, version int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.syncing || m.epoch == epoch && m.held >= version {
		return false
	}
	m.resync()
	m.hear(epoch, version)
	return true
}

// maxReplies is how many answers may wait for a client that asks but does not
// read.
const maxReplies = 64

// reply queues a frame that answers one of the client's, and reports false
// where too many wait already.
func (m *mailbox) reply(frame any) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.replies) == maxReplies {
		return false
	}
	m.replies = append(m.replies, frame)
	m.filled()
	return true
}

// delivery is what there is to tell a client now.
type delivery struct {
	replies []any
	// sync is set where the tables must be read first.
	sync bool
	// badge and conversations are what changed; badge is nil where nothing did.
	badge         *pubsub.Badge
	conversations []pubsub.Conversation
	traced        *traced
}

// take empties the mailbox.
func (m *mailbox) take() delivery {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := delivery{replies: m.replies, sync: m.syncing}
	m.replies = nil
	if p := m.pending; p != nil {
		m.pending = nil
		d.badge = &p.badge
		d.conversations, d.traced = newestFirst(p.conversations), p.traced
	}
	return d
}

// synced says that the tables had the state of a version, which is what the
// client is told next. It reports false where something newer was heard of
// meanwhile: the tables must be read again, until they have it too.
func (m *mailbox) synced(epoch string, version int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.epoch, m.held = epoch, version
	if m.heardEpoch == epoch && m.heard > version {
		return false
	}
	if m.heardEpoch != "" && m.heardEpoch != epoch {
		// Which of the two is the old one, only another read can tell.
		m.heard, m.heardEpoch = 0, ""
		return false
	}
	m.syncing = false
	return true
}

func newestFirst(conversations map[string]pubsub.Conversation) []pubsub.Conversation {
	return slices.SortedFunc(maps.Values(conversations), func(a, b pubsub.Conversation) int {
		return cmp.Or(cmp.Compare(b.Version, a.Version), cmp.Compare(a.ConversationID, b.ConversationID))
	})
}
