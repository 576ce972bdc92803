//go:build chaos

package tests

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
)

const (
	// chaosUsers is how many users must have right badges in the end. The first chaosApps
	// of them have apps. Apps check that totals are the sums of their parts, so all
	// conversations of these users have the level all.
	chaosUsers = 30
	chaosApps  = 10
	// chaosGhosts is how many further users events name; they are erased again and again.
	chaosGhosts = 4
	// chaosMembers is how many users a conversation or a room has.
	chaosMembers = 8
)

func chaosUser(n int) string  { return fmt.Sprintf("user-%d", n) }
func chaosGhost(n int) string { return fmt.Sprintf("ghost-%d", n) }
func hasApp(user string) bool {
	var n int
	_, err := fmt.Sscanf(user, "user-%d", &n)
	return err == nil && n < chaosApps
}

// chaosTalk is a conversation or a room. Only one writer publishes to it, and the writer draws an
// event only once all earlier events were acknowledged. So the order in the log is known.
type chaosTalk struct {
	id    string
	room  bool
	users []string // who may get a message, or become a member
	// in are the users who have got a message, or are members. last is the seq of the newest
	// message, and drawn is the number of events so far.
	in    []string
	last  int64
	drawn int

	mu sync.Mutex
	// acknowledged are the events that count.
	acknowledged []events.Event
}

func newChaosTalk(random *rand.Rand, id string, room bool) *chaosTalk {
	talk := &chaosTalk{id: id, room: room}
	for _, n := range random.Perm(chaosUsers)[:chaosMembers] {
		talk.users = append(talk.users, chaosUser(n))
	}
	talk.users = append(talk.users, chaosGhost(random.IntN(chaosGhosts)))
	return talk
}

// event returns the next event of the talk.
func (c *chaosTalk) event(typ events.Type, data events.Data) events.Event {
	c.drawn++
	data.ConversationID = c.id
	return events.Event{ID: fmt.Sprintf("%s/%d", c.id, c.drawn), Source: "chaos", Type: typ, Data: data}
}

// draw draws the next event.
func (c *chaosTalk) draw(random *rand.Rand) events.Event {
	if c.room {
		return c.drawOfRoom(random)
	}
	n := random.IntN(100)
	if c.last == 0 || len(c.in) == 0 || n < 55 {
		c.last++
		to := some(random, c.users, 1+random.IntN(4))
		for _, user := range to {
			if !slices.Contains(c.in, user) {
				c.in = append(c.in, user)
			}
		}
		data := events.Data{Seq: c.last, UserIDs: to}
		if random.IntN(4) == 0 {
			data.MentionedUserIDs = to[:1]
		}
		if random.IntN(10) == 0 {
			data.Category = "fleeting" // a category with its own limit
		}
		return c.event(events.MessageDelivered, data)
	}
	one := []string{c.in[random.IntN(len(c.in))]}
	switch {
	case n < 65:
		return c.event(events.MessageRecalled, events.Data{Seq: 1 + random.Int64N(c.last), UserIDs: some(random, c.in, 3)})
	case n < 69:
		return c.event(events.ConversationLeft, events.Data{UserIDs: one})
	default:
		return c.aboutOne(random, n, one)
	}
}

// aboutOne draws an event of a type that rooms and other conversations share.
func (c *chaosTalk) aboutOne(random *rand.Rand, n int, one []string) events.Event {
	switch {
	case n < 75:
		return c.event(events.ConversationMarkedUnread, events.Data{UserIDs: one})
	case n < 80 && !hasApp(one[0]):
		return c.event(events.ConversationLevelSet, events.Data{UserIDs: one, Level: []events.Level{events.LevelAll, events.LevelMentions, events.LevelDirectMentions, events.LevelNone}[random.IntN(4)]})
	default:
		return c.event(events.ConversationRead, events.Data{UserIDs: one, UpToSeq: 1 + random.Int64N(c.last)})
	}
}

func (c *chaosTalk) drawOfRoom(random *rand.Rand) events.Event {
	if c.drawn == 0 {
		c.in = slices.Clone(c.users)
		return c.event(events.RoomJoined, events.Data{UserIDs: c.users})
	}
	n := random.IntN(100)
	if c.last == 0 || n < 50 {
		c.last++
		data := events.Data{Seq: c.last, SenderID: slices.Concat(c.in, []string{"bot"})[random.IntN(len(c.in)+1)]}
		switch random.IntN(8) {
		case 0:
			data.MentionsAll = true
		case 1, 2:
			data.MentionedUserIDs = some(random, c.users, 2)
		}
		return c.event(events.RoomPosted, data)
	}
	one := []string{c.in[random.IntN(len(c.in))]}
	switch {
	case n < 58:
		return c.event(events.RoomRecalled, events.Data{Seq: 1 + random.Int64N(c.last)})
	case n < 64 && len(c.in) > 3:
		c.in = slices.DeleteFunc(c.in, func(user string) bool { return user == one[0] })
		return c.event(events.RoomLeft, events.Data{UserIDs: one})
	case n < 70:
		again := some(random, c.users, 2)
		for _, user := range again {
			if !slices.Contains(c.in, user) {
				c.in = append(c.in, user)
			}
		}
		return c.event(events.RoomJoined, events.Data{UserIDs: again})
	case n < 72:
		return c.event(events.ConversationMarkedUnread, events.Data{UserIDs: one, FromSeq: max(1, c.last-random.Int64N(20))})
	default:
		return c.aboutOne(random, n, one)
	}
}

// finish returns the last event of the talk. It changes something for all users of the talk, so
// its effect shows that all earlier events have arrived.
func (c *chaosTalk) finish() events.Event {
	c.last++
	if c.room {
		return c.event(events.RoomPosted, events.Data{Seq: c.last, SenderID: "bot"})
	}
	return c.event(events.MessageDelivered, events.Data{Seq: c.last, UserIDs: c.users})
}

// acknowledge counts events.
func (c *chaosTalk) acknowledge(event events.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acknowledged = append(c.acknowledged, event)
}

// some draws up to n of the users.
func some(random *rand.Rand, users []string, n int) []string {
	drawn := slices.Clone(users)
	random.Shuffle(len(drawn), func(i, j int) { drawn[i], drawn[j] = drawn[j], drawn[i] })
	return drawn[:min(n, len(drawn))]
}

// wantOf returns the state that a user must see, in the form in which stateOf returns an answer.
func wantOf(talks []*chaosTalk, user string) string {
	var model foldtest.Model
	for _, talk := range talks {
		if !slices.Contains(talk.users, user) {
			continue
		}
		talk.mu.Lock()
		for _, event := range talk.acknowledged {
			if event.Data.UserIDs != nil {
				if !slices.Contains(event.Data.UserIDs, user) {
					continue
				}
				event.Data.UserIDs = []string{user}
			}
			model.Events = append(model.Events, event)
		}
		talk.mu.Unlock()
	}
	return withoutLeft(model.Describe(user))
}

// withoutLeft removes the conversations that the user has left, since lists do not have them.
func withoutLeft(state string) string {
	lines := strings.Split(state, "\n")
	return strings.Join(slices.DeleteFunc(lines, func(line string) bool { return strings.HasSuffix(line, "left true") }), "\n")
}
