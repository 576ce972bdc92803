package view

import (
	"maps"
	"slices"

	"github.com/badged/badged/internal/base/category"
	"github.com/badged/badged/pubsub"
)

// Account is the state that a gateway stores for a user who is a member of rooms. It consists
// of parts: the badge without memberships, and each membership with the state of its room. The
// gateway computes the user's numbers from these parts, since a message to a room changes no
// rows of the members.
//
// A part is replaced only by a newer state of the same part. The newer state comes from the
// tables, or from an update that names the state to which it applies. The parts may be of
// different times, so the tables may never have had this combination. But no part is ever ahead
// of the tables, and the total is always the sum of the parts. Two accounts of a user with the
// same version are equal, since the version is a sum of counters that only grow.
//
// Account does no I/O and is not safe for concurrent use. ADR 62 has the reasons.
type Account struct {
	// Rest is the badge without memberships. If the user has more than pubsub.MaxCategories
	// categories, Rest has only some of them: the first MaxCategories by name, the categories
	// of the user's rooms, and the categories that were in updates. See the method knows.
	Rest pubsub.Badge
	// If the user has more than pubsub.MaxCategories categories, Rest has all categories up to
	// the name `last`: the first MaxCategories by name. Otherwise last is empty.
	last string
	// Memberships are the memberships by conversation id. ofRooms has, for each category, the
	// sum of the numbers that the memberships add to it.
	Memberships map[string]*Membership
	ofRooms     map[string]pubsub.Numbers
	// Badge is the sum of Rest and all memberships, without categories.
	Badge pubsub.Badge
}

// Membership is the user's membership of a room. adds has the numbers that the membership adds
// to the badge.
type Membership struct {
	pubsub.Membership
	adds pubsub.Numbers
	// formerCategory is the category of the room before its last change.
	formerCategory string
}

// Outcome is the result of applying an update.
type Outcome int

const (
	// Known means that the account already includes the update.
	Known Outcome = iota
	// Applied means that the update has changed the account.
	Applied
	// Missed means that the update cannot be applied, so that the tables must be read: an
	// earlier update is missing, or the account lacks data that the update needs.
	Missed
)

// NewAccount returns the account of a user from a state that was read from the tables.
func NewAccount(s *pubsub.Snapshot) *Account {
	rest := RestOf(s)
	rest.MoreCategories = len(rest.Categories) > pubsub.MaxCategories
	a := &Account{Rest: rest, Memberships: make(map[string]*Membership, len(s.Memberships)), ofRooms: map[string]pubsub.Numbers{}, Badge: rest}
	a.Badge.Categories = nil
	if a.Rest.Categories = maps.Clone(rest.Categories); a.Rest.Categories == nil {
		a.Rest.Categories = map[string]pubsub.Numbers{}
	}
	if rest.MoreCategories {
		a.last = slices.Sorted(maps.Keys(rest.Shown().Categories))[pubsub.MaxCategories-1]
	}
	for i := range s.Memberships {
		path := s.Memberships[i].Room.Category
		for ; path != ""; path = category.Above(path) { // all numbers of a path that is not in the state are zero
			if _, ok := a.Rest.Categories[path]; !ok && path > a.last && rest.MoreCategories {
				a.Rest.Categories[path] = pubsub.Numbers{}
			}
		}
		a.put(s.Memberships[i])
	}
	return a
}

// knows reports whether Rest has the numbers of a category and of all categories above it. The
// result is always true if Rest has all categories of the user.
func (a *Account) knows(path string) bool {
	for ; path != "" && a.Rest.MoreCategories; path = category.Above(path) {
		if _, ok := a.Rest.Categories[path]; !ok && path > a.last {
			return false
		}
	}
	return true
}

// RestOf returns the badge of a state, without the memberships.
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
		entry.formerCategory = entry.Room.Category
		a.subtract(entry)
	} else {
		entry = &Membership{formerCategory: m.Room.Category}
		a.Memberships[m.Room.ConversationID] = entry
	}
	entry.Membership = m
	a.addNumbers(entry)
	return entry
}

// remove removes the membership of the room with this id, if there is one.
func (a *Account) remove(id string) {
	if m, ok := a.Memberships[id]; ok {
		a.subtract(m)
		delete(a.Memberships, id)
	}
}

