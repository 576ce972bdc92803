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
// updates by conversation: for a slow client it stores only the newest state of each changed
// conversation, not each change.
//
// The mailbox ignores updates older than the client's state. If the BaseVersion of an update is
// newer than the client's state, or if its epoch differs, then the client has missed an update,
// and the mailbox begins to sync: the tables must be read. A new mailbox syncs too. While it
// syncs, a mailbox does not store updates; it only records the newest version that an update
// has announced. It stops syncing when a read of the tables returns this version or a later
// version. But if a read that began after an announcement returns an older version, the
// announced version was forged, and the mailbox ignores it.
//
// All methods are safe for concurrent use.
type Mailbox struct {
	mu sync.Mutex
	// held is the state that the client will have when pending has been sent.
	held    Holding
	pending *pending
	syncing bool
	// syncs is how many times the mailbox has begun to sync.
	syncs uint32
	// whole is set only while the mailbox syncs. It is true if the client needs the whole state
	// instead of changes: because the tables never had the client's state, or because the
	// categories that the client may see have changed.
	whole bool
	// announced is the newest version, in the epoch announcedEpoch, that an update from the bus
	// or a comparison with the tables has announced. Both fields are set only while the mailbox
	// syncs, and are reset when a read of the tables begins.
	announced      int64
	announcedEpoch string
	// since is the append time of the oldest change that the client lacks, while the mailbox
	// syncs. equal is the last time at which the client's state was known to equal the state in
	// the tables.
	since, equal DBTime
	replies      []any
	filled       func()
}

// Holding identifies the state of a user's badge, to compare what a client has with the tables.
// Within an epoch each version has exactly one state, so two Holdings with the same version and
// different numbers show that one of them is not from the tables.
type Holding struct {
	Epoch                                   string
	Version, Total, Mentions, Conversations int64
}

// HoldingOf returns the Holding of a badge.
func HoldingOf(b *pubsub.Badge) Holding {
	return Holding{b.Epoch, b.Version, b.Total, b.Mentions, b.UnreadConversations}
}

// denies reports whether h, a state read from the tables, proves that the tables never had the
// state `other`. This is so if `other` has a later version than h, or has the same version and
// different numbers. The proof is valid only if the client had the state `other` before the
// read began.
func (h Holding) denies(other Holding) bool {
	return h.Epoch == other.Epoch && (h.Version < other.Version || h.Version == other.Version && h != other)
}

// pending is the merged updates that must still be sent.
type pending struct {
	// since is when the oldest change was appended.
	since DBTime
	badge pubsub.Badge
	// merged is true if badge.Categories is a copy that may be modified. Otherwise
	// badge.Categories is the map of the first update, which is shared with other mailboxes.
	merged bool
	// If conversations is nil, first has the changed conversations: all conversations of a single
	// update or, if all updates changed the same conversation, the newest state of this
	// conversation. Otherwise the map conversations has them. first is shared with other
	// mailboxes: do not modify it.
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

// NewMailbox returns a mailbox that is syncing. The mailbox calls the function `filled` when there
// may be something to send, so that Take should be called. The call may come from any goroutine;
// `filled` must not block or call the mailbox.
func NewMailbox(filled func()) *Mailbox { return &Mailbox{syncing: true, filled: filled} }

// Offer merges an update from the bus.
func (m *Mailbox) Offer(u *pubsub.Update) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.syncing:
		m.hear(u.Epoch, u.Version)
		m.since = m.since.Older(DBTime(u.AppendedAt))
		return
	case u.Epoch == m.held.Epoch && u.Version <= m.held.Version:
		return // the client already has this state or a newer one
	case u.Epoch != m.held.Epoch || u.BaseVersion > m.held.Version:
		m.resync(DBTime(u.AppendedAt))
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
	m.pending.since = m.pending.since.Older(DBTime(u.AppendedAt))
	m.held = HoldingOf(&u.Badge)
	if u.TraceParent != "" {
		m.pending.traced = &Traced{u.TraceParent, time.Now()}
	}
	m.filled()
}

// merge adds the conversations of a newer update to the conversations that must still be sent. A
// fast path handles the most frequent case: all updates so far are of a single busy conversation.
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

// mergeBadge adds the badge of a newer update to the badge that must still be sent. The result has
// the numbers of the newer badge, and every category that changed in any of the updates.
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

// newestFirst returns the conversations in the order that frames need: the most recently
// changed first.
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

