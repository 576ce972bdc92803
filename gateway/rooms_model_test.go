package gateway

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/badged/badged/internal/base/category"
	"github.com/badged/badged/pubsub"
)

// halls is a simple model of tables with rooms: it stores every message in sets, and counts by
// iterating over them. It returns the updates that a projector would publish.
type halls struct {
	epoch string
	users map[string]*hallUser
	rooms map[string]*hall
	// seen has every state of a conversation that a commit made, by user and
	// conversation; see shown.
	seen map[string]map[string]bool
}

type hallUser struct {
	version, carried int64 // of the row
	// plain are ordinary conversations, as clients see them, but with the versions
	// of their rows.
	plain map[string]pubsub.Conversation
	seats map[string]*hallSeat
	// levels are those of categories.
	levels map[string]string
}

type hallSeat struct {
	user         *hallUser
	joined, read int64
	seen         int64 // if it is above read, else 0
	level        string
	until        time.Time // zero unless the level ends
	marked       bool
	mentioned    map[int64]bool // by name, whatever else
	own          map[int64]bool
}

type hall struct {
	changes, top, since, closedChanges int64
	live, all, recalled                map[int64]bool
}

func newHalls() *halls {
	return &halls{epoch: "e1", users: map[string]*hallUser{}, rooms: map[string]*hall{}, seen: map[string]map[string]bool{}}
}

func (h *halls) user(id string) *hallUser {
	if h.users[id] == nil {
		h.users[id] = &hallUser{plain: map[string]pubsub.Conversation{}, seats: map[string]*hallSeat{}}
	}
	return h.users[id]
}

func (h *halls) room(id string) *hall {
	if h.rooms[id] == nil {
		h.rooms[id] = &hall{live: map[int64]bool{}, all: map[int64]bool{}, recalled: map[int64]bool{}}
	}
	return h.rooms[id]
}

// unread are the unread messages of a seat.
func (r *hall) unread(s *hallSeat) (seqs []int64) {
	for seq := range r.live {
		if seq > s.read && !s.own[seq] {
			seqs = append(seqs, seq)
		}
	}
	slices.Sort(seqs)
	return seqs
}

// direct reports whether only messages that mention the user by name are mentions.
func (s *hallSeat) direct() bool {
	return category.Levels(s.user.levels).Of(s.level, "chat") == "direct_mentions"
}

// mentions counts the unread messages above the seq `above` that mention the user of a seat.
func (r *hall) mentions(s *hallSeat, above int64) (n int64) {
	for _, seq := range r.unread(s) {
		if seq > above && (r.all[seq] && !s.direct() || s.mentioned[seq]) {
			n++
		}
	}
	return n
}

// conversation is what a client sees, without a version.
func (h *halls) conversation(room string, s *hallSeat) pubsub.Conversation {
	r := h.room(room)
	unread := r.unread(s)
	c := pubsub.Conversation{
		ConversationID: room, Unread: int64(len(unread)), Mentions: r.mentions(s, 0), ReadSeq: s.read, LastSeq: r.top,
		Level: s.level, LevelUntil: s.until, Category: "chat", MarkedUnread: s.marked,
	}
	if len(unread) > 0 {
		c.FirstUnreadSeq = unread[0]
	}
	if c.SeenSeq = s.seen; s.seen > 0 {
		c.Seen = int64(len(slices.DeleteFunc(unread, func(seq int64) bool { return seq > s.seen })))
		c.SeenMentions = c.Mentions - r.mentions(s, s.seen)
	}
	return c
}

// seqsOf returns those seqs of a set above one.
func seqsOf(set map[int64]bool, above int64) (s pubsub.Seqs) {
	for _, seq := range slices.Sorted(maps.Keys(set)) {
		switch n := len(s); {
		case seq <= above:
		case n > 0 && s[n-1].Last == seq-1:
			s[n-1].Last = seq
		default:
			s = append(s, pubsub.SeqRange{First: seq, Last: seq})
		}
	}
	return s
}

