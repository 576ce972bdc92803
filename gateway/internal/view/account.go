package view

import (
	"maps"
	"slices"

	"github.com/badged/badged/pubsub"
)

// Account is what the gateway knows of a user with memberships: the badge without
// them, and each membership with the state of its room. The user's numbers are
// composed from these parts, since a message to a room changes no row of its
// members.
//
// Each part only moves forward, and comes from the tables or from an update that
// says what it builds on. So a composed state may be one that the tables never
// had, but it is never ahead of them in any part, and its total is the sum of its
// parts. Two composed states with the same version are equal: a version is the sum
// of counters that only grow.
//
// It does no I/O and is not safe for concurrent use. ADR 62 has the reasons.
type Account struct {
	// Rest is the badge without memberships, as it is shown. Of more categories than that,
	// these are the first by name: so Badge has all of the first by name of both.
	Rest pubsub.Badge
	// Memberships are by conversation.
	Memberships map[string]*Membership
	// Badge is Rest and all memberships together.
	Badge pubsub.Badge
}

// Membership is a membership with what it adds to the badge.
type Membership struct {
	pubsub.Membership
	// conversations is 1 if adds is more than 0, else 0.
	adds, mentions, conversations int64
}

// Outcome says what became of an update.
type Outcome int

const (
	// Known: the account has had it.
	Known Outcome = iota
	// Applied: the account has changed.
	Applied
	// Missed: the update builds on one that the account has not had, or needs
	// more than it contains. The tables must be read.
	Missed
)

// NewAccount returns the account of a user in a state read from the tables.
func NewAccount(s *pubsub.Snapshot) *Account {
	rest := RestOf(s)
	a := &Account{Rest: rest.Shown(), Memberships: make(map[string]*Membership, len(s.Memberships))}
	a.Badge = a.Rest
	a.Badge.Categories = maps.Clone(a.Rest.Categories)
	if a.Badge.Categories == nil {
		a.Badge.Categories = map[string]int64{}
	}
	a.Badge.CategoryConversations = make(map[string]int64, len(a.Badge.Categories))
	for category := range a.Badge.Categories {
		a.Badge.CategoryConversations[category] = a.Rest.ConversationsIn(category)
	}
	for i := range s.Memberships {
		a.put(s.Memberships[i])
	}
	return a
}

// RestOf returns the badge of a state without memberships.
func RestOf(s *pubsub.Snapshot) pubsub.Badge {
	if len(s.Memberships) == 0 {
		return s.Badge
	}
	return s.Rest
}

// put adds a membership or replaces it.
func (a *Account) put(m pubsub.Membership) *Membership {
	entry, ok := a.Memberships[m.Room.ConversationID]
	if ok {
		a.withdraw(entry)
	} else {
		entry = new(Membership)
		a.Memberships[m.Room.ConversationID] = entry
	}
	entry.Membership = m
	a.weigh(entry)
	return entry
}

// remove removes a membership if there is one.
func (a *Account) remove(id string) {
	if m, ok := a.Memberships[id]; ok {
		a.withdraw(m)
		delete(a.Memberships, id)
	}
}

// withdraw takes what a membership adds to the badge out of it.
func (a *Account) withdraw(m *Membership) {
	a.add(m.Room.Category, -m.adds, -m.mentions, -m.conversations)
	a.Badge.Version -= m.Room.Changes - m.Joined
}

// weigh adds what a membership adds to the badge.
func (a *Account) weigh(m *Membership) {
	m.adds, m.mentions, m.conversations = 0, 0, 0
	switch c := m.Conversation(0); c.Level {
	case "none":
	case "mentions", "direct_mentions":
		m.adds, m.mentions = c.Mentions, c.Mentions
	default:
		m.adds, m.mentions = c.Unread, c.Mentions
		if c.MarkedUnread {
			m.adds = max(1, c.Unread)
		}
	}
	if m.adds > 0 {
		m.conversations = 1
	}
	a.add(m.Room.Category, m.adds, m.mentions, m.conversations)
	a.Badge.Version += m.Room.Changes - m.Joined
}

