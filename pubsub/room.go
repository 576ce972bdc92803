package pubsub

import (
	"encoding/json"
	"errors"
	"time"
)

// Room is the state of a room in one partition. Of two states of one epoch, the
// one with more Changes is the newer, and nothing else need be compared.
//
// Messages up to Since are in closed chunks, of which only counts are here. The
// messages above are listed.
type Room struct {
	ConversationID string `json:"conversation_id"`
	// Changes is how often the room changed in a way that a member can see.
	Changes  int64  `json:"changes"`
	LastSeq  int64  `json:"last_seq"`
	Category string `json:"category"`
	// Since is the greatest seq of the closed chunks; 0 if there are none.
	Since int64 `json:"since,omitempty"`
	// Live are the messages above Since that are not recalled, and All those
	// that mention all members.
	Live Seqs `json:"live,omitempty"`
	All  Seqs `json:"all,omitempty"`
	// ClosedLive and ClosedAll count the same up to Since.
	ClosedLive int64 `json:"closed_live,omitempty"`
	ClosedAll  int64 `json:"closed_all,omitempty"`
	// ClosedChanges is how often messages in closed chunks have changed. Closing
	// a chunk is no change.
	ClosedChanges int64 `json:"closed_changes,omitempty"`
}

// RoomUpdate is the state of a room in one partition after a commit that changed
// it. It is published after the updates of users of the same commit.
type RoomUpdate struct {
	Room
	Epoch     string `json:"epoch"`
	Partition int    `json:"partition"`
	// BaseChanges is Changes before the commit. A subscriber that knows fewer has
	// missed an update, and maybe updates of members.
	BaseChanges int64 `json:"base_changes"`
	// AppendedAt and TraceParent are as in [Update].
	AppendedAt  int64  `json:"appended_at,omitempty"`
	TraceParent string `json:"traceparent,omitempty"`
}

// Address returns where the update is published.
func (u *RoomUpdate) Address() Address {
	return Address{ID: u.ConversationID, Partition: u.Partition, Room: true}
}

// Membership is a user's part in a room. With the state of the room it gives the
// conversation that a client sees:
//
//	unread   = live messages above ReadSeq - Own - OwnCounted
//	mentions = messages above ReadSeq that mention all + Mentions,
//	           or Named at the level direct_mentions
//
// Its version and the user's are those without memberships, plus the sum of
// Room.Changes - Joined over all memberships of the user. So a message to a room
// changes no row of its members.
type Membership struct {
	// Joined is Room.Changes when the user joined.
	Joined  int64 `json:"joined"`
	ReadSeq int64 `json:"read_seq"`
	// ReachedSeq is the read position that clients see while messages below it are marked
	// unread, else 0. The numbers follow from ReadSeq.
	ReachedSeq int64 `json:"reached_seq,omitempty"`
	// SeenSeq is the seen position if it is above the read position, else 0.
	SeenSeq      int64     `json:"seen_seq,omitempty"`
	Level        string    `json:"level"`
	LevelUntil   time.Time `json:"level_until,omitzero"`
	MarkedUnread bool      `json:"marked_unread,omitempty"`
	// Own are the user's own messages above ReadSeq, and OwnCounted is how many
	// more there are, which the fold only counts: the set is bounded.
	Own        Seqs  `json:"own,omitempty"`
	OwnCounted int64 `json:"own_counted,omitempty"`
	// Mentions is how many messages above ReadSeq mention the user by name and
	// not with all, less the user's own that mention all. It may be negative. Named is how
	// many mention the user by name: the mentions at the level direct_mentions.
	Mentions int64 `json:"mentions"`
	Named    int64 `json:"named,omitempty"`
	// Unseen has how many of Own and OwnCounted, Mentions and Named are above the seen
	// position, if that is above ReadSeq.
	Unseen *[3]int64 `json:"unseen,omitempty"`
	// Room is the state of the room after the same commit, or in the same
	// snapshot. It is shared: do not modify it.
	Room *Room `json:"room"`
	// Behind is what closed chunks have for a user with ReadSeq below Room.Since.
	// It is nil for others, and in updates, since a commit does not read them.
	Behind *Behind `json:"-"`
}

// Behind counts messages of closed chunks above a member's read position.
type Behind struct {
	// Live are not recalled, the member's own among them; All mention all.
	Live, All int64
	// UnseenLive and UnseenAll are those above the member's seen position.
	UnseenLive, UnseenAll int64
	// First is the least of Live that is not the member's own; 0 if there is
	// none.
	First int64
}

// SeqRange holds the seqs from First to Last.
type SeqRange struct{ First, Last int64 }

// Seqs is a set of seqs: ranges in ascending order with gaps in between. Its JSON
// is an array of distances, which are shorter than seqs: from 0 to the first seq
// of a range, from there to its last, from there to the first of the next.
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
