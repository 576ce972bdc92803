// Package view keeps what a client is shown: Mailbox has what one client is to be
// sent, and Account the numbers of a user with memberships of rooms. Neither does I/O.
//
// It does not know sockets, the bus or tables. ADR 62 explains accounts, ADR 86 views of
// some categories.
package view

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/badged/badged/pubsub"
)

// Mailbox holds what has yet to be sent to one client: one slot that merges
// updates by conversation. A slow client costs memory for what changed, not
// for how often, and always gets the newest state.
//
// The mailbox drops updates older than what the client holds. At the start,
// and after an update that leaves a gap, it is syncing: it only remembers the
// newest version announced, until a read of the tables has caught up. The
// tables are authoritative: a version that they never have was forged.
//
// All methods are safe for concurrent use.
type Mailbox struct {
	mu sync.Mutex
	// held is the state that the client holds after what is pending.
	held    Holding
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
	// appended; equal is when it last held what the tables have.
	since, equal Moment
	replies      []any
	filled       func()
}

// Holding identifies a state for comparison with the tables. Within an epoch, a
// version has exactly one state.
type Holding struct {
	Epoch                                   string
	Version, Total, Mentions, Conversations int64
}

// HoldingOf returns what identifies the state of a badge.
func HoldingOf(b *pubsub.Badge) Holding {
	return Holding{b.Epoch, b.Version, b.Total, b.Mentions, b.UnreadConversations}
}

// denies reports whether tables with state h never had other: it has a later
// version, or the same version with other numbers. It is valid only for a state
// that was held before the read of the tables began.
func (h Holding) denies(other Holding) bool {
	return h.Epoch == other.Epoch && (h.Version < other.Version || h.Version == other.Version && h != other)
}

// pending has yet to be sent.
type pending struct {
	// since is when the oldest of the changes was appended.
	since Moment
	badge pubsub.Badge
	// merged is set once badge has categories of its own: those of the first update are
	// not modified.
	merged bool
	// first are the conversations of the first update, or of the newest while all
	// have the same single one; the update is not modified. If these are not all,
	// conversations has those of all updates; usually it is nil.
	first         []pubsub.Conversation
	conversations map[string]pubsub.Conversation
	// traced is the newest traced update in it, or nil.
	traced *Traced
}

// Traced is an update with a trace context.
type Traced struct {
	Parent string
	Came   time.Time
}

// NewMailbox returns a mailbox that is syncing. filled is called, from any goroutine,
// when there may be something to take; it must not block or call the mailbox.
func NewMailbox(filled func()) *Mailbox { return &Mailbox{syncing: true, filled: filled} }

// Offer merges an update from the bus.
func (m *Mailbox) Offer(u *pubsub.Update) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.syncing:
		m.hear(u.Epoch, u.Version)
		m.since = m.since.Older(Moment(u.AppendedAt))
		return
	case u.Epoch == m.held.Epoch && u.Version <= m.held.Version:
		return // the client has it
	case u.Epoch != m.held.Epoch || u.BaseVersion > m.held.Version:
		m.resync(Moment(u.AppendedAt))
		m.hear(u.Epoch, u.Version)
		return
	}
	m.add(u)
}