func (a *Account) add(category string, n, mentions, conversations int64) {
	a.Badge.Total += n
	a.Badge.Mentions += mentions
	a.Badge.UnreadConversations += conversations
	a.addTo(category, n, conversations)
}

// addTo adds to the numbers of a category alone.
func (a *Account) addTo(category string, n, conversations int64) {
	if n == 0 {
		return
	}
	if a.Badge.Categories[category] += n; a.Badge.Categories[category] == 0 {
		delete(a.Badge.Categories, category)
	}
	if a.Badge.CategoryConversations[category] += conversations; a.Badge.CategoryConversations[category] == 0 {
		delete(a.Badge.CategoryConversations, category)
	}
}

// Update applies an update of the user. If it changed something that clients see,
// it returns the update for them.
func (a *Account) Update(u *pubsub.Update) (Outcome, *pubsub.Update) {
	switch {
	case u.Epoch != a.Rest.Epoch || u.BaseVersion > a.Rest.Version:
		return Missed, nil
	case u.Version < a.Rest.Version:
		return Known, nil
	}
	newer := u.Version > a.Rest.Version
	memberships := make([]pubsub.Membership, 0, len(u.Memberships))
	for _, m := range u.Memberships {
		former, ok := a.Memberships[m.Room.ConversationID]
		switch {
		case !ok:
			return Missed, nil // a new room: its updates have yet to be subscribed to
		case m.Room.Changes < former.Room.Changes:
			if newer || !sameRow(&m, &former.Membership) {
				return Missed, nil // out of order
			}
			continue
		case m.Room.Changes == former.Room.Changes && !newer:
			continue
		}
		if !catchUp(&m, &former.Membership) {
			return Missed, nil
		}
		memberships = append(memberships, m)
	}
	if !newer && len(memberships) == 0 {
		return Known, nil
	}
	before := a.Badge.Version
	if newer {
		a.replaceRest(&u.Badge)
	}
	for _, c := range u.Conversations {
		a.remove(c.ConversationID) // if it was a room, the user has left it
	}
	changed := make([]*Membership, 0, len(memberships))
	for _, m := range memberships {
		changed = append(changed, a.put(m))
	}
	merged := a.Since(before, changed)
	merged.AppendedAt, merged.TraceParent = u.AppendedAt, u.TraceParent
	sum := a.Badge.Version - a.Rest.Version
	for _, c := range u.Conversations {
		c.Version += sum
		merged.Conversations = append(merged.Conversations, c)
	}
	return a.result(merged)
}

// result returns the outcome of applying an update.
func (a *Account) result(merged *pubsub.Update) (Outcome, *pubsub.Update) {
	if merged.Version < merged.BaseVersion {
		return Missed, nil // out of order
	}
	return Applied, merged
}

// Ahead reports whether a part of the account is newer than a state read from the
// tables, of the same epoch.
func (a *Account) Ahead(s *pubsub.Snapshot) bool {
	if a.Rest.Version > RestOf(s).Version {
		return true
	}
	for i := range s.Memberships {
		m := &s.Memberships[i]
		if own, ok := a.Memberships[m.Room.ConversationID]; ok && own.Room.Changes > m.Room.Changes {
			return true
		}
	}
	return false
}

// Merge takes over the newer parts of a state read from the tables. news is what the
// account lacked, ahead what the state lacks; nil if nothing. It returns false if
// the rest differs: then which conversations changed is unknown.
func (a *Account) Merge(s *pubsub.Snapshot) (news, ahead *pubsub.Update, ok bool) {
	if s.Epoch != a.Rest.Epoch || RestOf(s).Version != a.Rest.Version || len(s.Memberships) != len(a.Memberships) {
		return nil, nil, false
	}
	for i := range s.Memberships {
		if a.Memberships[s.Memberships[i].Room.ConversationID] == nil {
			return nil, nil, false
		}
	}
	before := a.Badge.Version
	var newer, older []*Membership
	for _, m := range s.Memberships {
		switch former := a.Memberships[m.Room.ConversationID]; {
		case m.Room.Changes > former.Room.Changes:
			newer = append(newer, a.put(m))
		case m.Room.Changes < former.Room.Changes:
			older = append(older, former)
		}
	}
	if len(newer) > 0 {
		news = a.Since(before, newer)
	}
	if len(older) > 0 {
		ahead = a.Since(s.Version, older)
	}
	return news, ahead, true
}

