// Package view computes what clients are shown. Mailbox has the changes and answers that must
// still be sent to one client, and Account has the numbers of a user with memberships of
// rooms. Neither does I/O.
//
// The package does not know sockets, the bus or tables. ADR 62 explains accounts, ADR 86 views
// that are limited to categories.
package view

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/badged/badged/pubsub"
)

// Mailbox stores the changes and answers that must still be sent to one client. It merges
// updates by conversation, so a slow client costs memory for the conversations that changed,
// not for each change, and always gets the newest state.
//
// The mailbox drops updates older than the client's state. At the start, and after an update
// whose base version is newer than that state, the mailbox is syncing: it only remembers the
// newest announced version, until a read of the tables has caught up. The tables are
// authoritative. An announced version that they never reach was forged.
//
// All methods are safe for concurrent use.
type Mailbox struct {
	mu sync.Mutex
	// held is the state that the client will have once pending is sent.
	held    Holding
	pending *pending
	syncing bool
	// syncs counts how often the mailbox has begun to sync.
	syncs uint32
	// whole is set while syncing if the client needs the whole state, not changes: the tables
	// do not have the client's state, or the categories that the client may see have changed.
	whole bool
	// heard is the newest version of heardEpoch that was announced while syncing, since the
	// last read of the tables began.
	heard      int64
	heardEpoch string
	// While syncing, the client does not have some changes; since is when the oldest of these
	// changes was appended. equal is the last time when the client's state was the state in
	// the tables.
	since, equal Moment
	replies      []any
	filled       func()
}

// Holding identifies a state, to compare a client with the tables. Within an epoch, a version
// has exactly one state.
type Holding struct {
	Epoch                                   string
	Version, Total, Mentions, Conversations int64
}

// HoldingOf returns the identification of a badge's state.
func HoldingOf(b *pubsub.Badge) Holding {
	return Holding{b.Epoch, b.Version, b.Total, b.Mentions, b.UnreadConversations}
}

// denies reports whether tables with state h prove that they never had the state other: other
// has a later version, or the same version with other numbers. The proof is valid only if the
// client had other before the read of the tables began.
func (h Holding) denies(other Holding) bool {
	return h.Epoch == other.Epoch && (h.Version < other.Version || h.Version == other.Version && h != other)
}

// pending is the merged updates that must still be sent.
type pending struct {
	// since is when the oldest change was appended.
	since Moment
	badge pubsub.Badge
	// merged is set once badge has its own copy of the categories. Until then badge uses the
	// map of the first update, which is shared and must not be modified.
	merged bool
	// first has the conversations of the first update. If all updates have the same single
	// conversation, first has this conversation from the newest update. The slice is shared
	// and must not be modified. If updates have several conversations, the map conversations
	// contains them all; usually it is nil.
	first         []pubsub.Conversation
	conversations map[string]pubsub.Conversation
	// traced is the newest traced update, or nil.
	traced *Traced
}

// Traced is an update with a trace context.
type Traced struct {
	Parent string
	Came   time.Time
}

// NewMailbox returns a mailbox that is syncing. filled is called when Take may return
// something. It may be called from any goroutine, and must not block or call the mailbox.
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
		return // the client has this state
	case u.Epoch != m.held.Epoch || u.BaseVersion > m.held.Version:
		m.resync(Moment(u.AppendedAt))
		m.hear(u.Epoch, u.Version)
		return
	}
	m.add(u)
}

// add merges an update into pending.
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

// merge adds the conversations of a further update. Usually one busy conversation has changed
// again.
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

// mergeBadge adds the badge of a further update: the newest numbers, and every category that
// changed in any update.
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

// newestFirst returns the conversations in the order of frames: the most recently changed
// first.
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

// hear records an announced version, which the tables must reach.
func (m *Mailbox) hear(epoch string, version int64) {
	if epoch != m.heardEpoch {
		m.heardEpoch, m.heard = epoch, 0
	}
	m.heard = max(m.heard, version)
}

// Lose makes the client sync, unless the client is syncing already. Call it if an update for
// the client cannot be computed. since is when the oldest change in that update was appended.
func (m *Mailbox) Lose(since Moment) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.syncing {
		m.since = m.since.Older(since)
		return
	}
	m.resync(since)
}

// resync drops pending updates, and ignores further updates until the tables have been read.
// since is when the oldest change that the client does not have was appended, 0 if unknown.
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

// Renew makes the client sync and get the whole state, since the categories that it may see
// have changed.
func (m *Mailbox) Renew() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.resync(0)
	m.whole = true
}

// Mark is the state that a client had at some time, including pending updates. The state is
// meaningless if Syncing is set.
type Mark struct {
	held Holding
	// Syncing is set if the mailbox was syncing.
	Syncing bool
	syncs   uint32
}

// Mark returns the current state of the client.
func (m *Mailbox) Mark() Mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Mark{m.held, m.syncing, m.syncs}
}

// Comparison is the result of comparing a client with the tables.
type Comparison int

const (
	UpToDate Comparison = iota
	// Behind: the tables have a newer state, whose update may still arrive.
	Behind
	// Denied: the tables never had the client's state.
	Denied
)

// Compare compares the client with a state of the tables. before is the Mark that the client
// had before the tables were read, and at is the time of the read. A Denied client is made to
// sync. A client that is syncing counts as UpToDate. Its own read of the tables may have begun
// earlier, so it must still reach the state.
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

// Repair makes the client sync if it is behind a state of the tables, and reports whether the
// client was behind.
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

// MaxReplies is the most answers that are queued for one client.
const MaxReplies = 64

// Reply queues an answer. It returns false if the queue is full.
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

// Delivery is the content of a mailbox, which must be sent now.
type Delivery struct {
	Replies []any
	// Sync is set if the tables must be read.
	Sync bool
	// Badge and Conversations are the changed state; Badge is nil if nothing changed.
	Badge         *pubsub.Badge
	Conversations []pubsub.Conversation
	// Since is when the oldest of the changes was appended.
	Since  Moment
	Traced *Traced
}

// Take removes the content of the mailbox, and returns it.
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

// Reading is the state of the mailbox when a read of the tables begins.
type Reading struct {
	Whole bool
	// Heard is the newest version of HeardEpoch that was announced before. The tables have
	// reached it, unless it was forged.
	Heard      int64
	HeardEpoch string
	Since      Moment
}

// Read records that a read of the tables begins.
func (m *Mailbox) Read() Reading {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := Reading{m.whole, m.heard, m.heardEpoch, m.since}
	m.heard, m.heardEpoch, m.since = 0, "", 0
	return r
}

// Synced records that the client was sent a state that the tables had at or after the time at.
// ahead, if not nil, has the changes since that state. Synced returns false if a newer version
// was announced after the read began: then the tables must be read again.
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
		return false // only another read shows which epoch is the current one
	}
	m.syncing = false
	if ahead != nil {
		m.add(ahead)
	}
	return true
}

// Waiting returns the number of changed conversations that must still be sent.
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