// subtract subtracts from the badge the numbers and the version that a membership has added.
func (a *Account) subtract(m *Membership) {
	a.add(m.Room.Category, pubsub.Numbers{}.Minus(m.adds))
	a.Badge.Version -= m.Room.Changes - m.Joined
}

// addNumbers computes the numbers that a membership adds to the badge, and adds them. It also adds
// to the version the number of changes of the room since the user joined.
func (a *Account) addNumbers(m *Membership) {
	m.adds = m.Adds(a.Badge.Levels)
	a.add(m.Room.Category, m.adds)
	a.Badge.Version += m.Room.Changes - m.Joined
}

func (a *Account) add(path string, n pubsub.Numbers) {
	if n != (pubsub.Numbers{}) {
		a.Badge.Add(n)
		category.AddTo(a.ofRooms, path, n)
	}
}

// Update applies an update of the user, which arrived from the bus, to the account. If the result
// is Applied, Update also returns the update to send to clients: its numbers and its version
// include the memberships.
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
			return Missed, nil // a new room: the gateway has not subscribed to it yet
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
	changed := make([]*Membership, 0, len(memberships))
	var paths []string
	if newer {
		changed = a.replaceRest(&u.Badge)
		paths = slices.Collect(maps.Keys(u.Categories))
	}
	for _, c := range u.Conversations { // If the conversation was a room, the user has left it.
		if m, ok := a.Memberships[c.ConversationID]; ok {
			paths = append(paths, m.Room.Category)
			a.remove(c.ConversationID)
		}
	}
	changed = slices.DeleteFunc(changed, func(m *Membership) bool { return a.Memberships[m.Room.ConversationID] != m })
	for _, m := range memberships {
		if entry := a.put(m); !slices.Contains(changed, entry) {
			changed = append(changed, entry)
		}
	}
	merged := a.Since(before, changed, paths...)
	if merged == nil {
		return Missed, nil
	}
	merged.Levels = u.Levels
	merged.AppendedAt, merged.TraceParent = u.AppendedAt, u.TraceParent
	sum := a.Badge.Version - a.Rest.Version
	for _, c := range u.Conversations {
		c.Version += sum
		merged.Conversations = append(merged.Conversations, c)
	}
	return a.result(merged)
}

// result returns the outcome of an update that has changed the account. merged is the update to
// send to clients, or nil if the method Since could not compute it.
func (a *Account) result(merged *pubsub.Update) (Outcome, *pubsub.Update) {
	if merged == nil || merged.Version < merged.BaseVersion {
		return Missed, nil // the numbers of a category are unknown, or the update came out of order
	}
	return Applied, merged
}

// Ahead reports whether a part of the account is newer than the same part of s, a state with
// the same epoch that was read from the tables.
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

// Merge updates the account with the newer parts of a state that was read from the tables. news
// has the changes that were in the state but not in the account. ahead has the changes that are
// in the account but not in the state. Each of the two is nil if there are no such changes. If
// Rest or the set of memberships differs, Merge changes nothing and ok is false, since Merge
// cannot know which conversations have changed. ok is also false if the method Since
// could not compute news or ahead.
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
			former.formerCategory = m.Room.Category
			older = append(older, former)
		}
	}
	ok = true
	if len(newer) > 0 {
		news = a.Since(before, newer)
		ok = news != nil
	}
	if len(older) > 0 {
		ahead = a.Since(s.Version, older)
		ok = ok && ahead != nil
	}
	return news, ahead, ok
}

// sameRow reports whether two memberships are equal apart from the state of the room.
func sameRow(a, b *pubsub.Membership) bool {
	return a.Joined == b.Joined && a.ReadSeq == b.ReadSeq && a.ReachedSeq == b.ReachedSeq && a.SeenSeq == b.SeenSeq && a.Level == b.Level && a.LevelUntil.Equal(b.LevelUntil) && a.MarkedUnread == b.MarkedUnread &&
		a.Mentions == b.Mentions && a.Named == b.Named && (a.Unseen == b.Unseen || a.Unseen != nil && b.Unseen != nil && *a.Unseen == *b.Unseen) && a.OwnCounted == b.OwnCounted && slices.Equal(a.Own, b.Own)
}