// hear records an announced version. If a read of the tables is in progress and returns an
// older version, the tables are read again.
func (m *Mailbox) hear(epoch string, version int64) {
	if epoch != m.announcedEpoch {
		m.announcedEpoch, m.announced = epoch, 0
	}
	m.announced = max(m.announced, version)
}

// Lose makes the mailbox sync, unless it is syncing already. Call Lose if an update for the
// client cannot be computed. since is the append time of the oldest change in that update; 0 if
// unknown.
func (m *Mailbox) Lose(since DBTime) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.syncing {
		m.since = m.since.Older(since)
		return
	}
	m.resync(since)
}

// resync deletes the pending updates, and starts to sync: further updates are not stored until
// the tables have been read. since is the append time of the oldest change that the client
// lacks; 0 if unknown.
func (m *Mailbox) resync(since DBTime) {
	m.syncing = true
	m.syncs++
	if m.pending != nil {
		since = since.Older(m.pending.since)
		m.pending = nil
	}
	m.since = since
	m.announced, m.announcedEpoch = 0, ""
	m.filled()
}

// Renew makes the mailbox sync, and makes the client get the whole state. Call it when the
// categories that the client may see have changed.
func (m *Mailbox) Renew() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.resync(0)
	m.whole = true
}

// Mark is the state that a client had when the method Mark was called, including the updates that
// were still to be sent. If Syncing is true, the client's state was unknown.
type Mark struct {
	held Holding
	// Syncing is true if the mailbox was syncing.
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
	// Behind means that the tables have a newer state. The update may still arrive from the
	// bus.
	Behind
	// Denied means that the tables never had the client's state.
	Denied
)

// Compare compares the client's state with `tables`, the state that was read from the tables at
// the time readAt. `before` is the client's Mark from before this read began. If the result is
// Denied, Compare makes the mailbox sync. If the mailbox is syncing already, the result is
// UpToDate, and Compare records `tables` as announced, since the mailbox's own read of the tables
// may return an older state.
func (m *Mailbox) Compare(before Mark, tables Holding, readAt DBTime) Comparison {
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
	m.equal = readAt
	return UpToDate
}

// Repair makes the mailbox sync if the client's state is older than `tables`, a state that was
// read from the tables. It returns false if the client's state is not older, or if the mailbox
// is syncing already.
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

// MaxReplies is the maximum number of answers that are queued for one client.
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

// Delivery is the content of a mailbox, which Take has removed and which must now be sent to
// the client.
type Delivery struct {
	Replies []any
	// Sync is true if the tables must be read.
	Sync bool
	// Badge and Conversations are the changed state; Badge is nil if nothing changed.
	Badge         *pubsub.Badge
	Conversations []pubsub.Conversation
	// Since is the append time of the oldest of these changes; 0 if unknown.
	Since  DBTime
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

// Reading has the data from a mailbox that is needed for a read of the tables.
type Reading struct {
	// Whole is true if the client needs the whole state: see Mailbox.whole.
	Whole bool
	// Heard is the newest version of HeardEpoch that was announced before the read began. The
	// tables have this version or a later version, unless the announcement was forged.
	Heard      int64
	HeardEpoch string
	Since      DBTime
}

// Read records that a read of the tables begins. Versions that are announced after this call
// may be newer than the result of the read.
func (m *Mailbox) Read() Reading {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := Reading{m.whole, m.announced, m.announcedEpoch, m.since}
	m.announced, m.announcedEpoch, m.since = 0, "", 0
	return r
}

// Synced records that the client was sent the state `tables`, which was read from the tables at
// the time readAt or later. If ahead is not nil, it has the changes since that state, and Synced
// adds them to the mailbox. If a newer version was announced after the read began, Synced
// returns false, and the tables must be read again.
func (m *Mailbox) Synced(tables Holding, readAt DBTime, ahead *pubsub.Update) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held, m.equal, m.whole = tables, readAt, false
	newest := tables.Version
	if ahead != nil {
		newest = ahead.Version
	}
	if m.announcedEpoch == tables.Epoch && m.announced > newest {
		return false
	}
	if m.announcedEpoch != "" && m.announcedEpoch != tables.Epoch {
		return false // only another read of the tables shows which epoch is current
	}
	m.syncing = false
	if ahead != nil {
		m.add(ahead)
	}
	return true
}

// Waiting returns the number of changed conversations that have not been sent yet.
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