func (h *halls) state(room string) *pubsub.Room {
	r := h.room(room)
	s := &pubsub.Room{
		ConversationID: room, Changes: r.changes, LastSeq: r.top, Category: "chat", Since: r.since,
		Live: seqsOf(r.live, r.since), All: seqsOf(r.all, r.since), ClosedChanges: r.closedChanges,
	}
	s.ClosedLive = int64(len(r.live)) - size(s.Live)
	s.ClosedAll = int64(len(r.all)) - size(s.All)
	return s
}

func size(s pubsub.Seqs) (n int64) {
	for _, r := range s {
		n += r.Last - r.First + 1
	}
	return n
}

func (h *halls) membership(room string, s *hallSeat, behind bool) pubsub.Membership {
	r := h.room(room)
	m := pubsub.Membership{Joined: s.joined, ReadSeq: s.read, SeenSeq: s.seen, Level: s.level, LevelUntil: s.until, MarkedUnread: s.marked, Room: h.state(room)}
	own := map[int64]bool{}
	count := func(above int64) (n [3]int64) {
		for seq := range s.own {
			if r.live[seq] {
				own[seq] = true
				if seq > above {
					if n[0]++; r.all[seq] {
						n[1]--
					}
				}
			}
		}
		for seq := range s.mentioned {
			if seq > above && r.live[seq] && !s.own[seq] {
				if n[2]++; !r.all[seq] {
					n[1]++
				}
			}
		}
		return n
	}
	n := count(s.read)
	m.Own, m.Mentions, m.Named = seqsOf(own, s.read), n[1], n[2]
	if s.seen > s.read {
		unseen := count(s.seen)
		m.Unseen = &unseen
	}
	if behind && s.read < r.since {
		m.Behind = new(pubsub.Behind)
		for seq := range r.live {
			if seq > s.read && seq <= r.since {
				m.Behind.Live++
				if r.all[seq] {
					m.Behind.All++
				}
				if seq > s.seen {
					if m.Behind.UnseenLive++; r.all[seq] {
						m.Behind.UnseenAll++
					}
				}
			}
		}
		if unread := r.unread(s); len(unread) > 0 && unread[0] <= r.since {
			m.Behind.First = unread[0]
		}
	}
	return m
}

// tally adds up conversations by the levels of a badge.
func tally(b *pubsub.Badge, conversations []pubsub.Conversation) {
	b.Categories = map[string]pubsub.Numbers{}
	for i := range conversations {
		c := &conversations[i]
		if n := category.CountOf(c.Unread, c.Mentions, c.Unread-c.Seen, c.Mentions-c.SeenMentions, c.MarkedUnread).At(b.LevelOf(c)); !c.Left && n != (pubsub.Numbers{}) {
			b.Add(n)
			category.AddTo(b.Categories, c.Category, n)
		}
	}
}

// rest is the badge of a user without memberships.
func (h *halls) rest(id string) pubsub.Badge {
	u := h.user(id)
	b := pubsub.Badge{UserID: id, Epoch: h.epoch, Version: u.version + u.carried, Levels: u.levels}
	tally(&b, slices.Collect(maps.Values(u.plain)))
	return b
}

// read returns the result of a read of the tables for a client.
func (h *halls) read(held pubsub.Held) pubsub.Snapshot {
	u := h.user(held.UserID)
	s := pubsub.Snapshot{Rest: h.rest(held.UserID), Conversations: []pubsub.Conversation{}}
	s.Badge = s.Rest
	sum := u.carried
	for room, seat := range u.seats {
		s.Memberships = append(s.Memberships, h.membership(room, seat, true))
		s.Version += h.room(room).changes - seat.joined
		sum += h.room(room).changes - seat.joined
	}
	slices.SortFunc(s.Memberships, func(a, b pubsub.Membership) int { return cmp.Compare(a.Room.ConversationID, b.Room.ConversationID) })
	s.Whole = held.Epoch != h.epoch || held.Version > s.Version
	var all []pubsub.Conversation
	for _, c := range u.plain {
		c.Version += sum
		all = append(all, c)
	}
	for room, seat := range u.seats {
		c := h.conversation(room, seat)
		c.Version = s.Version
		all = append(all, c)
	}
	s.Numbers = pubsub.Numbers{}
	tally(&s.Badge, all)
	for _, c := range all {
		if s.Whole && (c.Unread > 0 || c.MarkedUnread || c.Level != "default" || !c.LevelUntil.IsZero()) || !s.Whole && c.Version > held.Version {
			s.Conversations = append(s.Conversations, c)
		}
	}
	return s
}

