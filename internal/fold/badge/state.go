package badge

import (
	"cmp"
	"slices"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/category"
)

// State is the input and output of the fold: the users and rooms of a partition that the
// events need.
type State struct {
	Users map[string]*User
	// Rooms is nil if the partition has no rooms.
	Rooms map[string]*Room
	// Leaps counts the events whose seq is far above the last seq (see [Leap]). FirstLeap describes
	// the first of these events.
	Leaps     int
	FirstLeap Leap
}

// Room returns the state of a room. It creates the state if there is none.
func (s *State) Room(id string) *Room {
	r, ok := s.Rooms[id]
	if !ok {
		r = NewRoom(id)
		s.Rooms[r.ID] = r
	}
	return r
}

// Refused returns the users of e for which e must not be folded. There are two cases. If e is
// about an ordinary conversation, and a room has the same id, Refused returns the members of
// the room: the event would contradict the room. If e marks all messages from FromSeq on
// unread, Refused returns the users who are not members: for ordinary conversations, the
// tables do not store which of the read messages were delivered.
func (s *State) Refused(e *events.Event) []string {
	d := &e.Data
	if d.FromSeq > 0 {
		if len(d.Seqs) > 0 {
			return nil // Seqs apply to ordinary conversations, FromSeq to memberships
		}
		return s.among(e, false)
	}
	if s.Rooms == nil { // there are no rooms
		return nil
	}
	switch e.Type {
	case events.MessageDelivered, events.MessageChanged, events.MessageRecalled, events.ConversationLeft:
	case events.ConversationMarkedUnread:
		if len(d.Seqs) == 0 {
			return nil
		}
	default:
		return nil
	}
	return s.among(e, true)
}

// among returns users of e: if members is true, the members of the room that e names;
// otherwise the users who are not members.
func (s *State) among(e *events.Event, members bool) (users []string) {
	for _, id := range e.Data.UserIDs {
		if c, ok := s.Users[id].Conversations[e.Data.ConversationID]; (ok && c.Member()) == members {
			users = append(users, id)
		}
	}
	return users
}

// Fold folds e into s. s must have all users and rooms that e needs. The caller must have
// removed from e the users that Refused returns.
func (s *State) Fold(e *events.Event) {
	s.watch(e)
	if e.Type.ToRoom() {
		s.foldInRoom(e)
		return
	}
	var mentioned map[string]struct{}
	if len(e.Data.MentionedUserIDs) > 0 {
		mentioned = make(map[string]struct{}, len(e.Data.MentionedUserIDs))
		for _, id := range e.Data.MentionedUserIDs {
			mentioned[id] = struct{}{}
		}
	}
	for _, id := range e.Data.UserIDs {
		_, m := mentioned[id]
		u := s.Users[id]
		if changed, _ := u.Apply(e, m, s); changed && u.ChangedAt == 0 {
			u.ChangedAt = e.AppendedAt.UnixMicro()
		}
	}
}

// foldInRoom folds an event that reaches all members of a room. If the event did not change the
// room, foldInRoom returns the reason. This reason does not depend on what each member has read;
// FoldFor replaces it for a member who has read the message.
func (s *State) foldInRoom(e *events.Event) Reason {
	switch e.Type {
	case events.RoomRecalled:
		return s.recall(e)
	case events.RoomReset:
		return s.reset(e)
	}
	return s.post(e)
}