// sameRow reports whether the parts of two memberships are equal that do not
// belong to the room.
func sameRow(a, b *pubsub.Membership) bool {
	return a.Joined == b.Joined && a.ReadSeq == b.ReadSeq && a.SeenSeq == b.SeenSeq && a.Level == b.Level && a.LevelUntil.Equal(b.LevelUntil) && a.MarkedUnread == b.MarkedUnread &&
		a.Mentions == b.Mentions && a.OwnCounted == b.OwnCounted && slices.Equal(a.Own, b.Own)
}

// Follow applies a state of a room. It has every change since the state with base
// changes: an account that knows only an earlier one may have missed updates of its
// user too.
func (a *Account) Follow(room *pubsub.RoomUpdate, base int64) (Outcome, *pubsub.Update) {
	former, ok := a.Memberships[room.ConversationID]
	switch {
	case !ok: // the user has left it
		return Known, nil
	case room.Epoch != a.Rest.Epoch:
		return Missed, nil
	case room.Changes <= former.Room.Changes:
		return Known, nil
	case base > former.Room.Changes:
		return Missed, nil
	}
	next := former.Membership
	next.Room = &room.Room
	if !catchUp(&next, &former.Membership) {
		return Missed, nil
	}
	before := a.Badge.Version
	merged := a.Since(before, []*Membership{a.put(next)})
	merged.AppendedAt, merged.TraceParent = room.AppendedAt, room.TraceParent
	return a.result(merged)
}

// Since returns the update for clients that hold the state of a version, since
// which memberships have changed.
func (a *Account) Since(version int64, changed []*Membership) *pubsub.Update {
	u := &pubsub.Update{Badge: a.Badge.Shown(), BaseVersion: version, Conversations: make([]pubsub.Conversation, 0, len(changed))}
	u.Categories = maps.Clone(u.Categories) // the account changes its own
	if len(u.Categories) > 1 {
		u.CategoryConversations = maps.Clone(u.CategoryConversations)
	} else {
		u.CategoryConversations = nil
	}
	for _, m := range changed {
		u.Conversations = append(u.Conversations, m.Conversation(u.Version))
	}
	return u
}

// replaceRest replaces the badge without memberships.
func (a *Account) replaceRest(rest *pubsub.Badge) {
	a.Badge.Version += rest.Version - a.Rest.Version
	a.Badge.Total += rest.Total - a.Rest.Total
	a.Badge.Mentions += rest.Mentions - a.Rest.Mentions
	a.Badge.UnreadConversations += rest.UnreadConversations - a.Rest.UnreadConversations
	a.Badge.MoreCategories = rest.MoreCategories
	for category, n := range a.Rest.Categories {
		a.addTo(category, -n, -a.Rest.ConversationsIn(category))
	}
	for category, n := range rest.Categories {
		a.addTo(category, n, rest.ConversationsIn(category))
	}
	a.Rest = *rest
}

// catchUp completes a state of a membership from the one before, and returns false
// if it cannot: then only closed chunks tell the numbers.
func catchUp(next, former *pubsub.Membership) bool {
	if next.ReadSeq >= next.Room.Since {
		next.Behind = nil
		return true
	}
	was, now := former.Room, next.Room
	if former.Behind == nil || next.ReadSeq != former.ReadSeq || was.ClosedChanges != now.ClosedChanges {
		return false
	}
	if was.Since == now.Since {
		next.Behind = former.Behind
		return true
	}
	if former.Behind.First == 0 {
		return false // the first unread message may be in the chunk that was closed
	}
	next.Behind = &pubsub.Behind{
		Live:  former.Behind.Live + now.ClosedLive - was.ClosedLive,
		All:   former.Behind.All + now.ClosedAll - was.ClosedAll,
		First: former.Behind.First,
	}
	return true
}
