package gateway

import (
	"maps"
	"slices"

	"github.com/badged/badged/pubsub"
)

// account is what the gateway knows of a user with memberships: the badge without
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
// It does no I/O and is not safe for concurrent use.
type account struct {
	rest        pubsub.Badge
	memberships map[string]*membership
	// badge is rest and all memberships together.
	badge pubsub.Badge
}

// membership is a membership with what it adds to the badge.
type membership struct {
	pubsub.Membership
	// conversations is 1 if adds is more than 0, else 0.
	adds, mentions, conversations int64
}

// outcome says what became of an update.
type outcome int

const (
	// known: the account has had it.
	known outcome = iota
	// applied: the account has changed.
	applied
	// missed: the update builds on one that the account has not had, or needs
	// more than it contains. The tables must be read.
	missed
)

// newAccount returns the account of a user in a state read from the tables.
func newAccount(s *pubsub.Snapshot) *account {
	a := &account{rest: restOf(s), memberships: make(map[string]*membership, len(s.Memberships))}
	a.badge = a.rest
	a.badge.Categories = maps.Clone(a.rest.Categories)
	if a.badge.Categories == nil {
		a.badge.Categories = map[string]int64{}
	}
	a.badge.CategoryConversations = make(map[string]int64, len(a.badge.Categories))
	for category := range a.badge.Categories {
		a.badge.CategoryConversations[category] = a.rest.ConversationsIn(category)
	}
	for i := range s.Memberships {
		a.put(s.Memberships[i])
	}
	return a
}

// restOf returns the badge of a state without memberships.
func restOf(s *pubsub.Snapshot) pubsub.Badge {
	if len(s.Memberships) == 0 {
		return s.Badge
	}
	return s.Rest
}

// put adds a membership or replaces it.
func (a *account) put(m pubsub.Membership) *membership {
	entry, ok := a.memberships[m.Room.ConversationID]
	if ok {
		a.withdraw(entry)
	} else {
		entry = new(membership)
		a.memberships[m.Room.ConversationID] = entry
	}
	entry.Membership = m
	a.weigh(entry)
	return entry
}

// remove removes a membership if there is one.
func (a *account) remove(id string) {
	if m, ok := a.memberships[id]; ok {
		a.withdraw(m)
		delete(a.memberships, id)
	}
}

// withdraw takes what a membership adds to the badge out of it.
func (a *account) withdraw(m *membership) {
	a.add(m.Room.Category, -m.adds, -m.mentions, -m.conversations)
	a.badge.Version -= m.Room.Changes - m.Joined
}