// post folds a new or changed message of a room. It changes only the memberships of the
// sender, of members that the message mentions by name, and of members that it mentioned
// before the change.
func (s *State) post(e *events.Event) (reason Reason) {
	d := e.Data
	r, changes := s.Room(d.ConversationID), e.Type == events.RoomChanged
	c := r.chunk(d.Seq)
	of := cmp.Or(d.Category, events.DefaultCategory)
	visible := false
	if d.Seq > r.LastSeq || d.Seq == r.LastSeq && of > r.Category {
		r.LastSeq, r.Category, visible = d.Seq, of, true
	}
	if hour := HourOf(e.AppendedAt); hour > r.DeliveredHour {
		r.DeliveredHour, r.Touched = hour, true
	}
	applies := true
	switch {
	case !changes && r.Revisions.has(d.Seq):
		d.MentionedUserIDs, d.MentionsAll = nil, false
	case changes:
		if applies = r.Revisions.accept(d.Seq, d.Revision); applies {
			c.Recalled.Remove(d.Seq)
			c.Touched, r.Touched = true, true
		}
	}
	wasAll := c.All.Contains(d.Seq)
	live := applies && !c.Recalled.Contains(d.Seq)
	added := live && c.Live.Add(d.Seq)
	addedAll := live && d.MentionsAll && c.All.Add(d.Seq)
	goneAll := live && changes && !d.MentionsAll && c.All.Remove(d.Seq)
	if added || addedAll || goneAll {
		visible = true
		r.moved(c, one(added), one(addedAll)-one(goneAll))
	}
	if visible {
		r.changed(e.AppendedAt)
	}
	if applies {
		s.recollect(r, &d, live)
	}
	if live {
		p := post{s, r, d.Seq, c.All.Contains(d.Seq), visible, e.AppendedAt.UnixMicro(), nil}
		switch {
		case changes:
			p.mentionsOnly(d.MentionedUserIDs, wasAll)
		case addedAll:
			p.mentionsAll()
		}
		if d.SenderID != "" {
			p.sender(d.SenderID)
		}
		for _, id := range d.MentionedUserIDs {
			p.mentions(id)
		}
	}
	r.split(c)
	switch {
	case !applies || changes && !visible:
		return alreadyRevised
	case !live:
		return alreadyRecalled
	case !added:
		return alreadyPosted
	}
	return none
}

// recollect adds a message to Sent of the sender's membership and, if the message is live, to Named
// of the memberships of the users that it mentions. It also adds messages that are read, since a
// mark may later make them count again. It need not add a recalled message to Named: such a message
// counts again only after a change, and the change names all users that it then mentions.
func (s *State) recollect(r *Room, d *events.Data, live bool) {
	member := func(id string) (*User, *Conversation) {
		if u, ok := s.Users[id]; ok {
			if c, ok := u.Conversations[r.ID]; ok && c.Member() {
				return u, c
			}
		}
		return nil, nil
	}
	if u, c := member(d.SenderID); c != nil && c.Membership.sent(d.Seq) {
		u.touch(c)
	}
	if !live {
		return
	}
	for _, id := range d.MentionedUserIDs {
		if u, c := member(id); c != nil && c.Membership.named(d.Seq) {
			u.touch(c)
		}
	}
}

// one returns 1 if holds is true, else 0.
func one(holds bool) int64 {
	if holds {
		return 1
	}
	return 0
}

// post is the state of folding a live (posted and not recalled) message into the memberships
// of its sender and of the members that it mentions.
type post struct {
	state *State
	room  *Room
	seq   int64
	// all is true if the message mentions everybody.
	all bool
	// visible is true if the message changed the room. Then Changes of the room has grown, and
	// so have the versions of all members.
	visible bool
	// appendedAt is when the event was appended, in microseconds since 1970.
	appendedAt int64
	// raised has the users whose version was already raised for this message.
	raised map[*User]bool
}

// member returns a user and the user's membership of the room. It returns nil if the user is
// not loaded, is not a member, or has read the message.
func (p *post) member(id string) (*User, *Conversation) {
	u, ok := p.state.Users[id]
	if !ok {
		return nil, nil
	}
	c, ok := u.Conversations[p.room.ID]
	if !ok || !c.Member() || p.seq <= c.ReadSeq {
		return nil, nil
	}
	return u, c
}

// changed records a change of a membership. It raises the user's version at most once for the
// message. It does not raise the version if the change of the room has raised it already.
func (p *post) changed(u *User, c *Conversation) {
	u.touch(c)
	if !p.visible && !p.raised[u] {
		u.raise(c)
		if p.raised == nil {
			p.raised = map[*User]bool{}
		}
		p.raised[u] = true
	}
	if u.ChangedAt == 0 {
		u.ChangedAt = p.appendedAt
	}
}