// Follow applies a state of a room that arrived from the bus. base is the value of Changes in an
// earlier state of the room: the bus has lost no update of the room between the two states. If
// the account's state of the room is older than base, an update of the room is missing, and
// perhaps an update of the user: the result is then Missed.
func (a *Account) Follow(room *pubsub.RoomUpdate, base int64) (Outcome, *pubsub.Update) {
	former, ok := a.Memberships[room.ConversationID]
	switch {
	case !ok: // the user has left the room
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
	if merged == nil {
		return Missed, nil
	}
	merged.AppendedAt, merged.TraceParent = room.AppendedAt, room.TraceParent
	return a.result(merged)
}

// Since returns an update with the changes since a version, for clients that have the state of
// this version. changed are the memberships that have changed since then, and paths are the
// categories of Rest that have changed. Since returns nil if the account lacks the numbers of a
// changed category.
func (a *Account) Since(version int64, changed []*Membership, paths ...string) *pubsub.Update {
	u := &pubsub.Update{Badge: a.Badge, BaseVersion: version, Conversations: make([]pubsub.Conversation, 0, len(changed))}
	u.Categories, u.Levels = make(map[string]pubsub.Numbers, len(changed)+len(paths)), nil
	for _, m := range changed {
		u.Conversations = append(u.Conversations, m.Conversation(u.Version, a.Badge.Levels))
		if paths = append(paths, m.Room.Category); m.formerCategory != m.Room.Category {
			paths = append(paths, m.formerCategory)
		}
	}
	for _, path := range paths {
		if !a.knows(path) {
			return nil
		}
		for ; path != ""; path = category.Above(path) {
			n := a.Rest.Categories[path]
			n.Add(a.ofRooms[path])
			u.Categories[path] = n
		}
	}
	return u
}

// replaceRest updates Rest with the badge of an update. The badge has only the changed
// categories, and its Levels are nil unless levels have changed. If new levels change how
// clients see some memberships, replaceRest returns these memberships.
func (a *Account) replaceRest(rest *pubsub.Badge) (changed []*Membership) {
	a.Badge.Version += rest.Version - a.Rest.Version
	a.Badge.Add(rest.Minus(a.Rest.Numbers))
	a.Rest.Version, a.Rest.Numbers = rest.Version, rest.Numbers
	for path, n := range rest.Categories {
		if n == (pubsub.Numbers{}) && !a.Rest.MoreCategories {
			delete(a.Rest.Categories, path)
		} else {
			a.Rest.Categories[path] = n
		}
	}
	if rest.Levels == nil {
		return nil
	}
	before := a.Badge.Levels
	a.Rest.Levels, a.Badge.Levels = rest.Levels, rest.Levels
	for _, m := range a.Memberships {
		if m.Adds(before) != m.Adds(rest.Levels) || m.Conversation(0, before) != m.Conversation(0, rest.Levels) {
			a.add(m.Room.Category, pubsub.Numbers{}.Minus(m.adds))
			m.adds = m.Adds(rest.Levels)
			a.add(m.Room.Category, m.adds)
			m.formerCategory = m.Room.Category
			changed = append(changed, m)
		}
	}
	return changed
}

// catchUp sets next.Behind. `next` is the new state of a membership, and `former` is its state
// before. Behind counts the member's unread messages in closed chunks (the older messages of a
// room). Only the tables list the messages of closed chunks. If catchUp cannot compute
// next.Behind from former.Behind, it returns false: the tables must then be read.
func catchUp(next, former *pubsub.Membership) bool {
	if next.ReadSeq >= next.Room.Since {
		next.Behind = nil
		return true
	}
	was, now := former.Room, next.Room
	sameSeen := next.SeenSeq == former.SeenSeq && next.ReachedSeq == former.ReachedSeq || next.SeenInOpen()
	if former.Behind == nil || next.ReadSeq != former.ReadSeq || !sameSeen || was.ClosedChanges != now.ClosedChanges {
		return false
	}
	behind := *former.Behind
	if was.Since != now.Since {
		if former.Behind.First == 0 || !next.SeenInOpen() && former.SeenInOpen() {
			// The first unread message, or seen messages, may be in a chunk that was still open
			// in the state `former` and is closed now.
			return false
		}
		behind.Live += now.ClosedLive - was.ClosedLive
		behind.All += now.ClosedAll - was.ClosedAll
		behind.UnseenLive += now.ClosedLive - was.ClosedLive
		behind.UnseenAll += now.ClosedAll - was.ClosedAll
	}
	if next.SeenInOpen() {
		behind.UnseenLive, behind.UnseenAll = 0, 0
	}
	next.Behind = &behind
	return true
}