// weigh adds what a membership adds to the badge.
func (a *account) weigh(m *membership) {
	m.adds, m.mentions, m.conversations = 0, 0, 0
	switch c := m.Conversation(0); c.Level {
	case "none":
	case "mentions":
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
	a.badge.Version += m.Room.Changes - m.Joined
}

func (a *account) add(category string, n, mentions, conversations int64) {
	a.badge.Total += n
	a.badge.Mentions += mentions
	if n == 0 {
		return
	}
	if a.badge.Categories[category] += n; a.badge.Categories[category] == 0 {
		delete(a.badge.Categories, category)
	}
	a.badge.UnreadConversations += conversations
	if a.badge.CategoryConversations[category] += conversations; a.badge.CategoryConversations[category] == 0 {
		delete(a.badge.CategoryConversations, category)
	}
}

// update applies an update of the user. If it changed something that clients see,
// it returns the update for them.
func (a *account) update(u *pubsub.Update) (outcome, *pubsub.Update) {
	switch {
	case u.Epoch != a.rest.Epoch || u.BaseVersion > a.rest.Version:
		return missed, nil
	case u.Version < a.rest.Version:
		return known, nil
	}
	newer := u.Version > a.rest.Version
	memberships := make([]pubsub.Membership, 0, len(u.Memberships))
	for _, m := range u.Memberships {
		former, ok := a.memberships[m.Room.ConversationID]
		switch {
		case !ok:
			return missed, nil // a new room: its updates have yet to be subscribed to
		case m.Room.Changes < former.Room.Changes:
			if newer || !sameRow(&m, &former.Membership) {
				return missed, nil // out of order
			}
			continue
		case m.Room.Changes == former.Room.Changes && !newer:
			continue
		}
		if !catchUp(&m, &former.Membership) {
			return missed, nil
		}
		memberships = append(memberships, m)
	}
	if !newer && len(memberships) == 0 {
		return known, nil
	}
	before := a.badge.Version
	if newer {
		a.replaceRest(&u.Badge)
	}
	for _, c := range u.Conversations {
		a.remove(c.ConversationID) // if it was a room, the user has left it
	}
	changed := make([]*membership, 0, len(memberships))
	for _, m := range memberships {
		changed = append(changed, a.put(m))
	}
	merged := a.since(before, changed)
	merged.AppendedAt, merged.TraceParent = u.AppendedAt, u.TraceParent
	sum := a.badge.Version - a.rest.Version
	for _, c := range u.Conversations {
		c.Version += sum
		merged.Conversations = append(merged.Conversations, c)
	}
	return a.outcome(merged)
}

// outcome returns the outcome of applying an update.
func (a *account) outcome(merged *pubsub.Update) (outcome, *pubsub.Update) {
	if merged.Version < merged.BaseVersion {
		return missed, nil // out of order
	}
	return applied, merged
}

// ahead reports whether a part of the account is newer than a state read from the
// tables, of the same epoch.
func (a *account) ahead(s *pubsub.Snapshot) bool {
	if a.rest.Version > restOf(s).Version {
		return true
	}
	for i := range s.Memberships {
		m := &s.Memberships[i]
		if own, ok := a.memberships[m.Room.ConversationID]; ok && own.Room.Changes > m.Room.Changes {
			return true
		}
	}
	return false
}

// merge takes over the newer parts of a state read from the tables. news is what the
// account lacked, ahead what the state lacks; nil if nothing. It returns false if
// the rest differs: then which conversations changed is unknown.
func (a *account) merge(s *pubsub.Snapshot) (news, ahead *pubsub.Update, ok bool) {
	if s.Epoch != a.rest.Epoch || restOf(s).Version != a.rest.Version || len(s.Memberships) != len(a.memberships) {
		return nil, nil, false
	}
	for i := range s.Memberships {
		if a.memberships[s.Memberships[i].Room.ConversationID] == nil {
			return nil, nil, false
		}
	}
	before := a.badge.Version
	var newer, older []*membership
	for _, m := range s.Memberships {
		switch former := a.memberships[m.Room.ConversationID]; {
		case m.Room.Changes > former.Room.Changes:
			newer = append(newer, a.put(m))
		case m.Room.Changes < former.Room.Changes:
			older = append(older, former)
		}
	}
	if len(newer) > 0 {
		news = a.since(before, newer)
	}
	if len(older) > 0 {
		ahead = a.since(s.Version, older)
	}
	return news, ahead, true
}

// sameRow reports whether the parts of two memberships are equal that do not
// belong to the room.
func sameRow(a, b *pubsub.Membership) bool {
	return a.Joined == b.Joined && a.ReadSeq == b.ReadSeq && a.Level == b.Level && a.MarkedUnread == b.MarkedUnread &&
		a.Mentions == b.Mentions && a.OwnCounted == b.OwnCounted && slices.Equal(a.Own, b.Own)
}

// follow applies a state of a room. It has every change since the state with base
// changes: an account that knows only an earlier one may have missed updates of its
// user too.
func (a *account) follow(room *pubsub.RoomUpdate, base int64) (outcome, *pubsub.Update) {
	former, ok := a.memberships[room.ConversationID]
	switch {
	case !ok: // the user has left it
		return known, nil
	case room.Epoch != a.rest.Epoch:
		return missed, nil
	case room.Changes <= former.Room.Changes:
		return known, nil
	case base > former.Room.Changes:
		return missed, nil
	}
	next := former.Membership
	next.Room = &room.Room
	if !catchUp(&next, &former.Membership) {
		return missed, nil
	}
	before := a.badge.Version
	merged := a.since(before, []*membership{a.put(next)})
	merged.AppendedAt, merged.TraceParent = room.AppendedAt, room.TraceParent
	return a.outcome(merged)
}

// since returns the update for clients that hold the state of a version, since
// which memberships have changed.
func (a *account) since(version int64, changed []*membership) *pubsub.Update {
	u := &pubsub.Update{Badge: a.badge, BaseVersion: version, Conversations: make([]pubsub.Conversation, 0, len(changed))}
	u.Categories = maps.Clone(a.badge.Categories) // the account changes its own
	if u.CategoryConversations = nil; len(u.Categories) > 1 {
		u.CategoryConversations = maps.Clone(a.badge.CategoryConversations)
	}
	for _, m := range changed {
		u.Conversations = append(u.Conversations, m.Conversation(u.Version))
	}
	return u
}

// replaceRest replaces the badge without memberships.
func (a *account) replaceRest(rest *pubsub.Badge) {
	a.badge.Version += rest.Version - a.rest.Version
	a.badge.Mentions += rest.Mentions - a.rest.Mentions
	for category, n := range a.rest.Categories {
		a.add(category, -n, 0, -a.rest.ConversationsIn(category))
	}
	for category, n := range rest.Categories {
		a.add(category, n, 0, rest.ConversationsIn(category))
	}
	a.rest = *rest
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
