package traffic

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"

	"github.com/badged/badged/events"
)

// RoomTraffic describes generated traffic of rooms. The same fields always generate the same events
// with the same ids. So if the traffic is loaded again, the badges do not change.
//
// The sizes of the rooms follow Zipf's law: the second room has half as many members as the first
// room, the third room a third, and so on, but each room has at least two members. First all
// members join. Then messages are posted to random rooms: the probability of a room is in
// proportion to its size. On average, one message in a hundred is recalled, sometimes before it is
// posted. Two messages in a hundred mention up to three members, and one mentions the whole room.
// Before one message in ten, a user joins or leaves the room. After one message in two, a member
// reads the room.
type RoomTraffic struct {
	Rooms    int    // at least 1
	Members  int    // of the largest room, at least 2
	Messages int    // at least 1
	Seed     uint64 // seed of the random choices
}

func (t RoomTraffic) validate() error {
	switch {
	case t.Rooms < 1:
		return fmt.Errorf("rooms must be at least 1, not %d", t.Rooms)
	case t.Members < 2:
		return fmt.Errorf("members must be at least 2, not %d", t.Members)
	case t.Messages < 1:
		return fmt.Errorf("messages must be at least 1, not %d", t.Messages)
	}
	return nil
}

// room is the state of a generated room. members and gone have the numbers of current and former
// members.
type room struct {
	id            string
	members, gone []int
	next          int // the number of the last new user
	seq           int64
}

// roomGenerator generates the events of a RoomTraffic.
type roomGenerator struct {
	traffic  RoomTraffic
	random   *rand.Rand
	rooms    []*room
	weights  []int // cumulative
	messages int
	made     int // events
	pending  []events.Event
}

func newRoomGenerator(t RoomTraffic) *roomGenerator {
	g := &roomGenerator{traffic: t, random: rand.New(rand.NewPCG(t.Seed, 0))} //nolint:gosec // traffic, not a secret
	weight := 0
	for i := range t.Rooms {
		size := max(2, t.Members/(i+1))
		weight += size
		g.weights = append(g.weights, weight)
		r := &room{id: fmt.Sprintf("room-%d-%d", t.Seed, i+1), next: g.random.IntN(t.Members)}
		for range size {
			r.members = append(r.members, r.newcomer())
		}
		g.rooms = append(g.rooms, r)
		for members := range slices.Chunk(r.members, events.MaxUsers) {
			g.add(events.RoomJoined, r, events.Data{UserIDs: names(members)})
		}
	}
	return g
}

// newcomer returns a user who has never been in the room.
func (r *room) newcomer() int {
	r.next++
	return r.next
}

func name(user int) string { return fmt.Sprintf("user-%d", user) }

func names(users []int) []string {
	all := make([]string, len(users))
	for i, user := range users {
		all[i] = name(user)
	}
	return all
}

func (g *roomGenerator) add(typ events.Type, r *room, data events.Data) {
	g.made++
	data.ConversationID = r.id
	g.pending = append(g.pending, events.Event{ID: fmt.Sprintf("%s/%d", r.id, g.made), Source: Source, Type: typ, Data: data})
}

// Next returns the next event, or io.EOF after the last one.
func (g *roomGenerator) Next() (Record, error) {
	for len(g.pending) == 0 {
		if g.messages == g.traffic.Messages {
			return Record{}, io.EOF
		}
		g.messages++
		g.message()
	}
	e := g.pending[0]
	g.pending = g.pending[1:]
	// Size is an estimate of the size in JSON, for ids of about ten bytes.
	return Record{Event: e, Line: g.made - len(g.pending), Size: 200 + 15*len(e.Data.UserIDs)}, nil
}

// message adds a message to a random room. It may add a join or leave before the message, a recall,
// and a read after the message.
func (g *roomGenerator) message() {
	at, _ := slices.BinarySearch(g.weights, 1+g.random.IntN(g.weights[len(g.weights)-1]))
	r := g.rooms[at]
	if g.random.IntN(10) == 0 {
		g.move(r)
	}
	r.seq++
	recall := func() { g.add(events.RoomRecalled, r, events.Data{Seq: r.seq}) }
	recalled, early := g.random.IntN(100) == 0, g.random.IntN(4) == 0
	if recalled && early {
		recall()
	}
	post := events.Data{Seq: r.seq, SenderID: g.member(r)}
	switch g.random.IntN(100) {
	case 0, 1:
		for range 1 + g.random.IntN(3) {
			post.MentionedUserIDs = append(post.MentionedUserIDs, g.member(r))
		}
	case 2:
		post.MentionsAll = true
	}
	g.add(events.RoomPosted, r, post)
	if recalled && !early {
		recall()
	}
	if g.random.IntN(2) == 0 {
		behind := g.random.Int64N(min(r.seq, 20))
		g.add(events.ConversationRead, r, events.Data{UserIDs: []string{g.member(r)}, UpToSeq: r.seq - behind})
	}
}

func (g *roomGenerator) member(r *room) string { return name(r.members[g.random.IntN(len(r.members))]) }

// move makes a member leave a room, or a user join it.
func (g *roomGenerator) move(r *room) {
	if len(r.members) > 1 && g.random.IntN(2) == 0 {
		i := g.random.IntN(len(r.members))
		user := r.members[i]
		r.members[i] = r.members[len(r.members)-1]
		r.members = r.members[:len(r.members)-1]
		r.gone = append(r.gone, user)
		g.add(events.RoomLeft, r, events.Data{UserIDs: []string{name(user)}})
		return
	}
	user := 0
	if len(r.gone) > 0 && g.random.IntN(2) == 0 { // a former member joins again
		i := g.random.IntN(len(r.gone))
		user = r.gone[i]
		r.gone[i] = r.gone[len(r.gone)-1]
		r.gone = r.gone[:len(r.gone)-1]
	} else {
		user = r.newcomer()
	}
	r.members = append(r.members, user)
	g.add(events.RoomJoined, r, events.Data{UserIDs: []string{name(user)}})
}