// published is what a projector publishes about a commit.
type published struct {
	users []pubsub.Update
	rooms []pubsub.RoomUpdate
}

// draw commits a few random events.
func (h *halls) draw(t *rapid.T, users, rooms []string) published {
	before := newHalls()
	for _, id := range users {
		before.user(id).version = h.user(id).version + h.user(id).carried
	}
	for _, id := range rooms {
		before.room(id).changes = h.room(id).changes
	}
	c := changes{plain: map[string]map[string]bool{}, seats: map[string]map[string]bool{}, levels: map[string]bool{}}
	for range rapid.IntRange(1, 3).Draw(t, "events") {
		h.event(t, users, rooms, &c)
	}
	var done published
	for _, id := range users {
		u := pubsub.Update{Badge: h.rest(id), Partition: 3, BaseVersion: before.user(id).version, Conversations: []pubsub.Conversation{}}
		if _, ok := u.Categories["dm"]; !ok {
			u.Categories["dm"] = pubsub.Numbers{} // it may have had some
		}
		if u.Levels = nil; c.levels[id] {
			u.Levels = h.user(id).levels
		}
		for plain := range c.plain[id] {
			if conversation, ok := h.user(id).plain[plain]; ok {
				conversation.Version += h.user(id).carried
				u.Conversations = append(u.Conversations, conversation)
			}
		}
		for room := range c.seats[id] {
			if seat, ok := h.user(id).seats[room]; ok {
				u.Memberships = append(u.Memberships, h.membership(room, seat, false))
			}
		}
		if u.Version > u.BaseVersion || len(u.Memberships) > 0 {
			done.users = append(done.users, u)
		}
	}
	for _, id := range rooms {
		if base := before.room(id).changes; h.room(id).changes > base {
			done.rooms = append(done.rooms, pubsub.RoomUpdate{Room: *h.state(id), Epoch: h.epoch, Partition: 3, BaseChanges: base})
		}
	}
	h.record(users)
	return done
}

// record remembers the states of all conversations.
func (h *halls) record(users []string) {
	for _, id := range users {
		if h.seen[id] == nil {
			h.seen[id] = map[string]bool{}
		}
		for _, c := range h.read(pubsub.Held{UserID: id, Epoch: h.epoch, Version: -1}).Conversations {
			h.seen[id][shown(c)] = true
		}
	}
}

// shown is a conversation without its version.
func shown(c pubsub.Conversation) string {
	c.Version = 0
	return fmt.Sprintf("%+v", c)
}

// changes are the rows that events of a commit changed, by user and conversation.
type changes struct {
	plain, seats map[string]map[string]bool
	levels       map[string]bool // by user
}

func touch(m map[string]map[string]bool, user, conversation string) {
	if m[user] == nil {
		m[user] = map[string]bool{}
	}
	m[user][conversation] = true
}

