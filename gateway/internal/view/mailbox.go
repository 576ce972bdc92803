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
// updates by conversation: a slow client costs memory only for each changed conversation, not
// for each change, and always gets the newest state.
//
// The mailbox ignores updates older than the client's state. If an update builds on a newer
// state than the client's, or has another epoch, the client has missed an update, and the
// mailbox begins to sync: the tables must be read. A new mailbox syncs too. While it syncs, a
// mailbox does not store updates. It only records the newest announced version, until a read of
// the tables has reached this version. A version that the tables do not reach was forged.
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
	// whole is set while the mailbox syncs if the client needs the whole state instead of
	// changes: the tables do not have the client's state, or the categories that the client may
	// see have changed.
	whole bool
	// heard is the newest announced version of heardEpoch. Both are reset when a read of the
	// tables begins, and are only set while the mailbox syncs.
	heard      int64
	heardEpoch string
	// since is used while the mailbox syncs: it is the append time of the oldest change that
	// the client lacks. equal is the last time at which the client's state was known to be the
	// state in the tables.
	since, equal Moment
	replies      []any
	filled       func()
}

// Holding identifies the state of a client or of the tables, to compare the two. Within an
// epoch, each version has exactly one state.
type Holding struct {
	Epoch                                   string
	Version, Total, Mentions, Conversations int64
}

// HoldingOf returns the Holding of a badge.
func HoldingOf(b *pubsub.Badge) Holding {
	return Holding{b.Epoch, b.Version, b.Total, b.Mentions, b.UnreadConversations}
}

// denies reports whether tables with state h prove that they never had the state other: other
// has a later version, or other numbers for the same version. This is a proof only if the
// client had other before the read of the tables began.
func (h Holding) denies(other Holding) bool {
	return h.Epoch == other.Epoch && (h.Version < other.Version || h.Version == other.Version && h != other)
}

// pending is the merged updates that must still be sent.
type pending struct {
	// since is when the oldest change was appended.
	since Moment
	badge pubsub.Badge
	// merged is set once badge has its own copy of the map of categories. Until then badge uses
	// the map of the first update, which is shared and must not be modified.
	merged bool
	// first has the conversations of the first update, while conversations is nil. If all
	// updates are of one and the same conversation, first has it from the newest update.
	// Otherwise, once there is a second update, the map conversations has all conversations.
	// first is shared and must not be modified.
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

// NewMailbox returns a mailbox that is syncing. The mailbox calls filled when Take may return
// something. filled may be called from any goroutine, and must not block or call the mailbox.
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

// merge adds the conversations of a further update. Most often both updates are of the same
// busy conversation.
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

// mergeBadge adds the badge of a further update. The result has the newest numbers, and every
// category that changed in any of the updates.
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

// hear records an announced version, which the next read of the tables must reach.
func (m *Mailbox) hear(epoch string, version int64) {
	if epoch != m.heardEpoch {
		m.heardEpoch, m.heard = epoch, 0
	}
	m.heard = max(m.heard, version)
}

// Lose makes the client sync, unless it is syncing already. Call Lose if an update for the
// client cannot be computed. since is when the oldest change of that update was appended.
func (m *Mailbox) Lose(since Moment) {
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

// Renew makes the client sync and get the whole state. Call it when the categories that the
// client may see have changed.
func (m *Mailbox) Renew() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.resync(0)
	m.whole = true
}

// Mark is the state of a client at some time, including pending updates. If Syncing is set, the
// Mark does not describe a state.
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
	// Behind means that the tables have a newer state, whose update may still arrive.
	Behind
	// Denied means that the tables never had the client's state.
	Denied
)

// Compare compares the client with the state tables, which was read at the time at. before is
// the Mark of the client from before the read began. If the result is Denied, Compare makes the
// client sync. A client that is syncing counts as UpToDate; Compare then records the state as
// announced, since the client's own read of the tables may have begun earlier.
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

// Repair makes the client sync if its state is older than a state of the tables. It reports
// whether this was so.
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

// Delivery is the content that was removed from a mailbox, and that must be sent to the client
// now.
type Delivery struct {
	Replies []any
	// Sync is set if the tables must be read.
	Sync bool
	// Badge and Conversations are the changed state; Badge is nil if nothing changed.
	Badge         *pubsub.Badge
	Conversations []pubsub.Conversation
	// Since is when the oldest of these changes was appended; 0 if unknown.
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

// Reading is what a read of the tables needs to know from the mailbox when the read begins.
type Reading struct {
	// Whole is set if the client needs the whole state: see Mailbox.whole.
	Whole bool
	// Heard is the newest version of HeardEpoch that was announced before the read. The tables
	// have reached this version, unless it was forged.
	Heard      int64
	HeardEpoch string
	Since      Moment
}

// Read records that a read of the tables begins. This read need not return versions that are
// announced from now on.
func (m *Mailbox) Read() Reading {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := Reading{m.whole, m.heard, m.heardEpoch, m.since}
	m.heard, m.heardEpoch, m.since = 0, "", 0
	return r
}

// Synced records that the client was sent a state that the tables had at or after the time at.
// ahead, if not nil, has changes since that state, which Synced adds to the mailbox. Synced
// returns false if a newer version was announced after the read began: the tables must then be
// read again.
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