// sender records who sent the message, so that it does not count for the sender.
func (p *post) sender(id string) {
	u, c := p.member(id)
	if c == nil {
		return
	}
	m := p.room.mark(p.seq, id)
	switch {
	case m == nil:
		p.room.AddMark(p.seq, u.ID, Mark{Own: true, Touched: true})
	case m.Own:
		return
	default:
		c.named(p.all).Remove(p.seq)
		m.Own, m.Touched = true, true
	}
	c.Membership.Own.Add(p.seq)
	if p.all {
		c.Membership.OwnAll.Add(p.seq)
	}
	p.changed(u, c)
}

// mentions adds the message to the set of a user's mentions by name.
func (p *post) mentions(id string) {
	u, c := p.member(id)
	if c == nil || p.room.mark(p.seq, id) != nil {
		return
	}
	p.room.AddMark(p.seq, u.ID, Mark{Touched: true})
	c.named(p.all).Add(p.seq)
	if p.all && u.Paths.Levels.Of(string(c.Level), p.room.Category) != category.LevelDirectMentions {
		u.touch(c) // the message mentions everybody and so counts as a mention already
		return
	}
	p.changed(u, c)
}

// mentionsAll updates the memberships after a message has begun to mention everybody. The room
// now counts the mention, so the memberships must not count it too.
func (p *post) mentionsAll() {
	for id, m := range p.room.Marks[p.seq] {
		u, c := p.member(id)
		if c == nil || m.Gone {
			continue
		}
		if m.Own {
			c.Membership.OwnAll.Add(p.seq)
		} else {
			c.Mentions.Remove(p.seq)
			c.Membership.NamedAll.Add(p.seq)
		}
		p.changed(u, c)
	}
}

// mentionsOnly updates the memberships after a change of the message. named has all users that
// the message mentions by name after the change. wasAll is true if the message mentioned
// everybody before the change.
func (p *post) mentionsOnly(named []string, wasAll bool) {
	for id, m := range p.room.Marks[p.seq] {
		u, c := p.member(id)
		stays := m.Own || slices.Contains(named, id)
		if c == nil || m.Gone || stays && wasAll == p.all {
			continue
		}
		switch {
		case m.Own && p.all:
			c.Membership.OwnAll.Add(p.seq)
		case m.Own:
			c.Membership.OwnAll.Remove(p.seq)
		case stays:
			c.named(wasAll).Remove(p.seq)
			c.named(p.all).Add(p.seq)
		default:
			c.named(wasAll).Remove(p.seq)
			c.Membership.unname(p.seq)
			m.Gone = true
		}
		p.changed(u, c)
	}
}

// recall removes a message from its room and stores the recall, so that a later delivery does
// not count. It does nothing if a change or recall of the message with the same or a greater
// revision number was folded before.
func (s *State) recall(e *events.Event) Reason {
	seq := e.Data.Seq
	r := s.Room(e.Data.ConversationID)
	c := r.chunk(seq)
	if n := e.Data.Revision; n > 0 {
		if !r.Revisions.accept(seq, n) {
			return alreadyRevised
		}
		r.Touched = true
	}
	if !c.Recalled.Add(seq) {
		return alreadyRecalled
	}
	c.Touched = true
	live, all := c.Live.Remove(seq), c.All.Remove(seq)
	r.moved(c, -one(live), -one(all))
	if live {
		r.changed(e.AppendedAt)
	}
	p := post{s, r, seq, all, true, e.AppendedAt.UnixMicro(), nil}
	for id, m := range r.Marks[seq] {
		if u, member := p.member(id); member != nil && !m.Gone {
			if m.Own {
				member.Membership.Own.Remove(seq)
				if all {
					member.Membership.OwnAll.Remove(seq)
				}
			} else {
				member.named(all).Remove(seq)
				member.Membership.unname(seq)
			}
			p.changed(u, member)
		}
		m.Gone = true
	}
	r.split(c)
	if !live {
		return notPosted
	}
	return none
}