// add merges an update into what is pending.
func (m *Mailbox) add(u *pubsub.Update) {
	if m.pending == nil {
		m.pending = &pending{first: u.Conversations, badge: u.Badge}
	} else {
		m.pending.merge(u.Conversations)
		m.pending.mergeBadge(&u.Badge)
	}
	m.pending.since = m.pending.since.Older(Moment(u.AppendedAt))
	m.held = HoldingOf(&u.Badge)
	if u.TraceParent != "" {
		m.pending.traced = &Traced{u.TraceParent, time.Now()}
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

// mergeBadge takes the badge of an update after the first, with what changed in all of them.
func (p *pending) mergeBadge(newer *pubsub.Badge) {
	categories, levels := p.badge.Categories, p.badge.Levels
	if !p.merged {
		categories, p.merged = maps.Clone(categories), true
	}
	if p.badge = *newer; categories != nil {
		maps.Copy(categories, newer.Categories)
		p.badge.Categories = categories
	} else {
		p.merged = false
	}
	if newer.Levels == nil {
		p.badge.Levels = levels
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
func (m *Mailbox) hear(epoch string, version int64) {
	if epoch != m.heardEpoch {
		m.heardEpoch, m.heard = epoch, 0
	}
	m.heard = max(m.heard, version)
}

// Lose makes the client sync if it does not: an update for it cannot be made. since
// is when its oldest change was appended.
func (m *Mailbox) Lose(since Moment) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.syncing {
		m.since = m.since.Older(since)
		return
	}
	m.resync(since)
}

// resync ignores updates until the tables have been read. since is when the oldest
// change that the client lacks was appended, 0 if unknown.
func (m *Mailbox) resync(since Moment) {
	m.syncing = true
	m.syncs++
	if m.pending != nil {
		since = since.Older(m.pending.since)
		m.pending = nil
	}
	m.since = since
	m.heard, m.heardEpoch = 0, ""
	m.filled()
}

// Renew makes the client sync and get the whole state: it is to see another part of
// it.
func (m *Mailbox) Renew() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.resync(0)
	m.whole = true
}

// Mark is what a client held at some time, pending updates included. It is
// meaningless if the mailbox was syncing.
type Mark struct {
	held Holding
	// Syncing is set if the mailbox waited for the tables.
	Syncing bool
	syncs   uint32
}

// Mark returns what the client holds now.
func (m *Mailbox) Mark() Mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Mark{m.held, m.syncing, m.syncs}
}

// Comparison is the result of comparing a client with the tables.
type Comparison int

const (
	UpToDate Comparison = iota
	// Behind: the tables have a newer state, whose update may be on its way.
	Behind
	// Denied: the tables never had the state that the client holds.
	Denied
)

// Compare compares the client with a state of the tables, read at the time at,
// after before was marked. A denied client is made to sync. A syncing client must
// catch up with that state: its read may have begun before.
func (m *Mailbox) Compare(before Mark, tables Holding, at Moment) Comparison {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.syncing:
		m.hear(tables.Epoch, tables.Version)
		return UpToDate
	case m.held.Epoch != tables.Epoch || m.held.Version < tables.Version:
		return Behind
	case !before.Syncing && before.syncs == m.syncs && tables.denies(before.held):
		m.resync(m.equal)
		m.whole = true
		return Denied
	}
	m.equal = at
	return UpToDate
}

// Repair makes the client sync if it is behind a state of the tables, and reports
// whether it was.
func (m *Mailbox) Repair(tables Holding) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.syncing || m.held.Epoch == tables.Epoch && m.held.Version >= tables.Version {
		return false
	}
	m.resync(m.equal)
	m.hear(tables.Epoch, tables.Version)
	return true
}

// MaxReplies is the most answers that wait for a client that does not read.
const MaxReplies = 64

// Reply queues an answer, and returns false if too many wait.
func (m *Mailbox) Reply(frame any) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.replies) == MaxReplies {
		return false
	}
	m.replies = append(m.replies, frame)
	m.filled()
	return true
}

// Delivery is to be sent now.
type Delivery struct {
	Replies []any
	// Sync is set if the tables must be read.
	Sync bool
	// Badge and Conversations are what changed; Badge is nil if nothing did.
	Badge         *pubsub.Badge
	Conversations []pubsub.Conversation
	// Since is when the oldest of it was appended.
	Since  Moment
	Traced *Traced
}

// Take empties the mailbox.
func (m *Mailbox) Take() Delivery {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := Delivery{Replies: m.replies, Sync: m.syncing}
	m.replies = nil
	if p := m.pending; p != nil {
		m.pending = nil
		d.Badge, d.Since = &p.badge, p.since
		d.Conversations, d.Traced = p.newestFirst(), p.traced
	}
	return d
}

// Reading is the state of a sync when a read of the tables begins.
type Reading struct {
	Whole bool
	// Heard is the newest version of HeardEpoch announced before: the tables have
	// it, unless it was forged.
	Heard      int64
	HeardEpoch string
	Since      Moment
}

// Read begins a read of the tables.
func (m *Mailbox) Read() Reading {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := Reading{m.whole, m.heard, m.heardEpoch, m.since}
	m.heard, m.heardEpoch, m.since = 0, "", 0
	return r
}

// Synced records that the client was sent a state that the tables had at or after
// the time at. ahead, if not nil, is what has changed since. It returns false if a
// newer version was announced since the read began: the tables must be read again.
func (m *Mailbox) Synced(tables Holding, at Moment, ahead *pubsub.Update) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held, m.equal, m.whole = tables, at, false
	newest := tables.Version
	if ahead != nil {
		newest = ahead.Version
	}
	if m.heardEpoch == tables.Epoch && m.heard > newest {
		return false
	}
	if m.heardEpoch != "" && m.heardEpoch != tables.Epoch {
		return false // only another read can tell which epoch is the old one
	}
	m.syncing = false
	if ahead != nil {
		m.add(ahead)
	}
	return true
}

// Waiting returns how many changed conversations are to be sent.
func (m *Mailbox) Waiting() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.pending == nil:
		return 0
	case m.pending.conversations == nil:
		return len(m.pending.first)
	}
	return len(m.pending.conversations)
}
