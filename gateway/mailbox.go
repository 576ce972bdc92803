package gateway

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/badged/badged/pubsub"
)

// mailbox holds what has yet to be sent to one client: one slot that merges
// updates by conversation. A slow client costs memory for what changed, not
// for how often, and always gets the newest state.
//
// The mailbox drops updates older than what the client holds. At the start,
// and after an update that leaves a gap, it is syncing: it only remembers the
// newest version announced, until a read of the tables has caught up. The
// tables are authoritative: a version that they never have was forged.
//
// All methods are safe for concurrent use.
type mailbox struct {
	mu sync.Mutex
	// held is the state that the client holds after what is pending.
	held    holding
	pending *pending
	syncing bool
	// syncs counts how often the mailbox began to sync.
	syncs uint32
	// whole is set while syncing if the tables lack the state that the client
	// holds, so that it needs the whole state instead of changes.
	whole bool
	// heard is the newest version of heardEpoch announced while syncing, since the
	// last read of the tables began.
	heard      int64
	heardEpoch string
	// since is when the oldest change that the client lacks while syncing was
	// appended; equal is when it last held what the tables have. See stale.go.
	since, equal moment
	replies      []any
	// filled is called, from any goroutine, when there may be something to take.
	// It must not block or call the mailbox.
	filled func()
}

// holding identifies a state for comparison with the tables. Within an epoch, a
// version has exactly one state.
type holding struct {
	epoch                                   string
	version, total, mentions, conversations int64
}

func holdingOf(b *pubsub.Badge) holding {
	return holding{b.Epoch, b.Version, b.Total, b.Mentions, b.UnreadConversations}
}

// denies reports whether tables with state h never had other: it has a later
// version, or the same version with other numbers. It is valid only for a state
// that was held before the read of the tables began.
func (h holding) denies(other holding) bool {
	return h.epoch == other.epoch && (h.version < other.version || h.version == other.version && h != other)
}

// pending has yet to be sent.
type pending struct {
	// since is when the oldest of the changes was appended.
	since moment
	badge pubsub.Badge
	// first are the conversations of the first update, or of the newest while all
	// have the same single one; the update is not modified. conversations has those of
	// all updates; nil while first has, as mostly.
	first         []pubsub.Conversation
	conversations map[string]pubsub.Conversation
	// traced is the newest traced update in it, or nil.
	traced *traced
}

// traced is an update with a trace context.
type traced struct {
	parent string
	came   time.Time
}

func newMailbox(filled func()) *mailbox { return &mailbox{syncing: true, filled: filled} }

// offer merges an update from the bus.
func (m *mailbox) offer(u *pubsub.Update) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.syncing:
		m.hear(u.Epoch, u.Version)
		m.since = m.since.older(moment(u.AppendedAt))
		return
	case u.Epoch == m.held.epoch && u.Version <= m.held.version:
		return // the client has it
	case u.Epoch != m.held.epoch || u.BaseVersion > m.held.version:
		m.resync(moment(u.AppendedAt))
		m.hear(u.Epoch, u.Version)
		return
	}
	m.add(u)
}

// add merges an update into what is pending.
func (m *mailbox) add(u *pubsub.Update) {
	if m.pending == nil {
		m.pending = &pending{first: u.Conversations}
	} else {
		m.pending.merge(u.Conversations)
	}
	m.pending.badge = u.Badge
	m.pending.since = m.pending.since.older(moment(u.AppendedAt))
	m.held = holdingOf(&u.Badge)
	if u.TraceParent != "" {
		m.pending.traced = &traced{u.TraceParent, time.Now()}
	}
	m.filled()
}

// merge takes the conversations of an update after the first. Mostly a busy one has
// changed again.
func (p *pending) merge(newer []pubsub.Conversation) {
	if p.conversations == nil && len(p.first) == 1 && len(newer) == 1 && p.first[0].ConversationID == newer[0].ConversationID {
		p.first = newer
		return
	}
	if p.conversations == nil {
		p.conversations = make(map[string]pubsub.Conversation, len(p.first)+len(newer))
		for _, c := range p.first {
			p.conversations[c.ConversationID] = c
		}
	}
	for _, c := range newer {
		p.conversations[c.ConversationID] = c
	}
}

// newestFirst returns the conversations in their order in frames.
func (p *pending) newestFirst() []pubsub.Conversation {
	if p.conversations != nil {
		return slices.SortedFunc(maps.Values(p.conversations), byVersion)
	}
	if slices.IsSortedFunc(p.first, byVersion) {
		return p.first
	}
	return slices.SortedFunc(slices.Values(p.first), byVersion)
}