// event commits a random event.
func (h *halls) event(t *rapid.T, users, rooms []string, changed *changes) {
	id, room := rapid.SampledFrom(users).Draw(t, "user"), rapid.SampledFrom(rooms).Draw(t, "room")
	u, r := h.user(id), h.room(room)
	seat := u.seats[room]
	kind := rapid.SampledFrom([]string{"post", "post", "post", "recall", "close", "join", "leave", "read", "level", "mark", "plain", "category", "seen"}).Draw(t, "event")
	if seat == nil && slices.Contains([]string{"leave", "read", "level", "mark", "seen"}, kind) {
		kind = "join"
	}
	if kind == "join" && seat != nil {
		kind = "post"
	}
	switch kind {
	case "post":
		h.post(t, users, room, changed)
	case "recall":
		h.recall(users, room, rapid.Int64Range(1, r.top+1).Draw(t, "seq"), changed)
	case "close":
		if r.top > r.since {
			r.since = rapid.Int64Range(r.since+1, r.top).Draw(t, "since")
		}
	case "category":
		of := rapid.SampledFrom([]string{"all", "mentions", "direct_mentions", "none"}).Draw(t, "level")
		if u.levels = map[string]string{"chat": of}; of == "all" {
			u.levels = map[string]string{}
		}
		u.version++
		changed.levels[id] = true
	case "plain":
		u.version++
		n := rapid.Int64Range(0, 5).Draw(t, "unread")
		u.plain["dm"] = pubsub.Conversation{ConversationID: "dm", Unread: n, LastSeq: 5, ReadSeq: 5 - n, Level: "default", Category: "dm", Version: u.version}
		touch(changed.plain, id, "dm")
	case "join":
		delete(u.plain, room)
		u.version++
		u.seats[room] = &hallSeat{user: u, joined: r.changes, read: r.top, level: "default", own: map[int64]bool{}, mentioned: map[int64]bool{}}
		touch(changed.seats, id, room)
	case "leave":
		delete(u.seats, room)
		u.version++
		u.carried += r.changes - seat.joined
		u.plain[room] = pubsub.Conversation{ConversationID: room, ReadSeq: r.top, LastSeq: r.top, Level: seat.level, Category: "chat", Left: true, Version: u.version}
		touch(changed.plain, id, room)
	default:
		before := *seat
		switch kind {
		case "read":
			seat.read, seat.marked = max(seat.read, rapid.Int64Range(0, r.top).Draw(t, "up to")), false
			if seat.seen <= seat.read {
				seat.seen = 0
			}
		case "seen":
			if seen := rapid.Int64Range(0, r.top).Draw(t, "up to"); seen > max(seat.read, seat.seen) {
				seat.seen = seen
			}
		case "level":
			seat.level = rapid.SampledFrom([]string{"default", "all", "mentions", "direct_mentions", "none"}).Draw(t, "level")
			seat.until = rapid.SampledFrom([]time.Time{{}, time.Unix(1, 0).UTC(), time.Unix(2, 500_000_000).UTC()}).Draw(t, "until")
		case "mark":
			seat.marked = true
		}
		if seat.seen != before.seen || seat.read != before.read || seat.level != before.level || !seat.until.Equal(before.until) || seat.marked != before.marked {
			u.version++
			touch(changed.seats, id, room)
		}
	}
}

// post posts a message, mostly above the last seq, by one of the users, who need not be a member.
func (h *halls) post(t *rapid.T, users []string, room string, changed *changes) {
	r := h.room(room)
	seq := r.top + rapid.Int64Range(1, 3).Draw(t, "gap")
	if rapid.IntRange(0, 4).Draw(t, "late") == 0 {
		seq = rapid.Int64Range(1, seq).Draw(t, "seq")
	}
	if r.live[seq] || r.recalled[seq] {
		return // a repetition, or recalled before
	}
	sender := rapid.SampledFrom(users).Draw(t, "sender")
	mentionsAll := rapid.IntRange(0, 3).Draw(t, "all") == 0
	r.live[seq], r.top = true, max(r.top, seq)
	if mentionsAll {
		r.all[seq] = true
	}
	r.changes++
	if seq <= r.since {
		r.closedChanges++
	}
	if seat := h.user(sender).seats[room]; seat != nil {
		seat.own[seq] = true
		touch(changed.seats, sender, room)
	}
	mentioned := rapid.SampledFrom(users).Draw(t, "mentioned")
	if seat := h.user(mentioned).seats[room]; seat != nil && rapid.Bool().Draw(t, "mention") {
		seat.mentioned[seq] = true
		touch(changed.seats, mentioned, room)
	}
}

func (h *halls) recall(users []string, room string, seq int64, changed *changes) {
	r := h.room(room)
	r.recalled[seq] = true
	if !r.live[seq] {
		return
	}
	delete(r.live, seq)
	delete(r.all, seq)
	r.changes++
	if seq <= r.since {
		r.closedChanges++
	}
	for _, id := range users {
		if seat := h.user(id).seats[room]; seat != nil && (seat.own[seq] || seat.mentioned[seq]) {
			touch(changed.seats, id, room)
		}
	}
}
