package pubsub

import (
	"encoding/json"
	"errors"
	"time"
)

// Room is the state of a room in one partition. If two states of a room have the same epoch,
// the state with the greater Changes is newer. No other field shows which state is newer.
//
// The messages of a room are stored in chunks of consecutive seqs. Only the last chunk is open.
// The closed chunks end at the seq Since. A Room has only counts of the messages up to Since,
// and lists the messages above Since.
type Room struct {
	ConversationID string `json:"conversation_id"`
	// Changes counts the changes of the room that a member can see.
	Changes  int64  `json:"changes"`
	LastSeq  int64  `json:"last_seq"`
	Category string `json:"category"`
	// Since is the highest seq in closed chunks; 0 if there are none.
	Since int64 `json:"since,omitempty"`
	// Live are the seqs of the messages above Since that are not recalled. All are the seqs in
	// Live whose messages mention all members.
	Live Seqs `json:"live,omitempty"`
	All  Seqs `json:"all,omitempty"`
	// ClosedLive counts the messages up to Since that are not recalled. ClosedAll counts the
	// messages among them that mention all members.
	ClosedLive int64 `json:"closed_live,omitempty"`
	ClosedAll  int64 `json:"closed_all,omitempty"`
	// ClosedChanges counts the changes of messages in closed chunks, such as recalls. Closing a
	// chunk does not increase it.
	ClosedChanges int64 `json:"closed_changes,omitempty"`
}

// RoomUpdate is the state of a room in one partition after a commit that changed the room. It
// is published after the updates of users of the same commit.
type RoomUpdate struct {
	Room
	Epoch     string `json:"epoch"`
	Partition int    `json:"partition"`
	// BaseChanges is the value of Changes before the commit. If a subscriber has a state with
	// fewer changes, it has missed an update of the room, and perhaps updates of members.
	BaseChanges int64 `json:"base_changes"`
	// AppendedAt and TraceParent have the same meaning as in [Update].
	AppendedAt  int64  `json:"appended_at,omitempty"`
	TraceParent string `json:"traceparent,omitempty"`
}

// Address returns the address of the room, to which the update is published.
func (u *RoomUpdate) Address() Address {
	return Address{ID: u.ConversationID, Partition: u.Partition, Room: true}
}

func (u *RoomUpdate) deliver(h Handler) { h.HandleRoom(u) }

// Membership is the part of a room's state that belongs to one member. A client's conversation
// is computed from the membership and the state of the room:
//
//	unread   = live messages above ReadSeq - Own - OwnCounted
//	mentions = messages above ReadSeq that mention all + Mentions,
//	           or Named at the level direct_mentions
//
// The version of the user is the version of the badge without memberships, plus the sum of
// Room.Changes - Joined over all memberships of the user. The conversation has the same
// version. Because the numbers and versions are computed, a message to a room changes no rows
// of its members.
type Membership struct {
	// Joined is Room.Changes when the user joined.
	Joined  int64 `json:"joined"`
	ReadSeq int64 `json:"read_seq"`
	// ReachedSeq is the read position that clients see while messages at or below it are marked
	// unread. ReadSeq is then lower, and the numbers are computed from ReadSeq. If no such
	// messages are marked, ReachedSeq is 0.
	ReachedSeq int64 `json:"reached_seq,omitempty"`
	// SeenSeq is the seen position if it is above the read position, else 0.
	SeenSeq      int64     `json:"seen_seq,omitempty"`
	Level        string    `json:"level"`
	LevelUntil   time.Time `json:"level_until,omitzero"`
	MarkedUnread bool      `json:"marked_unread,omitempty"`
	// Own are the seqs of the user's own messages above ReadSeq. The fold lists only a limited
	// number of the user's own messages. OwnCounted is the number of further own messages above
	// ReadSeq.
	Own        Seqs  `json:"own,omitempty"`
	OwnCounted int64 `json:"own_counted,omitempty"`
	// Mentions is the number of messages above ReadSeq that mention the user by name but do not
	// mention all, minus the number of the user's own messages that mention all. It may be
	// negative. Named is the number of messages above ReadSeq that mention the user by name. If
	// the level direct_mentions applies, clients see Named as the number of mentions.
	Mentions int64 `json:"mentions"`
	Named    int64 `json:"named,omitempty"`
	// Unseen is set if the seen position is above ReadSeq; otherwise it is nil. It counts only
	// messages above the seen position. Unseen[0] is the number of the user's own messages;
	// Unseen[1] and Unseen[2] are computed like Mentions and Named.
	Unseen *[3]int64 `json:"unseen,omitempty"`
	// Room is the state of the room after the same commit, or in the same snapshot. It is
	// shared: do not modify it.
	Room *Room `json:"room"`
	// Behind counts messages in closed chunks above ReadSeq. It is nil if ReadSeq is at or
	// above Room.Since. It is also nil in updates, since a commit does not read closed chunks.
	Behind *Behind `json:"-"`
}

// Behind counts the messages in closed chunks that are above a member's read position.
type Behind struct {
	// Live counts messages that are not recalled, including the member's own messages. All
	// counts the messages in Live that mention all members.
	Live, All int64
	// UnseenLive and UnseenAll are like Live and All, but count only messages above the
	// member's seen position.
	UnseenLive, UnseenAll int64
	// First is the seq of the first message that is not recalled and is not the member's own; 0
	// if there is none.
	First int64
}

// SeqRange is the seqs from First to Last, both included.
type SeqRange struct{ First, Last int64 }

// Seqs is a set of seqs: ranges in ascending order, with gaps between them. Its JSON is an
// array of differences, which have fewer digits than seqs. Each range has two numbers: its
// first seq minus the last seq of the previous range (or minus 0), and its last seq minus its
// first seq.
type Seqs []SeqRange

// MarshalJSON implements json.Marshaler.
func (s Seqs) MarshalJSON() ([]byte, error) {
	distances := make([]int64, 0, 2*len(s))
	at := int64(0)
	for _, r := range s {
		distances = append(distances, r.First-at, r.Last-r.First)
		at = r.Last
	}
	return json.Marshal(distances)
}

var errSeqs = errors.New("not a set of seqs")

// UnmarshalJSON implements json.Unmarshaler.
func (s *Seqs) UnmarshalJSON(b []byte) error {
	var distances []int64
	if err := json.Unmarshal(b, &distances); err != nil {
		return err
	}
	if len(distances)%2 != 0 {
		return errSeqs
	}
	*s = make(Seqs, 0, len(distances)/2)
	at := int64(0)
	for i := 0; i < len(distances); i += 2 {
		first := at + distances[i]
		last := first + distances[i+1]
		if first <= at || last < first || i > 0 && distances[i] < 2 {
			return errSeqs
		}
		*s = append(*s, SeqRange{first, last})
		at = last
	}
	return nil
}