func byVersion(a, b pubsub.Conversation) int {
	return cmp.Or(cmp.Compare(b.Version, a.Version), cmp.Compare(a.ConversationID, b.ConversationID))
}

// hear records a version that the tables must have.
func (m *mailbox) hear(epoch string, version int64) {
	if epoch != m.heardEpoch {
		m.heardEpoch, m.heard = epoch, 0
	}
	m.heard = max(m.heard, version)
}

// lose makes the client sync if it does not: an update for it cannot be made. since
// is when its oldest change was appended.
func (m *mailbox) lose(since moment) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.syncing {
		m.since = m.since.older(since)
		return
	}
	m.resync(since)
}

// resync ignores updates until the tables have been read. since is when the oldest
// change that the client lacks was appended, 0 if unknown.
func (m *mailbox) resync(since moment) {
	m.syncing = true
	m.syncs++
	if m.pending != nil {
		since = since.older(m.pending.since)
		m.pending = nil
	}
	m.since = since
	m.heard, m.heardEpoch = 0, ""
	m.filled()
}

// mark is what a client held at some time, pending updates included. It is
// meaningless if the mailbox was syncing.
type mark struct {
	held    holding
	syncing bool
	syncs   uint32
}

// mark returns what the client holds now.
func (m *mailbox) mark() mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	return mark{m.held, m.syncing, m.syncs}
}

// comparison is the result of comparing a client with the tables.
type comparison int

const (
	upToDate comparison = iota
	// behind: the tables have a newer state, whose update may be on its way.
	behind
	// denied: the tables never had the state that the client holds.
	denied
)

// compare compares the client with a state of the tables, read at the time at,
// after before was marked. A denied client is made to sync. A syncing client must
// catch up with that state: its read may have begun before.
func (m *mailbox) compare(before mark, tables holding, at moment) comparison {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.syncing:
		m.hear(tables.epoch, tables.version)
		return upToDate
	case m.held.epoch != tables.epoch || m.held.version < tables.version:
		return behind
	case !before.syncing && before.syncs == m.syncs && tables.denies(before.held):
		m.resync(m.equal)
		m.whole = true
		return denied
	}
	m.equal = at
	return upToDate
}

// repair makes the client sync if it is behind a state of the tables, and reports
// whether it was.
func (m *mailbox) repair(tables holding) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.syncing || m.held.epoch == tables.epoch && m.held.version >= tables.version {
		return false
	}
	m.resync(m.equal)
	m.hear(tables.epoch, tables.version)
	return true
}

// maxReplies is the most answers that wait for a client that does not read.
const maxReplies = 64

// reply queues an answer, and returns false if too many wait.
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

// delivery is to be sent now.
type delivery struct {
	replies []any
	// sync is set if the tables must be read.
	sync bool
	// badge and conversations are what changed; badge is nil if nothing did.
	badge         *pubsub.Badge
	conversations []pubsub.Conversation
	since         moment
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
		d.badge, d.since = &p.badge, p.since
		d.conversations, d.traced = p.newestFirst(), p.traced
	}
	return d
}

// reading is the state of a sync when a read of the tables begins.
type reading struct {
	whole bool
	// heard is the newest version of heardEpoch announced before: the tables have
	// it, unless it was forged.
	heard      int64
	heardEpoch string
	since      moment
}

// read begins a read of the tables.
func (m *mailbox) read() reading {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := reading{m.whole, m.heard, m.heardEpoch, m.since}
	m.heard, m.heardEpoch, m.since = 0, "", 0
	return r
}

// synced records that the client was sent a state that the tables had at or after
// the time at. ahead, if not nil, is what has changed since. It returns false if a
// newer version was announced since the read began: the tables must be read again.
func (m *mailbox) synced(tables holding, at moment, ahead *pubsub.Update) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held, m.equal, m.whole = tables, at, false
	newest := tables.version
	if ahead != nil {
		newest = ahead.Version
	}
	if m.heardEpoch == tables.epoch && m.heard > newest {
		return false
	}
	if m.heardEpoch != "" && m.heardEpoch != tables.epoch {
		return false // only another read can tell which epoch is the old one
	}
	m.syncing = false
	if ahead != nil {
		m.add(ahead)
	}
	return true
}
